"""From a session to a plan: what each of its inputs feeds on more hosts, or with more workers, than measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline_bench.analysis import capacity, thresholds
from pipeline_bench.analysis.capacity import HostStep, Point, Supply
from pipeline_bench.errors import UsageError
from pipeline_bench.hosts import inputs, plan_words
from pipeline_bench.hosts.inputs import MeasuredInput
from pipeline_bench.model.diagnosis import AS_WRITTEN
from pipeline_bench.model.hosts import Basis, Plan, PlanCheck, PlanRow, Range, VariantPlan, sharing
from pipeline_bench.model.session import Session
from pipeline_bench.text import did_you_mean, joined, sentence

_ROWS = 8


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is wanted for.

    Attributes:
        step_ms: of the accelerator; None: as the session's own.
        counts: the fewest and the most hosts, or workers.
        accelerators: of each host; with input workers, all that these feed.
        variant: which one; None: all, the one that feeds best first.
    """

    step_ms: float | None
    counts: tuple[int, int]
    accelerators: int = 1
    variant: str | None = None


def plan(session: Session, request: PlanRequest, path: str) -> Plan:
    """Return what the session's inputs feed.

    Raises:
        UsageError: nothing was measured that tells it, or not of that variant, or there is no step.
    """
    every = inputs.inputs_of(session)
    chosen = _chosen(every, session, request.variant)
    main = min(chosen, key=lambda each: (each.unit == "host", -len(each.points)))
    others = [each.name for each in chosen if each.samples != main.samples]
    chosen = [each for each in chosen if each.samples == main.samples]
    step_ms = request.step_ms or main.own_step_ms
    if step_ms is None:
        raise UsageError(
            "The session has no model, so that there is no step to plan for.", "Give one: --accelerator-step 5ms"
        )
    made = [_of(each, every, request, step_ms, *inputs.works_ahead(session, each, every)) for each in chosen]
    proposal = None if session.diagnosis is None else session.diagnosis.proposal or AS_WRITTEN
    made.sort(key=lambda each: -each.alone.utilization.low)
    made.sort(key=lambda each: (each.variant != proposal, each.unit == "host", -len(each.measured_counts)))
    return Plan(
        path=path,
        scenario=session.scenario.name,
        command=session.command,
        step_ms=step_ms,
        own_step=request.step_ms is None,
        accelerators=request.accelerators,
        batch_size=main.samples,
        variants=tuple(made),
        notes=tuple(_notes(session, others, made, cached=any(each.cached for each in chosen))),
    )


def _chosen(every: Sequence[MeasuredInput], session: Session, name: str | None) -> Sequence[MeasuredInput]:
    if not every:
        together = session.watched and session.hosts is not None
        why = (
            "its ranks ran one training together, and none ran alone"
            if together
            else "it has no measured rate of an input"
        )
        raise UsageError(
            f"{session.scenario.name} cannot be planned from: {why}.",
            "Give a session of compare, diagnose or merge whose trials have ended well.",
        )
    if name is None:
        return list(_most_waiting(every))
    found = [each for each in every if name in each.members]
    if not found:
        names = dict.fromkeys(member for each in every for member in each.members)
        raise UsageError(
            f"--variant {name!r}: no input of that name was measured.", sentence(did_you_mean(name, names))
        )
    return found[:1]


def _most_waiting(every: Sequence[MeasuredInput]) -> Iterator[MeasuredInput]:
    """Yield each input once: of one measured with several models where it waits most, which is nearest its limit."""
    for each in every:
        if max(inputs.same_input(each, every), key=lambda one: one.points[0].wait) is each:
            yield each


def _notes(
    session: Session, of_other_batches: Sequence[str], made: Sequence[VariantPlan], *, cached: bool
) -> Iterator[str]:
    if inputs.computed_on_cpu(session):
        yield "the model computed on the host's own cores: with a real accelerator, host and input may be faster"
    if cached:
        yield (
            "what was read came from the page cache: the plan holds where each host's memory keeps the files, and says "
            "nothing of their storage"
        )
    if session.hosts is not None:
        named = [each.text for each in session.hosts.results if each.host is not None]
        machines = {(each.accelerator, each.cpu, each.cores) for each in session.hosts.hosts}
        if why := [*(["their machines differ"] if len(machines) > 1 else []), *named][-1:]:
            yield f"the plan assumes that all hosts are alike, but they are not: {why[0]}"
        if doubts := [each.doubt for each in made if each.doubt is not None and each.doubt not in why]:
            yield f"what held up the hosts may not be {made[0].shares}: {doubts[0]}"
        if sharing(session.hosts.hosts):
            yield "ranks that ran on one machine shared its cores and storage: on several, they may reach more"
    if session.watched:
        yield "the size of a batch is not known: a batch counts as one sample"
    if of_other_batches:
        yield f"inputs with another batch size have plans of their own: --variant {joined(of_other_batches, 'or')}"


# --- of one input ----------------------------------------------------------------------------------------------------


