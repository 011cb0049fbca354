"""emulated_two_layer: the tutorial's network trained for real, on a device that is busy as long as its GPU was."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import graph_ops
from pipeline_bench.models import Model, TrainingGraph
from pipeline_bench.models.two_layer import TwoLayer, TwoLayerOptions
from pipeline_bench.sources import Batch


class EmulatedTwoLayerOptions(TwoLayerOptions):
    """Narrow enough that any host computes a step in less time than the device is busy."""

    hidden_widths: Annotated[
        tuple[Annotated[int, Field(ge=1, le=2**20)], ...],
        Field(min_length=1, description="units of each hidden layer; few, so that the host can hide what they take"),
    ] = (16,)
    step_ms: Annotated[
        float,
        Field(
            ge=0.2, le=60_000, allow_inf_nan=False, description="time that the device is busy with each step, in all"
        ),
    ] = 1.1


class EmulatedTwoLayer(Model):
    """Computes forward, backward and update on the host, then waits until `step_ms` have passed since the step's begin.

    Where the computing takes longer than that, the device was busy so much longer, as its busy time says.
    """

    name = "emulated_two_layer"
    summary = "two_layer, 16 wide: trained on the host, each step filled up to the time that a device is busy with it"
    Options = EmulatedTwoLayerOptions

    @property
    def emulated_device(self) -> str:
        return f"emulated accelerator, busy {self.options.step_ms:g} ms a step"

    def build(self, batch: Batch, evaluation: Batch) -> TrainingGraph:
        """Build a step that begins when its whole batch is there, and ends when update and wait are over."""
        import tensorflow as tf

        network = TwoLayer(self.options.model_dump(exclude={"step_ms"}))
        with tf.device("/cpu:0"):
            with tf.control_dependencies(batch.tensors):
                begun_s = tf.timestamp()
            with tf.control_dependencies([begun_s]):
                there = Batch(tf.identity(batch.features), tf.identity(batch.labels))
            computed = network.build(there, evaluation)
            with tf.control_dependencies([computed.train, computed.loss]):
                busy_s: Any = graph_ops.fill_up(begun_s, self.options.step_ms * 1000, "step")
            return TrainingGraph(tf.group(busy_s), computed.loss, computed.accuracy, busy_s)
