"""What several hosts reach together over what each reaches alone, and why. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from pipeline_bench.analysis import stats, thresholds
from pipeline_bench.model.hosts import HostsKind, HostsResult
from pipeline_bench.model.result import Estimate
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.text import units

_LEAST_OVERLAP = 0.5


class Span(NamedTuple):
    """The measured steps of one host's trial, on the wall clock."""

    end_ns: Sequence[int] | np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    """When each ended, ascending; the first one's begin is the end of the one before."""
    batch: int

    @classmethod
    def of(cls, record: TrialRecord, shift_ns: int, batch: int) -> Span | None:
        """Return the steps after the warm-up; None of a trial that has none."""
        ends = record.after_warmup("end_ns") if record.measured else None
        return None if ends is None else cls(ends + shift_ns, batch)

    def rate(self, start_ns: int, end_ns: int) -> float:
        """Return the samples a second of the steps within a window."""
        ends = np.asarray(self.end_ns)
        inside = ends[(ends >= start_ns) & (ends <= end_ns)]
        took_ns = int(inside[-1] - inside[0]) if inside.size > 1 else 0
        return self.batch * (inside.size - 1) * 1e9 / took_ns if took_ns else 0.0


def rate_alone(span: Span) -> float:
    """Return the samples a second of a trial."""
    return span.rate(int(span.end_ns[0]), int(span.end_ns[-1]))


def rate_together(spans: Sequence[Span]) -> float | None:
    """Return the samples a second of all hosts while all of them trained; None where that is less than half of one."""
    start_ns = max(int(span.end_ns[0]) for span in spans)
    end_ns = min(int(span.end_ns[-1]) for span in spans)
    shortest_ns = min(int(span.end_ns[-1]) - int(span.end_ns[0]) for span in spans)
    if end_ns - start_ns < _LEAST_OVERLAP * shortest_ns:
        return None
    return sum(span.rate(start_ns, end_ns) for span in spans)


def rates(
    spans: Iterable[tuple[int, Span]], hosts: int, rate_of: Callable[[Sequence[Span]], float | None]
) -> dict[int, float]:
    """Return the rate of each round that has so many hosts' trials, as `rate_of` computes it.

    Args:
        spans: each with its round.
        hosts: how many make a round whole.
        rate_of: of a round's trials; a round without a rate is left out.
    """
    rounds: dict[int, list[Span]] = {}
    for repeat, span in sorted(spans, key=lambda each: each[0]):
        rounds.setdefault(repeat, []).append(span)
    found = {repeat: rate_of(members) for repeat, members in rounds.items() if len(members) >= hosts}
    return {repeat: rate for repeat, rate in found.items() if rate}


class HostFigures(NamedTuple):
    """One host's figures, from its own session; None where it has none."""

    rank: int
    who: str
    """What a sentence calls it."""
    wait_alone: float | None
    wait_together: float | None
    ceiling_ms: float | None


def result(
    variant: str, hosts: int, rounds: Mapping[int, tuple[float, float]], figures: Sequence[HostFigures]
) -> HostsResult:
    """Return what a variant comes to on so many hosts.

    Args:
        variant: its name in the scenario.
        hosts: how many ran at once.
        rounds: by round the samples a second together, and the sum of those alone; both above 0.
        figures: of these hosts, by rank.
    """
    ratios = [together / alone for together, alone in rounds.values()]
    efficiency = Estimate(reason="no round has every host alone and all of them together")
    if ratios:
        ci95 = stats.typical_ratio_interval(ratios)
        reason = None if ci95 else "an interval needs 2 rounds"
        efficiency = Estimate(value=stats.typical_ratio(ratios), ci95=ci95, reason=reason)
    kind, host, text = verdict(hosts, efficiency, figures)
    return HostsResult(
        variant=variant,
        hosts=hosts,
        samples_per_second=float(np.mean([together for together, _ in rounds.values()])) if rounds else None,
        efficiency=efficiency,
        wait_alone=tuple(each.wait_alone for each in figures),
        wait_together=tuple(each.wait_together for each in figures),
        rounds=len(ratios),
        kind=kind,
        host=host,
        text=text,
    )


class WorkerFigures(NamedTuple):
    """A step of one worker of a synchronous training, in ms, by parts; None where one was not measured."""

    rank: int
    who: str
    """What a sentence calls it."""
    step_ms: float | None
    wait_ms: float | None
    collective_ms: float | None


