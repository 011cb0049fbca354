"""ceiling: the same model on one batch that already sits on the device, so with no input at all.

And host_ceiling, which is not listed: the same with batches in host memory, from where every step copies one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipeline_bench.backends import Backend, EagerInput, InGraph, Input, IteratorInput, Take
from pipeline_bench.sources import Batch, Source
from pipeline_bench.tfdata.throughput import beyond_caches

_HOST = "/cpu:0"
_FEWEST_KEPT = 2


class Ceiling(Backend):
    """What every other backend is measured against: the fastest this model can step on this device."""

    name = "ceiling"
    summary = "one batch resident on the device as a variable; no input, the fastest the model can step"

    carries_samples = True
    in_loops = True
    eager = True

    def connect(self, source: Source, device: str | None) -> Input:
        import tensorflow as tf

        with tf.device(device or _HOST):
            take = _taking(_reading(_variables(source), device))
        feeding = Input(*take(), take)
        feeding.in_graph = InGraph()
        return feeding

    def connect_eagerly(self, source: Source, device: str | None) -> EagerInput:
        import tensorflow as tf

        with tf.device(device or _HOST):
            return EagerInput(_taking(_reading(_eager_variables(source), device)))


class HostCeiling(Ceiling):
    """What the copy of a batch is measured by: the ceiling's step with the copy that a step without prefetch makes.

    Its batches lie where those of most pipelines do, in pageable memory, and there are several, which come in turn: the
    memory of a variable is pinned, and that of a single batch stays in the caches of the CPU. On an H100 the copy of
    32 MiB took 0.8 ms out of a variable, and 5 ms behind a map (docs/method.md).
    """

    name = "host_ceiling"
    summary = "batches in host memory, one of which each step copies to the device; added where the model is on a GPU"
    listed = False

    def connect(self, source: Source, device: str | None) -> Input:
        import tensorflow as tf

        with tf.device(_HOST):
            iterator = tf.compat.v1.data.make_initializable_iterator(_kept(_variables(source)))
        feeding = IteratorInput(iterator, _taking(iterator.get_next), None, lambda: None)
        feeding.in_graph = InGraph(start=[iterator.initializer])
        return feeding

    def connect_eagerly(self, source: Source, device: str | None) -> EagerInput:
        import tensorflow as tf

        with tf.device(_HOST):
            iterator = iter(_kept(_eager_variables(source)))
        return EagerInput(_taking(lambda: next(iterator)))


def _variables(source: Source) -> list[Any]:
    """Build variables of the graph that hold the batch of the ceiling."""
    import tensorflow as tf

    made = source.sample_batch("ceiling")
    return [
        tf.compat.v1.get_variable(f"resident_{name}", initializer=tensor, trainable=False)
        for name, tensor in zip(Batch._fields, made.tensors, strict=False)
    ]


def _eager_variables(source: Source) -> list[Any]:
    """Return variables that hold the batch of the ceiling, where TensorFlow runs eagerly."""
    import tensorflow as tf

    return [tf.Variable(tensor, trainable=False) for tensor in source.sample_batch("ceiling").tensors]


def _reading(variables: Sequence[Any], device: str | None) -> Callable[[], list[Any]]:
    """Return what builds the reading of variables on their device, or on the host."""
    import tensorflow as tf

    def read() -> list[Any]:
        with tf.device(device or _HOST):
            return [variable.read_value() for variable in variables]

    return read


def _kept(variables: Sequence[Any]) -> Any:
    """Return an endless dataset of what the variables hold, in as many copies as are kept in memory."""
    import tensorflow as tf

    size_bytes = sum(variable.shape.num_elements() * variable.dtype.size for variable in variables)
    copies = max(beyond_caches(size_bytes), _FEWEST_KEPT)

    def copy(_: Any) -> tuple[Any, ...]:
        return tuple(tf.raw_ops.DeepCopy(x=variable.read_value()) for variable in variables)

    return tf.data.Dataset.range(copies).map(tf.autograph.experimental.do_not_convert(copy)).cache().repeat()


def _taking(carry: Callable[[], Sequence[Any]]) -> Take:
    """Return a `Take` of what is there without a wait."""
    return lambda: (Batch(*carry()), None)
