"""What a cache takes, in memory or on disk, and when it is right."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.fixes import Context, memoized, short
from pipeline_bench.model.calls import TAKE_ANY, MemoizableCall
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import Edit, InsertAfter, MoveBefore, Remove
from pipeline_bench.model.function_edits import DivideMap
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text import units

IN_MEMORY = "in memory"
MIXING = frozenset({"shuffle", "repeat"})
"""Methods that decide which of the elements come, and when, by their places alone: a cache moves in front of them."""
_PASS_ON = TAKE_ANY | {"with_options", "ignore_errors"}
"""Stages of an interleave's function that pass the records on as they are."""


def size_bytes_of(inspection: Inspection, stage: Stage) -> float | None:
    """Return the size of all that a stage gives in a pass; None where it is not known."""
    each_bytes, count = batch_bytes_of(inspection, stage), pass_elements(inspection, stage)
    return None if each_bytes is None or count is None else each_bytes * count


def batch_bytes_of(inspection: Inspection, stage: Stage) -> float | None:
    """Return the size of what a stage gives for an element of the sink; None where it is not known."""
    cost = inspection.cost(stage.id)
    if cost is None or cost.element_bytes is None or cost.elements is None:
        return None
    return cost.element_bytes * cost.elements


def pass_elements(inspection: Inspection, stage: Stage) -> float | None:
    """Return how many elements of the sink a pass has; about, by the files' size, where TensorFlow does not know it.

    What is read for one element is no measure of what it holds: a reader is ahead, in a short trial to the end.
    """
    if inspection.pass_elements is not None or inspection.source_bytes is None:
        return inspection.pass_elements
    readers = [
        (each, inner)
        for each in stage_graph.upstream(inspection, stage)
        for inner in each.with_inner()
        if inner.method in stage_graph.READERS
    ]
    cost = inspection.cost(readers[0][0].id) if len(readers) == 1 else None
    if cost is None or not cost.element_bytes or not cost.elements:
        return None
    if not all(each.method in stage_graph.READERS | _PASS_ON for each in readers[0][0].inner):
        return None  # what its function makes of the records has another size than they have in the files
    packed = readers[0][1].arguments.get("compression_type") not in (None, "")
    of_one = inspection.read_bytes if packed else cost.element_bytes * cost.elements
    return inspection.source_bytes / of_one if of_one else None


def with_part(stage: Stage, statements: int) -> Stage:
    """Return a map that can be divided with what is known of the first part that has so many statements."""
    part = None if stage.function is None else stage.function.fixed_smaller
    if stage.function is None or part is None or part.fixed_statements != statements:
        return stage
    return stage.model_copy(update={"function": stage.function.model_copy(update=dict(part))})


def with_fixed_part(inspection: Inspection, stage: Stage) -> Inspection:
    """Return the inspection as if a map that can be divided gave what the first part of its function hands over."""
    fixed_bytes = stage.function.fixed_bytes if stage.function is not None else None
    costs = (
        each.model_copy(update={"element_bytes": fixed_bytes}) if each.stage == stage.id else each
        for each in inspection.costs
    )
    return inspection.model_copy(update={"costs": tuple(costs)})


def fits(size_bytes: float | None, context: Context) -> bool:
    """Return whether memory has room for so much, as far as both are known."""
    return no_room(size_bytes, context) is None


def no_room(size_bytes: float | None, context: Context) -> str | None:
    """Return why memory has no room for so much, as a sentence without its full stop; None where `fits` is true."""
    free_bytes = context.free_memory_bytes
    if size_bytes is None or free_bytes is None or size_bytes <= free_bytes:
        return None
    return f"what is kept would take {units.size(size_bytes)}, and memory has room for {units.size(free_bytes)}"


def shuffled_bytes(inspection: Inspection, where: str, passed: Sequence[Stage], stage: Stage) -> float | None:
    """Return the memory of shuffle buffers where the cache moves in front of them and they hold the stage's elements.

    0 for a cache in memory, which shares them; None if unknown. A shuffle whose elements get no larger is not counted.
    """
    cost, size_bytes = inspection.cost(stage.id), size_bytes_of(inspection, stage)
    if where == IN_MEMORY:
        return 0.0
    if size_bytes is None or cost is None or not cost.element_bytes:
        return None
    held_bytes = 0.0
    for number, shuffle in enumerate(passed):
        now, size = inspection.cost(shuffle.id), shuffle.arguments.get("buffer_size")
        is_smaller = now is not None and now.element_bytes is not None and now.element_bytes >= cost.element_bytes
        if shuffle.method != "shuffle" or is_smaller:
            continue
        wanted_bytes = size * cost.element_bytes if isinstance(size, int) and size > 0 else size_bytes
        repeated = any(each.method == "repeat" for each in passed[:number])
        held_bytes += wanted_bytes if repeated else min(wanted_bytes, size_bytes)
    return held_bytes


