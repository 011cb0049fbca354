"""Which stage limits a pipeline, why, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipeline_bench.analysis.thresholds import DEARER_ALONE, EXPLAINED, HINTED, LEAST_CAUSE
from pipeline_bench.diagnosis import model_step, segments, stage_graph, step_times
from pipeline_bench.diagnosis.segments import Segments
from pipeline_bench.diagnosis.stage_graph import named, subject
from pipeline_bench.diagnosis.step_times import HANDS_ON, Beginning, StepTimes
from pipeline_bench.model.calls import TAKE_ANY
from pipeline_bench.model.diagnosis import Bottleneck, Cause
from pipeline_bench.model.pipeline import Inspection, Stage, StageCost
from pipeline_bench.text import NAME, joined, one_line, sentence, units
from pipeline_bench.text.units import NS_PER_MS

_FEW_STEPS = 16
"""Of fewer, one that is slower than usual moves a small share by its half."""
_MUCH_LESS = 0.25
"""A wait that is less than a stage's share by so much, or so small a part of it, contradicts it without a word."""


def find(inspection: Inspection, cores: int, times: StepTimes) -> Bottleneck:
    """Name the stage that limits the pipeline.

    Args:
        inspection: the stages and their costs.
        cores: that the pipeline may use.
        times: of its steps.
    """
    begins = step_times.unseen_beginning(inspection, times)
    if begins is not None:
        return _of_unseen_beginning(inspection, segments.of(inspection, cores), begins, times)
    found, begins = _of_steps_within(inspection, cores, times), step_times.beginning_of_unknown_part(inspection, times)
    if begins is None or (found.limits and found.stage is not None):  # of which it is said there
        return found
    first = _first_element(inspection, begins, "The first element of an epoch")
    return found.model_copy(update={"text": found.text + first})


def _of_steps_within(inspection: Inspection, cores: int, times: StepTimes) -> Bottleneck:
    """Return what limits the steps that were measured."""
    parts = segments.of(step_times.beside_model(inspection, times), cores)
    as_written_ms, ceiling_ms = times.as_written_ms, times.ceiling_ms
    at_limit = step_times.at_the_model(inspection, cores, times)
    fed = step_times.fed_by(inspection, cores, times)
    is_of_model = times.as_written_ms and (times.trains or times.ceiling_ms)
    limits = fed is not None or not is_of_model or not times.waits_little  # whether a step waits, as far as is known
    number, (explained, of) = limiting(inspection, parts), _explained(parts, times)
    if as_written_ms is not None and limits and not at_limit:
        all_measured = all(cost.elapsed_ns is not None for cost in inspection.costs)
        if parts.elapsed_ns and explained < (HINTED if all_measured else EXPLAINED):
            begins = _of_beginnings(inspection, parts, times) if ceiling_ms else None
            return begins or _withheld(inspection, number, f"{units.share(explained)} of {of}", 1 - explained)
    period_ns = parts.period_ns if as_written_ms is None else as_written_ms * NS_PER_MS
    if at_limit:
        costliest = ""
        if number is not None and parts.cost_ns([number]) >= LEAST_CAUSE * period_ns:
            costliest = f" The costliest stage is {named(inspection.stage(number))}."
        return Bottleneck(text=f"The input is not the limit: {at_limit}.{costliest}")
    unknown = _unmeasured(inspection, number)
    if number is None or unknown:
        late = any(cost.late for cost in inspection.costs)
        hardly = "" if limits else f"{sentence(step_times.hardly_waits(times))}. "  # a full buffer may feed these steps
        return Bottleneck(doubt="stages" if late else None, text=f"{hardly}No stage can be named: {unknown}.")
    stage, cost = inspection.stage(number), inspection.cost(number) or StageCost(stage=number)
    passing = _passing(inspection, parts, number)
    stage = passing[0] if passing else stage
    limiting_ones = passing or stage_graph.alike(inspection, stage)
    others = {each.id for each in inspection.stages} - {each.id for each in limiting_ones}
    share = min(1.0, segments.without(parts, others).period_ns / period_ns)
    if ceiling_ms is not None and share < LEAST_CAUSE:
        takes = f"the costliest, {named(stage)}, takes {units.share(share)} of it"
        return Bottleneck(share=share, limits=False, text=f"No stage limits the training step: {takes}.")
    cause = "handing-over" if passing else segments.cause_of(inspection, parts, stage, cost)
    text = _text(inspection, parts, limiting_ones, share, cause, times, fed) if limits else _beside(stage, cost, times)
    found = Bottleneck(stage=stage.id, share=share, cause=cause, limits=limits, text=text)
    if limits and explained < EXPLAINED:
        return _probable(found, "stages", f"the stages measured alone explain only {units.share(explained)} of {of}")
    dearer = fed is not None or _dearer_alone(parts, stage, as_written_ms)
    found, part = found.model_copy(update={"doubt": "stages" if dearer else None}), model_step.part(inspection)
    # What limits begins with its name, which is code and stays as it is.
    said = {"text": text if limits else sentence(text)}
    return _in_doubt(found, cost, times, part) or found.model_copy(update=said)


