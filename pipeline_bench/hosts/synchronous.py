"""Whom the workers of one synchronous training wait for, by what each of them watched itself. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from pipeline_bench.analysis import thresholds
from pipeline_bench.analysis.measured import AllSteps, Measured
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
    step_ms: float | None = None
    wait_ms: float | None = None
    collective_ms: float | None = None

    @property
    def wait_share(self) -> float | None:
        """The wait's share of the step, 0 to 1."""
        return None if self.wait_ms is None or not self.step_ms else min(1.0, self.wait_ms / self.step_ms)


def training(workers: Sequence[WorkerFigures]) -> HostsVerdict | None:
    """Return whom the workers of a synchronous training wait for, and why; None where the parts are not known.

    All step alike. Who comes last to the collective is there for the shortest time, which is what the collective costs
    by itself; what the others are there for longer they wait for that one, and for those that come little before it.
    Most may come late: the delay is what those wait that come first, unless they are so few that they are what differs.
    """
    steps_ms = [each.step_ms for each in workers if each.step_ms]
    known = all(each.collective_ms is not None for each in workers)
    if not known or not steps_ms or len(workers) < 2:  # noqa: PLR2004 - one has nobody to wait for
        return None
    ordered = sorted(workers, key=_at_collective_ms)
    last, step_ms = ordered[0], median(steps_ms)
    soonest_ms = _at_collective_ms(last)
    first = ordered[-math.ceil(thresholds.FASTER_HOSTS * len(ordered))]
    half_ms = (_at_collective_ms(first) - soonest_ms) / 2
    late = [last, *(each for each in ordered[1:] if _at_collective_ms(each) - soonest_ms < half_ms)]
    others = ordered[len(late) :]
    lost_ms = median(map(_at_collective_ms, others)) - soonest_ms
    if lost_ms < thresholds.STRAGGLER_WAIT * step_ms:
        return None
    it = "it" if len(late) == 1 else "them"
    lost = (
        f"at the collective the others wait {lost_ms:.1f} ms for {it}, {units.share(lost_ms / step_ms)} of their step"
    )
    by_kind = _by_cause(late, others, lost_ms)
    theirs_ms = [each.wait_ms for each in others if each.wait_ms is not None]
    causes = [_why_late(kind, some, theirs_ms, step_ms) for kind, some in by_kind.items() if some]
    kind = next(kind for kind, some in by_kind.items() if last in some)
    return HostsVerdict(kind, tuple(each.rank for each in late), "; ".join([*causes, lost]))


def _by_cause(
    late: Sequence[WorkerFigures], others: Sequence[WorkerFigures], lost_ms: float
) -> dict[HostsKind, list[WorkerFigures]]:
    """Return who is late by what: the input where the wait for it, over the others', makes up half of the delay.

    And the model otherwise. A wait that was not measured may be all that the step leaves beside its collectives; where
    that decides, the cause is not known, and the kind ``straggler``.
    """
    least_ms = median(each.wait_ms or 0.0 for each in others)
    most_ms = median(map(_most_wait_ms, others))
    found: dict[HostsKind, list[WorkerFigures]] = {"slow-input": [], "slow-model": [], "straggler": []}
    for each in late:
        if each.wait_ms is not None and each.wait_ms - most_ms >= lost_ms / 2:
            found["slow-input"].append(each)
        elif each.wait_ms is not None and each.wait_ms - least_ms < lost_ms / 2:
            found["slow-model"].append(each)
        else:
            found["straggler"].append(each)
    return found


def _most_wait_ms(worker: WorkerFigures) -> float:
    if worker.wait_ms is not None:
        return worker.wait_ms
    return max(0.0, (worker.step_ms or 0.0) - _at_collective_ms(worker))


def _why_late(kind: HostsKind, late: Sequence[WorkerFigures], theirs_ms: Sequence[float], step_ms: float) -> str:
    """Return why some come late, by the kind of their cause; `theirs_ms`: what the others wait, as far as known."""
    who, wait_ms = joined([each.who for each in late], "and"), median(each.wait_ms or 0.0 for each in late)
    its, delay = ("its", "delays") if len(late) == 1 else ("their", "delay")
    if kind == "slow-input":
        s, they_wait = ("", "that rank waits") if len(late) == 1 else ("s", "those ranks wait")
        theirs = f", the others {median(theirs_ms):.1f} ms" if theirs_ms else ""
        waits = f"{they_wait} {wait_ms:.1f} ms, {units.share(wait_ms / step_ms)} of a step{theirs}"
        return f"the input{s} of {who} {delay} all workers: {waits}"
    if kind == "slow-model":
        why = f"not by {its} input wait ({wait_ms:.1f} ms): {its} own part of the step takes longer"
        return f"{who} {delay} all workers, but {why}"
    return f"{who} {delay} all workers, by {its} input or {its} own part of the step: an input wait was not measured"