def price(
    stages: Sequence[Stage],
    size_bytes: float | None,
    where: str,
    held_bytes: float | None = None,
    batch_bytes: float | None = None,
    settled: Collection[int] = (),
) -> str:
    """Return what keeping the elements of stages takes, and when it is right, as a sentence without its subject.

    Args:
        stages: up to the one whose elements are kept.
        size_bytes: of all of them; None where that is not known.
        where: they are kept.
        held_bytes: what the shuffles behind them then hold beside that.
        batch_bytes: of those that a batch is made of; told where the size of all is not known.
        settled: the ids of those that a cache as written keeps the first epoch of already.
    """
    if size_bytes is None:
        each = f" ({units.size(batch_bytes)} a batch)" if batch_bytes else ""
        text = f"takes room {where} for the whole dataset, whose size is not known{each}"
    else:
        text = f"takes about {units.size(size_bytes)} {where}"
    if held_bytes:
        text += f", and the shuffle's buffer about {units.size(held_bytes)} of memory"
    open_yet = [stage for stage in stages if stage.id not in settled]
    keeping = [stage for stage in open_yet if any(map(stage_graph.may_differ, stage.with_inner()))]
    if keeping:
        text += f"; right only if {short(keeping[-1])} gives the same in each epoch"
    seeded = [stage for stage in open_yet if any(e.function and e.function.draws_by_seed for e in stage.with_inner())]
    if seeded:
        text += f"; {short(seeded[-1])} draws from seeds that are the same in each epoch, and goes on giving the same"
    if any(stage_graph.shuffles_files(stages, stage) for stage in open_yet):
        text += "; the files then keep the order of the first epoch"
    return text


def results_bytes(calls: Iterable[MemoizableCall], batches: float | None) -> float | None:
    """Return the size of the results of calls for so many batches; None where their number is not known."""
    return None if batches is None else batches * sum(call.batch_bytes for call in calls)


def price_of_results(calls: Sequence[MemoizableCall], batches: float | None) -> str:
    """Return what keeping the results of calls for so many batches takes, and when it is right, as `price` does."""
    gives = "it gives" if len(calls) == 1 else "each gives"
    drawn, more = [call.drawn for call in calls], ""
    whose = "its" if len(calls) == 1 else "all" if all(drawn) else "some"
    if any(drawn):
        more = f", and may take more with each epoch, as {whose} arguments are drawn anew"
    elif None in drawn:
        more = f", and may take more with each epoch: whether {whose} arguments are drawn anew is not known"
    return f"{price([], results_bytes(calls, batches), IN_MEMORY)}{more}; right only if {gives} the same in each epoch"


def priced(fix: Fix, inspection: Inspection, elements: int, parts: Sequence[Fix] = ()) -> Fix:
    """Return a fix that keeps something with its size, by the elements of a pass that a trial of it kept.

    TensorFlow does not know how many come of a window, a filter or a generator.

    Args:
        fix: that the trial was of.
        inspection: of the pipeline as written.
        elements: that the trial kept.
        parts: the fixes that it combines, whose other caveats stay.
    """
    if memoized(fix):
        calls = ((each, memoized(each)) for each in parts or (fix,))
        caveats = (price_of_results(own, elements) if own else each.because for each, own in calls)
        return fix.model_copy(update={"because": "; ".join(filter(None, caveats))})
    inserted = [edit for edit in fix.edits if isinstance(edit, InsertAfter) and edit.method == "cache"]
    if fix.kind not in ("cache", "cache_within_map") or not len(fix.kept_stages) == 1 == len(inserted):
        return fix
    stage = last = inspection.stage(fix.kept_stages[0])
    for edit in fix.edits:
        if isinstance(edit, DivideMap):  # what is kept is of the map, though the cache stands in front of it
            stage = with_part(inspection.stage(edit.stage), edit.statements)
            inspection = with_fixed_part(inspection, stage)
    cost = inspection.cost(stage.id)
    if cost is None or cost.element_bytes is None or not cost.elements:
        return fix
    inspection = inspection.model_copy(update={"pass_elements": round(elements / cost.elements)})
    where = "on disk" if inserted[0].arguments else IN_MEMORY
    passed = _passed(inspection, fix, stage)
    held_bytes = shuffled_bytes(inspection, where, passed, stage)
    above = stage_graph.upstream(inspection, last)
    kept = stage_graph.settled(inspection, above)
    because = price(above, cost.element_bytes * elements, where, held_bytes, settled=kept)
    order = order_caveat(inspection, last, passed)
    order += beside(inspection, last, fix.edits)
    because += of_fixed_part(stage) + read_back(inspection, stage, where)
    return fix.model_copy(update={"because": because + order})


