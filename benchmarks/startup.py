"""How long a user waits: for ``--help``, to a trial's first step, and for all of a trial but its steps.

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

from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.run.comparison import compare
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.load import load


def help_s() -> float:
    """Seconds that the installed command takes to show its help."""
    begin = time.perf_counter()
    subprocess.run([str(Path(sys.executable).with_name("pipeline-bench")), "--help"], check=True, capture_output=True)
    return time.perf_counter() - begin


def measured(repeats: int) -> list[TrialRecord]:
    """Every trial of the default scenario that has steps, of which each trains two."""
    scenario = load(run={"steps": 2, "repeats": repeats})
    with tempfile.TemporaryDirectory() as folder:
        trials = compare(scenario, Path(folder), Observer()).session.trials
    return [trial for trial in trials if trial.steps is not None]


def outside_steps_s(trial: TrialRecord) -> float:
    """Seconds of a trial, from its start to its end, that no step had: build, evaluation before and after, stop."""
    assert trial.steps is not None
    steps_ns = int(trial.steps.end_ns.unpack()[-1] - trial.steps.start_ns.unpack()[0])
    return (trial.ended_ns - trial.started_ns - steps_ns) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    trials = measured(runs)
    rows = {
        "--help": [help_s() for _ in range(runs)],
        "first step, the first trial too": [t.first_step_s for t in trials if t.first_step_s is not None],
        "a trial outside its steps": [outside_steps_s(trial) for trial in trials],
    }
    print(f"{'':<32} {'runs':>4} {'min s':>7} {'median s':>9} {'max s':>7}")
    for name, seconds in rows.items():
        print(f"{name:<32} {len(seconds):>4} {min(seconds):>7.3f} {np.median(seconds):>9.3f} {max(seconds):>7.3f}")


if __name__ == "__main__":
    main()