def _in_doubt(found: Bottleneck, cost: StageCost, times: StepTimes, part: str) -> Bottleneck | None:
    """Return it as probable where few steps, or parts, were measured, or a wait may be one for a core; else None."""
    if times.steps is not None and times.steps < _FEW_STEPS and (found.share or 0.0) < EXPLAINED:
        return _probable(found, "steps", f"only {units.count(times.steps, 'step')} as written could be measured")
    if found.limits and found.cause in ("waiting", "reading") and cost.queued_ns is None:
        return _probable(found, None, "here it does not show whether the stage waits for a core")
    if found.limits and part:
        return _probable(found, found.doubt, f"the loop calls more for each batch than {part} once")
    return None


def _probable(found: Bottleneck, doubt: Literal["stages", "steps"] | None, why: str) -> Bottleneck:
    probable = {"certainty": "probable", "doubt": doubt, "text": f"Probably {found.text} In doubt: {why}."}
    return found.model_copy(update=probable)


def steps_wanted(times: StepTimes) -> int:
    """Return how many more steps of the pipeline as written take away the doubt that there were few."""
    return max(0, _FEW_STEPS - (times.steps or 0))


def _explained(parts: Segments, times: StepTimes) -> tuple[float, str]:
    """Return how much the stages account for, 0 to 1, and of what: of the time, or of what a step waits for its batch.

    With a model it is the less of the two: its own time explains no wait. Without its ceiling that time is not known.
    """
    as_written_ms, ceiling_ms, wait_ms = times.as_written_ms, times.ceiling_ms, times.wait_ms
    if not as_written_ms:
        return 1.0, "the time"
    of_time = parts.explained(as_written_ms, ceiling_ms), "the time"
    explains_wait = times.trains if ceiling_ms is None else (wait_ms or 0.0) >= LEAST_CAUSE * as_written_ms
    if not wait_ms or not explains_wait:
        return of_time
    of_wait = min(1.0, parts.period_ns / NS_PER_MS / wait_ms), "the wait for batches"
    return of_wait if ceiling_ms is None else min(of_time, of_wait)


def limiting(inspection: Inspection, parts: Segments) -> int | None:
    """Return the stage that takes the most of the period; None where none was measured.

    Those that run the same function count together, as far as they do not run beside each other.
    """
    in_a_row = {number: parts.elapsed_ns.get(number, 0.0) for number in parts.longest}
    costs_ns = parts.cpu_ns if parts.cores_limit else {number: ns for number, ns in in_a_row.items() if ns > 0}
    alike = {number: stage_graph.alike(inspection, inspection.stage(number)) for number in costs_ns}
    sums_ns = {number: sum(costs_ns.get(each.id, 0.0) for each in stages) for number, stages in alike.items()}
    return max(costs_ns, key=lambda number: (sums_ns[number], costs_ns[number]), default=None)