def _passed(inspection: Inspection, fix: Fix, stage: Stage) -> list[Stage]:
    """Return the shuffles and repeats that are in front of a stage as written, and behind what a fix keeps of it."""
    others = {edit.other for edit in fix.edits if isinstance(edit, MoveBefore)}
    after = {edit.after for edit in fix.edits if isinstance(edit, DivideMap)}
    run = reversed(stage_graph.trunk(inspection, stage))
    rest = itertools.dropwhile(lambda each: each.id not in others | after, run)
    return [each for each in rest if each.method in MIXING and each.id not in after]


def of_fixed_part(stage: Stage) -> str:
    """Return when the first part of a map that is divided gives the same in each epoch, if it reads a state."""
    reads = stage.function is not None and stage.function.fixed_reads
    return f"; right only if the variables and tables that {short(stage)} reads stay as they are" if reads else ""


def read_back(inspection: Inspection, stage: Stage, where: str) -> str:
    """Return the caveat of a cache on disk: what reading it takes, or that no trial shows it.

    It is on disk because memory has no room for it, but what a short trial has just written is in the page cache.
    """
    took_ms, rate = stage_graph.disk_ms(inspection, stage), inspection.disk_bytes_per_s
    if where == IN_MEMORY:
        return ""
    if took_ms is None or rate is None:
        return "; trials read it from memory, a training from the disk"
    return f"; reading it takes {units.milliseconds(took_ms)} a batch at this disk's {units.size(rate)}/s"


def order_caveat(inspection: Inspection, stage: Stage, passed: Sequence[Stage] = ()) -> str:
    """Return the caveat of a cache behind a shuffle that mixes anew in each epoch; `passed` come behind it."""
    above = stage_graph.upstream(inspection, stage)
    settled = stage_graph.settled(inspection, above)
    mixes = (
        each
        for each in above
        if each.method == "shuffle" and each.id not in settled and each not in passed
        if not stage_graph.keeps_order(each)
    )
    if all(stage_graph.shuffles_files(above, each) for each in mixes):
        return ""
    return "; the shuffle in front of the cache then takes effect only once, in the first epoch"


def beside(inspection: Inspection, stage: Stage, edits: Iterable[Edit]) -> str:
    """Return what a cache behind a stage leaves in memory beside its own: caches as written in front of it."""
    out = {edit.stage for edit in edits if isinstance(edit, Remove)}
    stay = [each for each in stage_graph.upstream(inspection, stage) if each.method == "cache" and each.id not in out]
    sizes = [size_bytes_of(inspection, each) for each in stay if not stage_graph.in_file(each)]
    return "".join(f"; the cache in front of it stays, with {units.size(size)}" for size in sizes if size is not None)


def unread(inspection: Inspection) -> str:
    """Return the caveat of a training that may end in its first pass, which fills a cache and reads nothing of it.

    "" where its batches are not counted, or those of a pass are: `Inspection.once` decides then.
    """
    training = inspection.training
    taken = None if training is None else training.steps_known
    if training is None or training.in_loop or taken is None or inspection.pass_elements is not None:
        return ""
    batches = units.count(taken, "batch", "batches")
    if training.pass_steps is not None:
        return f"; of use only if a pass over the data ends within the {batches} that the loop takes of each iterator"
    return f"; of use only if a pass over the data has fewer than the {batches} of the training"
