"""A pipeline's stages: who comes before and after whom, and what each of them does with its elements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePath

from pipeline_bench.model import element_flow
from pipeline_bench.model.calls import OPENING, UNCHANGED, WORKERS
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text import NAME, one_line

READERS = frozenset(
    {"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset", "CsvDataset", "SqlDataset", "load"}
)
"""The methods and classes that read files."""
_ENDS_THE_FIXED_PART = frozenset({"shuffle", "repeat", "snapshot", "sample_from_datasets", "rejection_resample"})
_PASS_NAMES_ON = UNCHANGED | {"repeat"}


def named(stage: Stage) -> str:
    """Return the stage with its place as a sentence names it: ``map(decode), train.py:31``."""
    name = one_line(stage.label, NAME)
    if stage.place is None:
        return name
    return f"{name}, {one_line(PurePath(stage.place.file).name, NAME)}:{stage.place.line}"


def subject(stage: Stage, beside: str = "") -> str:
    """Return the stage as a sentence begins with it: ``map(decode), train.py:31,``; without a place, ``copy``.

    Args:
        stage: that the sentence is about.
        beside: what is said of others behind its name; empty if nothing is.
    """
    return named(stage) + beside + "," * (stage.place is not None or bool(beside))


def consumers(inspection: Inspection, stage: Stage) -> list[Stage]:
    """Return the stages that take their elements from this one."""
    return [other for other in inspection.stages if stage.id in other.inputs]


def after(inspection: Inspection, stage: Stage) -> Stage | None:
    """Return the one stage behind this one; None behind the sink, and where several take from it."""
    found = consumers(inspection, stage)
    return found[0] if len(found) == 1 and stage.id != inspection.sink else None


def before(inspection: Inspection, stage: Stage) -> Stage | None:
    """Return the one stage in front of this one; None of a source, and of a stage with several inputs."""
    return _known(inspection, stage.inputs[0]) if len(stage.inputs) == 1 else None


def first_before(inspection: Inspection, stage: Stage, past: Collection[str]) -> Stage | None:
    """Return the first stage in front of this one that has none of these methods; None as of `before`."""
    found = before(inspection, stage)
    while found is not None and found.method in past:
        found = before(inspection, found)
    return found


def run_before(inspection: Inspection, stage: Stage, methods: Collection[str]) -> list[Stage]:
    """Return the unbroken run of such stages right in front of a stage, upstream first; nothing else takes of them."""
    run: list[Stage] = []
    found = before(inspection, stage)
    while found is not None and found.method in methods and len(consumers(inspection, found)) == 1:
        run.insert(0, found)
        found = before(inspection, found)
    return run


def any_order(inspection: Inspection, stage: Stage) -> bool:
    """Return whether a stage that runs in parallel gives what is ready first, because the user asked for it."""
    options = (one for one in reversed(inspection.stages) if one.method == "with_options")
    given = (one.arguments.get("deterministic") for one in (stage, *options))
    return next((each for each in given if each is not None), None) is False


def promises_order(inspection: Inspection) -> bool:
    """Return whether the pipeline gives its samples in one order: no stage gives what is ready first."""
    return not any(
        _in_parallel(each) and any_order(inspection, each) for stage in inspection.stages for each in stage.with_inner()
    )


def alike(inspection: Inspection, stage: Stage) -> tuple[Stage, ...]:
    """Return the stage, then the others that call its function in the same way, as in the branches of a `zip`."""
    function = stage.function
    if function is None or function.line is None:
        return (stage,)
    here = (function.file, function.line, function.name)
    same = (each for each in inspection.stages if each.method == stage.method and each.id != stage.id)
    found = (e for e in same if e.function and (e.function.file, e.function.line, e.function.name) == here)
    return (stage, *(e for e in found if e.place == stage.place or not (_has_own(stage) and _has_own(e))))


def _has_own(stage: Stage) -> bool:
    """Return whether a stage's call has a lambda of its own in it: another of the same line is another function."""
    function, place = stage.function, stage.place
    if function is None or place is None or function.line is None or function.name != "<lambda>":
        return False
    return place.line <= function.line <= (place.end_line or place.line)


def upstream(inspection: Inspection, stage: Stage) -> list[Stage]:
    """Return a stage and all that it depends on, in the order of their ids."""
    found: dict[int, Stage] = {}
    waiting = [stage.id]
    while waiting:
        known = _known(inspection, waiting.pop())
        if known is not None and known.id not in found:
            found[known.id] = known
            waiting += known.inputs
    return [found[number] for number in sorted(found)]


def trunk(inspection: Inspection, last: Stage | None = None) -> list[Stage]:
    """Return the stages that every element passes: from the sink, or another stage, up to the first with not one input.

    The last stage comes first.
    """
    found = _known(inspection, inspection.sink) if last is None else last
    run: dict[int, Stage] = {}
    while found is not None and found.id not in run:
        run[found.id] = found
        found = before(inspection, found)
    return list(run.values())


