"""Caches: where one may stand, whether memory has room for it, and what it takes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.fixes import Context, fix, kind, short
from pipeline_bench.diagnosis.fixes.cache_size import (
    IN_MEMORY,
    batch_bytes_of,
    beside,
    fits,
    mixing,
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
from pipeline_bench.model.edits import Edit, InsertAfter, KeepSamples, MoveBefore, Remove
from pipeline_bench.model.element_flow import never_full
from pipeline_bench.model.function_edits import DivideMap
from pipeline_bench.model.pipeline import INFINITE, Inspection, Stage

_UP_TO_MAPS = frozenset({"batch", "map", "prefetch", "shuffle", "with_options"})
"""What stands between what is the same in each epoch and the maps of shuffled batches."""
_OPENING = frozenset({"apply", "flat_map", "interleave"})
"""What may stand there besides, in front of the batches: it opens files that are read in another order each time."""


def _cache_blocker(inspection: Inspection, context: Context) -> str | None:
    """Return why nothing would be read from a cache behind the fixed part."""
    if inspection.once:
        return f"{stage_graph.one_pass(inspection)}, and nothing would be read from a cache"
    run = _run(inspection)
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
    run = _run(inspection)
    fixed = _fixed_part(inspection, run)
    lost = _never_full(inspection)
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
    # Those that mix files go on in front of what opens them.
    mixes_files = functools.partial(stage_graph.shuffles_files, inspection.stages)
    passed, moved = _movable(list(itertools.dropwhile(mixes_files, run[len(fixed) :])))
    if moved and _has_room(inspection, context, passed, moved[-1]):
        moves = [MoveBefore(stage=stage.id, other=passed[0].id) for stage in moved]
        yield _cached(inspection, context, moved[-1], [*out, *moves], passed)
    last = _mapped_between_shuffles(run[len(fixed) :])
    # Where one call makes the shuffle and the map, as a reader of Keras' does, the map cannot move in the user's file.
    if last is not None and (last not in moved or last.place == passed[0].place):
        yield _cached(inspection, context, last, out).model_copy(update={"reorders": True})


@kind(saving=0.85, blocker=_cache_blocker, has_price=True)
def cache_within_map(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Keep what a map computes before it draws random numbers: two maps, and a cache between them."""
    run = _run(inspection)
    fixed = _fixed_part(inspection, run)
    passed = mixing(run[len(fixed) :])
    stage = next(iter(run[len(fixed) + len(passed) :]), None)
    if not fixed or stage is None or stage.method != "map" or stage.function is None or stage.anew:
        return
    if inspection.cold:
        return  # as in `cache`
    given = with_fixed_part(inspection, stage)
    if stage.function.fixed_statements is None or not _has_room(given, context, passed, stage):
        return
    out = _left_out(inspection, _never_full(inspection))
    divide = DivideMap(stage=stage.id, after=fixed[-1].id, statements=stage.function.fixed_statements)
    named = short(stage)
    where, arguments = _place(size_bytes_of(given, stage), context)
    above = stage_graph.upstream(inspection, fixed[-1])
    yield fix(
        f"cache within {stage.label}",
        f"Keep {where} what {named} computes before it draws random numbers, in a map of its own",
        *out,
        divide,
        InsertAfter(stage=fixed[-1].id, method="cache", arguments=arguments),
        stages=inspection.measured(each.id for each in (*above, stage)),
        reorders=_keeps_one_order(inspection, above, run[len(fixed) :]),
        caveat=_price(given, above, stage, where, passed) + beside(given, fixed[-1], out) + unread(given),
    )


