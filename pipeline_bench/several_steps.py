"""Several training steps in one call: built as a loop of the graph's, and told apart again when the call is over.

What a call costs has to be in the steps, or a loop that calls seldom would look as if its calls were free. So a call's
steps fill its time without gaps: the first begins when Python made the call, each other one when the one before it had
ended, and the last ends when Python has the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_bench.errors import UsageError
from pipeline_bench.loops import Job, Step, StepRecorder
from pipeline_bench.models import GradientModel

Array = npt.NDArray[np.float64]

COLUMNS = 4
"""Of a step's row: loss, seconds of wait, seconds of an emulated device's work, when it ended in s since 1970."""


class Call(NamedTuple):
    """What a call of several steps gives."""

    rows: Any
    """A row of figures for each step, float64 [steps, 4]."""
    evidence: Any
    """What each step shows of its samples, float64 [steps, n]; without numbers where they are not looked at."""


def build(one: Callable[[Any], Step], steps: Any, sampled: Any = None) -> Call:
    """Build a loop of so many steps into the default graph or into the function that is traced.

    Args:
        one: builds a step, whose evidence is built by `if_sampled` of its argument. It is called once: what is built
            twice has two of whatever its ops keep, as the optimiser's powers of beta.
        steps: how many, int32 [], at least 1.
        sampled: whether the steps are to show their evidence, bool []; None where they have none to show.
    """
    import tensorflow as tf

    def body(index: Any, rows: Any, shown: Any) -> tuple[Any, Any, Any]:
        step = one(sampled)
        row = row_of(step)
        with tf.device("/cpu:0"):
            if sampled is not None:
                shown = shown.write(index, step.evidence)
            return index + 1, rows.write(index, row), shown

    with tf.device("/cpu:0"):
        begin = (
            tf.constant(0),
            tf.TensorArray(tf.float64, steps, element_shape=[COLUMNS]),
            tf.TensorArray(tf.float64, 0 if sampled is None else steps, infer_shape=False),
        )
    # One at a time, so that a step begins when the one before it has ended.
    _, rows, shown = tf.while_loop(lambda index, *_: index < steps, body, begin, parallel_iterations=1)
    with tf.device("/cpu:0"):
        return Call(rows.stack(), tf.zeros([0, 0], tf.float64) if sampled is None else shown.stack())


def if_sampled(sampled: Any, evidence: Callable[[], Any]) -> Any:
    """What `evidence` builds, float64 [n], at a cost only where a step is looked at; [0] where not.

    Args:
        sampled: bool [], or None where every step is.
        evidence: builds it.
    """
    import tensorflow as tf

    return evidence() if sampled is None else tf.cond(sampled, evidence, lambda: tf.zeros([0], tf.float64))


def row_of(step: Step) -> Any:
    """The row of a step, float64 [4], whose last figure is stamped when the step has trained and its loss is there."""
    import tensorflow as tf

    none = tf.constant(0.0, tf.float64)
    with tf.control_dependencies([step.train, step.loss]), tf.device("/cpu:0"):
        ended_s = tf.timestamp()
        loss = tf.cast(step.loss, tf.float64)
        wait_s = none if step.wait_s is None else step.wait_s
        busy_s = none if step.busy_s is None else step.busy_s
        return tf.stack([loss, wait_s, busy_s, ended_s])


def check_eagerly(loop: str, job: Job) -> None:
    """Refuse what a loop of TensorFlow 2 cannot drive.

    Args:
        loop: its name.
        job: what it is asked to drive.

    Raises:
        UsageError: it cannot.
    """
    if not job.backend.eager:
        raise UsageError(
            f"The loop {loop} runs eager TensorFlow 2, and the backend {job.backend.name} needs a graph and a session.",
            "Use the backend tf_data, or the loop session.",
        )
    if not isinstance(job.model, GradientModel):
        raise UsageError(
            f"The loop {loop} cannot train the model {job.model.name}, which needs a graph and a session.",
            "Use two_layer, mlp or mnist_cnn, or the loop session.",
        )
    if job.runtime.replicas > 1:
        raise UsageError(
            f"The loop {loop} trains one replica, and runtime.replicas is {job.runtime.replicas}.",
            "Set runtime.replicas = 1, or use the loop session.",
        )
    if getattr(job.source, "skips", False):
        raise UsageError(
            f"The loop {loop} cannot count the records that are left out.",
            'Use source.on_error = "raise", or the loop session.',
        )


def asked_for(steps_per_call: int, record: StepRecorder) -> int:
    """How many steps the next call is to run: those that are left, where they are fewer than a call's."""
    left = record.steps_left
    return steps_per_call if left is None else min(steps_per_call, left)


def tell(record: StepRecorder, start_ns: int, end_ns: int, rows: Array, evidence: Array | None) -> bool:
    """Give the steps of a call to `record`; whether it wants more.

    Args:
        record: takes them all, also those behind the end of a trial whose length is a time: they have trained.
        start_ns: when Python made the call, by ``time.monotonic_ns``.
        end_ns: when it had the result.
        rows: as `Call` has them.
        evidence: likewise; None or empty where the steps were not looked at.
    """
    ends = step_ends(start_ns, end_ns, rows[:, -1], time.time_ns() - time.monotonic_ns())
    starts = [start_ns, *ends[:-1]]
    shown: Sequence[Any] = [None] * len(ends) if evidence is None or not evidence.size else list(evidence)
    losses, (wait_ns, busy_ns) = rows[:, 0].tolist(), (rows[:, 1:3] * 1e9).astype(np.int64).T.tolist()
    more = True
    for i, end in enumerate(ends):
        more = record(starts[i], end, wait_ns[i], losses[i], shown[i], busy_ns[i])
    return more


def step_ends(start_ns: int, end_ns: int, stamps_s: Array, offset_ns: int) -> list[int]:
    """When each step of a call ended, in ns of ``time.monotonic_ns``, the last one with the call.

    Args:
        start_ns: of the call.
        end_ns: of the call.
        stamps_s: when each ended by the graph's clock, in s since 1970.
        offset_ns: the graph's clock less Python's. That clock may be set while the call runs, which no stamp may carry
            beyond the call, nor before the step in front of it.
    """
    ends = np.round(stamps_s * 1e9).astype(np.int64) - offset_ns
    ends[-1] = end_ns
    found: list[int] = np.maximum.accumulate(np.clip(ends, start_ns, end_ns)).tolist()
    return found
