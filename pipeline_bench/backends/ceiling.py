"""ceiling: the same model on one batch that already sits on the device, so with no input at all."""

from __future__ import annotations

from pipeline_bench.backends import Backend, Input
from pipeline_bench.sources import Batch, Source


class Ceiling(Backend):
    """What every other backend is measured against: the fastest this model can step on this device."""

    name = "ceiling"
    summary = "one batch resident on the device as a variable; no input, the fastest the model can step"

    def connect(self, source: Source, device: str | None) -> Input:
        import tensorflow as tf

        v1 = tf.compat.v1
        made = source.sample_batch("ceiling")
        with tf.device(device or "/cpu:0"):
            resident = [
                v1.get_variable(f"resident_{name}", initializer=tensor, trainable=False)
                for name, tensor in zip(Batch._fields, made.tensors, strict=False)
            ]
            return Input(Batch(*(variable.read_value() for variable in resident)))
