"""What limits a training beside its stages: the model, what it knows of shapes, the cores, the disk, the memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pipeline_bench.analysis.thresholds import CEILING_TOLERANCE
from pipeline_bench.diagnosis import model_step, segments, stage_graph, step_times
from pipeline_bench.diagnosis.fixes import short
from pipeline_bench.diagnosis.fixes.cache_places import has_open_rows
from pipeline_bench.diagnosis.fixes.cache_size import batch_bytes_of, pass_elements, size_bytes_of
from pipeline_bench.diagnosis.fixes.parallelism import drawn_apart
from pipeline_bench.diagnosis.reader_ideas import repeats_within_call
from pipeline_bench.diagnosis.stage_graph import named, subject
from pipeline_bench.model.calls import BATCHING
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING, Diagnosis, Limit
from pipeline_bench.model.element import Element
from pipeline_bench.model.job import WHY_EAGER
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.model.session import Session
from pipeline_bench.text import joined, units
from pipeline_bench.text.units import NS_PER_MS

_LESS_MEMORY = {
    "cache": "Give the cache the name of a file, or put it in front of what makes its elements larger.",
    "shuffle": "Shuffle what is small, such as paths or records, or use a smaller buffer.",
    "prefetch": "Its buffer fills as soon as no step waits any more: tf.data.AUTOTUNE holds a few.",
}
_TRACED_ANEW, _TRACED_SHARE = 3, 0.05
"""A step that is traced anew is mentioned from so often a trial on (a short last batch does so once, and what has
`reduce_retracing` too), and from that part of the steps' time on."""
_SLOWER_DISK = 1.25
"""The disk limits what reads from it if reading takes so many times as long as a step that does not."""
_COUNTING = ("counter", "range")
"""Methods whose numbers begin anew in each epoch."""
_NAMED = 3
"""Of tensors whose shapes are open, so many are named."""


def of(session: Session, diagnosis: Diagnosis) -> tuple[Limit, ...]:
    """Return how fast the pipeline could be if only one thing limited it; empty before it was inspected."""
    if diagnosis.inspection is None:
        return ()
    of_cores = _cores_limit(diagnosis.inspection, session.environment.cores)
    return (
        _possible(session, _model_limit(session, diagnosis)),
        *_copy_limit(session),
        of_cores if _is_fed(session, diagnosis.inspection) else _possible(session, of_cores),
        _disk_limit(diagnosis.inspection),
    )


def _possible(session: Session, limit: Limit) -> Limit:
    """Return a limit of what a step does, which cannot be above the step as written; without its time where it is.

    The machine may have been slower while it was measured.
    """
    step_ms = step_times.mean_ms(session, AS_WRITTEN)
    if limit.ms is None or step_ms is None or limit.ms <= step_ms * (1 + CEILING_TOLERANCE):
        return limit
    text = f"{limit.text}: {units.milliseconds(limit.ms)}, more than a step as written, so it is none"
    return Limit(name=limit.name, text=text)


def _is_fed(session: Session, inspection: Inspection) -> bool:
    """Return whether a buffer that was full before the steps explains that they are shorter than the cores allow.

    Later steps are not. What stands behind the buffer is computed for each of them.
    """
    cores, times = session.environment.cores, step_times.of(session)
    begins = step_times.beginning(inspection, times)
    held = [each.id for each in inspection.stages if begins is not None and begins.holds_of(inspection, each)]
    behind_ms = segments.without(segments.of(inspection, cores), held).cores_ns / NS_PER_MS
    is_explained = bool(held) and behind_ms <= (times.as_written_ms or 0.0) * (1 + CEILING_TOLERANCE)
    return is_explained or step_times.fed_by(inspection, cores, times) is not None


def _model_limit(session: Session, diagnosis: Diagnosis) -> Limit:
    if diagnosis.model is None:
        is_script = diagnosis.target.is_script
        return Limit(name="the model", text="its step is not run here" if is_script else "no --model was given")
    found = session.find_result(CEILING)
    if found is None or found.step_ms.mean is None:
        reason = found.reason if found is not None and found.reason else "its trial has not run"
        return Limit(name="the model", text=f"not measured: {reason}")
    return Limit(name="the model", ms=step_times.ceiling_ms(session), text="on one batch that stays on the device")


