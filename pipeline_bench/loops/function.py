"""function: `tf.function` in TensorFlow 2 as it is, one step a call or several in a loop of the graph."""

from __future__ import annotations

from time import monotonic_ns
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipeline_bench import loops, plugins
from pipeline_bench.loops import EagerTraining, Loop, Step, StepRecorder


class FunctionOptions(plugins.Options):
    """How seldom Python is asked."""

    steps_per_call: Annotated[
        int, Field(ge=1, le=10**6, description="steps that one call of the function trains before Python sees them")
    ] = 1


class FunctionLoop(Loop):
    """Takes a batch with the iterator that the function holds, and trains on it.

    With `steps_per_call` of 1 the function is the step. With more it is a loop around the step, and the losses and
    times wait in it until the call is over, as in `while_loop`: how many steps it runs is a tensor, so that a last call
    with fewer of them is not traced anew.
    """

    name = "function"
    summary = "tf.function in eager TensorFlow 2: steps_per_call steps a call"
    Options = FunctionOptions
    execution: ClassVar[Literal["graph", "eager"]] = "eager"

    def run_eagerly(self, training: EagerTraining, record: StepRecorder) -> None:
        if self.options.steps_per_call == 1:
            _one_by_one(training, record)
        else:
            _several(training, record, self.options.steps_per_call)


def _step(training: EagerTraining, sampled: Any) -> Step:
    batch, wait_s = training.take()
    loss = training.train_on(batch)
    shown = None
    if (digest := training.digest) is not None:
        shown = loops.if_sampled(sampled, lambda: digest(batch))
    return Step(loss, loss, wait_s, shown)


def _one_by_one(training: EagerTraining, record: StepRecorder) -> None:
    import tensorflow as tf

    shows = training.digest is not None

    def build(sampled: Any) -> list[Any]:
        step = _step(training, sampled)
        return [loops.row_of(step), step.digest] if shows else [loops.row_of(step)]

    # One function for both kinds of steps: in another one, what a model draws at random would begin anew.
    signature = (tf.TensorSpec([], tf.bool),)
    call = tf.function(build, autograph=False, input_signature=signature).get_concrete_function()
    flags = {flag: tf.constant(flag) for flag in (False, True)}
    more = True
    while more:
        sampled = flags[record.should_sample]
        start_ns = monotonic_ns()
        row, *digest = (each.numpy() for each in call(sampled))
        more = record(start_ns, monotonic_ns(), int(row[1] * 1e9), float(row[0]), digest[0] if digest else None)


def _several(training: EagerTraining, record: StepRecorder, steps_per_call: int) -> None:
    import tensorflow as tf

    def build(steps: Any, sampled: Any) -> loops.StepsOutput:
        return loops.build_steps(
            lambda sampled: _step(training, sampled), steps, None if training.digest is None else sampled
        )

    count, flag = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.bool)
    call = tf.function(build, autograph=False, input_signature=(count, flag)).get_concrete_function()
    more = True
    while more:
        steps = loops.steps_of_call(steps_per_call, record)
        sampled = record.should_sample_any(steps)
        start_ns = monotonic_ns()
        rows, digest = (each.numpy() for each in call(tf.constant(steps), tf.constant(sampled)))
        more = loops.record_call(record, start_ns, monotonic_ns(), rows, digest)
