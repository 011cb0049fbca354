"""fifo_queue: FIFOQueue + QueueRunner + Coordinator, TensorFlow 1's way to produce while the model trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.backends import Backend, Input, Queue
from pipeline_bench.sources import Source

_JOIN_GRACE_S = 2


class FifoQueueOptions(plugins.Options):
    """How large the queue is, who fills it, and with what."""

    capacity: Annotated[
        int | None, Field(ge=1, le=2**31 - 1, description="elements it holds; unset: 5 batches, or as many samples")
    ] = None
    threads: Annotated[int, Field(ge=1, le=4096, description="threads of the QueueRunner")] = 1
    element: Annotated[
        Literal["batch", "sample"], Field(description="what one element is: a whole batch, or one sample of it")
    ] = "batch"


class FifoQueue(Backend):
    """Threads of a QueueRunner fill a queue in the graph; the step dequeues, and Python never touches the batch."""

    name = "fifo_queue"
    summary = "FIFOQueue + QueueRunner + Coordinator; batches are made in threads and never enter Python"
    Options = FifoQueueOptions

    def connect(self, source: Source, device: str | None) -> Input:
        return _QueueInput(source, self.options)


class _QueueInput(Input):
    def __init__(self, source: Source, options: FifoQueueOptions) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        whole = options.element == "batch"
        self._capacity = options.capacity or (5 if whole else 5 * source.batch_size)
        with tf.device("/cpu:0"):
            made = source.produce(source.batch_size) if whole else [tensor[0] for tensor in source.produce(1)]
            self._queue = v1.FIFOQueue(
                self._capacity, [tensor.dtype for tensor in made], [tensor.shape for tensor in made], name="input_queue"
            )
            self._size = self._queue.size()
            self._close = self._queue.close(cancel_pending_enqueues=True)
            self._runner = v1.train.QueueRunner(self._queue, [self._queue.enqueue(made)] * options.threads)
        carried, wait_s = graph_ops.timed(lambda: _dequeue(self._queue, None if whole else source.batch_size))
        super().__init__(source.finish(carried), wait_s)
        self.out_of_order_samples = (options.threads - 1) * (source.batch_size if whole else 1)
        self._coordinator = v1.train.Coordinator()
        self._threads: list[Any] = []

    def start(self, session: Any) -> None:
        self._threads = self._runner.create_threads(session, coord=self._coordinator, start=True)

    def queues(self) -> Sequence[Queue]:
        return (Queue("input_queue", self._size, self._capacity),)

    def stop(self, session: Any) -> None:
        self._coordinator.request_stop()
        session.run(self._close)
        # A producer in the middle of a slow batch cannot be interrupted; it ends with the process.
        self._coordinator.join(self._threads, stop_grace_period_secs=_JOIN_GRACE_S, ignore_live_threads=True)


def _dequeue(queue: Any, samples: int | None) -> list[Any]:
    """One element, or that many, on the queue's own device; a single component comes back bare."""
    import tensorflow as tf

    with tf.device("/cpu:0"):
        taken = queue.dequeue() if samples is None else queue.dequeue_many(samples)
    return list(taken) if isinstance(taken, list | tuple) else [taken]