def _copy_limit(session: Session) -> Iterator[Limit]:
    """Yield how long the copy of a batch takes, where one was measured: no step is shorter, even if it runs ahead."""
    copies = [trial.copied for trial in session.trials_of(CEILING) if trial.copied is not None]
    if copies and (ms := step_times.copy_ms(session)) is not None:
        size_bytes = copies[0].size_bytes
        rate = units.size(1e3 * size_bytes / ms)
        yield Limit(name="the copy to the GPU", ms=ms, text=f"{units.size(size_bytes)} a batch, at {rate}/s")


def _cores_limit(inspection: Inspection, cores: int) -> Limit:
    name = "all cores busy"
    parts = segments.of(inspection, cores)
    if not parts.cpu_ns or parts.cores_ns <= 0:
        return Limit(name=name, text="the stages' CPU time was not measured")
    unmeasured = len(inspection.stages) - len(parts.cpu_ns)
    left_out = f"; {units.count(unmeasured, 'stage')} not measured" if unmeasured else ""
    computed = units.milliseconds(parts.cores_ns * parts.cores / NS_PER_MS)
    text = f"{computed} of CPU time as the stages are written, over {units.count(parts.cores, 'core')}{left_out}"
    return Limit(name=name, ms=parts.cores_ns / NS_PER_MS, text=text)


def _disk_limit(inspection: Inspection) -> Limit:
    name = "the disk"
    if inspection.read_bytes is None:
        return Limit(name=name, text="how much the pipeline reads was not measured")
    if inspection.read_bytes <= 0:
        return Limit(name=name, text="the pipeline reads no files")
    if _reads_once(inspection):
        return Limit(name=name, text="files are read in the first epoch only: a cache keeps what they give")
    if not inspection.disk_bytes_per_s:
        reason = inspection.disk_reason or "its bandwidth was not measured"
        return Limit(name=name, text=reason.rstrip("."))
    read, rate = units.size(inspection.read_bytes), units.size(inspection.disk_bytes_per_s)
    ms = 1e3 * inspection.read_bytes / inspection.disk_bytes_per_s
    return Limit(name=name, ms=ms, text=f"{read} an element at {rate}/s, as measured here past the page cache")


def _reads_once(inspection: Inspection) -> bool:
    """Return whether the sources are read in the first epoch only, because a cache keeps what they give."""
    sources = [inspection.cost(stage.id) for stage in inspection.stages if not stage.inputs]
    return not inspection.cold and all(cost is not None and cost.elements == 0 for cost in sources)


def beside_the_fixes(session: Session, inspection: Inspection | None, proposed: str | None) -> Iterator[str]:
    """Yield what matters whatever a fix gains: of the memory, the disk, random draws, shapes, and the model's step.

    Args:
        session: with its results.
        inspection: the stages; None where they are not known.
        proposed: the fix that is proposed; None where none is.
    """
    if inspection is not None:
        yield from overflows(inspection, session.environment.memory_bytes)
        yield from frozen(inspection)
        yield from repeated_draws(inspection)
        yield from drawn_apart(inspection)
        yield from idle_shuffles(inspection)
        yield from (from_memory(session, inspection), open_shapes(session, inspection))
        yield model_step.strings(session, inspection)
        yield from model_step.padding(session, inspection)
        yield eager_model(session)
        yield traced_anew(session, inspection)
        yield between_fits(session, inspection)
        yield model_step.short_steps(session, inspection, proposed)


def stages_alone(session: Session, inspection: Inspection | None) -> str:
    """Return what the stages take where no step could be measured: the reader's own step can be held against it."""
    if inspection is None or not inspection.stages or any(cost.elapsed_ns is None for cost in inspection.costs):
        return ""
    period_ns = segments.of(inspection, session.environment.cores).period_ns
    what = "a batch" if inspection.batch_size else "an element"
    return f"All stages together take {units.milliseconds(period_ns / NS_PER_MS)} for {what}." if period_ns else ""


