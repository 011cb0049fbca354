"""The kinds of fixes, and what of them is worth a try: the modules beside this one hold a function a kind.

A kind looks at the stages and yields the edits that could help. What TensorFlow does by default is no fix. Whether one
helps is never said here: that is measured.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cache

from pipeline_bench.analysis.thresholds import EXPLAINED, WORTH_A_TRY
from pipeline_bench.diagnosis import segments, stage_graph
from pipeline_bench.diagnosis.segments import Segments
from pipeline_bench.model.calls import HAND_OVER, MemoizableCall
from pipeline_bench.model.diagnosis import Attempt, Bottleneck, Fix
from pipeline_bench.model.edits import Edit, InsertAfter, KeepSamples, MoveBefore
from pipeline_bench.model.function_edits import Memoize
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text import free_name, one_line, units
from pipeline_bench.text.units import NS_PER_MS

_BY_PLACE = ("take", "skip", "shard", "take_while", "window", "enumerate", "scan")
"""Methods for which it matters where in the order an element stands."""
_NAME_CHARACTERS = 40
_VARIANT_CHARACTERS = 60
_UNKNOWN_SHARE = 0.1
"""What a fix may save is this share of its usual saving, where the costs do not say what its stages take."""
_BESIDE = 0.3
"""What the expected saving of a fix is worth whose stages run beside the segment that limits the pipeline."""


@dataclass(frozen=True)
class Context:
    """What the candidates depend on beside the pipeline itself."""

    cores: int
    allowed_cpus: int | None = None
    """The CPUs that a trial may run on, more than `cores` where a quota limits their time; None: as many."""
    gpu: bool = False
    model: bool = False
    allow_reordering: bool = False
    allow_threads: bool = False
    bottleneck: Bottleneck = field(default_factory=Bottleneck)
    as_written_ms: float | None = None
    free_memory_bytes: float | None = None
    """What a cache in memory may take; None where it is not known."""
    no_servers: str | None = None
    """Why no trial may start servers of TensorFlow's; None where it may."""
    data_service: str | None = None
    """The dispatcher of a tf.data service of the user's; None where none was named."""


_Finder = Callable[[Inspection, Context], Iterable[Fix]]
_Blocker = Callable[[Inspection, Context], str | None]


@dataclass(frozen=True)
class FixKind:
    """A way to make a pipeline faster.

    Attributes:
        name: of the function that finds its candidates.
        saving: how much of its stages' time it usually saves, 0 to 1: only decides which fix is tried first.
        candidates: yields the fixes of this kind whose edits fit the pipeline.
        apis: of the pipelines that it is for (`Inspection.api`).
        blocker: returns why none of them can be tried here, in one sentence without its full stop; None where they can.
        has_price: whether a proposal says the `caveat` of its fixes: a trial of some seconds does not show what they
            take, or when they are right.
    """

    name: str
    saving: float
    candidates: _Finder
    blocker: _Blocker
    apis: tuple[str, ...] = ("tf.data",)
    has_price: bool = False


_KINDS: list[FixKind] = []


def kind(
    saving: float,
    blocker: _Blocker = lambda inspection, context: None,
    apis: tuple[str, ...] = ("tf.data",),
    has_price: bool = False,
) -> Callable[[_Finder], _Finder]:
    """Register a function that yields candidates as a kind of fix, which has its name; see `FixKind`."""

    def registered(candidates: _Finder) -> _Finder:
        _KINDS.append(FixKind(candidates.__name__, saving, candidates, blocker, apis, has_price))
        return candidates

    return registered


@cache
def kinds() -> tuple[FixKind, ...]:
    """Return every kind, by name."""
    for info in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{info.name}")
    return tuple(sorted(_KINDS, key=lambda kind: kind.name))


def fix(
    variant: str,
    title: str,
    *edits: Edit,
    stages: Iterable[int] | None = None,
    reorders: bool = False,
    threads: bool = False,
    caveat: str = "",
) -> Fix:
    """Return a fix, whose kind is not set yet. `variant` and `title` may hold what the user wrote.

    It is of the stages that its edits change, unless `stages` says otherwise.
    """
    if stages is None:
        claims = (claim for edit in edits if not isinstance(edit, InsertAfter | MoveBefore) for claim in edit.claims())
        stages = dict.fromkeys(number for number, _ in claims if isinstance(number, int))
    return Fix(
        kind="",
        variant=one_line(variant, _VARIANT_CHARACTERS),
        title=title,
        edits=edits,
        stages=tuple(stages),
        reorders=reorders,
        threads=threads,
        because=caveat,
    )


