"""How long a user waits: for ``--help``, and from a process's start to a trial's first step.

``python -m benchmarks.startup [--runs N]``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pipeline_bench.run.comparison import compare
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.load import load


def help_s() -> float:
    """Seconds that the installed command takes to show its help."""
    begin = time.perf_counter()
    subprocess.run([str(Path(sys.executable).with_name("pipeline-bench")), "--help"], check=True, capture_output=True)
    return time.perf_counter() - begin


def first_steps_s(repeats: int) -> list[float]:
    """Seconds from a trial's start to the end of its first step, every trial of the default scenario."""
    scenario = load(run={"steps": 2, "repeats": repeats})
    with tempfile.TemporaryDirectory() as folder:
        trials = compare(scenario, Path(folder), Observer()).session.trials
    return [trial.first_step_s for trial in trials if trial.first_step_s is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    rows = {"--help": [help_s() for _ in range(runs)], "first step, the first trial too": first_steps_s(runs)}
    print(f"{'':<32} {'runs':>4} {'min s':>7} {'median s':>9} {'max s':>7}")
    for name, seconds in rows.items():
        print(f"{name:<32} {len(seconds):>4} {min(seconds):>7.3f} {np.median(seconds):>9.3f} {max(seconds):>7.3f}")


if __name__ == "__main__":
    main()
