"""The ideas to make whole batches at once, where a pipeline takes their rows, or runs its ops, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.ideas import DENSE, Idea, each_once, eager_ops
from pipeline_bench.diagnosis.stage_graph import subject
from pipeline_bench.model.calls import TAKE_ANY
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text import units

_IN_THE_MAP = (
    "Call them in the map itself, without a py_function and the like, and with num_parallel_calls: they then run in a "
    "graph, several calls at once"
)
_IN_A_MAP = (
    "Call these ops in a map of tf.data, with num_parallel_calls, which gets plain values, such as paths or arrays "
    "(behind batch() where they take whole batches): there they run in a graph, several calls at once"
)


def every(inspection: Inspection) -> Iterator[Idea]:
    """Yield the ideas."""
    yield from _of_eager_ops(inspection)
    yield from _of_rows(inspection)
    yield from _of_whole_arrays(inspection)
    yield from _of_joined_arrays(inspection)


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
        ids = tuple(dict.fromkeys(each.id for each in (*itertools.chain(*branches), joins, *passed, batch)))
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