@kind(saving=0.85, blocker=_cache_blocker, has_price=True)
def cache_samples(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Keep the samples of what maps make of shuffled batches, and shuffle and batch those behind the cache.

    A cache of the batches would give those of the first epoch for ever.
    """
    run = _run(inspection)
    rest = run[len(_fixed_part(inspection, run)) :]

    def goes_on(stage: Stage) -> bool:
        known = stage.method in _UP_TO_MAPS | _OPENING and not _varies(stage)
        return known and not stage_graph.endless(inspection, stage)

    ahead = list(itertools.takewhile(goes_on, rest))
    while ahead and ahead[-1].method != "map":
        ahead.pop()
    batches = [each for each in ahead if each.method == "batch"]
    shuffles = [each for each in ahead if each.method == "shuffle"]
    size = batches[0].arguments.get("batch_size") if len(batches) == 1 else None
    if not shuffles or not isinstance(size, int) or inspection.cold:
        return
    if batches[0].arguments.get("drop_remainder") or _has_own(inspection):
        return  # what the first epoch drops would be dropped for ever
    stage, behind = ahead[-1], ahead[ahead.index(batches[0]) :]
    mixing_rows = (each.function is not None and each.function.on_batches == "not" for each in behind)
    if any(mixing_rows) or any(each.method in _OPENING for each in behind):
        return  # one that mixes the samples of a batch would do so once for ever
    size_bytes, count = size_bytes_of(inspection, stage), pass_elements(inspection, stage)
    cost = inspection.cost(stage.id)
    if size_bytes is None or count is None or cost is None or not cost.elements or not fits(size_bytes, context):
        return
    samples = math.ceil(count * cost.elements) * size
    asked, of_batches = shuffles[-1].arguments.get("buffer_size"), ahead.index(shuffles[-1]) > ahead.index(batches[0])
    buffer = asked * (size if of_batches else 1) if isinstance(asked, int) and asked > 0 else samples
    above = stage_graph.upstream(inspection, stage)
    taken = price(above, size_bytes, IN_MEMORY, batch_bytes=batch_bytes_of(inspection, stage))
    caveats = (taken, by_itself([each for each in behind if each.method == "map"]))
    yield fix(
        f"cache of the samples after {stage.label}",
        f"Keep the samples that {short(stage)} gives {IN_MEMORY}, and shuffle and batch them behind that, so that "
        "only the first epoch computes them",
        *_left_out(inspection, _never_full(inspection)),
        KeepSamples(stage=stage.id, batch_size=size, buffer_size=min(samples, buffer)),
        stages=inspection.measured(each.id for each in above),
        reorders=True,
        caveat="; ".join(filter(None, caveats)),
    )


def _run(inspection: Inspection, last: Stage | None = None) -> list[Stage]:
    """Return the trunk, or a branch up to a stage, upstream first, as it is without the caches that are never full."""
    lost = _never_full(inspection)
    return [each for each in reversed(stage_graph.trunk(inspection, last)) if each not in lost]


def _never_full(inspection: Inspection) -> list[Stage]:
    """Return the caches as written from which nothing is ever read: a pass is as well without them."""
    return [each for each in inspection.stages if each.method == "cache" and never_full(inspection.stages, each)]


def _left_out(inspection: Inspection, caches: Iterable[Stage]) -> list[Edit]:
    """Return the edits that leave out caches as written: one in a library's call can be left out in no user's file."""
    return [Remove(stage=each.id) for each in caches if not stage_graph.is_librarys(inspection, each)]


def _has_own(inspection: Inspection, but: Sequence[Stage] = ()) -> bool:
    """Return whether the pipeline as written keeps elements of its own beside those of some stages: one may be full."""
    known = (*but, *_never_full(inspection))
    return any(each.method in KEEPING and each not in known for each in inspection.stages)


def _mapped_between_shuffles(rest: Sequence[Stage]) -> Stage | None:
    """Return the last map that is behind one shuffle and in front of another, which mixes anew in each epoch."""
    ahead = list(itertools.takewhile(lambda each: each.method in _UP_TO_MAPS - {"batch"} and not _varies(each), rest))
    shuffles = [number for number, each in enumerate(ahead) if each.method == "shuffle"]
    if not shuffles[1:] or stage_graph.keeps_order(ahead[shuffles[-1]]):
        return None
    if any(each.arguments.get("drop_remainder") for each in rest):
        return None  # what the first epoch's order puts last would be dropped for ever
    return next((each for each in reversed(ahead[: shuffles[-1]]) if each.method == "map"), None)


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
    where, arguments = _place(size_bytes_of(inspection, stage), context)
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
        reorders=_keeps_one_order(inspection, above, (*behind, *passed))
        or any(each.id in moved and each.method == "interleave" for each in above),
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
        run = _run(inspection, inspection.stage(number))
        fixed = _fixed_part(inspection, run)
        rest = run[len(fixed) :]
        if not fixed or not _is_read_whole(joins, fixed[-1], rest):
            continue
        mixes, maps = _movable(rest)
        if maps and _is_one_branch(inspection, (*mixes, *maps)) and _has_room(inspection, context, mixes, maps[-1]):
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
        *_left_out(inspection, _never_full(inspection)),
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


def _is_one_branch(inspection: Inspection, stages: Sequence[Stage]) -> bool:
    """Return whether nothing else takes of these stages."""
    return all(len(stage_graph.consumers(inspection, each)) == 1 for each in stages)


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
    return text + read_back(inspection, stage, where)


def _place(size_bytes: float | None, context: Context) -> tuple[str, dict[str, Value]]:
    """Return the place that has room for a cache of that size, and the arguments of `cache`."""
    return (IN_MEMORY, {}) if fits(size_bytes, context) else ("on disk", {"filename": "disk"})


def _fixed_part(inspection: Inspection, run: list[Stage]) -> list[Stage]:
    """Return the stages from the source on that give the same in each epoch, end, and are made once."""
    return stage_graph.fixed_part(inspection, list(itertools.takewhile(lambda stage: not stage.anew, run)))


def _movable(rest: list[Stage]) -> tuple[list[Stage], list[Stage]]:
    """Return the shuffles and repeats that end the fixed part, and what behind them may as well be in front of them.

    A shuffle moves the same samples in the same order whether they are mapped or not, and a repeat repeats them; what
    makes more or fewer of them changes what a shuffle has in its buffer, and so may pass a repeat only.
    """
    passed = mixing(rest)
    shuffles = any(stage.method == "shuffle" for stage in passed)
    methods = {"map"} if shuffles else {"map", "filter", "flat_map", "interleave", *stage_graph.READERS}
    rest = rest[len(passed) :]
    moved = itertools.takewhile(
        lambda stage: stage.method in methods and not stage.anew and not stage_graph.draws(stage), rest
    )
    return passed, list(moved) if passed else []


def _has_room(inspection: Inspection, context: Context, passed: Sequence[Stage], stage: Stage) -> bool:
    """Return whether memory has room for shuffles that a cache of what `stage` gives moves in front of."""
    where, _ = _place(size_bytes_of(inspection, stage), context)
    return fits(shuffled_bytes(inspection, where, passed, stage), context)


def _keeps_one_order(inspection: Inspection, above: Sequence[Stage], behind: Iterable[Stage]) -> bool:
    """Return whether a cache would give each epoch the files in one order, and nothing behind it shuffles again."""
    again = any(each.method == "shuffle" and not stage_graph.keeps_order(each) for each in behind)
    settled = stage_graph.settled(inspection, above)
    anew = [each for each in above if each.id not in settled]
    return any(stage_graph.shuffles_files(above, stage) for stage in anew) and not again