def training(workers: Sequence[WorkerFigures]) -> tuple[HostsKind, int | None, str] | None:
    """Return whom the workers of a synchronous training wait for, and why; None where the parts are not known.

    All step alike. Who comes last to the collective is there for the shortest time, which is what the collective costs
    by itself; what the others are there for longer they wait for that one. It is late by its input where its wait for
    that, over the others' median, makes up half of the delay, and by its model otherwise.
    """
    known = [each for each in workers if None not in each]
    if len(known) < len(workers) or len(known) < 2:  # noqa: PLR2004 - one has nobody to wait for
        return None
    last = min(workers, key=lambda each: each.collective_ms or 0.0)
    others = [each for each in workers if each is not last]
    step_ms = median(each.step_ms or 0.0 for each in workers)
    lost_ms = median(each.collective_ms or 0.0 for each in others) - (last.collective_ms or 0.0)
    wait_ms, theirs_ms = last.wait_ms or 0.0, median(each.wait_ms or 0.0 for each in others)
    if not step_ms or lost_ms < thresholds.STRAGGLER_WAIT * step_ms:
        return None
    lost = f"at the collective the others wait {lost_ms:.1f} ms for it, {units.share(lost_ms / step_ms)} of their step"
    if wait_ms - theirs_ms >= lost_ms / 2:
        share = units.share(wait_ms / step_ms)
        return (
            "slow-input",
            last.rank,
            f"the input of {last.who} delays all workers: it waits {wait_ms:.1f} ms for it, {share} of a step, "
            f"the others {theirs_ms:.1f} ms; {lost}",
        )
    return (
        "slow-model",
        last.rank,
        f"{last.who} delays all workers, but not by its input wait ({wait_ms:.1f} ms): its own part of the "
        f"step takes longer; {lost}",
    )


def verdict(hosts: int, efficiency: Estimate, figures: Sequence[HostFigures]) -> tuple[HostsKind, int | None, str]:
    """Return what limits the hosts, the rank that it names, and a sentence.

    A host whose ceiling is slow is slow whatever its input; one whose input is slow alone needs no neighbour for it.
    What is left over is what they do to each other: to all of them alike, or to one.
    """
    odd = (
        _odd("slow-host", [(each, each.ceiling_ms) for each in figures])
        or _odd_wait("slow-input", [(each, each.wait_alone) for each in figures])
        or _odd_wait("straggler", [(each, each.wait_together) for each in figures])
    )
    if odd is not None:
        return odd
    return _of_all(hosts, efficiency, figures)


def _of_all(hosts: int, efficiency: Estimate, figures: Sequence[HostFigures]) -> tuple[HostsKind, None, str]:
    """Return what holds where no host stands out."""
    value, ci95, line = efficiency.value, efficiency.ci95, thresholds.HOSTS_SCALE
    if value is None:
        return "not-measured", None, f"{hosts} hosts: {efficiency.reason}"
    said = f"{hosts} hosts reach {units.share_interval(value, ci95)} of what they reach alone"
    if ci95 is not None and ci95[0] >= line:
        return "scales", None, said
    if ci95 is None or ci95[1] >= line:
        return "inconclusive", None, f"{said}; the threshold is {units.share(line)}: use more --repeats"
    waits, alone = _typical(figures, "wait_together"), _typical(figures, "wait_alone")
    if waits is None or alone is None or waits - alone < thresholds.BOUND_SHARE:
        return "inconclusive", None, f"{said}, but input wait does not explain it"
    each = f"at {hosts} hosts each waits {units.share(waits)}, alone {units.share(alone)}"
    return "shared-storage", None, f"storage is shared: {each}; {said}"


def _typical(figures: Sequence[HostFigures], name: str) -> float | None:
    known = [value for each in figures if (value := getattr(each, name)) is not None]
    return median(known) if known else None


def _odd(kind: HostsKind, values: Iterable[tuple[HostFigures, float | None]]) -> tuple[HostsKind, int, str] | None:
    """Return the one host that is slower than the median of the others by `HOST_SLOWER` or more."""
    known = [(host, value) for host, value in values if value is not None and not math.isnan(value)]
    slow = [
        (host, value / others)
        for host, value in known
        if (others := median([each for other, each in known if other is not host] or [math.inf])) > 0
        and value / others >= thresholds.HOST_SLOWER
    ]
    if len(slow) != 1:
        return None
    host, times = slow[0]
    return kind, host.rank, f"{host.who} is slow: its ceiling is {times:.1f}× the others'"


def _odd_wait(kind: HostsKind, values: Iterable[tuple[HostFigures, float | None]]) -> tuple[HostsKind, int, str] | None:
    """Return the one host that waits for its input, where the others do not, or far less."""
    known = [(host, value) for host, value in values if value is not None]
    odd = [
        (host, value, others)
        for host, value in known
        if value >= thresholds.SEVERE_SHARE
        and value - (others := median([each for other, each in known if other is not host] or [value]))
        >= thresholds.STRAGGLER_WAIT
    ]
    if len(odd) != 1:
        return None
    host, waits, others = odd[0]
    who = {"slow-input": f"the input of {host.who} is slow: alone, it", "straggler": f"one straggler: {host.who}"}
    return kind, host.rank, f"{who[kind]} waits {units.share(waits)}, the others {units.share(others)}"