def _withheld(inspection: Inspection, costliest: int | None, explained: str, rest: float) -> Bottleneck:
    """Return what is to be said where the time lies elsewhere than in the stages that were measured alone."""
    unknown = [cost for cost in inspection.costs if cost.elapsed_ns is None]
    others = f"The stages that were measured alone explain only {explained}"
    if not unknown:
        if len(inspection.stages) == 1:
            return Bottleneck(text=f"Making the batches takes only {explained}.")
        most = "" if costliest is None else f"; most of that is {named(inspection.stage(costliest))}"
        text = f"No stage can be named. {others}{most}. The rest is spent between the stages."
        return Bottleneck(doubt="stages", text=text)
    stage, reason = inspection.stage(unknown[0].stage), (unknown[0].reason or "").rstrip(".")
    only = sum(inspection.stage(cost.stage).function is not None for cost in unknown) == 1
    if unknown[0].late or not only or stage.function is None:
        doubt = "stages" if any(cost.late for cost in unknown) else None
        return Bottleneck(doubt=doubt, text=f"No stage can be named. {others}; {named(stage)}, was not: {reason}.")
    return Bottleneck(
        stage=stage.id,
        share=rest,
        text=f"{subject(stage)} is the rest: it could not be measured alone ({reason}). {others}.",
    )


def _of_beginnings(inspection: Inspection, parts: Segments, times: StepTimes) -> Bottleneck | None:
    """Return what is to be said where the time goes into beginning the pipeline anew; None where it does not."""
    if not times.most_wait_at_beginnings or inspection.api in ("arrays", "generator"):
        return None
    batches, begins = step_times.of_a_pass(inspection), step_times.beginning(inspection, times)
    batches = None if batches is None or batches <= 0 else batches
    size = "" if batches is None else f" of {units.count(batches, 'batch', 'batches')}"
    training, advice = inspection.training, _only_once(inspection)
    step, wait, within = map(units.milliseconds, (times.as_written_ms, times.wait_ms, times.typical_wait_ms))
    waits = f"a step waits {wait} of {step} for its batch, most of it where an epoch{size} begins (median {within})"
    if begins is None:
        if not advice and training is not None and inspection.api == "tf.data" and (training.epochs or 0) > 1:
            steps = "steps_per_epoch" if batches is None else f"steps_per_epoch={batches}"
            advice = f" With `repeat()` at its end and `{steps}` in `fit`, all epochs share one iterator."
        return Bottleneck(text=f"No stage can be named: {waits}.{advice}")
    share = ((times.wait_ms or 0.0) - (times.typical_wait_ms or 0.0)) / (times.as_written_ms or 1.0)
    text = f"{subject(begins.stage)} {begins.does_first} anything: {waits}.{advice}"
    return _of_epoch(inspection, parts, begins, share, text)


def _only_once(inspection: Inspection) -> str:
    """Return that what an epoch begins with comes once, as a sentence; "" where there may be more epochs."""
    once = inspection.training is not None and inspection.training.once
    return " This training has one epoch, so this happens only once." * once


def _of_unseen_beginning(inspection: Inspection, parts: Segments, begins: Beginning, times: StepTimes) -> Bottleneck:
    """Return what is to be said where an epoch's beginning, which no measured step shows, takes more than these wait.

    What costs most in front of the buffer, or the skip, limits the epoch.
    """
    share = begins.batch_ms / (begins.batch_ms + (times.as_written_ms or 0.0))
    element, elements = ("batch", "batches") if inspection.batch_size is not None else ("element", "elements")
    wait, each, step = map(units.milliseconds, (begins.wait_ms, begins.batch_ms, times.as_written_ms))
    text = (
        f"{subject(begins.stage)} {begins.does_first} anything: the first {element} of an epoch comes {wait} late, "
        f"{units.share(share)} of the epoch. Over {begins.of_pass(element, elements)} that is {each} for "
        f"each, beside {step} for a step; the measured steps do not include it.{_only_once(inspection)}"
    )
    return _of_epoch(inspection, parts, begins, share, text)


