"""What several hosts reach together over what each reaches alone, and why. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np

from pipeline_bench.analysis import stats, thresholds
from pipeline_bench.hosts.shared import Common, ranks_named
from pipeline_bench.model.hosts import HostsKind, HostsResult
from pipeline_bench.model.result import Estimate
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.text import grouped, joined, units

_LEAST_OVERLAP = 0.5
_T = TypeVar("_T")


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


def rate_apart(spans: Sequence[Span]) -> float | None:
    """Return the sum of the samples a second of hosts that trained alone; None where one has too few steps."""
    return _sum([span.rate(int(span.end_ns[0]), int(span.end_ns[-1])) for span in spans])


def rate_together(spans: Sequence[Span]) -> float | None:
    """Return the samples a second of all hosts while all of them trained.

    None where that is less than half of a trial, or one has too few steps meanwhile.
    """
    window_ns = window(spans)
    return None if window_ns is None else _sum([span.rate(*window_ns) for span in spans])


def window(spans: Sequence[Span]) -> tuple[int, int] | None:
    """Return from when to when all hosts trained, in ns; None where that is less than half of a trial."""
    start_ns = max(int(span.end_ns[0]) for span in spans)
    end_ns = min(int(span.end_ns[-1]) for span in spans)
    shortest_ns = min(int(span.end_ns[-1]) - int(span.end_ns[0]) for span in spans)
    return None if end_ns - start_ns < _LEAST_OVERLAP * shortest_ns else (start_ns, end_ns)


def apart_s(spans: Sequence[Span]) -> float:
    """Return how long after those of the first one the measured steps of the last host began."""
    began_ns = [int(span.end_ns[0]) for span in spans]
    return (max(began_ns) - min(began_ns)) / 1e9


def _sum(rates: Sequence[float]) -> float | None:
    return sum(rates) if all(rates) else None


def by_round(
    spans: Iterable[tuple[int, Span]], hosts: int, figure_of: Callable[[Sequence[Span]], _T | None]
) -> dict[int, _T]:
    """Return a figure of each round that has so many hosts' trials, as `figure_of` computes it.

    Args:
        spans: each with its round.
        hosts: how many make a round whole.
        figure_of: of a round's trials; a round without the figure is left out.
    """
    rounds = grouped(sorted(spans, key=lambda each: each[0]))
    found = {repeat: figure_of(members) for repeat, members in rounds.items() if len(members) >= hosts}
    return {repeat: figure for repeat, figure in found.items() if figure}


ByRound = Mapping[int, float]
"""A figure of each round that has it."""


class HostFigures(NamedTuple):
    """One host's figures by round, from its own session."""

    rank: int
    who: str
    """What a sentence calls it."""
    alone: ByRound = MappingProxyType({})
    """Its share of input wait."""
    together: ByRound = MappingProxyType({})
    ceiling_ms: ByRound = MappingProxyType({})
    alone_ms: ByRound = MappingProxyType({})
    """How long a step of it took; empty where the hosts' steps cannot be compared."""
    together_ms: ByRound = MappingProxyType({})