def endless(inspection: Inspection, stage: Stage) -> bool:
    """Return whether the stage is known to give elements without end: behind a repeat without a count, or a counter."""
    return element_flow.endless(inspection.stages, stage.id)


def reads_files(stage: Stage) -> bool:
    """Return whether the stage reads records of files itself, or what it opens for each element does."""
    return any(each.method in READERS for each in stage.with_inner())


def reads_by_itself(stage: Stage) -> bool:
    """Return whether the stage reads records of files, or whole files in its function's graph."""
    return stage.method in READERS or (stage.function is not None and stage.function.reads_files)


def disk_ms(inspection: Inspection, stage: Stage) -> float | None:
    """Return how long it takes to read what a stage gives for an element of the sink from the disk, in ms.

    None where its size, or what the disk gives, is not known.
    """
    cost, rate = inspection.cost(stage.id), inspection.disk_bytes_per_s
    if not rate or cost is None or not cost.element_bytes or not cost.elements:
        return None
    return 1e3 * cost.element_bytes * cost.elements / rate


def shuffles_files(stages: Collection[Stage], stage: Stage) -> bool:
    """Return whether a stage among these gives files in another order in each epoch.

    It lists them so, or shuffles their names, or its own shards, which are opened behind that: their samples are not
    mixed by it.
    """
    parts = [] if stage.element is None else stage.element.tensors()  # a name may come with a label
    names = stage.method == "shuffle" and any(each.is_record for each in parts) and not keeps_order(stage)
    behind = [each for each in stages if stage.id in each.inputs] if names else []
    while len(behind) == 1 and behind[0].method in _PASS_NAMES_ON:
        behind = [each for each in stages if behind[0].id in each.inputs]
    return stage.shuffles_files or _shuffles_shards(stage) or (len(behind) == 1 and reads_files(behind[0]))


def _shuffles_shards(stage: Stage) -> bool:
    """Return whether a `Dataset.load` has a reader that shuffles the shards and opens them, as in its documentation."""
    methods = [each.method for each in stage.with_inner() if each.method != "prefetch"]
    return methods in (["load", "shuffle", "interleave"], ["load", "shuffle", "flat_map"])


def keeps_order(shuffle: Stage) -> bool:
    """Return whether a shuffle gives the same order in each epoch."""
    return shuffle.arguments.get("reshuffle_each_iteration") is False


def in_file(stage: Stage) -> bool:
    """Return whether it is a cache in a file, which every epoch reads: one in memory behind it may be faster."""
    return stage.method == "cache" and stage.arguments.get("filename") not in (None, "")


def settled(inspection: Inspection, stages: Collection[Stage]) -> set[int]:
    """Return the ids of what stands in front of such caches among some stages that fill: its order is kept as it is."""
    caches = [each for each in stages if fills(inspection, each)]
    return {each.id for cache in caches for each in upstream(inspection, cache)}


def is_librarys(inspection: Inspection, stage: Stage) -> bool:
    """Return whether a call of the user's, such as one of a library's function, makes the stage and others with it."""
    here = (each for each in inspection.stages if each.place == stage.place is not None)
    return any(each.method != stage.method for each in here)


def draws_alike(stage: Stage) -> bool:
    """Return whether a function in the stage draws alike for several parts of an element, if called one by one."""
    return any(each.function is not None and each.function.draws_alike for each in stage.with_inner())


def draws(stage: Stage) -> bool:
    """Return whether a function in the stage draws random numbers."""
    return any(each.draws for each in stage.with_inner())


def in_front_of(inspection: Inspection, *methods: str) -> frozenset[int]:
    """Return the ids of the stages that give elements to a stage of these methods, directly or through others."""
    found = [stage for stage in inspection.stages if stage.method in methods]
    return frozenset(each.id for stage in found for each in upstream(inspection, stage) if each is not stage)


def pairs(inspection: Inspection, first: str, second: str) -> Iterator[tuple[Stage, Stage]]:
    """Yield each pair of neighbouring stages of these two methods."""
    for stage in inspection.stages:
        behind = after(inspection, stage)
        if stage.method == first and behind is not None and behind.method == second:
            yield stage, behind


def around_window(inspection: Inspection, window: Stage) -> tuple[Stage, Stage] | None:
    """Return the array's slices in front of a `window` and the `flat_map` behind it, where each window becomes a row.

    None where anything else happens there, or where the last windows are shorter.
    """
    source, flat = before(inspection, window), after(inspection, window)
    if source is None or flat is None or flat.method != "flat_map" or len(flat.inner) != 1:
        return None
    (batch,), size = flat.inner, window.arguments.get("size")
    rows = source.element
    is_one_array = source.method == "from_tensor_slices" and rows is not None and rows.kind == "tensor"
    whole = batch.method == "batch" and batch.arguments.get("batch_size") == size and type(size) is int
    full = window.arguments.get("drop_remainder") is True or batch.arguments.get("drop_remainder") is True
    alone = after(inspection, source) == window and not source.inputs
    return (source, flat) if is_one_array and whole and full and alone else None


