"""What telling the samples costs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pipeline_bench.tfdata import fingerprint

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


@pytest.mark.parametrize(("limit_s", "most_s"), [(1.0, 1.0), (3.75, 2.5), (7.5, 3.0), (15.0, 4.0), (30.0, 4.0)])
def test_samples_are_compared_for_a_part_of_the_time_that_is_enough_for_a_pass(limit_s: float, most_s: float) -> None:
    assert fingerprint.most_s(limit_s) == most_s
