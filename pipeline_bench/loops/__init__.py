"""Loops drive the steps of a trial. One file, one class, one name; open through ``pipeline_bench.loops``.

Several steps may run in one call, in a loop of the graph's, and are separated when the call is over. What a call costs
has to be in the steps, or a loop that calls seldom would look as if its calls were free. So a call's steps fill its
time without gaps: the first begins when Python made the call, each other one when the one before it had ended, and the
last ends when Python has the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_bench.backends import Backend, Input
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.model.events import QueueState
from pipeline_bench.models import GradientModel, Model, TrainingGraph
from pipeline_bench.plugins import Plugin
from pipeline_bench.scenario import Run, Runtime
from pipeline_bench.sources import Batch, Source
from pipeline_bench.system.clocks import wall_minus_monotonic_ns

Array = npt.NDArray[np.float64]

COLUMNS = 4
"""Of a step's row: loss, seconds of wait, seconds of an emulated device's work, when it ended in s since 1970."""
WAITED, ENDED = 1, 3
"""The places of the second and the last."""


class SamplingRule(NamedTuple):
    """Says which steps are sampled.

    Steps 0 to `first_steps` - 1 are, except `first_unsampled`. From `first_steps` on every n-th step is, with n =
    ceil(cost / (`cost_share` × the shortest of them but for step 0)). `first_unsampled` itself is sampled only if n
    would be 1 for steps `steady_factor` times shorter than the step before it.
    """

    cost_us: float
    """About what a step takes longer when it is sampled."""
    cost_share: float
    """How much of the mean step that may be, 0 to 1."""
    first_steps: int
    first_unsampled: int
    steady_factor: int


class StepRecorder(ABC):
    """Takes one finished step; times in ns of ``time.monotonic_ns``. False when the trial has run its length.

    Where `should_sample`, the next step is to bring its input's digest, float64 [n]. `busy_ns` is how long an
    emulated device was busy with the step.
    """

    should_sample: bool

    @abstractmethod
    def __call__(
        self,
        start_ns: int,
        end_ns: int,
        wait_ns: int,
        loss: float,
        digest: Sequence[float] | None = None,
        busy_ns: int = 0,
    ) -> bool:
        """Take one step."""

    def should_sample_any(self, steps: int) -> bool:
        """Return whether any of the next `steps` is to be sampled: for a loop that runs so many at a call."""
        return self.should_sample

    @property
    def steps_left(self) -> int | None:
        """How many steps are still to be run; None where the trial's length is a time."""
        return None

    @property
    def length_ns(self) -> int | None:
        """How long the trial trains, from the end of its first step; None where that is not known here."""
        return None

    @property
    def sampling_rule(self) -> SamplingRule | None:
        """The rule behind `should_sample`, for a loop whose steps are not driven from here; None: no step is."""
        return None

    def heartbeat(self) -> None:  # noqa: B027 - where nobody watches, it says nothing
        """Report that the loop still prepares its first step, so that this is not taken for a stall."""


class Step(NamedTuple):
    """The tensors of one training step, in the graph or in a function of it."""

    train: Any
    """The op that trains."""
    loss: Any
    wait_s: Any = None
    """Seconds that it was blocked for its batch, a float64 scalar; None of an input that nobody waits for."""
    digest: Any = None
    """What it shows of its samples where it is sampled, float64 [n]; None: nothing."""
    busy_s: Any = None
    """Seconds that an emulated device was busy with it."""


@dataclass(frozen=True)
class Training:
    """What a loop drives: the training step that was built into the graph, its input, and how to build it again."""

    graph: TrainingGraph
    feeding: Input
    init: Any
    """The op that sets the variables."""
    build_step: Callable[[Any], Step]
    """Builds another step into the function that is being built: it takes the next batch and trains the same model.

    Its argument is whether the step is sampled, bool [], else its digest has no numbers; None: it always is.

    Raises:
        PipelineBenchError: the model or the input cannot be built twice; `Loop.check` is to have refused them.
    """


class StepFigures:
    """What a step of a graph shows, in one tensor: loss, wait if any, busy time if any, and the digest if sampled.

    A fetch of its own costs a step 10 to 20 µs, ten times the probe.
    """

    def __init__(self, training: Training) -> None:
        self._graph, self._feeding = training.graph, training.feeding
        self._has_wait, self._has_busy = self._feeding.wait_s is not None, self._graph.busy_s is not None

    def tensor(self, sampled: bool) -> Any:
        """Build the tensor, float64 [1 to 3 + n]; of a step that shows its loss alone it is that, a scalar."""
        return in_one_tensor(
            self._graph.loss,
            self._feeding.wait_s,
            self._feeding.digest if sampled else None,
            self._graph.busy_s,
        )

    def split(self, values: Any, sampled: bool) -> tuple[int, float, Any, int]:
        """Return `wait_ns`, `loss`, `digest` and `busy_ns` of a `StepRecorder` from what the tensor gave."""
        if not values.shape:
            return 0, float(values), None, 0
        wait_ns = int(values[1] * 1e9) if self._has_wait else 0
        rest = 1 + self._has_wait
        busy_ns = int(values[rest] * 1e9) if self._has_busy else 0
        digest = values[rest + self._has_busy :]
        return wait_ns, float(values[0]), digest if sampled and digest.size else None, busy_ns