def _of_epoch(inspection: Inspection, parts: Segments, begins: Beginning, share: float, text: str) -> Bottleneck:
    """Return that what costs most in front of a buffer, or a skip, limits the epoch, for that share of it."""
    front = [stage for stage in stage_graph.upstream(inspection, begins.stage) if stage.id != begins.stage.id]
    unknown = [each.id for each in front if each.method not in HANDS_ON and each.id not in parts.elapsed_ns]
    late = any(cost.late for cost in inspection.costs if cost.stage in unknown)
    costs_ns = parts.cpu_ns if parts.cores_limit else parts.elapsed_ns
    stage = max(front, key=lambda each: costs_ns.get(each.id, 0.0), default=None)
    if stage is None or unknown or not costs_ns.get(stage.id):
        return Bottleneck(doubt="stages" if late else None, text=f"What limits an epoch is its beginning: {text}")
    cause = segments.cause_of(inspection, parts, stage, inspection.cost(stage.id) or StageCost(stage=stage.id))
    return Bottleneck(stage=stage.id, share=share, cause=cause, text=f"{subject(stage)} limits an epoch: {text}")


def _passing(inspection: Inspection, parts: Segments, number: int) -> tuple[Stage, ...]:
    """Return the stages that pass an array's samples on one by one, up to their `batch`, where one of these is a stage.

    None of them is the limit by itself: each hands over what `from_tensor_slices` has cut. Empty where another stage
    takes much more than the cutting, or the samples are so large that copying them is what takes the time.
    """
    for batch in (each for each in inspection.stages if each.method == "batch"):
        passed = stage_graph.run_before(inspection, batch, TAKE_ANY)
        source = stage_graph.before(inspection, passed[0] if passed else batch)
        if source is None or source.method != "from_tensor_slices":
            continue
        found, cost = (source, *passed, batch), inspection.cost(source.id)
        ids = {each.id for each in found}
        if number not in ids or cost is None or not any(ids <= set(group) for group in parts.groups):
            continue
        dearest_ns = max(parts.elapsed_ns.get(each, 0.0) for each in ids)
        many = (cost.elements or 0) >= segments.MANY_ELEMENTS
        if many and dearest_ns < segments.TINY_NS * (cost.elements or 0) and dearest_ns <= 3 * (cost.elapsed_ns or 0.0):
            return found
    return ()


def _text(
    inspection: Inspection,
    parts: Segments,
    stages: tuple[Stage, ...],
    share: float,
    cause: Cause,
    times: StepTimes,
    fed: Stage | None,
) -> str:
    """Return what is said of the limiting stage, or of those that run its function, or that pass samples on one by one.

    `fed` is the buffer that may have fed the measured steps.
    """
    stage, as_written_ms, begins = stages[0], times.as_written_ms, step_times.beginning(inspection, times)
    taken, follows = model_step.share_of_time(share, inspection, times)
    head = f"{subject(stage, _others(stages))} takes {taken}"
    text = f"{head}: {segments.words_of_cause(inspection, parts, stage, cause)}{_costliest_line(stage)}.{follows}"
    text += _alone_and_beside(inspection, parts, stage)
    text += _longer_one(inspection, parts, stages)
    text += _beside_the_model(share, times) if fed is None else _fed(fed, parts, times)
    if fed is None and as_written_ms is not None and _dearer_alone(parts, stage, as_written_ms):
        alone, whole = units.milliseconds(parts.elapsed_ns[stage.id] / NS_PER_MS), units.milliseconds(as_written_ms)
        threads = ", or alone it has fewer threads" * stage_graph.hands_over(stage, inspection.default_parallelised)
        is_fed = begins is not None and begins.holds_of(inspection, stage)
        why = "a full buffer feeds the steps for a while" if is_fed else f"the machine was slower then{threads}"
        text += f" Alone it took {alone}, and the whole pipeline {whole}: {why}. Its share is a rough figure."
    return text + _epochs(inspection, parts) + _first_element(inspection, begins)


