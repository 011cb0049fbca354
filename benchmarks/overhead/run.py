"""What `pipeline-bench run` adds to the start of a Python: ``python -m benchmarks.overhead.run [--rounds N]``.

A program that does nothing, and one that imports Keras, each with and without what is put before it, by turns. The
cost of a step is that of the monitors (``benchmarks.overhead.job``), which `run` puts in.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from pipeline_bench.analysis import stats
from pipeline_bench.injection.command import environment_of

PROGRAMS = {"nothing": "pass", "import keras": "import keras"}


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
            low, high = stats.median_interval(added_ms) or (min(added_ms), max(added_ms))
            print(f"{name}: {median(added_ms):.0f} ms more at the start ({low:.0f} to {high:.0f})")


def seconds(code: str, environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
