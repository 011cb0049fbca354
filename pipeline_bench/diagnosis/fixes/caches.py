"""Caches: where one may stand, whether memory has room for it, and what it takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from pipeline_bench.analysis.thresholds import WORTH_A_TRY
from pipeline_bench.diagnosis import segments, stage_graph
from pipeline_bench.diagnosis.fixes import Context, cache_places, could_save, fix, kind, short
from pipeline_bench.diagnosis.fixes.cache_places import (
    BatchedSamples,
    DividedMap,
    Movable,
    fixed_part,
    never_full_caches,
    run_of,
)
from pipeline_bench.diagnosis.fixes.cache_size import (
    IN_MEMORY,
    batch_bytes_of,
    beside,
    fits,
    of_fixed_part,
    order_caveat,
    pass_elements,
    price,
    read_back,
    shuffled_bytes,
    size_bytes_of,
    unread,
    with_fixed_part,
)
from pipeline_bench.diagnosis.fixes.order import by_itself
from pipeline_bench.model.calls import KEEPING, Value
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import Edit, InsertAfter, KeepSamples, MoveBefore, Remove, SetArgument
from pipeline_bench.model.function_edits import DivideMap
from pipeline_bench.model.pipeline import INFINITE, Inspection, Stage


def _cache_blocker(inspection: Inspection, context: Context) -> str | None:
    """Return why nothing would be read from a cache behind the fixed part."""
    if inspection.once:
        return f"{stage_graph.one_pass(inspection)}, and nothing would be read from a cache"
    run = run_of(inspection)
    fixed = fixed_part(inspection, run)
    is_whole = bool(fixed) and fixed[-1].left_early is False
    for stage in run[len(fixed) :]:
        takes = stage.method == "take" and stage.arguments.get("count") != INFINITE
        if stage.method == "take_while" or (takes and not is_whole):
            return f"{stage.label} behind it may end a pass before the cache is full, and then nothing is read from it"
    return None


@kind(saving=0.9, blocker=_cache_blocker, has_price=True)
def cache(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Keep what was computed once: in memory, on disk where it does not fit; always before the first random stage."""
    run = run_of(inspection)
    fixed = fixed_part(inspection, run)
    lost = never_full_caches(inspection)
    kept = [stage for stage in fixed if stage.method == "cache" and not stage_graph.in_file(stage)]
    on_disk = [stage for stage in inspection.stages if stage_graph.in_file(stage) and stage not in lost]
    if not fixed:
        yield from _cached_in_branches(inspection, context, run[0])
    if (kept or on_disk) and inspection.cold:
        return  # one epoch would be held against others
    if not fixed or _has_own(inspection, [*kept, *on_disk]):
        return
    if on_disk and not fits(size_bytes_of(inspection, fixed[-1]), context):
        return  # in a second file it would gain nothing
    out = _left_out(inspection, [*kept, *lost])  # a cache that is there moves
    if fixed[-1] not in kept:
        yield _cached(inspection, context, fixed[-1], out)
    if not kept and (smaller := _last_that_fits(inspection, fixed, context)) is not None:
        yield _cached(inspection, context, smaller, out)
    movable = cache_places.movable(inspection, run[len(fixed) :])
    before: list[Stage] = []
    for passed, moved in movable:
        needless = _spares_no_more(inspection, context, before, moved)
        if not needless and _has_room(inspection, context, passed, moved[-1]):
            before = moved
            moves = [MoveBefore(stage=stage.id, other=passed[0].id) for stage in moved]
            yield _cached(inspection, context, moved[-1], [*out, *moves], passed)
    last = cache_places.mapped_between_shuffles(run[len(fixed) :])
    # None can move in the user's file where one call, as a reader of Keras', makes one with the shuffle in front of it.
    free = (way.moved for way in movable if all(each.place != way.passed[0].place for each in way.moved))
    if last is not None and not any(last in moved for moved in free):
        yield _cached(inspection, context, last, out).model_copy(update={"reorders": True})