def _longer_one(inspection: Inspection, parts: Segments, stages: Sequence[Stage]) -> str:
    """Return which stage takes longer than the limiting ones, where the cores limit, as a sentence; else empty."""
    own = {each.id for each in stages}
    own_ns = sum(parts.elapsed_ns.get(number, 0.0) for number in own)
    others = {number: ns for number, ns in parts.elapsed_ns.items() if number not in own and ns > own_ns}
    if not parts.cores_limit or not others:
        return ""
    longest = max(others, key=others.__getitem__)
    return f" {named(inspection.stage(longest))}, takes longer, but less of the cores' time."


def _others(stages: Sequence[Stage]) -> str:
    """Return what is said of the limiting stages behind the name of the first: where the others are."""
    first, *others = stages
    if others and first.function is None:
        return f", together with the stages up to {named(others[-1])}"
    places = dict.fromkeys(
        one_line(each.place.short, NAME) for each in others if each.place and each.place != first.place
    )
    return f" and {joined(places, 'and')}" if places else f", made {len(stages)} times" * bool(others)


def _fed(buffer: Stage, parts: Segments, times: StepTimes) -> str:
    """Return a sentence on the buffer that may have fed the measured steps (`step_times.fed_by`)."""
    period, step = map(units.milliseconds, (parts.period_ns / NS_PER_MS, times.as_written_ms))
    return (
        f" The stages take {period}, longer than a step ({step}): all measured steps may have been fed by what "
        f"{subject(buffer)} held after the model was traced. Once that is empty, a step takes as long as the stages, "
        "unless the machine was slower while these were measured. The same may hold for trials of fixes."
    )


def _costliest_line(stage: Stage) -> str:
    """Return which line takes most of the time of a stage's Python, as the end of a sentence; empty if not known."""
    used = stage.function
    return f", {units.share(used.costliest_share)} of it in {used.costliest}" if used and used.costliest_share else ""


def _beside(stage: Stage, cost: StageCost, times: StepTimes) -> str:
    """Return what is said of the costliest stage of an input that the training hardly waits for, but for a capital."""
    alone = f", which alone takes {units.milliseconds(times.ceiling_ms)}" if times.ceiling_ms else ""
    alone += "" if times.steady else " (in doubt: trials of one variant differ)"
    computes = units.milliseconds((cost.cpu_ns or cost.elapsed_ns or 0.0) / NS_PER_MS)
    return (
        f"{step_times.hardly_waits(times)}; the input can only take cores from the model{alone}. "
        f"The costliest stage, {named(stage)}, computes for {computes} a batch{_costliest_line(stage)}."
    )


def _alone_and_beside(inspection: Inspection, parts: Segments, stage: Stage) -> str:
    """Return what a stage takes alone and beside the model, as a sentence; "" where it counts as alone."""
    cost = inspection.cost(stage.id) or StageCost(stage=stage.id)
    if parts.elapsed_ns.get(stage.id) == cost.elapsed_ns:
        return ""
    alone, beside = (units.milliseconds(ns / NS_PER_MS) for ns in (cost.elapsed_ns or 0.0, parts.elapsed_ns[stage.id]))
    shared = "they share the cores, the memory and Python's lock"
    return f" Alone it takes {alone} for a batch, beside the model {beside}: {shared}."


