"""while_loop: many steps a `Session.run`, in a loop that is part of the graph."""

from __future__ import annotations

from time import monotonic_ns
from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import plugins, several_steps
from pipeline_bench.errors import UsageError
from pipeline_bench.loops import Job, Loop, StepRecorder, Training
from pipeline_bench.models import GradientModel


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

    def check(self, job: Job) -> None:
        if not job.backend.in_loops:
            raise UsageError(
                f"The loop while_loop takes its batches inside the graph, and {job.backend.name} hands them over from "
                "Python.",
                "Use the backend fifo_queue or tf_data, or the loop session or callable.",
            )
        if not isinstance(job.model, GradientModel):
            raise UsageError(
                f"The model {job.model.name} cannot be built into a loop of the graph.",
                "Use two_layer, mlp or mnist_cnn, or the loop session or callable.",
            )
        if job.runtime.replicas > 1 and job.runtime.replication != "in_graph":
            raise UsageError(
                f"The loop while_loop cannot drive runtime.replication = {job.runtime.replication!r}.",
                'Use replication = "in_graph", or the loop session.',
            )

    def build(self, training: Training) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        with tf.device("/cpu:0"):
            self._steps = v1.placeholder(tf.int32, [], name="steps_of_a_call")
            self._sampled = v1.placeholder(tf.bool, [], name="sampled")
        sampled = None if training.feeding.evidence is None else self._sampled
        self._call = several_steps.build(training.build_step, self._steps, sampled)

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        more = True
        while more:
            steps = several_steps.asked_for(self.options.steps_per_call, record)
            sampled = record.should_sample_any(steps)
            start_ns = monotonic_ns()
            rows, evidence = session.run(self._call, {self._steps: steps, self._sampled: sampled})
            more = several_steps.tell(record, start_ns, monotonic_ns(), rows, evidence)
