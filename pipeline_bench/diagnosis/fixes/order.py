"""The same stages in another order or fewer calls: cheap ones first, whole batches, one map in place of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.fixes import Context, fix, kind, short
from pipeline_bench.model.calls import BATCH_AS_IS, TAKE_ANY
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import BatchInGenerator, Edit, Fuse, GatherBatches, GatherWindows, MoveBefore, Remove
from pipeline_bench.model.function_edits import ParseBatch, Vectorize
from pipeline_bench.model.pipeline import Inspection, Stage

_GROWN = 4
"""Elements so many times as large as before the maps make a shuffle dear in what its own time does not show."""


def elsewhere(fixes: Iterable[Fix], inspection: Inspection) -> str:
    """Return what fixes do to another dataset that a call which they change also makes, as a sentence; or ""."""
    shared = {stage.id for stage in inspection.stages if stage.shared}
    found = [each for each in fixes if not shared.isdisjoint(_changed(each, inspection))]
    does = ["may have another order too"] * any(each.reorders for each in found)
    does += ["is kept too"] * any(not shared.isdisjoint(each.kept_stages) for each in found)
    return f"A changed line also makes another dataset, which {' and '.join(does)}." if does else ""


def _changed(fix: Fix, inspection: Inspection) -> set[int | str]:
    """Return the stages whose calls a fix changes; options stand behind the last one."""
    numbers = {number for edit in fix.edits for number, _ in edit.claims()}
    return numbers | {inspection.sink} if numbers & {"options", "sink"} else numbers


@kind(saving=0.85, has_price=True)
def batch_before_map(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Give a map whole batches: one call where there were as many as the batch has samples.

    Whether the function takes a batch and gives the same samples is tried, not guessed.
    """
    for batch in (stage for stage in inspection.stages if stage.method in BATCH_AS_IS):
        passed = stage_graph.run_before(inspection, batch, TAKE_ANY)
        run = stage_graph.run_before(inspection, passed[0] if passed else batch, ("map",))
        while run and _on_batches(run) is None:
            run = run[1:]
        for first in dict.fromkeys(stage.id for stage in (*run[:1], *run[-1:])):
            part = [stage for stage in run if stage.id >= first]
            ahead = f"{passed[0].method.capitalize()} first, and give" if passed else "Give"
            changes = _on_batches(part) or []
            through = " through tf.vectorized_map" if any(isinstance(each, Vectorize) for each in changes) else ""
            yield fix(
                f"batch before {inspection.stage(first).label}",
                f"{ahead} {_names(part)} whole batches{through}",
                *(MoveBefore(stage=stage.id, other=first) for stage in (*passed, batch)),
                *changes,
                stages=[stage.id for stage in part],
                reorders=_mixes(passed, part),
                caveat=by_itself(part),
            )


def _on_batches(maps: Sequence[Stage]) -> list[Edit] | None:
    """Return what else has to change so that maps take whole batches; None where one of them cannot.

    One random draw for a whole batch is not one for each sample, and no check of the values can show it: what draws is
    known to do so for each row.
    """
    changes: list[Edit] = []
    for stage in maps:
        function = stage.function
        if function is None or function.on_batches == "not" or (stage.draws and function.on_batches is None):
            return None
        if function.on_batches == "vectorized-map":
            changes.append(Vectorize(stage=stage.id))
        elif function.on_batches == "parse-example" or (function.on_batches is None and function.parses_examples):
            changes.append(ParseBatch(stage=stage.id))
    return changes


def by_itself(maps: Sequence[Stage]) -> str:
    """Return what must be so of functions in Python, into which nothing looks, and of those that draw."""
    python = [stage for stage in maps if stage.function is not None and stage.function.python]
    drawing = [stage for stage in maps if stage.draws]
    notes = [f"right only if {_names(python)} treats each sample of a batch as a single sample"] * bool(python)
    notes += [
        f"samples then get other random numbers than as written, also with a seed; right only if no other code gives "
        f"single samples to a keras.Sequential that {_names(drawing)} calls"
    ] * bool(drawing)
    return "; ".join(notes)


def _names(maps: Sequence[Stage]) -> str:
    return " and ".join(short(stage) for stage in maps[:2]) + (" and more" if maps[2:] else "")


def _mixes(passed: Sequence[Stage], maps: Sequence[Stage]) -> bool:
    """Return whether a shuffle among what moves in front of the maps may give other samples for that."""
    return any(stage.method == "shuffle" for stage in passed) and any(map(stage_graph.may_differ, maps))