def attempts(inspection: Inspection, context: Context) -> tuple[Attempt, ...]:
    """Return every candidate under a name of its own, the most promising first; those not tried say why."""
    parts = segments.of(inspection, context.cores)
    ranked: list[tuple[float, Attempt]] = []
    for kind in (each for each in kinds() if inspection.api in each.apis):
        for found in _together(kind.candidates(inspection, context), inspection):
            fix = found.model_copy(update={"kind": kind.name})
            reason = _spoils(fix, inspection) or _hopeless(kind, fix, inspection, context, parts)
            if reason is not None:
                fix = fix.model_copy(update={"reorders": False, "threads": False})  # it needs more than an option
            else:
                reason = _not_allowed(fix, context)
            attempt = Attempt(fix=fix, outcome="not-tried" if reason else "pending", reason=reason or "")
            ranked.append((_rank(kind, fix, parts, context), attempt))
    ranked.sort(key=lambda each: -each[0])
    return _named_apart([attempt for _, attempt in ranked], inspection)


def _together(found: Iterable[Fix], inspection: Inspection) -> list[Fix]:
    """Return the fixes; those that do the same to stages of one call, as in a function that makes branches, as one."""
    merged: dict[object, Fix] = {}
    for each in found:
        key = _at_call(each, inspection) or len(merged)
        first = merged.get(key)
        if first is None:
            merged[key] = each
            continue
        edits, stages = (*first.edits, *each.edits), (*first.stages, *each.stages)
        flags = {"reorders": first.reorders or each.reorders, "threads": first.threads or each.threads}
        merged[key] = first.model_copy(update={"edits": edits, "stages": stages, **flags})
    return list(merged.values())


def _at_call(fix: Fix, inspection: Inspection) -> tuple[str, ...] | None:
    """Return what a fix does, and to which call; None where it is not to one stage alone, whose call is known."""
    edits = [edit for edit in fix.edits if edit.only_stage is not None and (edit.only_stage,) == fix.stages]
    stage = inspection.stage(fix.stages[0]) if edits and len(edits) == len(fix.edits) else None
    if stage is None or stage.place is None:
        return None
    changes = (edit.without_stage() for edit in edits)
    return (fix.variant, fix.title, stage.method, stage.place.model_dump_json(), *changes)


def could_save(stages: Collection[int], parts: Segments, as_written_ms: float | None) -> float | None:
    """Return which share of the time the stages take at most, 0 to 1; None where one of them was not measured."""
    period_ns = parts.period_ns if as_written_ms is None else as_written_ms * NS_PER_MS
    if not stages or period_ns <= 0 or any(stage not in parts.elapsed_ns for stage in stages):
        return None
    return min(1.0, parts.cost_ns(stages) / period_ns)


def _part(fix: Fix, share: float | None) -> float | None:
    """Return the part of its stages' share that a fix is of: all of it, but where it is of calls in one."""
    calls = memoized(fix)
    return share if share is None or not calls else share * min(1.0, sum(call.share for call in calls))


def memoized(fix: Fix) -> list[MemoizableCall]:
    """Return the calls whose results a fix keeps."""
    return [edit.call for edit in fix.edits if isinstance(edit, Memoize)]


def short(stage: Stage) -> str:
    """Return what to call a stage in a title: its function's name, or its method's; of a lambda its line.

    A lambda of a library's, which that line calls, is not to be looked for there: its stage has the method's name.
    """
    name = stage.function.name if stage.function is not None else stage.method
    if name == "<lambda>" and stage.function is not None and stage.place is not None:
        is_there = stage.function.file in (None, stage.place.file)
        name = f"the {'lambda' if is_there else stage.method} of line {stage.place.line}"
    return one_line(name, _NAME_CHARACTERS)


