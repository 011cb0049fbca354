"""fifo_queue: a queue that threads fill under a Coordinator, TensorFlow 1's way to produce while the model trains."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.backends import Backend, Input, QueueInput, dequeue, timed_take
from pipeline_bench.sources import Batch, Sample, SampleSource, Source


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
    carries_samples = True
    in_loops = True
    works_ahead = True

    def ahead_batches(self, batch_size: int) -> int:
        capacity = _capacity(batch_size, self.options)
        return capacity if self.options.element == "batch" else capacity // batch_size

    def python_part(self, source: Source) -> str | None:
        return "reads and decodes the samples" if isinstance(source, SampleSource) else None

    def connect(self, source: Source, device: str | None) -> Input:
        if isinstance(source, SampleSource):
            return _ReadQueue(source, self.options)
        return _RunQueue(source, self.options)


class _RunQueue(QueueInput):
    """Filled by a QueueRunner with what the graph makes."""

    def __init__(self, source: Source, options: FifoQueueOptions) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        whole = options.element == "batch"
        capacity = _capacity(source.batch_size, options)
        with tf.device("/cpu:0"):
            made = source.produce(source.batch_size if whole else 1)
            element = made if whole else [tensor[0] for tensor in made]
            types = [tensor.dtype for tensor in element]
            shapes = [tensor.shape for tensor in element]
            queue = v1.FIFOQueue(capacity, types, shapes, name="input_queue")
            enqueue = queue.enqueue(element)
            runner = v1.train.QueueRunner(queue, [enqueue] * options.threads)
        samples = None if whole else source.batch_size
        take = timed_take(lambda: dequeue(queue, samples), source.finish)
        super().__init__(take, {"input_queue": (queue, capacity)}, [runner])
        self.reorder_window = (options.threads - 1) * (source.batch_size if whole else 1)


class _ReadQueue(QueueInput):
    """Filled by threads of Python's, each with a stream of its own."""

    def __init__(self, source: SampleSource, options: FifoQueueOptions) -> None:
        import tensorflow as tf

        self._source, self._whole = source, options.element == "batch"
        self._streams = source.streams(options.threads)
        capacity = _capacity(source.batch_size, options)
        with tf.device("/cpu:0"):
            self._placeholders = source.placeholders(batch=self._whole)
            queue = _queue_for(self._placeholders, capacity, self._whole)
            self._enqueue = queue.enqueue(self._placeholders)
        samples = None if self._whole else source.batch_size
        shapes = [placeholder.shape for placeholder in source.placeholders()]

        def batch_of(carried: list[Any]) -> Batch:
            for tensor, shape in zip(carried, shapes, strict=True):
                tensor.set_shape(shape)
            return source.finish(carried)

        take = timed_take(lambda: dequeue(queue, samples), batch_of)
        super().__init__(take, {"input_queue": (queue, capacity)})
        in_hand = source.batch_size if self._whole else 1
        self.reorder_window = (len(self._streams) - 1) * (source.reorder_window + in_hand)

    def start(self, session: Any) -> None:
        for index, stream in enumerate(self._streams, start=1):
            thread = threading.Thread(
                target=self._fill, args=(session, stream), name=f"input_queue {index}", daemon=True
            )
            self._coordinator.register_thread(thread)
            self._threads.append(thread)
            thread.start()

    def _fill(self, session: Any, stream: Iterator[Sample]) -> None:
        """Enqueue what the stream gives until the trial ends; what it raises ends the trial.

        The queue is closed then: a step that waits for a batch would wait for ever.
        """
        try:
            while not self._coordinator.should_stop():
                element = self._source.next_batch(stream) if self._whole else next(stream)
                session.run(self._enqueue, dict(zip(self._placeholders, element, strict=True)))
        except Exception as error:
            if not self._coordinator.should_stop():  # else it is the closing of the queue, or comes too late to matter
                self._coordinator.request_stop(error)
                session.run(self._close)


def _capacity(batch_size: int, options: FifoQueueOptions) -> int:
    return options.capacity or (5 if options.element == "batch" else 5 * batch_size)


def _queue_for(elements: Sequence[Any], capacity: int, whole: bool) -> Any:
    """Return a queue of such elements; single samples that differ in size are padded as they are dequeued together."""
    import tensorflow as tf

    v1 = tf.compat.v1
    dtypes, shapes = [tensor.dtype for tensor in elements], [tensor.shape for tensor in elements]
    if all(shape.is_fully_defined() for shape in shapes):
        return v1.FIFOQueue(capacity, dtypes, shapes, name="input_queue")
    if whole:
        return v1.FIFOQueue(capacity, dtypes, name="input_queue")
    return v1.PaddingFIFOQueue(capacity, dtypes, shapes, name="input_queue")
