"""What `pipeline-bench run` adds to the start of a Python: ``python -m benchmarks.overhead.run [--rounds N]``.

A program that does nothing, one that imports Keras, and one that trains for a moment, each with and without what is put
before it, by turns; the CPU time of the whole process, its end included. The cost of a step is that of the monitors
(``benchmarks.overhead.job``), which `run` puts in.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from pipeline_bench.analysis import stats
from pipeline_bench.injection.command import environment_of

_TRAIN = """
import numpy as np, keras
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.zeros((400, 4)), np.zeros((400, 1)), batch_size=8, verbose=0)
"""
PROGRAMS = {"nothing": "pass", "import keras": "import keras", "a fit of 50 steps": _TRAIN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        watched = environment_of(os.environ, Path(folder), Path(folder))
        for name, code in PROGRAMS.items():
            added_ms = []
            for _ in range(arguments.rounds):
                added_ms.append(1e3 * (seconds(code, watched) - seconds(code, dict(os.environ))))
            low, high = stats.mean_interval(added_ms) or (min(added_ms), max(added_ms))
            print(f"{name}: {fmean(added_ms):.0f} ms of CPU time more ({low:.0f} to {high:.0f})", flush=True)


def seconds(code: str, environment: dict[str, str]) -> float:
    """Return the CPU time of a process of its own."""
    before = _of_children()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, stderr=subprocess.DEVNULL)
    return _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
