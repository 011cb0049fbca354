"""while_loop: many steps a `Session.run`, in a loop that is part of the graph."""

from __future__ import annotations

from time import monotonic_ns
from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.loops import Loop, StepRecorder, Training, build_steps, record_call, steps_of_call


class WhileLoopOptions(plugins.Options):
    """How seldom Python is asked."""

    steps_per_call: Annotated[
        int, Field(ge=1, le=10**6, description="steps that one session.run trains before Python sees them")
    ] = 100


class WhileLoop(Loop):
    """`tf.while_loop` around the whole step, the taking of its batch included; one call trains many steps.

    The steps' losses and times wait in the graph until the call is over. A trial trains exactly its steps: the last
    call is as short as it must be. One whose length is a time ends with the call in which the time is over.
    """

    name = "while_loop"
    summary = "tf.while_loop in the graph: steps_per_call steps a session.run"
    Options = WhileLoopOptions
    builds_steps = True

    def build(self, training: Training) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        with tf.device("/cpu:0"):
            self._steps = v1.placeholder(tf.int32, [], name="steps_of_a_call")
            self._sampled = v1.placeholder(tf.bool, [], name="sampled")
        sampled = None if training.feeding.digest is None else self._sampled
        self._call = build_steps(training.build_step, self._steps, sampled)

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        more = True
        while more:
            steps = steps_of_call(self.options.steps_per_call, record)
            sampled = record.should_sample_any(steps)
            start_ns = monotonic_ns()
            rows, digest = session.run(self._call, {self._steps: steps, self._sampled: sampled})
            more = record_call(record, start_ns, monotonic_ns(), rows, digest)