def in_one_tensor(loss: Any, wait_s: Any, digest: Any = None, busy_s: Any = None) -> Any:
    """Build loss, wait, busy time and digest, as far as there are any, as float64 [n]; of a loss alone that itself."""
    import tensorflow as tf

    others = [scalar for scalar in (wait_s, busy_s) if scalar is not None]
    if not others and digest is None:
        return loss
    with tf.device("/cpu:0"):
        first = tf.stack([tf.cast(loss, tf.float64), *others])
        return first if digest is None else tf.concat([first, digest], axis=0)


@dataclass(frozen=True)
class EagerTraining:
    """What a loop of TensorFlow 2 drives: for use inside of a ``tf.function``, with eager execution on."""

    take: Callable[[], tuple[Batch, Any]]
    """Takes the next batch; gives it with the seconds that it was blocked for it, a float64 scalar, or None."""
    train_on: Callable[[Batch], Any]
    """Trains the model on a batch; gives the loss, a scalar, which is there when the step has ended."""
    digest: Callable[[Batch], Any] | None
    """What a sampled step shows of a batch, float64 [n]; None: nothing."""
    dataset: Any = None
    """The endless dataset that `take` takes from, for a loop that hands it to Keras; None of the ceiling."""


@dataclass(frozen=True)
class Job:
    """What a loop is asked to drive, as the parent knows it before the first trial."""

    source: Source
    backend: Backend
    model: Model
    runtime: Runtime
    run: Run


class Loop(Plugin):
    """Runs training steps until the recorder says that the trial is over."""

    execution: ClassVar[Literal["graph", "eager"]] = "graph"
    """``eager``: TensorFlow 2 as it is; `run_eagerly` is then called in place of `build` and `run`."""

    builds_steps: ClassVar[bool] = False
    """Whether it builds the step again into the graph, with `Training.build_step`."""

    starts_input: ClassVar[bool] = False
    """Whether the loop starts the input itself, in a process of its own; `Input.start` is then not called."""

    device_processes: ClassVar[int] = 1
    """How many processes of a trial have the device open: its own, and those that the loop starts."""

    def check(self, job: Job) -> None:
        """Refuse what it cannot drive; the parent asks before the first trial, without TensorFlow.

        Raises:
            UsageError: it cannot.
        """
        if self.execution == "eager":
            self._check_eager(job)
        elif self.builds_steps:
            self._check_rebuilt(job)

    def _check_eager(self, job: Job) -> None:
        if not job.backend.eager:
            raise UsageError(
                f"The loop {self.name} runs eager TensorFlow 2, and the backend {job.backend.name} needs a graph and a "
                "session.",
                "Use the backend tf_data, or the loop session.",
            )
        if not isinstance(job.model, GradientModel):
            raise UsageError(
                f"The loop {self.name} cannot train the model {job.model.name}, which needs a graph and a session.",
                "Use two_layer, mlp or mnist_cnn, or the loop session.",
            )
        if job.runtime.is_replicated:
            asked = f"replicas = {job.runtime.replicas} and replication = {job.runtime.replication!r}"
            raise UsageError(
                f"The loop {self.name} trains one plain model, and the runtime has {asked}.",
                'Set runtime.replicas = 1 and runtime.replication = "in_graph", or use the loop session.',
            )
        if job.source.skips:
            raise UsageError(
                f"The loop {self.name} cannot count the records that are left out.",
                'Use source.on_error = "raise", or the loop session.',
            )

    def _check_rebuilt(self, job: Job) -> None:
        if not job.backend.in_loops:
            raise UsageError(
                f"The loop {self.name} takes its batches inside the graph, and {job.backend.name} hands them over from "
                "Python.",
                "Use the backend fifo_queue or tf_data, or the loop session or callable.",
            )
        if not isinstance(job.model, GradientModel):
            raise UsageError(
                f"The model {job.model.name} cannot be built into a loop of the graph.",
                "Use two_layer, mlp or mnist_cnn, or the loop session or callable.",
            )
        if job.runtime.is_replicated and job.runtime.replication != "in_graph":
            raise UsageError(
                f"The loop {self.name} cannot drive runtime.replication = {job.runtime.replication!r}.",
                'Use replication = "in_graph", or the loop session.',
            )

    def build(self, training: Training) -> None:
        """Add what the loop needs to the default graph, before the session is opened; by default nothing."""

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        """Train; give every step to `record` as soon as its loss is there."""
        raise PipelineBenchError(f"The loop {self.name} runs in eager TensorFlow only.")

    def run_eagerly(self, training: EagerTraining, record: StepRecorder) -> None:
        """Train in eager mode, as `run` does in a graph; for an ``eager`` loop."""
        raise PipelineBenchError(f"The loop {self.name} runs in a graph only.")

    def queue_states(self) -> Sequence[QueueState] | None:
        """Return how full the input's queues are, if the loop `starts_input`; None: the trial asks the input itself."""
        return None


