"""fifo_queue: a queue that threads fill under a Coordinator, TensorFlow 1's way to produce while the model trains."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.backends import Backend, InGraph, Input, Queue, Take
from pipeline_bench.records.samples import ArraySpec, Sample, SampleSource
from pipeline_bench.sources import Batch, Source

_JOIN_GRACE_S = 2


class FifoQueueOptions(plugins.Options):
    """How large the queue is, who fills it, and with what."""

    capacity: Annotated[
        int | None, Field(ge=1, le=2**31 - 1, description="elements it holds; unset: 5 batches, or as many samples")
    ] = None
    threads: Annotated[
        int, Field(ge=1, le=4096, description="threads of the QueueRunner, or of Python where it reads and decodes")
    ] = 1
    element: Annotated[
        Literal["batch", "sample"], Field(description="what one element is: a whole batch, or one sample of it")
    ] = "batch"


class FifoQueue(Backend):
    """Threads fill a queue in the graph, and the step dequeues.

    A source that makes batches in the graph is run by the threads of a QueueRunner; files and generators are read and
    decoded by threads of Python's, each of which feeds the enqueue, as programs did whose reader was Python.
    """

    name = "fifo_queue"
    summary = "FIFOQueue + threads + Coordinator; a QueueRunner makes batches in the graph, Python threads read files"
    Options = FifoQueueOptions
    in_loops = True

    def python_part(self, source: Source) -> str | None:
        return "reads and decodes the samples" if isinstance(source, SampleSource) else None

    def connect(self, source: Source, device: str | None) -> Input:
        if isinstance(source, SampleSource):
            return _ReadQueue(source, self.options)
        return _RunQueue(source, self.options)


class _QueueInput(Input):
    """What both have in common; `_queue` is made before this is initialised."""

    _queue: Any

    def __init__(self, take: Take, capacity: int) -> None:
        import tensorflow as tf

        super().__init__(*take(), take)
        self._capacity = capacity
        with tf.device("/cpu:0"):
            self._size = self._queue.size()
            self._close = self._queue.close(cancel_pending_enqueues=True)
        self._coordinator = tf.compat.v1.train.Coordinator()
        self._threads: Sequence[Any] = ()

    def start(self, session: Any) -> None:
        self._threads = self._started(session)

    @abstractmethod
    def _started(self, session: Any) -> Sequence[Any]:
        """The threads that fill the queue, started."""

    def queues(self) -> Sequence[Queue]:
        return (Queue("input_queue", self._size, self._capacity),)

    def stop(self, session: Any) -> None:
        self._coordinator.request_stop()
        session.run(self._close)
        # A producer in the middle of a slow batch cannot be interrupted; it ends with the process.
        self._coordinator.join(self._threads, stop_grace_period_secs=_JOIN_GRACE_S, ignore_live_threads=True)


class _RunQueue(_QueueInput):
    """Filled by a QueueRunner with what the graph makes."""

    def __init__(self, source: Source, options: FifoQueueOptions) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        whole = options.element == "batch"
        capacity = _capacity(source, options)
        with tf.device("/cpu:0"):
            made = source.produce(source.batch_size) if whole else [tensor[0] for tensor in source.produce(1)]
            self._queue = v1.FIFOQueue(
                capacity, [tensor.dtype for tensor in made], [tensor.shape for tensor in made], name="input_queue"
            )
            self._runner = v1.train.QueueRunner(self._queue, [self._queue.enqueue(made)] * options.threads)
        samples = None if whole else source.batch_size

        def take() -> tuple[Batch, Any]:
            carried, wait_s = graph_ops.timed(lambda: _dequeue(self._queue, samples))
            return source.finish(carried), wait_s

        super().__init__(take, capacity)
        self.in_graph = InGraph(produce=self._runner.enqueue_ops, close=self._close)
        self.reorder_window = (options.threads - 1) * (source.batch_size if whole else 1)

    def _started(self, session: Any) -> Sequence[Any]:
        threads: Sequence[Any] = self._runner.create_threads(session, coord=self._coordinator, start=True)
        return threads


class _ReadQueue(_QueueInput):
    """Filled by threads of Python's, each with a stream of its own."""

    def __init__(self, source: SampleSource, options: FifoQueueOptions) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        self._source, self._whole = source, options.element == "batch"
        self._streams = source.streams(options.threads)
        capacity = _capacity(source, options)
        specs = (ArraySpec("int64"), *source.sample_specs)
        with tf.device("/cpu:0"):
            self._placeholders = (
                source.placeholders()
                if self._whole
                else [v1.placeholder(spec.dtype, list(spec.shape)) for spec in specs]
            )
            self._queue = _queue_for(self._placeholders, capacity, self._whole)
            self._enqueue = self._queue.enqueue(self._placeholders)
        samples = None if self._whole else source.batch_size
        shapes = [placeholder.shape for placeholder in source.placeholders()]

        def take() -> tuple[Batch, Any]:
            carried, wait_s = graph_ops.timed(lambda: _dequeue(self._queue, samples))
            for tensor, shape in zip(carried, shapes, strict=True):
                tensor.set_shape(shape)
            return source.finish(carried), wait_s

        super().__init__(take, capacity)
        in_hand = source.batch_size if self._whole else 1
        self.reorder_window = (len(self._streams) - 1) * (source.reorder_window + in_hand)

    def _started(self, session: Any) -> Sequence[Any]:
        threads = [
            threading.Thread(target=self._fill, args=(session, stream), name=f"input_queue {index}", daemon=True)
            for index, stream in enumerate(self._streams, start=1)
        ]
        for thread in threads:
            self._coordinator.register_thread(thread)
            thread.start()
        return threads

    def _fill(self, session: Any, stream: Iterator[Sample]) -> None:
        """Enqueue what the stream gives until the trial ends; what it raises ends the trial.

        The queue is closed then: a step that waits for a batch would wait for ever.
        """
        try:
            while not self._coordinator.should_stop():
                session.run(self._enqueue, dict(zip(self._placeholders, self._next(stream), strict=True)))
        except Exception as error:
            if not self._coordinator.should_stop():  # else it is the closing of the queue, or comes too late to matter
                self._coordinator.request_stop(error)
                session.run(self._close)

    def _next(self, stream: Iterator[Sample]) -> Sequence[Any]:
        if self._whole:
            return self._source.stacked(list(islice(stream, self._source.batch_size)))
        return next(stream)


def _capacity(source: Source, options: FifoQueueOptions) -> int:
    return options.capacity or (5 if options.element == "batch" else 5 * source.batch_size)


def _queue_for(elements: Sequence[Any], capacity: int, whole: bool) -> Any:
    """A queue of such elements; single samples that differ in size are padded when they are dequeued together."""
    import tensorflow as tf

    v1 = tf.compat.v1
    dtypes, shapes = [tensor.dtype for tensor in elements], [tensor.shape for tensor in elements]
    if all(shape.is_fully_defined() for shape in shapes):
        return v1.FIFOQueue(capacity, dtypes, shapes, name="input_queue")
    if whole:
        return v1.FIFOQueue(capacity, dtypes, name="input_queue")
    return v1.PaddingFIFOQueue(capacity, dtypes, shapes, name="input_queue")


def _dequeue(queue: Any, samples: int | None) -> list[Any]:
    """One element, or that many, on the queue's own device; a single component comes back bare."""
    import tensorflow as tf

    with tf.device("/cpu:0"):
        taken = queue.dequeue() if samples is None else queue.dequeue_many(samples)
    return list(taken) if isinstance(taken, list | tuple) else [taken]
