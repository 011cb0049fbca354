"""Caches: where one may stand, whether memory has room for it, and what it takes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.fixes import Context, fix, kind, short
from pipeline_bench.model.calls import KEEPING, MemoizableCall, Value
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import Edit, InsertAfter, KeepSamples, MoveBefore, Remove
from pipeline_bench.model.function_edits import DivideMap, Memoize
from pipeline_bench.model.pipeline import INFINITE, Inspection, Stage
from pipeline_bench.text import units

_IN_MEMORY = "in memory"
_UP_TO_MAPS = frozenset({"shuffle", "batch", "map", "prefetch", "with_options"})
"""What stands between what is the same in each epoch and the maps of shuffled batches."""


def _cache_blocker(inspection: Inspection, context: Context) -> str | None:
    """Return why nothing would be read from a cache behind the fixed part."""
    if inspection.once:
        return f"{stage_graph.one_pass(inspection)}, and nothing would be read from a cache"
    run = list(reversed(stage_graph.trunk(inspection)))
    fixed = _fixed_part(inspection, run)
    is_whole = bool(fixed) and fixed[-1].left_early is False
    for stage in run[len(fixed) :]:
        takes = stage.method == "take" and stage.arguments.get("count") != INFINITE
        if stage.method == "take_while" or (takes and not is_whole):
            return f"{stage.label} behind it may end a pass before the cache is full, and then nothing is read from it"
    return None


@kind(saving=0.9, blocker=_cache_blocker, has_price=True)
def cache(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Keep what was computed once: in memory, on disk where it does not fit; always before the first random stage."""
    run = list(reversed(stage_graph.trunk(inspection)))
    fixed = _fixed_part(inspection, run)
    kept = [stage for stage in fixed if stage.method == "cache" and not _in_file(stage)]
    on_disk = [stage for stage in inspection.stages if _in_file(stage)]
    if not fixed:
        yield from _cached_in_branches(inspection, context, run[0])
    if (kept or on_disk) and inspection.cold:
        return  # one epoch would be held against others
    if not fixed or any(each.method in KEEPING for each in inspection.stages if each not in (*kept, *on_disk)):
        return
    if on_disk and not fits(size_bytes_of(inspection, fixed[-1]), context):
        return  # in a second file it would gain nothing
    out: list[Edit] = [Remove(stage=stage.id) for stage in kept]  # a cache that is there moves
    if fixed[-1] not in kept:
        yield _cached(inspection, context, fixed[-1], out)
    if not out and (smaller := _last_that_fits(inspection, fixed, context)) is not None:
        yield _cached(inspection, context, smaller, out)
    # Those that mix files go on in front of what opens them.
    mixes_files = functools.partial(stage_graph.shuffles_files, inspection.stages)
    passed, moved = _movable(list(itertools.dropwhile(mixes_files, run[len(fixed) :])))
    if moved and _has_room(inspection, context, passed, moved[-1]):
        out += [MoveBefore(stage=stage.id, other=passed[0].id) for stage in moved]
        yield _cached(inspection, context, moved[-1], out, passed)


