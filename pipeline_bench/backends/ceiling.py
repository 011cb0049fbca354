"""ceiling: the same model on one batch that already sits on the device, so with no input at all.

And host_ceiling, which is not listed: the same with the batch in host memory, from where every step copies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_bench.backends import Backend, EagerInput, InGraph, Input, Take
from pipeline_bench.sources import Batch, Source


class Ceiling(Backend):
    """What every other backend is measured against: the fastest this model can step on this device."""

    name = "ceiling"
    summary = "one batch resident on the device as a variable; no input, the fastest the model can step"

    carries_samples = True
    in_loops = True
    eager = True

    def home(self, device: str | None) -> str:
        """Return the device that holds the batch, for a model on that accelerator."""
        return device or "/cpu:0"

    def connect(self, source: Source, device: str | None) -> Input:
        import tensorflow as tf

        made, home = source.sample_batch("ceiling"), self.home(device)
        with tf.device(home):
            resident = [
                tf.compat.v1.get_variable(f"resident_{name}", initializer=tensor, trainable=False)
                for name, tensor in zip(Batch._fields, made.tensors, strict=False)
            ]
        take = _taking(resident, home)
        feeding = Input(*take(), take)
        feeding.in_graph = InGraph()
        return feeding

    def connect_eagerly(self, source: Source, device: str | None) -> EagerInput:
        import tensorflow as tf

        home = self.home(device)
        with tf.device(home):
            resident = [tf.Variable(tensor, trainable=False) for tensor in source.sample_batch("ceiling").tensors]
        return EagerInput(_taking(resident, home))


class HostCeiling(Ceiling):
    """What the copy of a batch is measured by: the ceiling's step with the copy that a step without prefetch makes.

    Its batch is a value of the CPU device that an op of the model takes, as a batch of tf.data's iterator is.
    """

    name = "host_ceiling"
    summary = "one batch in host memory, which each step copies to the device; added where the model is on a GPU"
    listed = False

    def home(self, device: str | None) -> str:
        return "/cpu:0"


def _taking(resident: Sequence[Any], home: str) -> Take:
    """Takes the batch that the variables hold."""
    import tensorflow as tf

    def take() -> tuple[Batch, Any]:
        with tf.device(home):
            return Batch(*(variable.read_value() for variable in resident)), None

    return take
