"""Known answers: how often the host that was planted is named, and how often one is named where none was.

``python -m benchmarks.stragglers [--cases 100] [--seed 0] [--planted 2 4]``. No process runs: each host's figures are
drawn with noise and go through the verdict (`hosts.efficiency`) as a merge's do; a bucket that all hosts share gives
each the same part of it. A case draws the number of hosts, the step, the storage's load, what is planted and the noise.
`--planted` is the delay in times of the line from which on a verdict names somebody, the least and the most.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pipeline_bench.analysis import thresholds
from pipeline_bench.hosts import efficiency
from pipeline_bench.hosts.efficiency import HostFigures
from pipeline_bench.hosts.synchronous import WorkerFigures, training
from pipeline_bench.model.hosts import HostsKind

_ROUNDS = 4
_SEPARATELY: tuple[HostsKind, ...] = ("slow-input", "slow-host", "straggler")
_SYNCHRONOUS: tuple[HostsKind, ...] = ("slow-input", "slow-model")
_SCATTER = (0.01, 0.10)
"""Relative standard deviation of a trial's mean step, quiet and beside other work: assumed, not measured."""
_UNEVEN = 0.3
"""Of a bucket that serves hosts unevenly, another one first in each round: assumed."""
_HOSTS = (2, 4, 8, 16)
_PLANTED = (2.0, 4.0)

Figures = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Named = tuple[HostsKind | None, tuple[int, ...]]
"""The verdict's kind, None where it names nobody, and the ranks that it names, ascending."""


class Case(NamedTuple):
    """What was planted, on which of so many hosts; no kind and no ranks where nothing was."""

    kind: HostsKind | None
    ranks: tuple[int, ...]
    hosts: int
    factor: float
    """The delay, in times of the line from which on a verdict names somebody."""
    uneven: float = 0.0
    """By how much the bucket serves a host longer or shorter in a round: the standard deviation of the logarithm."""


def separately(case: Case, rng: np.random.Generator) -> Named:
    """Return whom the verdict names where hosts share a storage and do not wait for each other."""
    step_ms, scatter, factor = rng.uniform(10, 100), rng.uniform(*_SCATTER), case.factor
    load = rng.uniform(0.3, 1.8)  # of the bucket, by all hosts at once: above 1 it is full
    shared_ms = step_ms * max(0.0, load - 1.0)
    figures, rates = [], np.zeros((_ROUNDS, 2))
    for rank in range(case.hosts):
        here = case.kind if rank in case.ranks else None
        own_ms = step_ms * (1 + (thresholds.HOST_SLOWER - 1) * factor if here == "slow-host" else 1)
        share = min(0.95, thresholds.STRAGGLER_WAIT * factor)
        late_ms = own_ms * share / (1 - share)
        input_ms = late_ms if here == "slow-input" else 0.0
        beside_ms = max(shared_ms, input_ms, late_ms if here == "straggler" else 0.0)
        if here == "straggler":  # beside what all of them wait for
            beside_ms += shared_ms
        steps = _noisy(own_ms, scatter, rng)
        waits = [_noisy(each, 2 * scatter, rng) for each in (input_ms, beside_ms)]
        waits[1] = _noisy(waits[1], case.uneven, rng)
        rates += np.stack([1 / (steps + wait) for wait in waits], axis=1)
        alone, together = (_by_round(wait / (wait + steps)) for wait in waits)
        steps_ms = (_by_round(each) for each in (_noisy(own_ms, scatter, rng), *(steps + wait for wait in waits)))
        figures.append(HostFigures(rank, f"rank {rank}", alone, together, *steps_ms))
    rounds = {number: (float(both), float(single)) for number, (single, both) in enumerate(rates)}
    found = efficiency.result("simulated", case.hosts, rounds, figures)
    return (found.kind, tuple(sorted(found.named))) if found.named else (None, ())