def overflows(inspection: Inspection, memory_bytes: float) -> Iterator[str]:
    """Yield a sentence of each cache in memory, shuffle and prefetch as written that would hold more than the memory.

    And of each cache that has no end.

    Args:
        inspection: the stages and their costs, of a trial too short to fill them.
        memory_bytes: of the machine.
    """
    for stage in inspection.stages:
        held_bytes = _held_bytes(inspection, stage)
        if stage.method == "cache" and stage_graph.endless(inspection, stage) and not stage.left_early:
            each_bytes = batch_bytes_of(inspection, stage)
            size = f", {units.size(each_bytes)} a batch" if each_bytes else ""
            within = any(repeats_within_call(each) for each in stage_graph.upstream(inspection, stage))
            where = "" if within else "Put it in front of the repeat and of all that is random, or "
            yield (
                f"{subject(stage)} stands behind what never ends: it is never full, nothing is ever read from it, and "
                f"it grows for ever{size}. {where}{'L' if within else 'l'}eave it out."
            )
        elif held_bytes is not None and memory_bytes < held_bytes < math.inf:
            yield (
                f"{subject(stage)} would hold about {units.size(held_bytes)} in memory, and this machine has "
                f"{units.size(memory_bytes)}: the training would run out of it. {_LESS_MEMORY[stage.method]}"
            )


def _held_bytes(inspection: Inspection, stage: Stage) -> float | None:
    """Return what a cache in memory, a shuffle or a prefetch holds once it is full; None of another stage.

    Infinite where that is not known.
    """
    size_bytes, cost = size_bytes_of(inspection, stage), inspection.cost(stage.id)
    pass_bytes = math.inf if size_bytes is None else size_bytes * min(1.0, stage_graph.passes(inspection) or 1.0)
    if stage.method == "cache" and not stage_graph.in_file(stage):
        return pass_bytes
    if stage.method not in ("shuffle", "prefetch") or _holds_what_is_held(inspection, stage):
        return None
    asked = stage.ahead or math.inf if stage.method == "shuffle" else stage.arguments.get("buffer_size")
    if cost is None or not cost.element_bytes or not isinstance(asked, int | float) or asked <= 0:
        return None  # of a prefetch without a number, TensorFlow decides how many it holds
    repeated = any(each.method == "repeat" for each in stage_graph.upstream(inspection, stage))
    buffer_bytes = asked * cost.element_bytes
    return buffer_bytes if repeated else min(buffer_bytes, pass_bytes)


def _holds_what_is_held(inspection: Inspection, buffer: Stage) -> bool:
    """Return whether what comes to a shuffle or a prefetch is in memory already, in a cache or in another shuffle."""
    before = stage_graph.first_before(inspection, buffer, ("repeat", "prefetch", "take", "skip", "with_options"))
    return before is not None and before.method in ("cache", "shuffle")


def open_shapes(session: Session, inspection: Inspection) -> str:
    """Return what steps would take if the dataset promised the shapes of its batches; empty where that was not found.

    `fit` traces a model for what is promised. Where a `tf.py_function` or a `padded_batch` loses sizes, TensorFlow
    computes for any: on a CPU a convolution of three axes took ten times as long.
    """
    found = [trial.known_shapes for trial in session.trials_of(CEILING) if trial.known_shapes is not None]
    if not found or inspection.element is None:
        return ""
    last = found[-1]
    pairs = zip(inspection.element.tensors(), last.element.tensors(), strict=False)
    differ = [(promised, known) for promised, known in pairs if promised.shape != known.shape]
    if not differ:
        return ""
    promised, known = (_listed(side) for side in zip(*differ, strict=True))
    batches = units.count(last.batches, "batch", "batches")
    return (
        f"fit traces the model for {promised}, the shapes that the dataset promises{_opened(inspection)}: a step of "
        f"the model alone then takes {units.milliseconds(last.promised_ms)}. Traced for {known}, as the first "
        f"{batches} are, it takes {units.milliseconds(last.ms)}. If all batches have these shapes, promise them in a "
        "last map, with tf.ensure_shape, which ends the training at any other batch; then diagnose again."
    )


