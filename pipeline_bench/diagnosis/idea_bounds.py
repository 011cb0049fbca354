"""What would help a pipeline that no edit of its calls can do, with the most that it can gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from pipeline_bench.analysis.thresholds import EXPLAINED, MOST_GAIN, WORTH, WORTH_REWRITING
from pipeline_bench.diagnosis import reader_ideas, segments, stage_graph
from pipeline_bench.diagnosis.fixes import short
from pipeline_bench.diagnosis.ideas import DENSE, SAVED_BY_HALF, Idea, each_once, eager_ops, every
from pipeline_bench.diagnosis.segments import Segments
from pipeline_bench.diagnosis.stage_graph import subject
from pipeline_bench.diagnosis.step_times import Beginning
from pipeline_bench.model.calls import BATCHING, TAKE_ANY, UNCHANGED
from pipeline_bench.model.diagnosis import RULED_OUT, Attempt
from pipeline_bench.model.element import Element
from pipeline_bench.model.function_edits import KeepBatches, Memoize
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text import units
from pipeline_bench.text.units import NS_PER_MS

_MUCH_MORE = 1.25
"""The most must be so many times what is proposed already."""
_UNEXPLAINED = 0.1
"""So much of a step, if no stage's cost explains it, is mentioned beside a bound that counts it as a stage's."""
_SAVED_BY_BYTES = 0.75
"""How much of the copy of 32-bit floats is saved if bytes are copied in their place."""
_GIVE_ARRAYS = ("__getitem__", "generator")
"""Methods of the stages in which Python makes arrays that keep their type: `from_generator` casts them."""
_MOST_OF_BYTES = 0.5
"""Pictures that take less of a batch are not what its time goes into."""
_PICTURE_AXES = (4, 5)
"""So many has a batch of pictures, or of videos."""
_COLOURS, _GREY = 3, 1
_IN_THE_MAP = (
    "Call them in the map itself, without a py_function and the like, and with num_parallel_calls: they then run in a "
    "graph, several calls at once"
)
_IN_A_MAP = (
    "Call these ops in a map of tf.data, with num_parallel_calls, which gets plain values, such as paths or arrays "
    "(behind batch() where they take whole batches): there they run in a graph, several calls at once"
)


def ideas(
    inspection: Inspection,
    cores: int,
    as_written_ms: float | None,
    ceiling_ms: float | None,
    gained: float,
    copy_ms: float | None = None,
    attempts: Sequence[Attempt] = (),
) -> tuple[str, ...]:
    """Return what would help that no edit can do, a sentence or two each; nothing where the costs explain too little.

    Args:
        inspection: the stages and their costs.
        cores: that the pipeline may use.
        as_written_ms: of the pipeline as written, or of a step with a model.
        ceiling_ms: of a step of the model without any input; None without a model.
        gained: the speed-up of what is proposed, 1 for none.
        copy_ms: of a batch to the GPU; None where there is none, or it is not known.
        attempts: the fixes; of what those keep that can be tried, no idea says how.
    """
    sentences = [*_of_copies(inspection, as_written_ms, copy_ms, gained)]
    parts = segments.of(inspection, cores)
    if as_written_ms is None or not parts.elapsed_ns:
        return tuple(sentences)
    explained = parts.explained(as_written_ms, ceiling_ms)
    if explained < EXPLAINED:
        return tuple(sentences)
    rest = 1 - explained
    unknown = f", and the {units.share(rest)} that no stage explains belonged to it" if rest > _UNEXPLAINED else ""
    bounded: set[tuple[tuple[int, ...], float]] = set()
    able = [edit for each in attempts if each.outcome != "not-tried" or each.cause for edit in each.fix.edits]
    kept = {edit.stage for edit in able if isinstance(edit, KeepBatches | Memoize)}
    of_batches = (_of_eager_ops, _of_rows, _of_whole_arrays, _of_joined_arrays, _of_whole_numbers)
    others = (*(of(inspection) for of in of_batches), reader_ideas.every(inspection))
    for idea in chain(every(inspection, kept), *others):
        most = _most(parts, idea, as_written_ms, ceiling_ms)
        if most >= WORTH_REWRITING and most >= _MUCH_MORE * gained:
            most_text = f"more than {MOST_GAIN:.0f}×" if most > MOST_GAIN else f"at most {units.ratio(most)}"
            what = ("a batch" if ceiling_ms is None else "a step") + " of the first epoch" * inspection.cold
            bound = f" If that {idea.bound}{unknown}, {what} would be {most_text} as fast."
            if not idea.bound or (idea.stages, idea.share) in bounded:  # what bounds several ideas is said once
                sentences.append(idea.text)
            else:
                sentences.append(f"{idea.text}{bound}")
                bounded.add((idea.stages, idea.share))
    return tuple(sentences)


def of_beginning(
    inspection: Inspection,
    begins: Beginning | None,
    step_ms: float | None,
    gained: float,
    attempts: Sequence[Attempt] = (),
) -> Iterator[str]:
    """Yield what a cache spares of what a pass begins with, and the idea to shuffle, or to skip, in front of the maps.

    Args:
        inspection: the stages.
        begins: what each pass begins with; None where that takes little.
        step_ms: of the pipeline as written, or of a step with a model, behind that.
        gained: the speed-up of what is proposed, 1 for none.
        attempts: the fixes; a cache among them that is not ruled out is named.
    """
    if begins is None or not step_ms or begins.measured or inspection.once:
        return
    yield from _of_cached_beginning(inspection, begins, step_ms, attempts)
    run = _passable(inspection, begins.stage)
    maps = [each for each in run if each.method == "map"]
    most = begins.speedup(step_ms, begins.spared(inspection, [each.id for each in maps]))
    if most >= max(WORTH_REWRITING, _MUCH_MORE * gained):
        takes = "drops what" if begins.stage.method == "skip" else "is filled with what"
        yield (
            f"{subject(begins.stage)} {takes} {short(maps[-1])} has made, in each epoch anew. Put it in front of "
            f"{short(maps[0])}{_in_samples(begins.stage, run[run.index(maps[0]) :])}: an epoch would then be at most "
            f"{units.ratio(most)} as fast."
        )


def _passable(inspection: Inspection, stage: Stage) -> list[Stage]:
    """Return the maps, and one batch at most, in front of which a shuffle or a skip may stand as well, upstream first.

    A shuffle passes no batch if another one stands behind it: the rows of the first are then parts of a sequence.
    """
    is_of_sequences = stage.method == "shuffle" and stage.id in stage_graph.in_front_of(inspection, *BATCHING)
    run: list[Stage] = []
    for each in reversed(stage_graph.run_before(inspection, stage, {"map", *DENSE, *UNCHANGED})):
        is_second = is_of_sequences or any(one.method in DENSE for one in run)
        if stage_graph.is_librarys(inspection, each) or (is_second and each.method in DENSE):
            break
        run.insert(0, each)
    return run


def _in_samples(stage: Stage, passed: Sequence[Stage]) -> str:
    """Return how many samples a shuffle or a skip counts in front of the stages that it passed; "" without a batch."""
    batch = next((each for each in passed if each.method in DENSE), None)
    if batch is None:
        return ""
    number, size = stage.ahead, batch.arguments.get("batch_size")
    each = f"{size} samples" if isinstance(size, int) else "the samples of a batch"
    counted = "a count" if stage.method == "skip" else "a buffer"
    return f", with {counted} of {f'{number:,} × {each}' if number is not None else 'as many samples'}"


def _of_cached_beginning(
    inspection: Inspection, begins: Beginning, step_ms: float, attempts: Sequence[Attempt]
) -> Iterator[str]:
    """Yield which cache spares most of what a pass begins with: no trial of it shows that."""
    able = [each for each in attempts if each.outcome != "not-tried" or each.cause]
    caches = [each.fix for each in able if each.outcome not in RULED_OUT and each.fix.keeps and not each.fix.combines]
    spared = {fix.variant: begins.spared(inspection, fix.stages) for fix in caches}
    name = max(spared, key=spared.__getitem__, default="")
    if spared.get(name, 0.0) < EXPLAINED:
        return
    most = begins.speedup(step_ms, spared[name])
    faster = f": it would be at most {units.ratio(most)} as fast by that alone" if begins.batches else ""
    if not begins.batches or most >= WORTH:
        yield (
            f"From the second epoch on, {name} spares {units.share(spared[name])} of what an epoch begins with{faster}"
            ". The steps of trials do not show that."
        )


def _of_copies(
    inspection: Inspection, as_written_ms: float | None, copy_ms: float | None, gained: float
) -> Iterator[str]:
    """Yield the idea to copy pictures as bytes, where they are copied as floats and that takes much of the step."""
    if as_written_ms is None or copy_ms is None:
        return
    saved = _share_of_bytes(inspection.element, _are_float_pictures) * _SAVED_BY_BYTES
    most = as_written_ms / (as_written_ms - min(copy_ms, as_written_ms) * saved)
    if most >= WORTH_REWRITING and most >= _MUCH_MORE * gained:
        yield (
            f"The copy of a batch to the GPU takes {units.milliseconds(copy_ms)}, of a step of "
            f"{units.milliseconds(as_written_ms)}, and it has arrays of floats in the shape of pictures. If they are "
            "pictures that were bytes before, as decoded ones are, leave them as uint8 and have the model convert "
            "them, in a first layer such as keras.layers.Rescaling: a quarter of their bytes is then copied, and a "
            f"step would be at most {units.ratio(most)} as fast."
        )


def _of_eager_ops(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to leave to a map what Python computes by ops of TensorFlow's, each run by itself.

    Source: TensorFlow's guide to better performance with tf.function, which starts many small ops faster than Python.
    """
    for stage, alike in each_once(inspection):
        function, ops = stage.function, eager_ops(inspection, stage)
        if function is None or not ops:
            continue
        share = function.eager_share or 0.0
        yield Idea(
            alike,
            f"{subject(stage)} spends {units.share(share)} of its time in lines that run ops of TensorFlow's one by "
            f"one, {ops:,.0f} for a batch. {_IN_THE_MAP if stage.method == 'map' else _IN_A_MAP}.",
            share,
        )


