"""emulated: a device that is busy for a given time a step while the host is free, for machines that have none."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.models import Model, TrainingGraph
from pipeline_bench.sources import Batch

# What share of a step's error the next wait is corrected by, once the first steps have shown about how much it is. It
# is small, so that the waits follow the machine and not each other's noise.
_GAIN = 0.05
# An error counts as no more than this times the gain. A wait that came out far too long was interrupted, which says
# nothing of the next one; those that were not interrupted are to be as long as the device takes.
_LARGEST_ERROR_US = 2000.0


class EmulatedOptions(plugins.Options):
    """How long the device takes."""

    step_ms: Annotated[
        float,
        Field(ge=0.2, le=60_000, allow_inf_nan=False, description="time that the device is busy with each step"),
    ] = 1.0


class Emulated(Model):
    """Waits `step_ms` once the whole batch has arrived, and computes nothing: no core is held meanwhile.

    A wait overshoots by as much as the machine takes to wake, a tenth of a millisecond or more, and less when it is
    busy. Each step measures how long its wait was and shortens the next one accordingly, so that a step is as long on
    a loaded machine as on an idle one.
    """

    name = "emulated"
    summary = "a device that is busy for a given time a step and leaves the host free; it trains nothing"
    Options = EmulatedOptions

    @property
    def emulated_device(self) -> str:
        return f"emulated accelerator, busy {self.options.step_ms:g} ms a step"

    def build(self, batch: Batch, evaluation: Batch) -> TrainingGraph:
        """Any batch in; the loss is NaN and there is no accuracy, because nothing is trained."""
        import tensorflow as tf

        step_us = self.options.step_ms * 1000
        with tf.device("/cpu:0"):
            overshoot = _overshoot()
            now_us, gain = tf.unstack(overshoot.read_value())
            with tf.control_dependencies(batch.tensors):
                wait_us = tf.cast(tf.round(tf.maximum(step_us - now_us, 1.0)), tf.int64)
                _, busy_s = graph_ops.timed(lambda: [graph_ops.delay(wait_us)])
            with tf.control_dependencies([busy_s]):
                loss = tf.identity(tf.constant(math.nan))
            largest_us = _LARGEST_ERROR_US * gain
            error_us = tf.clip_by_value(busy_s * 1e6 - step_us, -largest_us, largest_us)
            next_us = tf.clip_by_value(now_us + gain * error_us, 0.0, step_us)
            next_gain = tf.maximum(gain / (1 + gain), _GAIN)  # 1, 1/2, 1/3, ...: at first a running mean
            return TrainingGraph(overshoot.assign([next_us, next_gain]).op, loss, busy_s=busy_s)


def _overshoot() -> Any:
    """A variable, float64 [2]: by how many microseconds a wait is too long, and what share of an error changes that."""
    import tensorflow as tf

    v1 = tf.compat.v1
    start = v1.constant_initializer([0.0, 1.0])
    return v1.get_variable("overshoot", [2], tf.float64, start, trainable=False, use_resource=True)