@kind(saving=0.85, blocker=_cache_blocker, has_price=True)
def cache_within_map(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Keep what a map computes before it draws random numbers: two maps, and a cache between them.

    Where memory has no room for that, also what it has a statement or more before: of a picture bytes and not floats.
    """
    found = cache_places.divided_map(inspection)
    if found is None:
        return
    smaller, label = found.smaller, found.stage.label
    yield from _cached_within(inspection, context, found, f"cache within {label}", "before it draws random numbers")
    if smaller is not None and not _fits(inspection, context, found) and _fits(inspection, context, smaller):
        until = f"up to {smaller.function.fixed_up_to}"
        yield from _cached_within(inspection, context, smaller, f"cache {IN_MEMORY} within {label}", until)


def _fits(inspection: Inspection, context: Context, found: DividedMap) -> bool:
    return fits(size_bytes_of(with_fixed_part(inspection, found.stage), found.stage), context)


def _cached_within(inspection: Inspection, context: Context, found: DividedMap, name: str, until: str) -> Iterator[Fix]:
    """Yield a cache of what the first part of a divided map gives, where memory has room for the shuffles behind it."""
    after, way, stage, given = found.after, found.way, found.stage, with_fixed_part(inspection, found.stage)
    if not _has_room(given, context, way.passed, stage):
        return
    out = _left_out(inspection, never_full_caches(inspection))
    where, arguments = _place(size_bytes_of(given, stage), context)
    above = stage_graph.upstream(inspection, after)
    yield fix(
        name,
        f"Keep {where} what {short(stage)} computes {until}, in a map of its own",
        *out,
        *(MoveBefore(stage=each.id, other=way.passed[0].id) for each in way.moved),
        DivideMap(
            stage=stage.id,
            after=after.id,
            statements=found.statements,
            within=found.function.fixed_within,
            up_to=found.function.fixed_up_to,
        ),
        InsertAfter(stage=after.id, method="cache", arguments=arguments),
        stages=inspection.measured(each.id for each in (*above, stage) if each not in way.passed),
        reorders=_gives_another_order(inspection, after, way),
        caveat=_price(given, above, stage, where, way.passed) + beside(given, after, out) + unread(given),
    )


@kind(saving=0.85, blocker=_cache_blocker, has_price=True)
def cache_samples(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Keep the samples of what maps make of shuffled batches, and shuffle and batch those behind the cache.

    A cache of the batches would give those of the first epoch for ever.
    """
    found = cache_places.batched_samples(inspection)
    stage = None if found is None else found.kept
    if found is None or stage is None or inspection.cold or _has_own(inspection):
        return
    ahead = found.ahead[: found.ahead.index(stage) + 1]
    mixing_rows = (each.function is not None and each.function.on_batches == "not" for each in found.behind(ahead))
    if any(mixing_rows) or found.whole_batches(ahead):
        return  # one that mixes the samples of a batch would do so once for ever; one may fail on the rest of a pass
    size_bytes, count = size_bytes_of(inspection, stage), pass_elements(inspection, stage)
    cost = inspection.cost(stage.id)
    if size_bytes is None or count is None or cost is None or not cost.elements or not fits(size_bytes, context):
        return
    above = stage_graph.upstream(inspection, stage)
    taken = price(above, size_bytes, IN_MEMORY, batch_bytes=batch_bytes_of(inspection, stage))
    caveats = (taken, by_itself([each for each in found.behind(ahead) if each.method == "map"]))
    yield fix(
        f"cache of the samples after {stage.label}",
        f"Keep the samples that {short(stage)} gives {IN_MEMORY}, and shuffle and batch them behind that, so that "
        "only the first epoch computes them",
        *_left_out(inspection, never_full_caches(inspection)),
        *_keeping_samples(found, ahead, math.ceil(count * cost.elements) * found.batch_size),
        stages=inspection.measured(each.id for each in above),
        reorders=True,
        caveat="; ".join(filter(None, caveats)),
    )


def _keeping_samples(found: BatchedSamples, ahead: list[Stage], samples: int) -> list[Edit]:
    """Return the edits that keep the samples of a pass behind the last of the stages `ahead`.

    A repeat in front of the batch then repeats the samples behind the cache; one behind it comes behind the new batch.
    """
    repeat, batch = found.repeat, found.batch
    edits: list[Edit] = []
    passes: int | None = 1
    if repeat is not None and repeat in ahead[: ahead.index(batch)]:
        edits.append(Remove(stage=repeat.id))
        count = repeat.arguments.get("count")
        passes = count if isinstance(count, int) else None
    elif repeat is not None and repeat in ahead:
        moved = (each for each in ahead[ahead.index(repeat) :] if each.method == "map")
        edits += [MoveBefore(stage=each.id, other=repeat.id) for each in moved]
    drops = batch.arguments.get("drop_remainder") is True
    if drops:  # what the first epoch drops would be dropped for ever
        edits.append(SetArgument(stage=batch.id, argument="drop_remainder", value=False))
    buffer = found.buffer_size(ahead)
    keep = KeepSamples(
        stage=ahead[-1].id,
        batch_size=found.batch_size,
        buffer_size=samples if buffer is None else min(samples, buffer),
        passes=passes,
        drop_remainder=drops,
    )
    return [*edits, keep]


def _left_out(inspection: Inspection, caches: Iterable[Stage]) -> list[Edit]:
    """Return the edits that leave out caches as written: one in a library's call can be left out in no user's file."""
    return [Remove(stage=each.id) for each in caches if not stage_graph.is_librarys(inspection, each)]


def _has_own(inspection: Inspection, but: Sequence[Stage] = ()) -> bool:
    """Return whether the pipeline as written keeps elements of its own beside those of some stages: one may be full."""
    known = (*but, *never_full_caches(inspection))
    return any(each.method in KEEPING and each not in known for each in inspection.stages)


def _spares_no_more(inspection: Inspection, context: Context, before: Sequence[Stage], moved: Sequence[Stage]) -> bool:
    """Return whether a cache of what fewer stages give, `before`, has room in memory and spares about as much.

    Two such caches would differ by chance alone, and the one of fewer stages is the simpler.
    """
    more = [each.id for each in moved[len(before) :]]
    share = could_save(more, segments.of(inspection, context.cores), None)
    is_little = share is not None and share < WORTH_A_TRY
    return bool(before) and is_little and fits(size_bytes_of(inspection, before[-1]), context)


def _last_that_fits(inspection: Inspection, fixed: Sequence[Stage], context: Context) -> Stage | None:
    """Return the last stage whose elements fit in memory, where those of the last one of all do not, as floats."""
    if fits(size_bytes_of(inspection, fixed[-1]), context):
        return None
    full = (each for each in reversed(fixed[:-1]) if each.left_early is False)
    sizes = ((each, size_bytes_of(inspection, each)) for each in full)
    return next((each for each, size_bytes in sizes if size_bytes is not None and fits(size_bytes, context)), None)


def _cached(
    inspection: Inspection, context: Context, stage: Stage, edits: Sequence[Edit], passed: Sequence[Stage] = ()
) -> Fix:
    """Return a cache behind a stage; `passed` are those that were behind it and now come later."""
    where, arguments = _place(size_bytes_of(inspection, stage), context)
    above = stage_graph.upstream(inspection, stage)
    instead = " in place of what is cached now" if any(isinstance(edit, Remove) for edit in edits) else ""
    ahead = f" before the {passed[0].method}" if passed else ""
    moved = {edit.stage for edit in edits if isinstance(edit, MoveBefore)}
    name = f"cache {where} after {stage.label}"
    title = f"Keep what {short(stage)} gives {where}{ahead}{instead}, so that only the first epoch computes it"
    if stage_graph.in_file(stage):  # whose elements are computed once as it is
        name = f"cache {where} behind the cache in a file"
        title = f"Keep what the cache in a file gives {where} too, so that only the first epoch reads it from the file"
    return fix(
        name,
        title,
        *edits,
        InsertAfter(stage=stage.id, method="cache", arguments=arguments),
        stages=inspection.measured(each.id for each in above if each not in passed),
        reorders=_gives_another_order(inspection, stage, Movable([*passed], [e for e in above if e.id in moved])),
        caveat=_price(inspection, above, stage, where, passed)
        + order_caveat(inspection, stage, passed)
        + beside(inspection, stage, edits)
        + unread(inspection),
    )


def _cached_in_branches(inspection: Inspection, context: Context, joins: Stage) -> Iterator[Fix]:
    """Yield caches in the inputs of a stage that joins them, or chooses among them, before what is random in each.

    Maps move in front of the shuffles and repeats of their branch, as those of a pipeline without branches do.
    """
    if _has_own(inspection):
        return
    last: dict[int, Stage] = {}
    moves: dict[MoveBefore, None] = {}
    passed: dict[int, list[Stage]] = {}
    for number in joins.inputs:
        run = run_of(inspection, inspection.stage(number))
        fixed = fixed_part(inspection, run)
        rest = run[len(fixed) :]
        if not fixed or not _is_read_whole(joins, fixed[-1], rest):
            continue
        mixes, maps = _longest_way(inspection, context, rest)
        if maps:
            last[maps[-1].id] = maps[-1]
            moves |= dict.fromkeys(MoveBefore(stage=each.id, other=mixes[0].id) for each in maps)
            passed[maps[-1].id] = mixes
        elif any(each.function is not None for each in fixed):
            last[fixed[-1].id] = fixed[-1]
    if not last or not _reads_all(inspection, joins):
        return
    sizes = [size_bytes_of(inspection, each) for each in last.values()]
    size_bytes = None if None in sizes else sum(each for each in sizes if each is not None)
    where, arguments = _place(size_bytes, context)
    held = [shuffled_bytes(inspection, where, mixes, last[number]) or 0.0 for number, mixes in passed.items()]
    above = {each.id: each for end in last.values() for each in stage_graph.upstream(inspection, end)}
    now_behind = [each for mixes in passed.values() for each in mixes]
    names = list(dict.fromkeys(map(short, last.values())))
    given = f"{' and '.join(names)} {'give' if names[1:] else 'gives'}"
    ahead = f"before the {now_behind[0].method} of each input" if now_behind else f"in front of {joins.method}"
    yield fix(
        f"cache {where} in front of {joins.label}",
        f"Keep what {given} {where}, {ahead}, so that only the first epoch computes it",
        *_left_out(inspection, never_full_caches(inspection)),
        *moves,
        *(InsertAfter(stage=each, method="cache", arguments=arguments) for each in last),
        stages=inspection.measured(number for number, each in above.items() if each not in now_behind),
        reorders=_keeps_one_order(inspection, list(above.values()), (*stage_graph.trunk(inspection), *now_behind)),
        caveat=price(list(above.values()), size_bytes, where, sum(held)),
    )


def _is_read_whole(joins: Stage, fixed: Stage, rest: Sequence[Stage]) -> bool:
    """Return whether each pass reads an input of a stage that joins several to the end of its fixed part."""
    if joins.method == "zip":  # which ends with its shortest input
        return fixed.left_early is False
    return not any(each.method in ("take", "take_while") for each in rest)


def _longest_way(inspection: Inspection, context: Context, rest: list[Stage]) -> Movable:
    """Return what may move in a branch that has room for it, and of whose stages nothing else takes; as much as may."""
    for way in reversed(cache_places.movable(inspection, rest)):
        on_way = rest[: rest.index(way.moved[-1]) + 1]
        is_one_branch = all(len(stage_graph.consumers(inspection, each)) == 1 for each in on_way)
        if is_one_branch and not way.mixes_otherwise and _has_room(inspection, context, way.passed, way.moved[-1]):
            return way
    return Movable([], [])


def _reads_all(inspection: Inspection, joins: Stage) -> bool:
    """Return whether a stage reads each of its inputs to its end in a pass, or over and over in one.

    How far a `zip` reads each, `_is_read_whole` tells.
    """
    if joins.method == "zip":
        return True
    all_are_endless = [stage_graph.endless(inspection, inspection.stage(number)) for number in joins.inputs]
    if joins.method == "sample_from_datasets":
        return all(all_are_endless) or not (any(all_are_endless) or joins.arguments.get("stop_on_empty_dataset"))
    return joins.method == "choose_from_datasets" and all(all_are_endless)


def _price(inspection: Inspection, above: Sequence[Stage], stage: Stage, where: str, passed: Sequence[Stage]) -> str:
    """Return what a cache takes, and when it is right, as `price` does.

    Args:
        inspection: with the sizes of what is kept.
        above: the stages up to where the cache stands.
        stage: whose elements are kept.
        where: they are kept.
        passed: those that come behind the cache now.
    """
    size_bytes, held_bytes = size_bytes_of(inspection, stage), shuffled_bytes(inspection, where, passed, stage)
    kept = stage_graph.settled(inspection, above)
    text = price(above, size_bytes, where, held_bytes, batch_bytes_of(inspection, stage), kept)
    return text + of_fixed_part(stage) + read_back(inspection, stage, where)


def _place(size_bytes: float | None, context: Context) -> tuple[str, dict[str, Value]]:
    """Return the place that has room for a cache of that size, and the arguments of `cache`."""
    return (IN_MEMORY, {}) if fits(size_bytes, context) else ("on disk", {"filename": "disk"})


def _has_room(inspection: Inspection, context: Context, passed: Sequence[Stage], stage: Stage) -> bool:
    """Return whether memory has room for shuffles that a cache of what `stage` gives moves in front of."""
    where, _ = _place(size_bytes_of(inspection, stage), context)
    return fits(shuffled_bytes(inspection, where, passed, stage), context)


def _gives_another_order(inspection: Inspection, stage: Stage, way: Movable) -> bool:
    """Return whether a cache behind a stage may change the order of the samples, once all has moved as `way` says."""
    above, trunk = stage_graph.upstream(inspection, stage), stage_graph.trunk(inspection)
    behind = (*itertools.takewhile(lambda each: each is not stage, trunk), *way.passed)
    # Behind a repeat, one that reads several files at a time begins the next pass before the end of this one.
    begins_early = any(each.method == "interleave" for each in way.moved)
    return begins_early or way.mixes_otherwise or _keeps_one_order(inspection, above, behind)


def _keeps_one_order(inspection: Inspection, above: Sequence[Stage], behind: Iterable[Stage]) -> bool:
    """Return whether a cache would give each epoch the files in one order, and nothing behind it shuffles again."""
    again = any(each.method == "shuffle" and not stage_graph.keeps_order(each) for each in behind)
    settled = stage_graph.settled(inspection, above)
    anew = [each for each in above if each.id not in settled]
    return any(stage_graph.shuffles_files(above, stage) for stage in anew) and not again
