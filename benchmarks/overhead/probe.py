"""What the probe of the input wait and the proof of equal work cost: steps with and without, by turns, in one process.

``python -m benchmarks.overhead.probe [--width N] [--rounds N]``. Processes differ from each other by some 5 %; blocks
of 20 steps beside each other in one process differ by less, so this finds what the pairs of processes cannot. See
`pipeline_bench.worker.probe_cost` for the steps.
"""

from __future__ import annotations

import argparse
from statistics import geometric_mean

import numpy as np

from pipeline_bench.analysis import stats
from pipeline_bench.run.child import call
from pipeline_bench.worker.probe_cost import BARE, blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=150)
    arguments = parser.parse_args()
    report(call(blocks, {"width": arguments.width, "rounds": arguments.rounds}).result)


def report(found: dict[str, list[float]]) -> None:
    print(f"{'step':<16} {'µs':>8} {'ratio':>7} {'95 % interval':>16} {'added µs':>9}")
    bare = found[BARE]
    for name, own in found.items():
        ratios = [each / plain for each, plain in zip(own, bare, strict=True)]
        low, high = stats.ratio_interval(ratios) or (1.0, 1.0)
        added_us = float(np.median(np.subtract(own, bare)))
        mean = geometric_mean(ratios)
        print(f"{name:<16} {np.median(own):>8.1f} {mean:>7.4f} {low:>7.4f}–{high:.4f} {added_us:>9.1f}")


if __name__ == "__main__":
    main()