def _of(
    own: MeasuredInput,
    every: Sequence[MeasuredInput],
    request: PlanRequest,
    step_ms: float,
    ahead: bool | None,
    seen: bool,
) -> VariantPlan:
    """Return the plan of one input; its ranges cover both cases if it is not known whether it works ahead."""
    ways = [
        (_supply_beside_all(own, every, works), HostStep(step_ms, own.host_ms, works))
        for works in ((True, False) if ahead is None else (ahead,))
    ]
    supply, step = ways[0]
    each, of_host = float(own.samples), float(request.accelerators * own.samples)
    counts = tuple(point.count for point in own.points)
    total_from = capacity.total_from(supply, step, of_host)
    feeds = _either([capacity.feeds(each_supply.own, each_step, each) for each_supply, each_step in ways])
    # A host's turn at the total passes during the steps of the others, however its own input works.
    total_feeds = capacity.feeds(supply.total, replace(step, works_ahead=True), each)
    shown = shown_counts(request.counts, counts, total_from)
    made = VariantPlan(
        variant=own.name,
        unit=own.unit,
        works_ahead=ahead,
        works_ahead_measured=seen,
        measured_counts=counts,
        own=_either([each_supply.own for each_supply, _ in ways]),
        total=supply.total,
        trend=supply.trend,
        shared=supply.shared,
        shares=own.shares or "what hosts share",
        doubt=supply.doubt,
        feeds=feeds,
        total_feeds=total_feeds,
        total_from=total_from,
        needed=_needed(request.accelerators, feeds, total_feeds),
        alone=_row(ways, 1, of_host, counts),
        rows=tuple(_row(ways, count, of_host, counts) for count in shown),
        checks=tuple(_checks(own, ways)),
        answer="",
        assumption="",
    )
    words = {"answer": plan_words.answer(made, step, request.accelerators), "assumption": plan_words.assumption(made)}
    return VariantPlan.model_validate(made.model_dump() | words)


def _supply_beside_all(own: MeasuredInput, every: Sequence[MeasuredInput], works_ahead: bool) -> Supply:
    """Return what an input can give; if its own model never waited for it, by what the session's others got from it."""
    supply = _supply(own, own.points, works_ahead)
    if supply.own.is_known:
        return supply
    supplies = [_supply(each, each.points, works_ahead) for each in inputs.same_input(own, every)]
    known = next((each.own for each in supplies if each.own.is_known), None)
    if known is None:
        return supply
    seen = Range(low=max(each.total.low for each in supplies))
    return replace(supply, own=known, total=supply.total if supply.total.is_known else seen)


def _supply(own: MeasuredInput, points: Sequence[Point], works_ahead: bool) -> Supply:
    busy_ms = None if works_ahead else own.busy_ms
    return capacity.fit(points, own.unit, own.samples, busy_ms, reads_storage=own.shares is not None)


def _needed(accelerators: int, feeds: Range, total: Range) -> int | None:
    if not feeds.value or (total.value is not None and total.value < accelerators):
        return None
    return math.ceil(accelerators / feeds.value - 1e-9)


def _row(ways: Sequence[tuple[Supply, HostStep]], count: int, samples: float, measured: Sequence[int]) -> PlanRow:
    rate = _either([capacity.rate(supply, step, count, samples) for supply, step in ways])
    limits = {capacity.limit(supply, step, count, samples) for supply, step in ways}
    total = ways[0][0].total
    load = rate.high if rate.value is None else rate.value
    beyond = not total.is_known and (load or 0.0) > thresholds.TIE * total.low
    basis: Basis = "measured" if count in measured else "computed"
    return PlanRow(
        count=count,
        samples_per_second=rate,
        utilization=_either([capacity.utilization(supply, step, count, samples) for supply, step in ways]),
        limit=limits.pop() if len(limits) == 1 else "not-known",
        basis="extrapolated" if beyond or count > max(measured) else basis,
    )


def shown_counts(asked: tuple[int, int], measured: Sequence[int], total_from: Range | None) -> list[int]:
    """Return the numbers to show, at most eight: the ends, the measured ones, where the total begins, powers of two."""
    fewest, most = asked
    first = int(total_from.value) if total_from is not None and total_from.value is not None else fewest
    wanted = [fewest, most, first, *measured]
    kept = list(dict.fromkeys(count for count in wanted if fewest <= count <= most))[:_ROWS]
    powers = [2**power for power in range(most.bit_length()) if fewest < 2**power < most and 2**power not in kept]
    while len(kept) + len(powers) > _ROWS:
        powers = powers[1::2]
    return sorted({*kept, *powers})


def _checks(own: MeasuredInput, ways: Sequence[tuple[Supply, HostStep]]) -> Iterator[PlanCheck]:
    """Yield what the smaller half of the numbers alone says of the others, with the session's own accelerator."""
    points = own.points
    half = [point for point in points if point.count <= max(points[0].count, points[-1].count // 2)]
    if own.own_step_ms is None:
        return
    for point in points[len(half) :]:
        planned = [
            capacity.rate(
                _supply(own, half, step.works_ahead),
                HostStep(own.own_step_ms, own.host_ms, step.works_ahead),
                point.count,
                float(own.samples),
            )
            for _, step in ways
        ]
        yield PlanCheck(planned_from=half[-1].count, count=point.count, planned=_either(planned), measured=point.rate)


def _either(ranges: Sequence[Range]) -> Range:
    """Return all that one of these can be, with a value where they agree on one."""
    highs = [each.high for each in ranges]
    values = {each.value for each in ranges}
    high = None if None in highs else max(high for high in highs if high is not None)
    return Range(value=values.pop() if len(values) == 1 else None, low=min(each.low for each in ranges), high=high)
