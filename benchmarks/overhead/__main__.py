"""What our measuring costs: the tutorial's two scripts, bare, against our trials of the same job.

``python -m benchmarks.overhead [--pairs N] [--steps N]``. Each pair is one bare process and one trial under the live
screen and the samplers, in alternating order; the figure is the time from one step's start to the next one's, so the
recorder is inside it. Medians a process, ratios within a pair, intervals over pairs.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from unittest.mock import patch

import numpy as np
from rich.console import Console

from pipeline_bench.analysis import stats
from pipeline_bench.run import comparison
from pipeline_bench.run.launcher import fresh_launcher
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.ui.live import LiveView

SCRIPT = Path(__file__).with_name("bare.py")
BACKENDS = ("feed_dict", "fifo_queue")
WIDTHS = (1024, 16)


def bare(backend: str, width: int, steps: int) -> float:
    """Median ns from step to step of the bare script of a backend in a process of its own."""
    command = [sys.executable, str(SCRIPT), backend, str(width), str(steps)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return median_step_ns(np.array(json.loads(done.stdout)))


def ours(backend: str, width: int, steps: int) -> float:
    """The same of our trial, with the samplers and the live screen at work."""
    document = {
        "name": f"{backend} {width}",
        "source": {"features": width},
        "model": {"hidden_widths": [width]},
        "run": {"steps": steps, "repeats": 1},
        "variants": [{"name": backend, "backend": backend}],
    }
    resolved = resolve(document)
    alone = resolved.variants[0].model_copy(update={"ceiling": None})  # no ceiling trial: it is not measured here
    scenario = Scenario(name=resolved.name, variants=(alone,))
    with tempfile.TemporaryDirectory() as folder, Path("/dev/null").open("w") as screen:
        console = Console(file=screen, force_terminal=True, width=100, height=30)
        fresh = patch.object(comparison, "best_launcher", lambda log: (fresh_launcher(log), None))
        with LiveView(console) as view, fresh:
            session = comparison.compare(scenario, Path(folder), view).session
    trial = session.trials[0]
    if trial.steps is None:
        raise SystemExit(f"our trial of {backend} failed: {trial.reason}")
    return median_step_ns(trial.steps.start_ns.unpack())


def median_step_ns(stamps: np.ndarray) -> float:
    """The median of the second half of the steps: both sides leave out the same warm-up."""
    return float(np.median(np.diff(stamps[len(stamps) // 2 :])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=600)
    arguments = parser.parse_args()
    print(
        f"{'width':>5} {'backend':<12} {'bare µs':>9} {'ours µs':>9} {'ratio':>7} {'95 % interval':>16} {'added µs':>9}"
    )
    for width in WIDTHS:
        for backend in BACKENDS:
            pairs = [pair(backend, width, arguments.steps, i) for i in range(arguments.pairs)]
            report(backend, width, pairs)


def pair(backend: str, width: int, steps: int, number: int) -> tuple[float, float]:
    """One bare process and one trial, beside each other; which goes first alternates."""
    sides: list[Callable[[str, int, int], float]] = [bare, ours]
    order = sides if number % 2 == 0 else sides[::-1]
    figures = {side: side(backend, width, steps) for side in order}
    return figures[bare], figures[ours]


def report(backend: str, width: int, pairs: list[tuple[float, float]]) -> None:
    ratios = [our / plain for plain, our in pairs]
    low, high = stats.ratio_interval(ratios) or (math.nan, math.nan)
    added_us = float(np.median([our - plain for plain, our in pairs])) / 1e3
    plain_us, our_us = (float(np.median(column)) / 1e3 for column in zip(*pairs, strict=True))
    print(
        f"{width:>5} {backend:<12} {plain_us:>9.1f} {our_us:>9.1f} {geometric_mean(ratios):>7.4f} "
        f"{low:>7.4f}–{high:.4f} {added_us:>9.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