@kind(saving=0.85, blocker=_cache_blocker, has_price=True)
def cache_within_map(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Keep what a map computes before it draws random numbers: two maps, and a cache between them."""
    run = list(reversed(stage_graph.trunk(inspection)))
    fixed = _fixed_part(inspection, run)
    passed = _mixing(run[len(fixed) :])
    stage = next(iter(run[len(fixed) + len(passed) :]), None)
    if not fixed or stage is None or stage.method != "map" or stage.function is None or stage.anew:
        return
    if inspection.cold:
        return  # as in `cache`
    if stage.function.fixed_statements is None or not _has_room(inspection, context, passed, stage):
        return
    divide = DivideMap(stage=stage.id, after=fixed[-1].id, statements=stage.function.fixed_statements)
    size_bytes, named = size_bytes_of(inspection, stage), short(stage)
    where, arguments = _place(size_bytes, context)
    above = stage_graph.upstream(inspection, fixed[-1])
    as_large = f", if it is as large as what {named} gives" if size_bytes is not None else ""
    yield fix(
        f"cache within {stage.label}",
        f"Keep {where} what {named} computes before it draws random numbers, in a map of its own",
        divide,
        InsertAfter(stage=fixed[-1].id, method="cache", arguments=arguments),
        stages=inspection.measured(each.id for each in (*above, stage)),
        reorders=_keeps_one_order(above, run[len(fixed) :]),
        caveat=f"{price(above, size_bytes, where, _shuffled_bytes(inspection, where, passed, stage))}{as_large}",
    )


@kind(saving=0.85, blocker=_cache_blocker, has_price=True)
def cache_samples(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Keep the samples of what maps make of shuffled batches, and shuffle and batch those behind the cache.

    A cache of the batches would give those of the first epoch for ever.
    """
    run = list(reversed(stage_graph.trunk(inspection)))
    rest = run[len(_fixed_part(inspection, run)) :]
    ahead = list(itertools.takewhile(lambda each: each.method in _UP_TO_MAPS and not _varies(each), rest))
    while ahead and ahead[-1].method != "map":
        ahead.pop()
    batches = [each for each in ahead if each.method == "batch"]
    shuffles = [each for each in ahead if each.method == "shuffle"]
    size = batches[0].arguments.get("batch_size") if len(batches) == 1 else None
    if not shuffles or not isinstance(size, int) or inspection.cold:
        return
    if batches[0].arguments.get("drop_remainder") or any(each.method in KEEPING for each in inspection.stages):
        return  # what the first epoch drops would be dropped for ever
    stage = ahead[-1]
    size_bytes, count = size_bytes_of(inspection, stage), _pass_elements(inspection, stage)
    cost = inspection.cost(stage.id)
    if size_bytes is None or count is None or cost is None or not cost.elements or not fits(size_bytes, context):
        return
    samples = math.ceil(count * cost.elements) * size
    asked, of_batches = shuffles[-1].arguments.get("buffer_size"), ahead.index(shuffles[-1]) > ahead.index(batches[0])
    buffer = asked * (size if of_batches else 1) if isinstance(asked, int) and asked > 0 else samples
    above = stage_graph.upstream(inspection, stage)
    yield fix(
        f"cache of the samples after {stage.label}",
        f"Keep the samples that {short(stage)} gives {_IN_MEMORY}, and shuffle and batch them behind that, so that "
        "only the first epoch computes them",
        KeepSamples(stage=stage.id, batch_size=size, buffer_size=min(samples, buffer)),
        stages=inspection.measured(each.id for each in above),
        reorders=True,
        caveat=price(above, size_bytes, _IN_MEMORY),
    )


def _varies(stage: Stage) -> bool:
    """Return whether a stage behind a shuffle may make other elements of the same ones."""
    return stage.anew or (stage.method != "shuffle" and stage.is_random)


def _last_that_fits(inspection: Inspection, fixed: Sequence[Stage], context: Context) -> Stage | None:
    """Return the last stage whose elements fit in memory, where those of the last one of all do not, as floats."""
    if fits(size_bytes_of(inspection, fixed[-1]), context):
        return None
    sizes = ((each, size_bytes_of(inspection, each)) for each in reversed(fixed[:-1]))
    return next((each for each, size_bytes in sizes if size_bytes is not None and fits(size_bytes, context)), None)


def _cached(
    inspection: Inspection, context: Context, stage: Stage, edits: Sequence[Edit], passed: Sequence[Stage] = ()
) -> Fix:
    """Return a cache behind a stage; `passed` are those that were behind it and now come later."""
    size_bytes = size_bytes_of(inspection, stage)
    where, arguments = _place(size_bytes, context)
    above = stage_graph.upstream(inspection, stage)
    behind = itertools.takewhile(lambda each: each is not stage, stage_graph.trunk(inspection))
    instead = " in place of what is cached now" if any(isinstance(edit, Remove) for edit in edits) else ""
    ahead = f" before the {passed[0].method}" if passed else ""
    moved = {edit.stage for edit in edits if isinstance(edit, MoveBefore)}
    return fix(
        f"cache {where} after {stage.label}",
        f"Keep what {short(stage)} gives {where}{ahead}{instead}, so that only the first epoch computes it",
        *edits,
        InsertAfter(stage=stage.id, method="cache", arguments=arguments),
        stages=inspection.measured(each.id for each in above if each not in passed),
        # Behind a repeat, one that reads several files at a time begins the next pass before the end of this one.
        reorders=_keeps_one_order(above, (*behind, *passed))
        or any(each.id in moved and each.method == "interleave" for each in above),
        caveat=price(above, size_bytes, where, _shuffled_bytes(inspection, where, passed, stage))
        + _read_back(inspection, stage, where)
        + _unread(inspection),
    )


def _cached_in_branches(inspection: Inspection, context: Context, chooses: Stage) -> Iterator[Fix]:
    """Yield caches in the inputs of a stage that chooses among them, each before the first random stage there."""
    if any(each.method in KEEPING for each in inspection.stages) or not _reads_all(inspection, chooses):
        return
    last: dict[int, Stage] = {}
    for number in chooses.inputs:
        run = list(reversed(stage_graph.trunk(inspection, inspection.stage(number))))
        fixed = _fixed_part(inspection, run)
        ends = any(each.method in ("take", "take_while") for each in run[len(fixed) :])
        if not ends and any(each.function is not None for each in fixed):
            last[fixed[-1].id] = fixed[-1]
    if not last:
        return
    sizes = [size_bytes_of(inspection, each) for each in last.values()]
    size_bytes = None if None in sizes else sum(each for each in sizes if each is not None)
    where, arguments = _place(size_bytes, context)
    above = {each.id: each for end in last.values() for each in stage_graph.upstream(inspection, end)}
    names = " and ".join(dict.fromkeys(map(short, last.values())))
    yield fix(
        f"cache {where} in front of {chooses.label}",
        f"Keep what {names} give {where}, in front of {chooses.method}, so that only the first epoch computes it",
        *(InsertAfter(stage=each, method="cache", arguments=arguments) for each in last),
        stages=inspection.measured(above),
        reorders=_keeps_one_order(list(above.values()), stage_graph.trunk(inspection)),
        caveat=price(list(above.values()), size_bytes, where),
    )


def _reads_all(inspection: Inspection, chooses: Stage) -> bool:
    """Return whether a stage that chooses among its inputs reads each to its end in a pass, or over and over in one."""
    endless = [stage_graph.endless(inspection, inspection.stage(number)) for number in chooses.inputs]
    if chooses.method == "sample_from_datasets":
        return all(endless) or not (any(endless) or chooses.arguments.get("stop_on_empty_dataset"))
    return chooses.method == "choose_from_datasets" and all(endless)


def _place(size_bytes: float | None, context: Context) -> tuple[str, dict[str, Value]]:
    """Return the place that has room for a cache of that size, and the arguments of `cache`."""
    return (_IN_MEMORY, {}) if fits(size_bytes, context) else ("on disk", {"filename": "disk"})


def fits(size_bytes: float | None, context: Context) -> bool:
    """Return whether memory has room for so much, as far as both are known."""
    free_bytes = context.free_memory_bytes
    return size_bytes is None or free_bytes is None or size_bytes <= free_bytes


def _fixed_part(inspection: Inspection, run: list[Stage]) -> list[Stage]:
    """Return the stages from the source on that give the same in each epoch, end, and are made once."""
    return stage_graph.fixed_part(inspection, list(itertools.takewhile(lambda stage: not stage.anew, run)))


def _movable(rest: list[Stage]) -> tuple[list[Stage], list[Stage]]:
    """Return the shuffles and repeats that end the fixed part, and what behind them may as well be in front of them.

    A shuffle moves the same samples in the same order whether they are mapped or not, and a repeat repeats them; what
    makes more or fewer of them changes what a shuffle has in its buffer, and so may pass a repeat only.
    """
    passed = _mixing(rest)
    shuffles = any(stage.method == "shuffle" for stage in passed)
    methods = {"map"} if shuffles else {"map", "filter", "flat_map", "interleave", *stage_graph.READERS}
    rest = rest[len(passed) :]
    moved = itertools.takewhile(
        lambda stage: stage.method in methods and not stage.anew and not stage_graph.draws(stage), rest
    )
    return passed, list(moved) if passed else []


def _mixing(rest: Iterable[Stage]) -> list[Stage]:
    """Return the shuffles and repeats that stages begin with."""
    return list(itertools.takewhile(lambda stage: stage.method in ("shuffle", "repeat"), rest))


def _shuffled_bytes(inspection: Inspection, where: str, passed: Sequence[Stage], stage: Stage) -> float | None:
    """Return the memory of shuffle buffers where the cache moves in front of them and they hold the stage's elements.

    0 for a cache in memory, which shares them; None if unknown. A shuffle whose elements get no larger is not counted.
    """
    cost, size_bytes = inspection.cost(stage.id), size_bytes_of(inspection, stage)
    if where == _IN_MEMORY:
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


def _has_room(inspection: Inspection, context: Context, passed: Sequence[Stage], stage: Stage) -> bool:
    """Return whether memory has room for shuffles that a cache of what `stage` gives moves in front of."""
    where, _ = _place(size_bytes_of(inspection, stage), context)
    return fits(_shuffled_bytes(inspection, where, passed, stage), context)


def _in_file(stage: Stage) -> bool:
    """Return whether it is a cache in a file, which every epoch reads: one in memory behind it may be faster."""
    return stage.method == "cache" and stage.arguments.get("filename") not in (None, "")


def size_bytes_of(inspection: Inspection, stage: Stage) -> float | None:
    """Return the size of all that a stage gives in a pass; None where it is not known."""
    cost, count = inspection.cost(stage.id), _pass_elements(inspection, stage)
    if cost is None or cost.element_bytes is None or cost.elements is None or count is None:
        return None
    return cost.element_bytes * cost.elements * count


def _pass_elements(inspection: Inspection, stage: Stage) -> float | None:
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
    packed = readers[0][1].arguments.get("compression_type") not in (None, "")
    of_one = inspection.read_bytes if packed else cost.element_bytes * cost.elements
    return inspection.source_bytes / of_one if of_one else None


def price(stages: Sequence[Stage], size_bytes: float | None, where: str, held_bytes: float | None = None) -> str:
    """Return what keeping the elements of stages takes, and when it is right, as a sentence without its subject.

    Args:
        stages: up to the one whose elements are kept.
        size_bytes: of all of them; None where that is not known.
        where: they are kept.
        held_bytes: what the shuffles behind them then hold beside that.
    """
    if size_bytes is None:
        text = f"takes an unknown size {where}, in which the whole dataset must fit"
    else:
        text = f"takes about {units.size(size_bytes)} {where}"
    if held_bytes:
        text += f", and the shuffle's buffer about {units.size(held_bytes)} of memory"
    keeping = [stage for stage in stages if any(map(stage_graph.may_differ, stage.with_inner()))]
    if keeping:
        text += f"; right only if {short(keeping[-1])} gives the same in each epoch"
    if any(stage_graph.shuffles_files(stages, stage) for stage in stages):
        text += "; the files then keep the order of the first epoch"
    return text


def _read_back(inspection: Inspection, stage: Stage, where: str) -> str:
    """Return the caveat of a cache on disk: what reading it takes.

    It is on disk because memory has no room for it, but what a short trial has just written is in the page cache.
    """
    cost, rate = inspection.cost(stage.id), inspection.disk_bytes_per_s
    if where == _IN_MEMORY or not rate or cost is None or not cost.element_bytes or not cost.elements:
        return ""
    took_ms = cost.element_bytes * cost.elements / rate * 1e3
    return f"; reading it takes {units.milliseconds(took_ms)} a batch at this disk's {units.size(rate)}/s"


def _unread(inspection: Inspection) -> str:
    """Return the caveat of a training that may end in its first pass, which fills a cache and reads nothing of it.

    "" where its batches are not counted, or those of a pass are: `Inspection.once` decides then.
    """
    training = inspection.training
    if training is None or training.in_loop or training.steps is None or inspection.pass_elements is not None:
        return ""
    batches = units.count(training.steps, "batch", "batches")
    return f"; of use only if a pass over the data has fewer than the {batches} of the training"


def price_of_results(call: MemoizableCall, batches: float | None) -> str:
    """Return what keeping a call's results for so many batches takes, and when it is right, as `price` does."""
    return f"{price([], call.kept_bytes(batches), _IN_MEMORY)}; right only if it gives the same in each epoch"


def priced(fix: Fix, inspection: Inspection, elements: int, parts: Sequence[Fix] = ()) -> Fix:
    """Return a fix that keeps something with its size, by the elements of a pass that a trial of it kept.

    TensorFlow does not know how many come of a window, a filter or a generator.

    Args:
        fix: that the trial was of.
        inspection: of the pipeline as written.
        elements: that the trial kept.
        parts: the fixes that it combines, whose other caveats stay.
    """
    if any(isinstance(edit, Memoize) for edit in fix.edits):
        caveats = (_price_of_results_of(each, elements) or each.because for each in parts or (fix,))
        return fix.model_copy(update={"because": "; ".join(filter(None, caveats))})
    inserted = [edit for edit in fix.edits if isinstance(edit, InsertAfter) and edit.method == "cache"]
    cost = inspection.cost(fix.kept_stages[0]) if len(fix.kept_stages) == 1 == len(inserted) else None
    if fix.kind != "cache" or cost is None or cost.element_bytes is None:
        return fix
    where = "on disk" if inserted[0].arguments else _IN_MEMORY
    stage = inspection.stage(cost.stage)
    behind = next((edit.other for edit in fix.edits if isinstance(edit, MoveBefore)), None)
    passed = _mixing(itertools.dropwhile(lambda each: each.id != behind, reversed(stage_graph.trunk(inspection))))
    held_bytes = _shuffled_bytes(inspection, where, passed, stage)
    because = price(stage_graph.upstream(inspection, stage), cost.element_bytes * elements, where, held_bytes)
    return fix.model_copy(update={"because": because})


def _price_of_results_of(fix: Fix, batches: int) -> str:
    """Return what a fix takes that keeps the results of a call; "" of another one."""
    return next((price_of_results(each.call, batches) for each in fix.edits if isinstance(each, Memoize)), "")


def _keeps_one_order(above: Sequence[Stage], behind: Iterable[Stage]) -> bool:
    """Return whether a cache would give each epoch the files in one order, and nothing behind it shuffles again."""
    shuffles = (each for each in behind if each.method == "shuffle")
    again = any(each.arguments.get("reshuffle_each_iteration") is not False for each in shuffles)
    return any(stage_graph.shuffles_files(above, stage) for stage in above) and not again