def _of_rows(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to compute all rows of a batch at once, where a map goes over them in a loop.

    Single samples in front of the batch would gain little: TensorFlow runs several calls of either (docs/diagnose.md).
    """
    for stage, alike in each_once(inspection):
        given = stage_graph.first_before(inspection, stage, TAKE_ANY | {"map", "cache"})
        function = stage.function
        if stage.method != "map" or function is None or given is None or given.method not in DENSE:
            continue
        if function.loops_over_rows:
            yield Idea(
                alike,
                f"{subject(stage)} goes over the rows of a batch in a loop, as tf.map_fn does. tf.vectorized_map in "
                "its place computes all of them in each op, where no row depends on another.",
            )
        elif function.row_copies:
            yield Idea(
                alike,
                f"{subject(stage)} goes over the rows of a batch in a loop of Python's, which is unrolled into "
                f"{function.row_copies} copies of its ops. Compute all rows in each op: where each is mixed with "
                "another one, gather these at once (tf.gather), and choose by a mask (tf.where).",
            )


def _of_whole_arrays(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to gather whole batches, where a map cuts each sample from an array (Keras' time series do)."""
    batches = (stage for stage in stage_graph.trunk(inspection) if stage.method in DENSE)
    batch = next(batches, None)
    above = [] if batch is None else stage_graph.upstream(inspection, batch)
    cutting = [stage for stage in above if stage.method == "map" and _takes_whole_array(inspection, stage)]
    if cutting:
        yield Idea(
            tuple({each.id for stage in cutting for each in stage_graph.upstream(inspection, stage)}),
            f"{subject(cutting[-1])} cuts one sample a call from an array that is passed along whole. Keep the array "
            "in a tensor and batch the positions: one tf.gather in a map then makes a whole batch.",
        )


def _takes_whole_array(inspection: Inspection, stage: Stage) -> bool:
    """Return whether a map is given the same array with every element: ``zip((from_tensors(array).repeat(), …))``."""
    both = stage_graph.before(inspection, stage)
    if both is None or both.method != "zip":
        return False
    repeats = [one for number in both.inputs if (one := inspection.stage(number)).method == "repeat"]
    arrays = [stage_graph.before(inspection, one) for one in repeats]
    return any(one is not None and one.method == "from_tensors" for one in arrays)


def _of_joined_arrays(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to join arrays, or whole batches of them, where their rows are joined one at a time."""
    for batch in (stage for stage in inspection.stages if stage.method == "batch"):
        passed = stage_graph.run_before(inspection, batch, TAKE_ANY)
        joins = stage_graph.before(inspection, (passed or [batch])[0])
        if joins is None or joins.method not in ("zip", "sample_from_datasets"):
            continue
        branches = [stage_graph.trunk(inspection, inspection.stage(number)) for number in joins.inputs]
        ids = tuple(dict.fromkeys(each.id for each in (*chain(*branches), joins, *passed, batch)))
        if any(not _is_of_rows(branch) for branch in branches):
            continue
        if joins.method == "sample_from_datasets":
            yield Idea(
                ids,
                f"{subject(joins)} draws for each row from which array it comes. Repeat each of them, batch it by its "
                "share of a batch, put these batches together with zip, and join their rows in a map (tf.concat): a "
                "batch then takes a few calls, and has the same number of rows of each in every step. The zip never "
                "ends: give fit its steps_per_epoch.",
            )
        elif all(len(branch) == 1 for branch in branches):
            yield Idea(
                ids,
                f"{subject(joins)} puts rows of arrays together one at a time. Give the arrays to one "
                "from_tensor_slices, as a tuple, and diagnose again: whole batches of rows can then be gathered.",
            )


def _is_of_rows(branch: Sequence[Stage]) -> bool:
    """Return whether a branch, its last stage first, gives the rows of arrays as they are."""
    *passed, source = branch
    return source.method == "from_tensor_slices" and all(each.method in TAKE_ANY for each in passed)


def _of_whole_numbers(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to give bytes, where Python gives batches of pictures as 64-bit whole numbers."""
    for stage in inspection.stages:
        given = inspection.element if stage.method in _GIVE_ARRAYS else None
        if _share_of_bytes(given, _are_whole_pictures) >= _MOST_OF_BYTES:
            yield Idea(
                (stage.id,),
                f"{subject(stage)} returns int64, which NumPy makes of dtype=int, in arrays of four axes or more. As "
                "uint8, if they are pictures, they have an eighth of the memory to go through.",
                SAVED_BY_HALF,
                "took half the time",
            )


def _are_whole_pictures(array: Element) -> bool:
    return array.kind == "tensor" and array.dtype == "int64" and len(array.shape or ()) >= min(_PICTURE_AXES)


def _share_of_bytes(batch: Element | None, are_meant: Callable[[Element], bool]) -> float:
    """Return the most that some of its tensors can be of a batch's bytes, 0 to 1."""
    arrays = [] if batch is None else list(batch.tensors())
    sizes = [each.row_bytes for each in arrays if are_meant(each)]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return 1.0
    return sum(known) / max(1, sum(each.row_bytes or 0 for each in arrays))


def _are_float_pictures(array: Element) -> bool:
    """Return whether an array may hold pictures, or videos, as 32-bit floats: its last axis is then of colours.

    So is the one behind that of the batch, if the others are of a square, as channels-first pictures mostly are.
    """
    shape = array.shape or ()
    is_first = len(shape) == min(_PICTURE_AXES) and shape[1] == _COLOURS and shape[2] == shape[3]
    is_picture = len(shape) in _PICTURE_AXES and (shape[-1] in (_COLOURS, _GREY) or is_first)
    return array.kind == "tensor" and array.dtype == "float32" and is_picture


def _most(parts: Segments, idea: Idea, as_written_ms: float, ceiling_ms: float | None) -> float:
    """Return how many times as fast it could be at most if what an idea saves took no time."""
    left_ms = segments.without(parts, idea.stages).period_ns / NS_PER_MS
    # What the costs do not explain may be these stages' as well: alone, a stage may have found a quieter machine.
    cost_ms = parts.cost_ns(idea.stages) / NS_PER_MS / parts.explained(as_written_ms, ceiling_ms)
    kept_ms = as_written_ms - idea.share * min(cost_ms, as_written_ms)
    return as_written_ms / max(left_ms, kept_ms, ceiling_ms or 0.0, as_written_ms / (2 * MOST_GAIN))
