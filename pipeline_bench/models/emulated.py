"""emulated: a device that is busy for a given time a step while the host is free, for machines that have none."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.models import Model, TrainingGraph
from pipeline_bench.sources import Batch


class EmulatedOptions(plugins.Options):
    """How long the device takes."""

    step_ms: Annotated[
        float,
        Field(ge=0.2, le=60_000, allow_inf_nan=False, description="time that the device is busy with each step"),
    ] = 1.0


class Emulated(Model):
    """Waits `step_ms` once the whole batch has arrived, and computes nothing: no core is held meanwhile."""

    name = "emulated"
    summary = "a device that is busy for a given time a step and leaves the host free; it trains nothing"
    Options = EmulatedOptions
    trains = False

    @property
    def emulated_device(self) -> str:
        return f"emulated accelerator, busy {self.options.step_ms:g} ms a step"

    def build(self, batch: Batch, evaluation: Batch) -> TrainingGraph:
        """Build it for any batch; the loss is NaN and there is no accuracy, because nothing is trained."""
        import tensorflow as tf

        step_us = self.options.step_ms * 1000
        with tf.device("/cpu:0"), tf.control_dependencies(batch.tensors):
            busy_s = graph_ops.steady_delay(step_us, "overshoot")
            with tf.control_dependencies([busy_s]):
                loss = tf.identity(tf.constant(math.nan))
            return TrainingGraph(tf.group(busy_s), loss, busy_s=busy_s)