def _hopeless(kind: FixKind, fix: Fix, inspection: Inspection, context: Context, parts: Segments) -> str | None:
    """Return why a fix is not worth a try here, whatever is allowed; None where it may be."""
    if (blocker := kind.blocker(inspection, context)) is not None:
        return f"{blocker}."
    if (slow := _read_slower(fix, inspection, context.as_written_ms)) is not None:
        return slow
    share = _part(fix, could_save(fix.stages, parts, context.as_written_ms))
    keeps_names = bool(fix.kept_stages) and all(inspection.stage(each).method in HAND_OVER for each in fix.stages)
    if (keeps_names or _is_explained(parts, context)) and share is not None and share < WORTH_A_TRY:
        named = [f"`{call.text}`" for call in memoized(fix)] or [
            short(inspection.stage(number)) for number in fix.stages
        ]
        took = f"{', '.join(named[:3])} {'takes' if len(named) == 1 else 'take'}"
        first = could_save(fix.stages, segments.of(inspection.of_first_epoch(), context.cores), None)
        begins = any(cost.first_epoch_ns for cost in map(inspection.cost, fix.stages) if cost)
        if begins and first and first >= WORTH_A_TRY:
            return (
                f"{took} {units.share(first)} of the first epoch, and {units.share(share)} of the later ones, which "
                "read what the first one kept: only the first epoch can gain."
            )
        return f"{took} {units.share(share)} of the time: there is almost nothing to gain."
    return None


def _read_slower(fix: Fix, inspection: Inspection, as_written_ms: float | None) -> str | None:
    """Return that a cache on disk would be read no faster than its elements are made; None of others.

    No trial shows it: what was just written is read from memory.
    """
    for edit in fix.edits:
        if isinstance(edit, InsertAfter) and edit.method == "cache" and edit.arguments and as_written_ms is not None:
            read_ms = stage_graph.disk_ms(inspection, inspection.stage(edit.stage))
            if read_ms is not None and read_ms >= as_written_ms:
                return (
                    f"memory has no room for it, and reading it from this disk takes {units.milliseconds(read_ms)}, as "
                    "long as it takes without."
                )
    return None


def _is_explained(parts: Segments, context: Context) -> bool:
    """Return whether the stages' costs, or a model, make up enough of the time: then what costs little gains little."""
    if context.as_written_ms is None or not context.bottleneck.limits:
        return True
    return parts.explained(context.as_written_ms) >= EXPLAINED


def _spoils(fix: Fix, inspection: Inspection) -> str | None:
    """Return why a fix must not be tried, which would do more than change the order of the samples; None where not.

    In the small part a buffer may hold everything, a `take` may take all, and no element may fail; random values are
    not compared one by one there: two branches of a `zip` with one seed, pictures and their masks, draw alike.
    """
    claims = (claim for edit in fix.edits if not isinstance(edit, InsertAfter) for claim in edit.claims())
    changed = {number for number, _ in claims}
    moved = changed | _reordered(fix, inspection) if fix.reorders else set()
    kept, choosing = _kept_order(fix, inspection)
    drawn = changed & _drawn_in_several_inputs(inspection)
    if drawn or (kept | moved) & stage_graph.in_front_of(inspection, "zip"):
        return "zip joins elements by position: with this fix they would no longer belong together."
    for method in _BY_PLACE:
        if method in choosing or moved & stage_graph.in_front_of(inspection, method):
            return f"{method} depends on an element's position, and would then apply to other elements."
    if dropping := choosing - {*_BY_PLACE}:
        return (
            f"{min(dropping)} drops the last samples of an epoch: with one order, the same would never be trained on."
        )
    failing = stage_graph.in_front_of(inspection, "ignore_errors")
    if changed & failing and any(inspection.stage(number).method == "batch" for number in failing):
        return "ignore_errors drops the whole batch of an element that fails: it would drop other samples."
    return None


def _drawn_in_several_inputs(inspection: Inspection) -> set[int]:
    """Return the stages that draw in an input of a `zip` of which another input draws too."""
    drawing = {stage.id for stage in inspection.stages if stage_graph.draws(stage)}
    found = set[int]()
    for stage in inspection.stages:
        above = [stage_graph.upstream(inspection, inspection.stage(n)) for n in stage.inputs if stage.method == "zip"]
        draw = [drawing & {each.id for each in branch} for branch in above]
        if sum(map(bool, draw)) > 1:
            found.update(*draw)
    return found


def _reordered(fix: Fix, inspection: Inspection) -> set[int]:
    """Return the stages beside those that it changes whose elements a fix may give in another order."""
    if any(isinstance(edit, KeepSamples) for edit in fix.edits):  # which mixes what is behind its stage
        return set()
    if not fix.kept_stages or any(isinstance(edit, MoveBefore) for edit in fix.edits):
        return set(fix.stages)
    # A cache keeps the order of the first epoch: from the first stage on that has another one in each.
    above = {each.id for kept in fix.kept_stages for each in stage_graph.upstream(inspection, inspection.stage(kept))}
    return _varying(inspection, above)