def _beside_the_model(share: float, times: StepTimes) -> str:
    """Return how much of its time a step waits, where that is much less than the stage takes of it."""
    if not times.as_written_ms or times.wait_ms is None or not (times.trains or times.ceiling_ms):
        return ""
    waits = times.wait_ms / times.as_written_ms
    contradicts = share - waits > _MUCH_LESS or waits < _MUCH_LESS * share
    return f" The model computes meanwhile: its step waits for {units.share(waits)} of it." * contradicts


def _dearer_alone(parts: Segments, stage: Stage, as_written_ms: float | None) -> bool:
    """Return whether a stage took longer by itself than the whole pipeline does, beyond what trials differ by."""
    return as_written_ms is not None and parts.elapsed_ns.get(stage.id, 0.0) > DEARER_ALONE * as_written_ms * NS_PER_MS


def _epochs(inspection: Inspection, parts: Segments) -> str:
    """Return what is to be said of the first epoch apart from the later ones, where a cache makes them differ."""
    first = {cost.stage: cost.first_epoch_ns for cost in inspection.costs if cost.first_epoch_ns}
    if not first:
        return ""
    costliest = named(inspection.stage(max(first, key=lambda number: first[number])))
    element = "batch" if inspection.batch_size is not None else "element"
    by_class = inspection.api == "PyDataset"  # there is no cache, its class keeps what it makes
    if inspection.once:
        never = "what the class keeps is never asked for" if by_class else "nothing is read from the cache"
        return f" {sentence(stage_graph.one_pass(inspection))}: {never}."
    if inspection.cold and by_class:
        return f" This is the first epoch, in which {costliest} keeps what it makes: it takes less in later ones."
    if inspection.cold:
        later_ns = max(sum(parts.elapsed_ns.get(i, 0.0) for i in group if i not in first) for group in parts.groups)
        later = units.milliseconds(later_ns / NS_PER_MS)
        return (
            f" This is the first epoch, because its cache could not be filled in time. Later epochs skip {costliest}: "
            f"the stages after the cache take about {later} per {element}."
        )
    whole = segments.of(inspection.of_first_epoch(), parts.cores)
    takes = f"takes about {units.milliseconds(whole.period_ns / NS_PER_MS)} per {element}"
    who, does = ("class", "makes") if by_class else ("cache", "fills")
    if max(whole.elapsed_ns, key=lambda number: whole.elapsed_ns[number]) not in first:
        return f" The {who} keeps nothing that takes long: the first epoch, which {does} it, {takes}, too."
    fills = "makes what the class keeps" if by_class else "fills the cache"
    return f" This is from the second epoch on. The first epoch {fills} and {takes}, most of it in {costliest}."


def _first_element(inspection: Inspection, begins: Beginning | None, it: str = "Its first element") -> str:
    """Return a sentence on the first element if what comes ahead of it takes a good part of a pass; else empty."""
    if begins is None:
        return ""
    first = units.milliseconds(begins.first_ms)
    over = f", which over an epoch of {begins.of_pass()} is {units.milliseconds(begins.batch_ms)} for each"
    over = over if begins.batch_ms else ", and an epoch's last batches come from that buffer"
    over = "" if begins.measured or not begins.batches else over
    ahead = f"{subject(begins.stage)} {begins.does_first} any"
    return f" {it} takes {first}: {ahead}{over}.{_only_once(inspection)}"


def _unmeasured(inspection: Inspection, costliest: int | None) -> str:
    """Return why no stage can be named; "" where the costliest can."""
    if costliest is not None:
        late = [inspection.stage(cost.stage) for cost in inspection.costs if cost.late]
        computes = next((stage for stage in late if stage.function is not None), None)
        if computes is None or inspection.stage(costliest).method not in HANDS_ON:
            return ""
        return f"{subject(computes)} was not measured, because time ran out"
    for cost in inspection.costs:
        if cost.reason:
            return f"{subject(inspection.stage(cost.stage))} was not measured alone: {cost.reason.rstrip('.')}"
    return f"no stage {'took any time that could be measured' if inspection.costs else 'could be measured alone'}"
