"""Backends carry batches from a source to the model.

One file, one class, one name; open to other packages through the entry points ``pipeline_bench.backends``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.plugins import Plugin
from pipeline_bench.sources import Batch, Source


@dataclass(frozen=True)
class Queue:
    """A queue of the input, so that a stall can say how full it is."""

    name: str
    size: Any
    """An int32 scalar tensor."""
    capacity: int


Take = Callable[[], tuple[Batch, Any]]
"""Builds the ops that take the next batch; gives it with `Input.wait_s`, or None of an input that nobody waits for."""


@dataclass(frozen=True)
class InGraph:
    """An input that is ops and nothing else: a program that has only the graph can run it."""

    start: Sequence[Any] = ()
    """Ops that are run once, before the first step."""
    produce: Sequence[Any] = ()
    """Ops that fill a queue, each run again and again by a thread of its own, until the queue is closed."""
    close: Any = None
    """The op that closes the queue at the end."""


@dataclass(frozen=True)
class EagerInput:
    """A backend's way of feeding a model in eager TensorFlow, for use inside of a ``tf.function``."""

    take: Take
    dataset: Any = None
    """The endless dataset that is taken from, whose elements are `Batch.tensors`; None of the ceiling."""
    reorder_window: int | None = None
    """As `Input.reorder_window`."""
    stop: Callable[[], None] = lambda: None
    """Ends what was begun; raises what a producer raised."""


class Input:
    """A backend's way of feeding one model, built into the graph."""

    wait: Literal["probe", "fetch", "none"] = "none"
    """How the input wait is had: ``probe``: `wait_s` is fetched with the step; ``fetch``: it is the time `fetch` takes;
    ``none``: there is no input to wait for."""

    reorder_window: int | None = None
    """How many samples may still be on their way while later ones reach the model: a batch for each further thread that
    makes them, 0 for an input that keeps their order. None where nobody has said; 16 batches are then allowed for."""

    evidence: Any = None
    """What a step that is sampled fetches beside its loss, float64 [n]; see `worker.sample_audit`. None: nothing."""

    in_graph: InGraph | None = None
    """What a program without Python would have to run; None where Python has a part in the input."""

    def __init__(self, batch: Batch, wait_s: Any = None, take: Take | None = None) -> None:
        self.batch = batch
        self.wait_s = wait_s
        """Seconds the step was blocked for its batch, a float64 scalar tensor, where `wait` is ``probe``."""
        if wait_s is not None:
            self.wait = "probe"
        self.take = take
        """Builds the taking of a batch once more, into a function of the graph; None where that cannot be."""

    def start(self, session: Any) -> None:
        """Begin to produce; called once, after the variables were initialised."""

    def fetch(self, session: Any) -> dict[Any, Any] | None:
        """The step's feed_dict, where `wait` is ``fetch``."""
        return None

    def queues(self) -> Sequence[Queue]:
        """The queues between source and model."""
        return ()

    def stop(self, session: Any) -> None:
        """End what `start` began; raises what a producer raised."""


class Backend(Plugin):
    """Connects a source to a model."""

    def check(self, source: Source) -> None:
        """Refuse a source that it cannot carry; the parent asks before the first trial, without TensorFlow.

        Raises:
            UsageError: it cannot, or its options mean nothing for this source.
        """

    in_loops: ClassVar[bool] = False
    """Whether its inputs have a `take`, so that a loop of the graph can take their batches."""

    def python_part(self, source: Source) -> str | None:
        """What Python does for each batch of that source, ``reads the samples``; None: nothing, as far as is known.

        It is for the parent, before the first trial; of an input that was built `Input.in_graph` says it.
        """
        return None

    eager: ClassVar[bool] = False
    """Whether it has a `connect_eagerly`."""

    def connect_eagerly(self, source: Source, device: str | None) -> EagerInput:
        """The same as `connect` where TensorFlow runs eagerly, without a graph or a session."""
        raise PipelineBenchError(f"The backend {self.name} needs a graph and a session.")

    @abstractmethod
    def connect(self, source: Source, device: str | None) -> Input:
        """Build the input into the default graph.

        Args:
            source: what makes the batches.
            device: the accelerator that the model is on, as TensorFlow names it (``/gpu:0``), None on a CPU.
        """
