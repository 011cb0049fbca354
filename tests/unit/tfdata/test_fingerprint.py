"""What telling the samples costs."""

from __future__ import annotations

import os
import subprocess
import sys

# A BLAS' threads spin beside the one that asks: their time is the process' own but for this thread's.
SOURCE = """
import time
import numpy as np
from pipeline_bench.tfdata.fingerprint import _Tally

values, tally = np.random.rand(128, 128, 3).astype("float32"), _Tally()
tally.add(values, b"12345678")
process_s, thread_s = time.process_time(), time.thread_time()
for _ in range(64):
    tally.add(values, b"12345678")
thread_s = time.thread_time() - thread_s
print((time.process_time() - process_s - thread_s) / thread_s)
"""


def test_hashing_samples_wakes_no_other_threads() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", SOURCE], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    assert float(done.stdout) < 0.1