def result(
    variant: str,
    hosts: int,
    rounds: Mapping[int, tuple[float, float]],
    figures: Sequence[HostFigures],
    scatter: float = thresholds.SHARE_SCATTER,
    common: Common = Common(),  # noqa: B008 - immutable
    unequal: str | None = None,
    began_apart_s: float | None = None,
) -> HostsResult:
    """Return what a variant comes to on so many hosts.

    Args:
        variant: its name in the scenario.
        hosts: how many ran at once.
        rounds: by round the samples a second together, and the sum of those alone; both above 0.
        figures: of these hosts, by rank.
        scatter: the usual one of a share between rounds; 0 where only the one run that was measured is judged.
        common: what they share.
        unequal: who did not do equal work, of which there is neither a figure nor a verdict.
        began_apart_s: how long after each other they began to train, where in no round all trained at once for long
            enough; None in any other case.
    """
    if unequal is not None:
        rounds, figures = {}, [HostFigures(each.rank, each.who) for each in figures]
    ratios = [together / alone for together, alone in rounds.values()]
    incomplete = "no round is complete: every host alone, and all at once for at least half of a trial"
    if began_apart_s is not None:
        longer = f"--time {max(10, math.ceil(3 * began_apart_s))}"
        incomplete += f"; they began to train {units.seconds(began_apart_s)} apart: make trials longer, {longer}"
    efficiency = Estimate(reason=unequal or incomplete)
    if ratios:
        value, ci95 = stats.believe_ratio(ratios, thresholds.RATIO_SCATTER)
        several = len(ratios) > 1
        reason = None if several else "an interval needs 2 rounds"
        efficiency = Estimate(value=value, ci95=ci95 if several else None, reason=reason)
    found = verdict(hosts, efficiency, figures, scatter, common)
    return HostsResult(
        variant=variant,
        hosts=hosts,
        samples_per_second=float(np.mean([together for together, _ in rounds.values()])) if rounds else None,
        efficiency=efficiency,
        wait_alone=tuple(_mean(each.alone) for each in figures),
        wait_together=tuple(_mean(each.together) for each in figures),
        rounds=len(ratios),
        kind=found.kind,
        host=found.named[0] if found.named else None,
        named=found.named,
        text=found.text,
        shared=found.shared,
    )


def _mean(rounds: ByRound) -> float | None:
    return float(np.mean(list(rounds.values()))) if rounds else None


class HostsVerdict(NamedTuple):
    """What limits hosts, the ranks that it names, and a sentence."""

    kind: HostsKind
    named: tuple[int, ...]
    text: str
    shared: bool = False
    """Whether what hosts share limits them, all or those that are not named."""


def verdict(
    hosts: int, efficiency: Estimate, figures: Sequence[HostFigures], scatter: float, common: Common
) -> HostsVerdict:
    """Return what limits the hosts.

    A host whose ceiling is slow is slow whatever its input, which may be slow as well; one whose input is slow alone
    needs no neighbour for it. What is left over is what they do to each other: to some of them, or to all alike, which
    may be beside the rest.
    """
    odd: dict[HostsKind, list[_Odd]] = {
        "slow-host": _slow(figures),
        "slow-input": _waiting(figures, lambda host: host.alone, lambda host: host.alone_ms, scatter),
        "straggler": _waiting(figures, lambda host: host.together, lambda host: host.together_ms, scatter),
    }
    named: list[int] = []
    kinds: list[HostsKind] = []
    sentences: list[str] = []
    slow_alone = [each.host for each in odd["slow-input"]]
    for kind, every in odd.items():
        if new := [each for each in every if kind != "straggler" or each.host not in slow_alone]:
            kinds.append(kind)
            named += [each.host.rank for each in new if each.host.rank not in named]
            sentences.append(_sentence(kind, new))
    rest = [each for each in figures if each.rank not in named]
    each_of_them = "each of the others" if named else "each"
    of_all = _of_all(hosts, efficiency, rest or figures, each_of_them, common)
    if not named:
        return of_all
    if of_all.shared:
        sentences.append(of_all.text)
    elif common.are_cores_busy and (late := sorted({*named}.intersection(*map(set, common.machines)))):
        sentences.append(f"{common.on_one_machine}: {ranks_named(late)} may have waited for a core")
    return HostsVerdict(kinds[0], tuple(named), "; ".join(sentences), of_all.shared)