def _at_collective_ms(worker: WorkerFigures) -> float:
    return worker.collective_ms or 0.0


def watched(ranked: Ranked, size: int, who: Mapping[int, str]) -> HostsResult:
    """Return the results of a training that every rank watched itself: nothing of it ran alone."""
    workers = [_of_all_steps(who[host.rank], host, session) for host, session in ranked]
    parts = training(workers)
    beside, may_wait = "", False
    if any(each.collective_ms is None for each in workers):
        may_wait = _step_alike(workers)
        workers = [_of_result(who[host.rank], host, session) for host, session in ranked]
    else:
        beside = _at_collectives(workers)
        if any(map(_has_disturbed_steps, ranked)):
            beside += "; this is of all steps, also of those that had other work beside them"
    by_rank = {each.rank: each for each in workers}
    all_ranks = [by_rank.get(rank, WorkerFigures(rank, who.get(rank, ""))) for rank in range(size)]
    figures = [_figures(each, may_wait_for_it=may_wait) for each in all_ranks]
    first = ranked[0][1]
    name = first.results[0].variant if first.results else first.scenario.name
    found = efficiency.result(name, len(ranked), {}, figures, scatter=0.0)
    if parts is not None:
        update = {"kind": parts.kind, "host": parts.named[0], "named": parts.named, "text": f"{parts.text}{beside}"}
        return found.model_copy(update=update)
    if found.kind != "not-measured":
        return found.model_copy(update={"text": f"{found.text}{beside}"})
    listed = [f"{each.who} waits {units.share(each.wait_share)}" for each in workers]
    waiting = "; ".join(listed[:MOST_LISTED]) + (" …" if len(listed) > MOST_LISTED else "")
    return found.model_copy(update={"kind": "watched", "text": f"{waiting} for its input{beside}"})


def _at_collectives(workers: Sequence[WorkerFigures]) -> str:
    """Return that all are long at collectives, of which a step has several: each may wait for another one at each."""
    soonest_ms = min(map(_at_collective_ms, workers))
    step_ms = median(each.step_ms or 0.0 for each in workers)
    if len(workers) < 2 or soonest_ms < thresholds.STRAGGLER_WAIT * step_ms:  # noqa: PLR2004 - one has no others
        return ""
    return (
        f"; every rank is at collectives for {soonest_ms:.1f} ms of a step or longer: they take that long by "
        "themselves, or more than one rank delays the others"
    )


def _figures(worker: WorkerFigures, *, may_wait_for_it: bool) -> HostFigures:
    """Return what one of several hosts has of its steps.

    Who waits for its input in steps that are as long as the others' delays nobody, unless these may be as long only
    because they wait for that one.
    """
    together = {} if worker.wait_share is None else {0: worker.wait_share}
    together_ms = {} if worker.step_ms is None or may_wait_for_it else {0: worker.step_ms}
    return HostFigures(worker.rank, worker.who, together=together, together_ms=together_ms)


def _step_alike(workers: Sequence[WorkerFigures]) -> bool:
    """Return whether all step alike, as where each step waits for all of them, known or not."""
    steps_ms = [each.step_ms for each in workers if each.step_ms]
    return not steps_ms or max(steps_ms) < (1 + thresholds.BOUND_SHARE) * min(steps_ms)


def _of_result(who: str, host: Host, session: Session) -> WorkerFigures:
    """Return a rank's figures as its report shows them, without the steps that other work disturbed."""
    if not session.results:
        return WorkerFigures(host.rank, who)
    result = session.results[0]
    return WorkerFigures(host.rank, who, result.step_ms.mean, result.input_wait_ms.value)


def _of_all_steps(who: str, host: Host, session: Session) -> WorkerFigures:
    """Return a rank's figures of all steps after the warm-up.

    What is compared has to be of the same steps, and what disturbs one rank delays them all: those that are left out of
    one rank's figures are in the others', and in the time at collectives.
    """
    run = _all_steps(session)
    if run is None:
        return WorkerFigures(host.rank, who, None, None, host.collective_ms)
    return WorkerFigures(host.rank, who, run.mean_ms, run.mean_wait_ms, host.collective_ms)


def _all_steps(session: Session) -> Measured | None:
    trial = next((trial for trial in session.trials if trial.measured), None)
    return None if trial is None else Measured(AllSteps(trial, session.environment.cores))


def _has_disturbed_steps(of: tuple[Host, Session]) -> bool:
    """Return whether a rank's own figures leave out steps."""
    run = _all_steps(of[1])
    return run is not None and any(result.steps < run.steps for result in of[1].results)
