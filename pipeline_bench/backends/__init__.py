"""Backends carry batches from a source to the model.

One file, one class, one name; open to other packages through the entry points ``pipeline_bench.backends``. Whoever
writes one extends `DatasetBackend`, which carries every source in every loop, or writes `Backend.connect`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

from pipeline_bench import graph_ops
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.plugins import Plugin
from pipeline_bench.sources import Batch, SampleSource, Source
from pipeline_bench.sources.datasets import PipelineOptions, Resources, endless, reorder_window

_JOIN_GRACE_S = 2


@dataclass(frozen=True)
class Queue:
    """A queue of the input; the report of a stall shows how full it is."""

    name: str
    size: Any
    """An int32 scalar tensor."""
    capacity: int


Take = Callable[[], tuple[Batch, Any]]
"""Builds the ops that take the next batch; returns it with `Input.wait_s`, or with None if there is no wait."""


@dataclass(frozen=True)
class InGraph:
    """An input that consists of ops only: a program that has only the graph can run it."""

    start: Sequence[Any] = ()
    """Ops to run once, before the first step."""
    produce: Sequence[Any] = ()
    """Ops that fill a queue. A separate thread runs each of them again and again, until the queue is closed."""
    close: Any = None
    """The op that closes the queue at the end."""


@dataclass(frozen=True)
class EagerInput:
    """A backend's way of feeding a model in eager TensorFlow, for use inside of a ``tf.function``."""

    take: Take
    dataset: Any = None
    """The endless dataset whose elements are `Batch.tensors`; None for the ceiling."""
    reorder_window: int | None = None
    """As `Input.reorder_window`."""
    stop: Callable[[], None] = lambda: None
    """Ends what was begun; raises what a producer raised."""


class Input:
    """A backend's way of feeding one model, built into the graph."""

    wait: Literal["probe", "fetch", "none"] = "none"
    """How the input wait is measured: ``probe``: `wait_s` is fetched with the step; ``fetch``: the duration of `fetch`;
    ``none``: it is not, or there is no input to wait for."""

    reorder_window: int | None = None
    """Maximum number of samples that later samples may overtake: a batch for each further thread that makes them, 0 for
    an input that keeps the order. None if it is not known; 16 batches are then allowed."""

    digest: Any = None
    """What an audited step fetches beside its loss, float64 [n]; see `worker.sample_audit`. None: nothing."""

    in_graph: InGraph | None = None
    """The ops for a program without Python; None if Python has a part in the input."""

    def __init__(self, batch: Batch, wait_s: Any = None, take: Take | None = None) -> None:
        self.batch = batch
        self.wait_s = wait_s
        """Seconds the step was blocked for its batch, a float64 scalar tensor, where `wait` is ``probe``."""
        if wait_s is not None:
            self.wait = "probe"
        self.take = take
        """Builds the ops that take a batch again, into a function of the graph; None if that is impossible."""

    def start(self, session: Any) -> None:
        """Start to produce batches; called once, after the variables were initialised."""

    def fetch(self, session: Any) -> dict[Any, Any] | None:
        """Return the step's feed_dict, where `wait` is ``fetch``."""
        return None

    def queues(self) -> Sequence[Queue]:
        """Return the queues between source and model."""
        return ()

    def stop(self, session: Any) -> None:
        """End what `start` began; raises what a producer raised."""


def timed_take(carry: Callable[[], Sequence[Any]], batch_of: Callable[[list[Any]], Batch]) -> Take:
    """Return a `Take` that measures how long `carry` is blocked, and makes the batch of what it gives."""

    def take() -> tuple[Batch, Any]:
        carried, wait_s = graph_ops.timed(carry)
        return batch_of(carried), wait_s

    return take


class IteratorInput(Input):
    """Fed by an iterator of tf.data."""

    def __init__(self, iterator: Any, take: Take, window: int | None, close: Callable[[], None]) -> None:
        super().__init__(*take(), take)
        self.reorder_window = window
        self._initializer, self._close = iterator.initializer, close

    def start(self, session: Any) -> None:
        session.run(self._initializer)

    def stop(self, session: Any) -> None:
        self._close()