def _known(inspection: Inspection, number: int) -> Stage | None:
    return next((stage for stage in inspection.stages if stage.id == number), None)


def passes(inspection: Inspection) -> float | None:
    """Return how often a script's training passes over its data in all; None if that is not known."""
    training, batches = inspection.training, max(0, inspection.pass_elements or 0)
    if training is None or training.in_loop:
        return None
    if training.steps is not None:
        return training.steps / batches if batches else None
    if batches and inspection.cardinality is not None and inspection.cardinality > 0:
        return (training.epochs or 0) * inspection.cardinality / batches or None
    repeated = any(stage.method == "repeat" for stage in inspection.stages)
    return float(training.epochs) if training.epochs is not None and not repeated else None


def hands_over(stage: Stage, default_parallelised: bool) -> bool:
    """Return whether the stage hands its elements over through a buffer, and so runs beside what pulls from it.

    Args:
        stage: as recorded.
        default_parallelised: whether tf.data parallelises stateless maps by itself (`Inspection`).
    """
    if stage.method == "prefetch":
        return stage.arguments.get("buffer_size") != 0
    if stage.arguments.get("synchronous") is True:
        return False
    if stage.method == WORKERS or WORKERS in stage.arguments:  # of a generator that Keras 2 has workers for
        return stage.arguments.get("use_multiprocessing") is True or stage.arguments.get("workers") not in (0, 1)
    return _in_parallel(stage) or parallel_by_default(stage, default_parallelised)


def has_one_input(inspection: Inspection, stage: Stage) -> bool:
    """Return whether a stage that reads several datasets at the same time has but one, as of a single file.

    It then has one call at a time though it was asked for several, and not for Python's lock.
    """
    cost = inspection.cost(stage.id)
    return stage.method in OPENING and not stage.runs_python_within and cost is not None and cost.calls == 1


def parallel_by_default(stage: Stage, default_parallelised: bool) -> bool:
    """Return whether tf.data runs calls of the stage's function beside each other though nobody asked for it."""
    alone = stage.method == "map" and not _in_parallel(stage) and stage.arguments.get("synchronous") is not True
    return alone and default_parallelised and not may_differ(stage)


def _in_parallel(stage: Stage) -> bool:
    asked = (stage.arguments.get(name) for name in ("num_parallel_calls", "num_parallel_reads"))
    return not stage.serial and (stage.label == "apply(parallel_interleave)" or any(each is not None for each in asked))


def may_differ(stage: Stage) -> bool:
    """Return whether the stage's function may give other results, or break, if its calls overlap or are reordered."""
    function = stage.function
    return function is not None and (function.python or function.stateful or function.random)


def one_pass(inspection: Inspection) -> str:
    """Return why no second pass reads what a first one kept, of a pipeline that is made for one (`Inspection.once`)."""
    if inspection.anew:
        return "the script makes its pipeline anew for each pass"
    training = inspection.training
    if training is not None and training.leaves_passes:
        return "the script's loop leaves each pass before its end, where a cache would be full"
    if training is not None and training.never_reads_again:
        return "the script's loop passes over its data once, or has another dataset in each pass"
    if training is not None and training.epochs is None:
        return "the script's loop ends within its first pass over the data"
    return "the fit passes over its data once"


def fixed_part(inspection: Inspection, run: Sequence[Stage]) -> list[Stage]:
    """Return those of a run of stages, from the source on, that give the same in each epoch, and end.

    Files may come in another order. What comes before a cache that fills is the same, whatever it draws.
    """
    names = [stage for stage in run if stage.method == "shuffle" and shuffles_files(inspection.stages, stage)]
    kept = max((number for number, stage in enumerate(run, 1) if fills(inspection, stage)), default=0)
    fixed = list(run[:kept])
    for stage in run[kept:]:
        same_order = stage.method == "shuffle" and (stage in names or keeps_order(stage))
        varies = stage.method in _ENDS_THE_FIXED_PART or _is_random(stage)
        if (varies and not same_order) or endless(inspection, stage):
            break
        fixed.append(stage)
    # What is kept need not be kept ready, nor set; and names alone are not worth one order.
    while fixed and (fixed[-1].method in UNCHANGED or fixed[-1] in names):
        fixed.pop()
    before = upstream(inspection, fixed[0]) if fixed and not kept else []
    return [] if any(map(_is_random, before)) else fixed


def _is_random(stage: Stage) -> bool:
    """Return whether a stage draws random numbers, or mixes the order by more than that of its shards."""
    return stage.is_random and not _shuffles_shards(stage)


def fills(inspection: Inspection, stage: Stage) -> bool:
    """Return whether a stage is a cache that has all elements after a pass, which later ones then read from it.

    One that a pass may leave before its end, as a `take` of files of unknown length does, is none.
    """
    is_read_whole = stage.left_early is False and not endless(inspection, stage)
    return stage.method == "cache" and not stage.anew and is_read_whole