def _of_all(
    hosts: int, efficiency: Estimate, figures: Sequence[HostFigures], each: str, common: Common
) -> HostsVerdict:
    """Return what holds of hosts of which none stands out; `each` is what a sentence calls one of them."""
    value, ci95, line = efficiency.value, efficiency.ci95, thresholds.HOSTS_SCALE
    if value is None:
        return HostsVerdict("not-measured", (), f"{hosts} hosts: {efficiency.reason}")
    reached = f"{hosts} hosts reach {units.with_ends(units.share, value, ci95)} of what they reach alone"
    if ci95 is not None and ci95[0] > thresholds.TIE:
        why = "more than is possible: other work, or files that were not cached yet, slowed them while they ran alone"
        return HostsVerdict("inconclusive", (), f"{reached}, {why}")
    if ci95 is not None and ci95[0] >= line:
        cached = "; what they read came from their page caches, which says nothing of a shared storage"
        return HostsVerdict("scales", (), f"{reached}{cached * common.cached}")
    if ci95 is None or ci95[1] >= line:
        cores = f"; {common.on_one_machine}" if common.are_cores_busy else ""
        more = f"the threshold is {units.share(line)}: use more --repeats"
        return HostsVerdict("inconclusive", (), f"{reached}; {more}{cores}")
    return _held_up(hosts, reached, figures, each, common)


def _held_up(hosts: int, reached: str, figures: Sequence[HostFigures], each: str, common: Common) -> HostsVerdict:
    """Return what keeps hosts from what they reach alone; ranks of one machine may wait for its cores."""
    one_machine = f"; {common.on_one_machine}" if common.machines else ""
    waits, alone = (_typical(rounds) for rounds in zip(*((host.together, host.alone) for host in figures), strict=True))
    more = [longer for host in figures if (longer := _longer(host)) is not None]
    waiting_more = [each for each in more if each >= thresholds.BOUND_SHARE]
    if waits is None or alone is None or not waiting_more:
        return HostsVerdict("inconclusive", (), f"{reached}, but input wait does not explain it{one_machine}")
    if len(waiting_more) < len(more):
        some = f"only {len(waiting_more)} of {len(more)} hosts wait longer than alone"
        return HostsVerdict("inconclusive", (), f"{reached}, but {some}{one_machine}")
    waiting = f"at {hosts} hosts {each} waits {units.share(waits)}, alone {units.share(alone)}; {reached}"
    if common.storage is None:
        return HostsVerdict("inconclusive", (), f"{waiting}; the input reads no storage{one_machine}")
    if common.may_lack_cores:
        cores = "its cores" if len(common.machines) == 1 else "their cores"
        maybe = f"they may have waited for {cores}, not for {common.storage}"
        return HostsVerdict("inconclusive", (), f"{waiting}{one_machine}: {maybe}")
    anyway = f"{one_machine}: there, {common.storage} is shared in any case" if one_machine else ""
    return HostsVerdict("shared-storage", (), f"{common.storage} is shared: {waiting}{anyway}", shared=True)


def _longer(host: HostFigures) -> float | None:
    """Return for what share of its step beside others a host waits longer than alone; None where that is not known.

    Of a step that gets longer, the wait that was there alone is a smaller share: without that, a host that waits for
    most of its step already could not wait much longer.
    """
    together, alone = _mean(host.together), _mean(host.alone)
    if together is None or alone is None:
        return None
    together_ms, alone_ms = _mean(host.together_ms), _mean(host.alone_ms)
    return together - alone * (min(1.0, alone_ms / together_ms) if together_ms and alone_ms else 1.0)


def _typical(hosts: Iterable[ByRound]) -> float | None:
    known = [mean for each in hosts if (mean := _mean(each)) is not None]
    return median(known) if known else None


class _Odd(NamedTuple):
    """A host that differs from the others, its figure, and the median of those that do not, over the same rounds."""

    host: HostFigures
    own: float
    others: float


Figure = Callable[[HostFigures], ByRound]


def _slow(figures: Sequence[HostFigures]) -> list[_Odd]:
    """Return the hosts that are slower than the others by `HOST_SLOWER` or more, the slowest first."""

    def is_slow(host: HostFigures, others: Sequence[HostFigures]) -> bool:
        own, theirs = _beside(host, others, _ceiling)
        if not own.size:
            return False
        ratio = stats.believe(np.log(own / theirs).tolist(), thresholds.RATIO_SCATTER)
        return _is_past(ratio, math.log(thresholds.HOST_SLOWER), math.log1p(thresholds.BOUND_SHARE))

    return _odd(figures, _ceiling, is_slow)