class QueueInput(Input):
    """Fed by queues of TensorFlow's, which threads fill under a Coordinator."""

    def __init__(
        self,
        take: Take,
        queues: Mapping[str, tuple[Any, int]],
        runners: Sequence[Any] = (),
        initializers: Sequence[Any] = (),
    ) -> None:
        """Build the first taking of a batch, and what asks and closes the queues.

        Args:
            take: dequeues a batch.
            queues: each with its capacity, by name.
            runners: the QueueRunners that fill them; with none, Python does, between `start` and `stop`.
            initializers: ops to run once before these begin.
        """
        import tensorflow as tf

        super().__init__(*take(), take)
        self._runners, self._initializers = runners, initializers
        with tf.device("/cpu:0"):
            self._queues = [Queue(name, queue.size(), capacity) for name, (queue, capacity) in queues.items()]
            closing = [queue.close(cancel_pending_enqueues=True) for queue, _ in queues.values()]
            self._close = tf.group(closing)
        if runners:
            filling = [op for runner in runners for op in runner.enqueue_ops]
            self.in_graph = InGraph(initializers, filling, self._close)
        self._coordinator = tf.compat.v1.train.Coordinator()
        self._threads: list[Any] = []

    def start(self, session: Any) -> None:
        session.run(list(self._initializers))
        for runner in self._runners:
            self._threads += runner.create_threads(session, coord=self._coordinator, start=True)

    def queues(self) -> Sequence[Queue]:
        return self._queues

    def stop(self, session: Any) -> None:
        self._coordinator.request_stop()
        session.run(self._close)
        # A producer in the middle of a slow batch cannot be interrupted; it ends with the process.
        self._coordinator.join(self._threads, stop_grace_period_secs=_JOIN_GRACE_S, ignore_live_threads=True)


def dequeue(queue: Any, samples: int | None) -> list[Any]:
    """Build the taking of one element, or of that many as a batch; a single component comes out of TensorFlow bare."""
    import tensorflow as tf

    with tf.device("/cpu:0"):  # the queue's own device
        taken = queue.dequeue() if samples is None else queue.dequeue_many(samples)
    return list(taken) if isinstance(taken, list | tuple) else [taken]


class Backend(Plugin):
    """Connects a source to a model."""

    carries_samples: ClassVar[bool] = False
    """Whether it carries a `SampleSource`, for example files; otherwise only batches that are made in the graph."""

    in_loops: ClassVar[bool] = False
    """Whether its inputs have a `take`, so that a loop of the graph can take their batches."""

    eager: ClassVar[bool] = False
    """Whether it has a `connect_eagerly`."""

    has_processes: ClassVar[bool] = False
    """Whether `start_processes` does something."""

    @property
    def works_ahead(self) -> bool | None:
        """Whether the next batch is made during the model's step; None if it is not known."""
        return None

    @property
    def copies_ahead(self) -> bool:
        """Whether it copies a batch to the model's device before the step asks for it; else the step copies it."""
        return False

    @property
    def starts_servers(self) -> bool:
        """Whether its trial starts servers that listen, and so needs a network of its own."""
        return False

    def start_processes(self, source: Source, *, can_fork: bool) -> None:
        """Start what the input needs beside the trial's process, which has one thread as yet.

        Args:
            source: what will be carried; not prepared yet.
            can_fork: whether the processes may be forks of this one, with TensorFlow imported.

        Raises:
            PipelineBenchError: they do not start, or what they are to reach does not answer.
        """

    def why_dead(self, stalled_s: float | None) -> str | None:
        """Return which of the processes is dead, and of what; None where all are well. Asked from a thread.

        Args:
            stalled_s: how long nothing has come, where that is as long as a trial may take; None before.
        """
        return None

    def why_silent(self, limit_s: float) -> str | None:
        """Return which of the processes has been silent for so long, also where others go on; None where none has.

        What it was given may be missing from the samples. It is asked often, from a thread, and may not block.

        Args:
            limit_s: the stall timeout.
        """
        return None

    def was_silent(self) -> Sequence[str]:
        """Return which of the processes did not answer for a while, also where they do again; asked from a thread."""
        return ()

    def end_processes(self) -> None:
        """End them; safe to call twice, and where none was started."""

    def check(self, source: Source) -> None:
        """Refuse a source that it cannot carry; the parent calls this before the first trial, without TensorFlow.

        Raises:
            UsageError: it cannot, or its options mean nothing for this source.
        """
        if isinstance(source, SampleSource) and not self.carries_samples:
            raise UsageError(
                f"The source {source.name} gives single samples, which {self.name} cannot carry.",
                "Use another backend, tf_data for one, or a source of whole batches.",
            )

    def ahead_batches(self, batch_size: int) -> int:
        """Return how many batches of that size may be made before the first step asks for one; 0: it is not known."""
        return 0

    def python_part(self, source: Source) -> str | None:
        """Return what Python does for each batch of that source, ``reads the samples``; None for nothing that is known.

        It is for the parent, before the first trial; of an input that was built `Input.in_graph` says it.
        """
        return None

    def connect_eagerly(self, source: Source, device: str | None) -> EagerInput:
        """Connect as `connect` does, where TensorFlow runs eagerly, without a graph or a session."""
        raise PipelineBenchError(f"The backend {self.name} needs a graph and a session.")

    @abstractmethod
    def connect(self, source: Source, device: str | None) -> Input:
        """Build the input into the default graph.

        Args:
            source: what makes the batches.
            device: the accelerator that the model is on, as TensorFlow names it (``/gpu:0``), None on a CPU.
        """