def _kept_order(fix: Fix, inspection: Inspection) -> tuple[set[int], set[str]]:
    """Return the stages that a cache has give one order for ever, and what then goes by the place in that order.

    What goes by the place in front of the cache always takes the same, as of files that are listed anew in each epoch;
    what does so behind it too, unless a shuffle between them mixes the elements again. So does what drops a remainder.
    """
    kept, choosing = set[int](), set[str]()
    moves = [edit for edit in fix.edits if isinstance(edit, MoveBefore)]
    for edit in fix.edits:
        if not isinstance(edit, InsertAfter) or edit.kept_stage is None:
            continue
        above = {each.id for each in stage_graph.upstream(inspection, inspection.stage(edit.stage))}
        passed = _from(inspection, (move.other for move in moves)) & above
        ahead = above - passed | {move.stage for move in moves} & above
        ordered = _varying(inspection, ahead - stage_graph.settled(inspection, [*map(inspection.stage, above)]))
        kept |= ordered
        for stage in (each for each in inspection.stages if _goes_by_place(inspection, each)):
            before = {each.id: each for each in stage_graph.upstream(inspection, stage)}
            behind = [each for number, each in before.items() if number not in ahead]
            mixed = any(each.method == "shuffle" and not stage_graph.keeps_order(each) for each in behind)
            if ordered & before.keys() and not mixed:
                choosing.add(stage.method)
    return kept, choosing


def _goes_by_place(inspection: Inspection, stage: Stage) -> bool:
    drops = stage.arguments.get("drop_remainder") is True and not stage_graph.endless(inspection, stage)
    return stage.method in _BY_PLACE or drops


def _varying(inspection: Inspection, numbers: set[int]) -> set[int]:
    """Return those of some stages that may give other elements, or others first, in each epoch: one, and all behind."""
    return _from(inspection, (number for number in numbers if inspection.stage(number).varies)) & numbers


def _from(inspection: Inspection, numbers: Iterable[int]) -> set[int]:
    """Return the ids of some stages and of all behind them."""
    found = set(numbers)
    for each in inspection.stages:  # upstream first
        if not found.isdisjoint(each.inputs):
            found.add(each.id)
    return found


def _not_allowed(fix: Fix, context: Context) -> str | None:
    """Return what the fix needs that the user has not allowed, and the options that allow it."""
    reorders, threads = fix.reorders and not context.allow_reordering, fix.threads and not context.allow_threads
    if reorders and threads:
        does = "may change the order of the samples, and calls a function on several threads"
        return f"{does}; --allow-reordering and --allow-threads together try it."
    if reorders:
        return "may change the order of the samples; --allow-reordering tries it."
    if threads:
        return "keeps the order of the samples, and calls a function on several threads; --allow-threads tries it."
    return None


def _rank(kind: FixKind, fix: Fix, parts: Segments, context: Context) -> float:
    share = _part(fix, could_save(fix.stages, parts, context.as_written_ms))
    if share is None or (share < _UNKNOWN_SHARE and not _is_explained(parts, context)):
        return kind.saving * _UNKNOWN_SHARE
    limiting = parts.cores_limit or any(stage in parts.longest for stage in fix.stages)
    return kind.saving * share * (1.0 if limiting else _BESIDE)


def _named_apart(found: list[Attempt], inspection: Inspection) -> tuple[Attempt, ...]:
    """Return the attempts under unique names: a function that is used in two places gets its line, else a number."""
    names = [attempt.fix.variant for attempt in found]
    used: set[str] = set()
    apart = []
    for attempt in found:
        name = base = attempt.fix.variant
        alike = _with_the_same_label(attempt.fix, inspection)
        first = inspection.stage(attempt.fix.stages[0]) if attempt.fix.stages else None
        named = alike or (first if names.count(base) > 1 else None)
        if named is not None and named.place is not None:
            name = f"{base}, line {named.place.line}"
        name = free_name(name, used, " #")
        used.add(name)
        apart.append(attempt.model_copy(update={"fix": attempt.fix.model_copy(update={"variant": name})}))
    return tuple(apart)


def _with_the_same_label(fix: Fix, inspection: Inspection) -> Stage | None:
    """Return the stage that a fix is named by, if another one has its label in another line; else None."""
    for number in (edit.only_stage for edit in fix.edits if edit.only_stage is not None):
        stage = inspection.stage(number)
        places = {each.place.line for each in inspection.stages if each.label == stage.label and each.place}
        if stage.function is not None and stage.label in fix.variant and len(places) > 1:
            return stage
    return None