class StepsOutput(NamedTuple):
    """What a call of several steps gives."""

    rows: Any
    """A row of figures for each step, float64 [steps, 4]."""
    digest: Any
    """What each step shows of its samples, float64 [steps, n]; without numbers where they are not sampled."""


def build_steps(one: Callable[[Any], Step], steps: Any, sampled: Any) -> StepsOutput:
    """Build a loop of so many steps into the default graph or into the function that is traced.

    Args:
        one: builds a step, whose digest is built by `if_sampled` of its argument. It is called once: what is built
            twice has two of whatever its ops keep, as the optimiser's powers of beta.
        steps: how many, int32 [], at least 1.
        sampled: whether the steps are to show their digest, bool []; None where they have none to show.
    """
    import tensorflow as tf

    def body(index: Any, rows: Any, digests: Any) -> tuple[Any, Any, Any]:
        step = one(sampled)
        row = row_of(step)
        with tf.device("/cpu:0"):
            if sampled is not None:
                digests = digests.write(index, step.digest)
            return index + 1, rows.write(index, row), digests

    with tf.device("/cpu:0"):
        begin = (
            tf.constant(0),
            tf.TensorArray(tf.float64, steps, element_shape=[COLUMNS]),
            tf.TensorArray(tf.float64, 0 if sampled is None else steps, infer_shape=False),
        )
    # One at a time, so that a step begins when the one before it has ended.
    _, rows, digests = tf.while_loop(lambda index, *_: index < steps, body, begin, parallel_iterations=1)
    with tf.device("/cpu:0"):
        return StepsOutput(rows.stack(), tf.zeros([0, 0], tf.float64) if sampled is None else digests.stack())


def if_sampled(sampled: Any, digest: Callable[[], Any]) -> Any:
    """Return what `digest` builds, float64 [n], at a cost only where a step is sampled; [0] where not.

    Args:
        sampled: bool [], or None where every step is.
        digest: builds it.
    """
    import tensorflow as tf

    return digest() if sampled is None else tf.cond(sampled, digest, lambda: tf.zeros([0], tf.float64))


def row_of(step: Step) -> Any:
    """Return the row of a step, float64 [4]; its last figure is the time when the step has trained and has its loss."""
    import tensorflow as tf

    none = tf.constant(0.0, tf.float64)
    # Where a function trains, after its call may only mean after its side effects, and a wrapped one has none.
    there = tf.identity(step.loss)
    with tf.control_dependencies([step.train, there]), tf.device("/cpu:0"):
        ended_s = tf.timestamp()
        loss = tf.cast(step.loss, tf.float64)
        wait_s = none if step.wait_s is None else step.wait_s
        busy_s = none if step.busy_s is None else step.busy_s
        return tf.stack([loss, wait_s, busy_s, ended_s])


def steps_of_call(steps_per_call: int, record: StepRecorder) -> int:
    """Return how many steps the next call is to run: those that are left, where they are fewer than a call's."""
    left = record.steps_left
    return steps_per_call if left is None else min(steps_per_call, left)


def record_call(record: StepRecorder, start_ns: int, end_ns: int, rows: Array, digest: Array | None) -> bool:
    """Give the steps of a call to `record`; whether it wants more.

    Args:
        record: takes them all, also those behind the end of a trial whose length is a time: they have trained.
        start_ns: when Python made the call, by ``time.monotonic_ns``.
        end_ns: when it had the result.
        rows: as `StepsOutput` has them.
        digest: likewise; None or empty where the steps were not sampled.
    """
    ends = step_ends(start_ns, end_ns, rows[:, ENDED], wall_minus_monotonic_ns())
    starts = [start_ns, *ends[:-1]]
    digests: Sequence[Any] = [None] * len(ends) if digest is None or not digest.size else list(digest)
    losses, (wait_ns, busy_ns) = rows[:, 0].tolist(), (rows[:, WAITED:ENDED] * 1e9).astype(np.int64).T.tolist()
    more = True
    for i, end in enumerate(ends):
        more = record(starts[i], end, wait_ns[i], losses[i], digests[i], busy_ns[i])
    return more


def step_ends(start_ns: int, end_ns: int, stamps_s: Array, offset_ns: int) -> list[int]:
    """Return when each step of a call ended, in ns of ``time.monotonic_ns``, the last one with the call.

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