def require_numbers(backend: Backend, source: Source) -> None:
    """Refuse a source whose samples have no numbers, or that may leave one out.

    Raises:
        UsageError: the source is such a one.
    """
    if not source.has_numbers:
        raise UsageError(
            f"{backend.name} asks for samples by their number, which the source {source.name} does not have.",
            "Use a source of files, or memory, or another backend, tf_data for one.",
        )
    if source.skips:
        raise UsageError(
            f"{backend.name} cannot leave a record out: a batch of numbers would come out short.",
            'Use source.on_error = "raise", or another backend, tf_data for one.',
        )


class DatasetBackend(Backend):
    """Carries batches by tf.data: every source, files and generators too, in every loop, eager ones too.

    A subclass says in `batches` what is done to the dataset of batches, and in `overtaken_samples` how far that changes
    their order.
    """

    carries_samples = True
    in_loops = True
    eager = True

    @property
    def pipeline(self) -> PipelineOptions:
        """How records become batches; by default read, decoded and batched one by one, in order."""
        return PipelineOptions()

    def endless(self, source: Source, resources: Resources, finished: bool) -> Any:
        """Return the endless dataset of the source's batches; see `sources.datasets.endless`."""
        return endless(source, self.pipeline, resources, finished)

    def batches(self, made: Any, source: Source) -> Any:
        """Return the dataset that is taken from, of the endless dataset of batches that the source gives."""
        return made

    def overtaken_samples(self, source: Source) -> int:
        """Return how many samples `batches` may hold back when later ones have been given; 0: it keeps the order.

        A shuffle of whole batches with a buffer of n holds back (n - 1) * `source.batch_size`. What is not said here
        counts as lost, and the variant's work as unequal.
        """
        return 0

    def to_device(self, batches: Any, device: str) -> Any:
        """Return the dataset that also copies batches to the model's device; None: the step copies them.

        `copies_ahead` says which of the two it is.
        """
        return None

    def python_part(self, source: Source) -> str | None:
        python = isinstance(source, SampleSource) and not self.pipeline.decodes(source)
        return "reads and decodes the samples" if python else None

    def connect(self, source: Source, device: str | None) -> Input:
        import tensorflow as tf

        resources = Resources()
        dataset, home = self._dataset(source, resources, device)
        with tf.device(home):
            iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        take = timed_take(iterator.get_next, lambda tensors: _batch(source, tensors))
        feeding = IteratorInput(iterator, take, self._reorder_window(source), resources.close)
        if self.python_part(source) is None:
            feeding.in_graph = InGraph(start=[iterator.initializer])
        return feeding

    def connect_eagerly(self, source: Source, device: str | None) -> EagerInput:
        import tensorflow as tf

        resources = Resources()
        dataset, home = self._dataset(source, resources, device, finished=True)

        @cache
        def iterator() -> Any:
            # Only where it is asked for: Keras makes its own, and a dataset's second one shuffles in another order.
            with tf.init_scope(), tf.device(home):
                return iter(dataset)

        take = timed_take(lambda: next(iterator()), lambda tensors: Batch(*tensors))
        return EagerInput(take, dataset, self._reorder_window(source), resources.close)

    def _reorder_window(self, source: Source) -> int:
        return reorder_window(source, self.pipeline) + self.overtaken_samples(source)

    def _dataset(
        self, source: Source, resources: Resources, device: str | None, finished: bool = False
    ) -> tuple[Any, str]:
        """Return the dataset and its iterator's device; `finished`: elements are `Batch.tensors`, as Keras wants."""
        import tensorflow as tf

        self.check(source)
        with tf.device("/cpu:0"):
            dataset = self.batches(self.endless(source, resources, finished), source)
        ahead = self.to_device(dataset, device) if device else None
        return (dataset, "/cpu:0") if ahead is None else (ahead, str(device))


def _batch(source: Source, tensors: Sequence[Any]) -> Batch:
    """Return the batch of what a dataset of `endless` gave."""
    return source.finish(tensors) if isinstance(source, SampleSource) else Batch(*tensors)