def synchronously(case: Case, rng: np.random.Generator) -> Named:
    """Return whom the verdict names where all hosts step together, and wait for the last at the collective."""
    step_ms, scatter, factor = rng.uniform(10, 100), rng.uniform(*_SCATTER), case.factor
    share = min(0.8, thresholds.STRAGGLER_WAIT * factor)
    late_ms = step_ms * share / (1 - share)
    steps = 200
    waits = step_ms * 0.02 * np.abs(rng.standard_normal((case.hosts, steps)))
    model = step_ms * np.exp(scatter * rng.standard_normal((case.hosts, steps)))
    # What disturbs a host lasts: some of its noise is the same for the whole run.
    model *= np.exp(scatter / 2 * rng.standard_normal((case.hosts, 1)))
    for rank in case.ranks:
        (waits if case.kind == "slow-input" else model)[rank] += late_ms * rng.lognormal(0, 0.2, steps)
    ready = waits + model
    end = ready.max(axis=0) + 0.05 * step_ms
    parts = enumerate(zip(waits.mean(axis=1), (end - ready).mean(axis=1), strict=True))
    found = training(
        [WorkerFigures(rank, f"rank {rank}", float(end.mean()), float(wait), float(at)) for rank, (wait, at) in parts]
    )
    return (None, ()) if found is None else found[:2]


def _noisy(value: float | Figures, scatter: float, rng: np.random.Generator) -> Figures:
    """One figure of each round."""
    return value * np.exp(scatter * rng.standard_normal(_ROUNDS))


def _by_round(values: Figures) -> dict[int, float]:
    return dict(enumerate(values.tolist()))


def judged(
    judge: Callable[[Case, np.random.Generator], Named],
    kind: HostsKind | None,
    cases: int,
    seed: int,
    planted: Sequence[float],
    several: int = 1,
    uneven: float = 0.0,
) -> Counter[str]:
    """Return how many cases were named rightly, wrongly and not at all; of several that were planted, all or nobody."""
    rng = np.random.default_rng([seed, len(kind or ""), cases])
    found: Counter[str] = Counter()
    for _ in range(cases):
        hosts = int(rng.choice([each for each in _HOSTS if each >= 2 * several]))
        ranks = () if kind is None else tuple(sorted(map(int, rng.choice(hosts, several, replace=False))))
        case = Case(kind, ranks, hosts, float(rng.uniform(planted[0], planted[1])), uneven)
        named = judge(case, rng)
        found["right" if named == (case.kind, case.ranks) else "nobody" if not named[1] else "wrong"] += 1
    return found


def rows(cases: int, seed: int, planted: Sequence[float] = _PLANTED) -> Sequence[tuple[str, str, Counter[str]]]:
    """Return for each way of running together and each straggler what was named."""
    ways: Sequence[tuple[str, Callable[[Case, np.random.Generator], Named], tuple[HostsKind, ...], int, float]] = (
        ("each by itself", separately, _SEPARATELY, 1, 0.0),
        ("two of them", separately, _SEPARATELY, 2, 0.0),
        ("uneven bucket", separately, _SEPARATELY, 1, _UNEVEN),
        ("synchronous", synchronously, _SYNCHRONOUS, 1, 0.0),
    )
    return [
        (name, kind or "none", judged(judge, kind, cases, seed, planted, several, uneven))
        for name, judge, kinds, several, uneven in ways
        for kind in (*kinds, *([None] if several == 1 else []))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--planted", type=float, nargs=2, default=_PLANTED)
    arguments = parser.parse_args()
    print(f"{'training':<16} {'planted':<12} {'right':>7} {'wrong':>7} {'nobody':>7}  of {arguments.cases}")
    for name, kind, found in rows(arguments.cases, arguments.seed, arguments.planted):
        print(f"{name:<16} {kind:<12} {found['right']:>7} {found['wrong']:>7} {found['nobody']:>7}")


if __name__ == "__main__":
    main()