def _ceiling(host: HostFigures) -> ByRound:
    return host.ceiling_ms


def _waiting(figures: Sequence[HostFigures], wait: Figure, step_ms: Figure, scatter: float) -> list[_Odd]:
    """Return the hosts that wait for their input, where the others do not, or far less, the one that waits most first.

    A storage that serves hosts unevenly has them take turns at being late, which the interval over rounds shows. Who
    waits more in steps that are no longer gets its batches as fast as the others: its accelerator is faster.

    Args:
        figures: of the hosts.
        wait: a host's share of input wait.
        step_ms: the time of its steps.
        scatter: the usual one of a share between rounds.
    """

    def is_late(host: HostFigures, others: Sequence[HostFigures]) -> bool:
        own_ms, their_ms = _beside(host, others, step_ms)
        is_as_fast = own_ms.size and np.log(own_ms / their_ms).mean() < math.log1p(thresholds.BOUND_SHARE)
        own, theirs = _beside(host, others, wait)
        if is_as_fast or not own.size:
            return False
        difference = stats.believe((own - theirs).tolist(), scatter)
        return _is_past(difference, thresholds.STRAGGLER_WAIT, thresholds.BOUND_SHARE)

    return _odd(figures, wait, is_late)


def _is_past(figure: stats.Belief, line: float, least: float) -> bool:
    """Return whether a figure is past a line, and certainly past what is worth mending."""
    return figure.value >= line and figure.interval()[0] >= least


def _odd(
    figures: Sequence[HostFigures], figure: Figure, is_past: Callable[[HostFigures, Sequence[HostFigures]], bool]
) -> list[_Odd]:
    """Return the hosts that are past the others, the farthest first.

    Each is held against those below it, from the lowest on: among the others of a slow host there may be slow ones too,
    even most of them. If those below are very few, they are what differs.

    Args:
        figures: of all hosts.
        figure: by which they may differ; the higher, the slower.
        is_past: returns whether a host is past others.
    """
    known = sorted((each for each in figures if figure(each)), key=lambda each: _mean(figure(each)) or 0.0)
    below: list[HostFigures] = []
    late: list[HostFigures] = []
    for number, host in enumerate(known):
        if not below or not is_past(host, below):
            below.append(host)
        elif number < thresholds.FASTER_HOSTS * len(known):
            below = [host]
        else:
            late = [each for each in known[number:] if is_past(each, below)]
            break
    others = [each for each in known if each not in late]
    pairs = [(host, *_beside(host, others, figure)) for host in late]
    found = [_Odd(host, float(own.mean()), float(theirs.mean())) for host, own, theirs in pairs]
    return sorted(found, key=lambda each: -each.own)


def _beside(host: HostFigures, others: Sequence[HostFigures], figure: Figure) -> tuple[stats.Floats, stats.Floats]:
    """Return a host's figures and the medians of the others', by the rounds that have both."""
    own, theirs = figure(host), [figure(each) for each in others]
    medians = {each: median(found) for each in sorted(own) if (found := [of[each] for of in theirs if each in of])}
    return np.array([own[each] for each in medians]), np.array([*medians.values()])


def _sentence(kind: HostsKind, odd: Sequence[_Odd]) -> str:
    """Return what is said of the hosts that a verdict names."""
    one, who = len(odd) == 1, joined([each.host.who for each in odd], "and")
    if kind == "slow-host":
        times = joined([f"{each.own / each.others:.1f}×" for each in odd], "and")
        return f"{who} {'is slow: its ceiling is' if one else 'are slow: their ceilings are'} {times} the others'"
    waits = f"{joined([units.share(each.own) for each in odd], 'and')}, the others {units.share(odd[0].others)}"
    if kind == "slow-input":
        slow = (
            f"the input of {who} is slow: alone, it waits" if one else f"the inputs of {who} are slow: alone, they wait"
        )
        return f"{slow} {waits}"
    return f"one straggler: {who} waits {waits}" if one else f"{len(odd)} stragglers: {who} wait {waits}"