def eager_model(session: Session) -> str:
    """Return what steps would take as graphs, of a model that runs as eager code; empty where that was not found."""
    found = next((trial.in_graph for trial in session.trials_of(CEILING) if trial.in_graph is not None), None)
    if found is None:
        return ""
    as_it_is, as_graph = units.milliseconds(found.eager_ms), units.milliseconds(found.ms)
    return (
        f"The model runs as eager code, op by op from Python: {WHY_EAGER[found.eager]}. So a step of the model alone "
        f"takes {as_it_is}, and {as_graph} as a graph. If that is not for debugging, take it out; then diagnose again."
    )


def _listed(tensors: Sequence[Element]) -> str:
    """Return some tensors for people, each with its name where it has one, and how many more there are."""
    shown = [f"{each.name} {each.text}".lstrip() for each in tensors[:_NAMED]]
    more = f" and {len(tensors) - _NAMED} more" if len(tensors) > _NAMED else ""
    return f"{joined(shown)}{more}"


def _opened(inspection: Inspection) -> str:
    """Return from which stage on sizes are open, as a part of a sentence; empty where that is not known."""
    first = None
    for stage in stage_graph.trunk(inspection):  # the sink comes first
        if not has_open_rows(stage):
            break
        first = stage
    return "" if first is None else f" (sizes are open from {named(first)}, on)"


def frozen(inspection: Inspection) -> Iterator[str]:
    """Yield of each cache as written that it keeps one random draw, or one order, for all epochs."""
    for stage in [] if inspection.once else inspection.stages:
        if not stage_graph.fills(inspection, stage):
            continue
        above = stage_graph.upstream(inspection, stage)
        drawn, mixing = [each for each in above if stage_graph.draws(each)], [each for each in above if _mixes(each)]
        behind = [each for each in inspection.stages if stage in stage_graph.upstream(inspection, each)]
        if drawn:
            yield (
                f"{subject(stage)} keeps what {short(drawn[-1])} drew in the first epoch, and gives the same in all "
                "others. If each epoch is to have its own, draw behind the cache."
            )
        elif mixing and not any(map(_mixes, behind)):
            batched = any(each.method in BATCHING and each.id > mixing[-1].id for each in above)
            yield (
                f"{subject(stage)} keeps the order that {named(mixing[-1])}, gave in the first epoch"
                f"{', and its batches' if batched else ''}, for all others. If each epoch is to have its own, shuffle"
                f"{' and batch' if batched else ''} behind the cache."
            )


def repeated_draws(inspection: Inspection) -> Iterator[str]:
    """Yield of each map that draws by seeds counted anew in each epoch that each sample gets the same in all epochs."""
    alike = stage_graph.promises_order(inspection) and not inspection.once
    for stage in inspection.stages if alike else ():
        draws_by_seed = stage.method == "map" and stage.function is not None and stage.function.draws_by_seed
        above = stage_graph.upstream(inspection, stage) if draws_by_seed else []
        joined = next((each for each in reversed(above) if each.method == "zip"), None)
        paired = [] if joined is None else stage_graph.upstream(inspection, joined)
        # A shuffle behind the zip mixes samples together with their seeds.
        goes_on = any(each.method == "repeat" or (each.varies and _mixes(each)) for each in paired)
        varies = any(stage_graph.may_differ(each) or (each.varies and not _mixes(each)) for each in above)
        if joined is not None and not goes_on and not varies and any(_counts_for_zip(inspection, e) for e in paired):
            yield (
                f"{subject(joined)} pairs each sample with a number, and the numbers begin anew in each epoch. If they "
                f"are the seeds of {named(stage)}, each sample gets the same random numbers in all epochs. Shuffle the "
                "samples in front of the zip, or have the map take its seeds from a tf.random.Generator (make_seeds)."
            )


