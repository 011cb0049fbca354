"""Whom the workers of one synchronous training wait for, by what each of them watched itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from pipeline_bench.analysis import thresholds
from pipeline_bench.hosts import efficiency
from pipeline_bench.hosts.efficiency import HostFigures, HostsVerdict
from pipeline_bench.hosts.shared import MOST_LISTED
from pipeline_bench.model.hosts import Host, HostsKind, HostsResult
from pipeline_bench.model.session import Session
from pipeline_bench.text import joined, units

Ranked = Sequence[tuple[Host, Session]]
"""Each rank's host with its session, by rank."""


class WorkerFigures(NamedTuple):
    """A step of one worker of a synchronous training, in ms, by parts; None where one was not measured."""

    rank: int
    who: str
    """What a sentence calls it."""
    step_ms: float | None
    wait_ms: float | None
    collective_ms: float | None


def training(workers: Sequence[WorkerFigures]) -> HostsVerdict | None:
    """Return whom the workers of a synchronous training wait for, and why; None where the parts are not known.

    All step alike. Who comes last to the collective is there for the shortest time, which is what the collective costs
    by itself; what the others are there for longer they wait for that one, and for those that come little before it.
    These are late by their input where their wait for it, over the others', makes up half of the delay, and by their
    model otherwise.
    """
    known = [each for each in workers if None not in each]
    if len(known) < len(workers) or len(known) < 2:  # noqa: PLR2004 - one has nobody to wait for
        return None
    last, *others = sorted(workers, key=_at_collective_ms)
    step_ms = median(each.step_ms or 0.0 for each in workers)
    soonest_ms = _at_collective_ms(last)
    lost_ms = median(map(_at_collective_ms, others)) - soonest_ms
    if not step_ms or lost_ms < thresholds.STRAGGLER_WAIT * step_ms:
        return None
    late = [last, *(each for each in others if _at_collective_ms(each) - soonest_ms < lost_ms / 2)]
    others = others[len(late) - 1 :]
    lost_ms = median(map(_at_collective_ms, others)) - soonest_ms
    theirs_ms = median(each.wait_ms or 0.0 for each in others)
    by_input = [each for each in late if (each.wait_ms or 0.0) - theirs_ms >= lost_ms / 2]
    by_model = [each for each in late if each not in by_input]
    it = "it" if len(late) == 1 else "them"
    lost = (
        f"at the collective the others wait {lost_ms:.1f} ms for {it}, {units.share(lost_ms / step_ms)} of their step"
    )
    causes = [_late_by_input(by_input, theirs_ms, step_ms)] if by_input else []
    causes += [_late_by_model(by_model)] if by_model else []
    kind: HostsKind = "slow-input" if last in by_input else "slow-model"
    return HostsVerdict(kind, tuple(each.rank for each in late), "; ".join([*causes, lost]))


def _late_by_input(late: Sequence[WorkerFigures], theirs_ms: float, step_ms: float) -> str:
    who, wait_ms = joined([each.who for each in late], "and"), median(each.wait_ms or 0.0 for each in late)
    s, they_wait, delay = ("", "that rank waits", "delays") if len(late) == 1 else ("s", "those ranks wait", "delay")
    waits = f"{they_wait} {wait_ms:.1f} ms, {units.share(wait_ms / step_ms)} of a step, the others {theirs_ms:.1f} ms"
    return f"the input{s} of {who} {delay} all workers: {waits}"


def _late_by_model(late: Sequence[WorkerFigures]) -> str:
    who, wait_ms = joined([each.who for each in late], "and"), median(each.wait_ms or 0.0 for each in late)
    its, delay = ("its", "delays") if len(late) == 1 else ("their", "delay")
    why = f"not by {its} input wait ({wait_ms:.1f} ms): {its} own part of the step takes longer"
    return f"{who} {delay} all workers, but {why}"


def _at_collective_ms(worker: WorkerFigures) -> float:
    return worker.collective_ms or 0.0


def watched(ranked: Ranked, size: int, who: Mapping[int, str]) -> HostsResult:
    """Return the results of a training that every rank watched itself: nothing of it ran alone."""
    parts = training([_worker(who[host.rank], host, session) for host, session in ranked])
    waits = {
        host.rank: session.results[0].input_wait_share.value if session.results else None for host, session in ranked
    }
    together = ({} if (wait := waits.get(rank)) is None else {0: wait} for rank in range(size))
    steps_ms = _steps_of_workers(ranked)
    figures = [
        HostFigures(rank, who.get(rank, ""), together=each, together_ms=steps_ms.get(rank, {}))
        for rank, each in enumerate(together)
    ]
    first = ranked[0][1]
    name = first.results[0].variant if first.results else first.scenario.name
    found = efficiency.result(name, len(ranked), {}, figures, scatter=0.0)
    if parts is not None:
        update = {"kind": parts.kind, "host": parts.named[0], "named": parts.named, "text": parts.text}
        return found.model_copy(update=update)
    if found.kind != "not-measured":
        return found
    listed = [f"{who[rank]} waits {units.share(wait)}" for rank, wait in waits.items()]
    waiting = "; ".join(listed[:MOST_LISTED]) + (" …" if len(listed) > MOST_LISTED else "")
    return found.model_copy(update={"kind": "watched", "text": f"{waiting} for its input"})


def _steps_of_workers(ranked: Ranked) -> dict[int, dict[int, float]]:
    """Return how long a step of each rank took, where it is known of all how long they were at collectives.

    Who waits for its input in steps that are as long as the others' then delays nobody. Otherwise all may step alike
    because they wait for that one.
    """
    if any(host.collective_ms is None for host, _ in ranked):
        return {}
    steps_ms = {host.rank: each.results[0].step_ms.mean for host, each in ranked if each.results}
    return {rank: {0: step_ms} for rank, step_ms in steps_ms.items() if step_ms is not None}


def _worker(who: str, host: Host, session: Session) -> WorkerFigures:
    if not session.results:
        return WorkerFigures(host.rank, who, None, None, None)
    result = session.results[0]
    return WorkerFigures(host.rank, who, result.step_ms.mean, result.input_wait_ms.value, host.collective_ms)