class _SamplePath(NamedTuple):
    """What single samples pass in front of a `batch`: stages that take any elements, maps, and again such stages."""

    ahead: list[Stage]
    maps: list[Stage]
    passed: list[Stage]
    batch: Stage

    @property
    def first(self) -> Stage:
        """The first of them."""
        return [*self.ahead, *self.maps, *self.passed, self.batch][0]

    @property
    def ids(self) -> list[int]:
        """The stages, upstream first."""
        return [stage.id for stage in (*self.ahead, *self.maps, *self.passed, self.batch)]


def _mixed(samples: _SamplePath) -> str:
    shuffled = any(stage.method == "shuffle" for stage in (*samples.ahead, *samples.passed))
    return "Shuffle and batch" if shuffled else "Batch"


def _samples(inspection: Inspection) -> Iterator[_SamplePath]:
    for batch in (stage for stage in inspection.stages if stage.method == "batch"):
        passed = stage_graph.run_before(inspection, batch, TAKE_ANY)
        maps = stage_graph.run_before(inspection, passed[0] if passed else batch, ("map",))
        yield _SamplePath(stage_graph.run_before(inspection, maps[0], TAKE_ANY) if maps else [], maps, passed, batch)


@kind(saving=0.9, has_price=True)
def gather_batches(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Cut no array into samples only to put them together again: numbers of rows go the same way, and are gathered."""
    for each in _samples(inspection):
        source, maps = stage_graph.before(inspection, each.first), each.maps
        cached = [source] if source is not None and _is_in_memory(inspection, source) else []
        if cached:  # it keeps slices of what is in memory already
            source = stage_graph.before(inspection, cached[0])
        if source is None or source.method != "from_tensor_slices" or stage_graph.after(inspection, source) is None:
            continue
        changes, names = _on_batches(maps), _names(maps)
        if changes is None:
            continue
        moved = (*each.passed, each.batch) if maps else ()
        yield fix(
            f"gather whole batches{f' before {maps[0].label}' if maps else ''}",
            f"{_mixed(each)} numbers of rows, and gather whole batches{f' for {names}' if maps else ''}",
            *(Remove(stage=stage.id) for stage in cached),
            *(MoveBefore(stage=stage.id, other=maps[0].id) for stage in moved),
            *changes,
            GatherBatches(source=source.id, batch=each.batch.id),
            stages=[source.id, *(stage.id for stage in cached), *each.ids],
            reorders=_mixes(each.passed, maps),
            caveat=by_itself(maps),
        )


def _is_in_memory(inspection: Inspection, stage: Stage) -> bool:
    """Return whether it is a cache in memory that can be left out in the user's file."""
    is_cache = stage.method == "cache" and not stage_graph.in_file(stage)
    return is_cache and not stage_graph.is_librarys(inspection, stage)


@kind(saving=0.9, has_price=True)
def gather_windows(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Make no dataset of every window: numbers of first rows, of which a map gathers windows, one or a batch a call."""
    for window in (stage for stage in inspection.stages if stage.method == "window"):
        found = stage_graph.around_window(inspection, window)
        if found is None:
            continue
        source, flat = found
        edit = GatherWindows(source=source.id, window=window.id, flat_map=flat.id)
        yield fix("gather windows", "Gather each window from the array, without a dataset of its own", edit)
        for each in _samples(inspection):
            changes = _on_batches(each.maps)
            if stage_graph.before(inspection, each.first) != flat or changes is None:
                continue
            moved = (*each.ahead, *each.passed, each.batch)
            of = f" for {_names(each.maps)}" if each.maps else ""
            yield fix(
                "gather batches of windows",
                f"{_mixed(each)} numbers of rows, and gather whole batches of windows{of}",
                *(MoveBefore(stage=stage.id, other=flat.id) for stage in moved),
                *changes,
                edit,
                stages=[source.id, window.id, flat.id, *each.ids],
                reorders=_mixes(moved, each.maps),
                caveat=by_itself(each.maps),
            )


@kind(saving=0.9)
def out_of_python(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Leave Python once a batch: a generator gathers whole batches. `batch_before_map` does the same for maps."""
    for generator, batch in stage_graph.pairs(inspection, "from_generator", "batch"):
        yield fix(
            f"batches in {generator.label}",
            f"Have {short(generator)} give whole batches",
            BatchInGenerator(generator=generator.id, batch=batch.id),
        )


@kind(saving=0.2)
def fuse(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Make one map of consecutive ones with the same parallelism: each element is handed over once."""
    for stage in inspection.stages:
        run = _alike_from(inspection, stage)
        if len(run) > 1:
            ids = tuple(each.id for each in run)
            title = f"Make one map of {short(run[0])} to {short(run[-1])}"
            yield fix(f"{len(run)} maps in one", title, Fuse(stages=ids))


@kind(saving=0.85)
def shard_first(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Take this worker's share of the elements before maps work on those of all workers."""
    for shard in inspection.stages:
        run = stage_graph.run_before(inspection, shard, ("map",)) if shard.method == "shard" else []
        if run:
            yield fix(
                f"shard before {run[0].label}",
                f"Take this worker's share before {_names(run)}",
                MoveBefore(stage=shard.id, other=run[0].id),
                stages=[each.id for each in run],
            )


@kind(saving=0.5)
def order(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Move cheap stages in front of expensive ones, and the shuffle in front of the repeat."""
    yield from _shuffles(inspection)
    yield from _filters(inspection)
    for repeat, shuffle in stage_graph.pairs(inspection, "repeat", "shuffle"):
        if stage_graph.keeps_order(shuffle):
            continue  # each pass would have the order of the first
        yield fix(
            "shuffle before repeat",
            "Shuffle before repeating, so that epochs do not mix",
            MoveBefore(stage=shuffle.id, other=repeat.id),
            stages=[shuffle.id],
            reorders=True,
        )


def _shuffles(inspection: Inspection) -> Iterator[Fix]:
    """Move shuffles in front of maps: the same seed gives the same order, and the buffer holds smaller elements."""
    for shuffle in inspection.stages:
        run = stage_graph.run_before(inspection, shuffle, ("map",)) if shuffle.method == "shuffle" else []
        growth = _growth(inspection, run[0], shuffle) if run else None
        if run and (growth is None or growth >= 1):
            yield fix(
                f"shuffle before {run[0].label}",
                f"Shuffle before {short(run[0])}, while the elements are still small",
                MoveBefore(stage=shuffle.id, other=run[0].id),
                stages=[] if growth is not None and growth >= _GROWN else [shuffle.id],
                reorders=any(stage_graph.may_differ(stage) for stage in run),
                caveat="the buffer is filled without waiting for the maps",
            )


def _filters(inspection: Inspection) -> Iterator[Fix]:
    for stage in inspection.stages:
        run = stage_graph.run_before(inspection, stage, ("map",)) if stage.method == "filter" else []
        for first in run[-1:] + (run[:1] if len(run) > 1 else []):
            part = run[run.index(first) :]
            if not _takes_alike(inspection, first, stage):
                continue
            yield fix(
                f"{stage.label} before {first.label}",
                f"Leave elements out before {short(first)} works on them",
                MoveBefore(stage=stage.id, other=first.id),
                stages=[each.id for each in part],
                reorders=any(stage_graph.may_differ(each) for each in part),
            )


def _takes_alike(inspection: Inspection, first: Stage, filters: Stage) -> bool:
    """Return whether a filter may take what the first of the maps in front of it takes: true too where not known.

    Its function got as many parts, or of a dict one with the same key at the least; a tensor it cannot take as a
    record, or as a name, before that is read or parsed.
    """
    source = stage_graph.before(inspection, first)
    given, taken = source.element if source is not None else None, filters.element
    if given is None or taken is None:
        return True
    if given.kind != taken.kind:
        return False
    if given.kind == "dict":
        return not {each.name for each in given.parts}.isdisjoint(each.name for each in taken.parts)
    if given.kind == "tensor":
        return (given.dtype == "string") == (taken.dtype == "string")
    return len(given.parts) == len(taken.parts)


def _alike_from(inspection: Inspection, first: Stage) -> list[Stage]:
    """Return the longest run of maps alike that begins with this stage; empty where it belongs to an earlier one."""
    previous = stage_graph.before(inspection, first)
    begun = previous is not None and _alike(previous, first) and stage_graph.after(inspection, previous) == first
    if first.method != "map" or begun:
        return []
    run = [first]
    while (behind := stage_graph.after(inspection, run[-1])) is not None and _alike(first, behind):
        run.append(behind)
    return run


def _alike(one: Stage, other: Stage) -> bool:
    return one.method == other.method == "map" and one.arguments == other.arguments


def _growth(inspection: Inspection, first: Stage, shuffle: Stage) -> float | None:
    """Return how many times as large elements are where they are shuffled now as before the first map, if known."""
    source = stage_graph.before(inspection, first)
    small = inspection.cost(source.id) if source is not None else None
    large = inspection.cost(shuffle.id)
    if small is None or large is None or not small.element_bytes or large.element_bytes is None:
        return None
    return large.element_bytes / small.element_bytes