def _counts_for_zip(inspection: Inspection, stage: Stage) -> bool:
    """Return whether a stage gives the same numbers in each epoch, and nothing but a zip takes them."""
    takers = stage_graph.consumers(inspection, stage)
    return stage.method in _COUNTING and all(each.method == "zip" for each in takers)


def _mixes(stage: Stage) -> bool:
    """Return whether it gives its elements in another order in each epoch, unless a cache keeps that."""
    return stage.method == "shuffle" and not stage_graph.keeps_order(stage) and not _holds_one(stage)


def _holds_one(shuffle: Stage) -> bool:
    return shuffle.arguments.get("buffer_size") == 1  # as is True


def idle_shuffles(inspection: Inspection) -> Iterator[str]:
    """Yield of each shuffle of the user's that its buffer of one element shuffles nothing.

    A buffer of 1 that was counted may be for the name of a single file; a library's may be so, too.
    """
    for stage in inspection.stages:
        if stage.method != "shuffle" or not _holds_one(stage) or stage_graph.is_librarys(inspection, stage):
            continue
        is_flag = stage.arguments["buffer_size"] is True
        if is_flag or stage.element is None or not any(each.is_record for each in stage.element.tensors()):
            given = "buffer_size=True counts as 1" if is_flag else "buffer_size=1"
            yield (
                f"{subject(stage)} shuffles nothing: its buffer holds one element ({given}). If the order is to "
                "change, give it as many as memory has room for."
            )


def from_memory(session: Session, inspection: Inspection) -> str:
    """Return that trials read from memory what a training reads from the disk, where that takes longer than a step."""
    if _reads_once(inspection) or any(stage.method in ("shard", "skip", "take") for stage in inspection.stages):
        return ""
    count, source_bytes = pass_elements(inspection, inspection.stage(inspection.sink)), inspection.source_bytes
    rate, as_written_ms = inspection.disk_bytes_per_s, step_times.mean_ms(session, AS_WRITTEN)
    if not count or not rate or as_written_ms is None or (source_bytes or 0.0) < session.environment.memory_bytes:
        return ""
    read_ms = 1e3 * (source_bytes or 0.0) / count / rate
    if read_ms < _SLOWER_DISK * as_written_ms:
        return ""
    return (
        f"The files have {units.size(source_bytes)}, more than the memory. The trials read the first of them, which "
        f"memory holds; from this disk a batch takes {units.milliseconds(read_ms)} to read, and limits an epoch."
    )


def traced_anew(session: Session, inspection: Inspection) -> str:
    """Return how often a loop's step was traced for batches of other shapes; empty where that takes little of it."""
    found = [trial for trial in session.trials_of(AS_WRITTEN) if trial.measured and trial.inspection is not None]
    looks = [trial.inspection for trial in found if trial.inspection is not None]
    times, seconds = sum(each.traced_anew for each in looks), sum(each.traced_anew_s for each in looks)
    stepped_s = sum(float(trial.step_ns.sum()) for trial in found) / 1e9
    takes_little = not times or times < _TRACED_ANEW * len(found) or seconds < _TRACED_SHARE * stepped_s
    if inspection.training is None or takes_little:
        return ""
    return (
        f"{inspection.training.step} is traced anew for batches of another shape: {units.count(times, 'time')} in "
        f"{units.count(len(found), 'trial')} of the pipeline as written, which took {units.seconds(seconds)}. Give it "
        "batches of one shape, or make it with tf.function(reduce_retracing=True)."
    )


def between_fits(session: Session, inspection: Inspection) -> str:
    """Return that what a loop does between its calls of `fit` is not measured; empty without one, and of other data.

    Arrays and a generator are often a part of the data, which the loop loads for each call.
    """
    training, diagnosis = inspection.training, session.diagnosis
    if training is None or diagnosis is None or not training.in_loop or inspection.api not in ("arrays", "generator"):
        return ""
    return (
        "The script calls fit in a loop: what the loop does between two calls, such as loading the next part of the "
        f"data, is not measured here. `pipeline-bench run -- python {diagnosis.target.text}` tells how long it takes."
    )
