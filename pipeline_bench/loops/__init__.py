"""Loops drive the steps of a trial. One file, one class, one name; open through ``pipeline_bench.loops``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pipeline_bench.backends import Backend, Input
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.events import QueueState
from pipeline_bench.models import Model, TrainingGraph
from pipeline_bench.plugins import Plugin
from pipeline_bench.scenario import Run, Runtime
from pipeline_bench.sources import Batch, Source


class SamplingRule(NamedTuple):
    """Which steps are looked at: the first ones but for one, then one in so many, by the shortest of the first.

    One in `every` = cost / (share * shortest of the steps 1 to `first_steps`); step `first_unchecked` only where that
    is 1 if later steps are `steady_factor` times as fast as the one before it.
    """

    cost_us: float
    """About what a step takes longer when it is looked at."""
    cost_share: float
    """How much of the mean step that may be, 0 to 1."""
    first_steps: int
    first_unchecked: int
    steady_factor: int


class StepRecorder(Protocol):
    """Takes one finished step; times in ns of ``time.monotonic_ns``. False when the trial has run its length.

    Where `should_sample`, the next step is to bring its input's evidence, float64 [n]. `busy_ns` is how long an
    emulated device was busy with the step.
    """

    should_sample: bool

    def __call__(
        self,
        start_ns: int,
        end_ns: int,
        wait_ns: int,
        loss: float,
        evidence: Sequence[float] | None = None,
        busy_ns: int = 0,
    ) -> bool: ...

    def should_sample_any(self, steps: int) -> bool:
        """Whether the next `steps` are to be looked at: for a loop that runs so many at a call."""
        ...

    @property
    def steps_left(self) -> int | None:
        """How many steps are still to be run; None where the trial's length is a time."""
        ...

    @property
    def length_ns(self) -> int | None:
        """How long the trial trains, from the start of its first step; None where its length is in steps."""
        ...

    @property
    def sampling_rule(self) -> SamplingRule | None:
        """The rule behind `should_sample`, for a loop whose steps are not driven from here; None: no step is."""
        ...

    def heartbeat(self) -> None:
        """Say that the loop is still preparing its first step, to the watches that would take it for a stall."""
        ...


class Step(NamedTuple):
    """The tensors of one training step, in the graph or in a function of it."""

    train: Any
    """The op that trains."""
    loss: Any
    wait_s: Any = None
    """Seconds that it was blocked for its batch, a float64 scalar; None of an input that nobody waits for."""
    evidence: Any = None
    """What it shows of its samples where it is looked at, float64 [n]; None: nothing."""
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

    Its argument is whether the step is looked at, bool [], else its evidence has no numbers; None: it always is.

    Raises:
        PipelineBenchError: the model or the input cannot be built twice; `Loop.check` is to have refused them.
    """


@dataclass(frozen=True)
class EagerTraining:
    """What a loop of TensorFlow 2 drives: for use inside of a ``tf.function``, with eager execution on."""

    take: Callable[[], tuple[Batch, Any]]
    """Takes the next batch; gives it with the seconds that it was blocked for it, a float64 scalar, or None."""
    train_on: Callable[[Batch], Any]
    """Trains the model on a batch; gives the loss, a scalar, which is there when the step has ended."""
    evidence: Callable[[Batch], Any] | None
    """What a step that is looked at shows of a batch, float64 [n]; None: nothing."""
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

    starts_input: ClassVar[bool] = False
    """Whether the loop starts the input itself, in a process of its own; `Input.start` is then not called."""

    def check(self, job: Job) -> None:
        """Refuse what it cannot drive; the parent asks before the first trial, without TensorFlow.

        Raises:
            UsageError: it cannot.
        """

    def unavailable(self) -> str | None:
        """Why this machine cannot run the loop, and what to do about it; its variants are then left out. Else None."""
        return None

    def build(self, training: Training) -> None:
        """Add what the loop needs to the default graph, before the session is opened; by default nothing."""

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        """Train; give every step to `record` as soon as its loss is there."""
        raise PipelineBenchError(f"The loop {self.name} runs in eager TensorFlow only.")

    def run_eagerly(self, training: EagerTraining, record: StepRecorder) -> None:
        """The same, of an ``eager`` loop."""
        raise PipelineBenchError(f"The loop {self.name} runs in a graph only.")

    def queue_states(self) -> Sequence[QueueState] | None:
        """How full the input's queues are, of a loop that `starts_input`; None: the trial asks the input's own."""
        return None
