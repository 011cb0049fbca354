"""reader_queue: file names in a queue, readers in threads, samples in a queue: TensorFlow 1's own pipeline of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.backends import Backend, InGraph, Input, Queue
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.records import RecordSource
from pipeline_bench.sources import Batch, Source

# As string_input_producer has it.
_NAMES_CAPACITY = 32
_BATCHES_QUEUED = 5
_JOIN_GRACE_S = 2
_VISITS = "record_visits"


class ReaderQueueOptions(plugins.Options):
    """How many threads read, and how large the queue behind them is."""

    threads: Annotated[int, Field(ge=1, le=1024, description="threads, each with a reader and a file of its own")] = 1
    capacity: Annotated[
        int | None, Field(ge=1, le=2**31 - 1, description="samples that the queue holds; unset: 5 batches over shuffle")
    ] = None
    shuffle: Annotated[
        int, Field(ge=0, le=2**30, description="samples that stay in a RandomShuffleQueue to draw from; 0: in order")
    ] = 0


class ReaderQueue(Backend):
    """string_input_producer, a reader for each thread, and shuffle_batch_join or batch_join: a program of 2016.

    It repeats the files without end, in their order. A thread reads a record, finds its place by the reader's key,
    decodes it and enqueues one sample; the step dequeues a batch of them.
    """

    name = "reader_queue"
    summary = "file names in a queue, TensorFlow 1 readers in threads, samples in a queue; batches are dequeued"
    Options = ReaderQueueOptions
    in_loops = True

    def check(self, source: Source) -> None:
        if not isinstance(source, RecordSource) or not source.has_reader:
            raise UsageError(
                f"The backend reader_queue has no TensorFlow 1 reader for the source {source.name}.",
                "Use feed_dict, fifo_queue or tf_data.",
            )
        if source.uneven and self.options.shuffle:
            raise UsageError(
                f"The samples of {source.name} differ in size, and TensorFlow's RandomShuffleQueue cannot hold such.",
                "Set shuffle = 0: the PaddingFIFOQueue can.",
            )

    def connect(self, source: Source, device: str | None) -> Input:
        self.check(source)
        assert isinstance(source, RecordSource)
        _see_that_readers_get_through(source)
        return _ReaderInput(source, self.options)


class _ReaderInput(Input):
    def __init__(self, source: RecordSource, options: ReaderQueueOptions) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        # Another one would read a file of the next epoch while this epoch's are still being read.
        threads = min(options.threads, len(source.files))
        self._capacity = options.capacity or _BATCHES_QUEUED * source.batch_size + options.shuffle
        _see_that_a_batch_fits(source.batch_size, self._capacity, options.shuffle)
        with tf.device("/cpu:0"):
            self._names = v1.FIFOQueue(_NAMES_CAPACITY, [tf.string], [[]], name="file_names")
            self._queue = _sample_queue(source, self._capacity, options.shuffle)
            self._place_of_key = _places_by_key(source)
            paths = tf.constant([file.path for file in source.files])
            self._runners = [
                v1.train.QueueRunner(self._names, [self._names.enqueue_many([paths])]),
                v1.train.QueueRunner(self._queue, [self._enqueue(source) for _ in range(threads)]),
            ]
            self._sizes = self._names.size(), self._queue.size()
            self._close = [queue.close(cancel_pending_enqueues=True) for queue in (self._names, self._queue)]

        def take() -> tuple[Batch, Any]:
            carried, wait_s = graph_ops.timed(lambda: _dequeue(self._queue, source.batch_size))
            return source.finish(carried), wait_s

        super().__init__(*take(), take)
        self.in_graph = InGraph(
            start=[self._place_of_key.initializer],
            produce=[op for runner in self._runners for op in runner.enqueue_ops],
            close=tf.group(self._close),
        )
        # Files are given out in order, so that only what the other threads have left of theirs can be passed; of a
        # queue that is drawn from, a sample may also be the last one.
        passed = self._capacity if options.shuffle else 0
        self.reorder_window = (threads - 1) * max(1, source.reorder_window) + passed
        self._coordinator = v1.train.Coordinator()
        self._threads: list[Any] = []

    def start(self, session: Any) -> None:
        session.run(self._place_of_key.initializer)
        for runner in self._runners:
            self._threads += runner.create_threads(session, coord=self._coordinator, start=True)

    def queues(self) -> Sequence[Queue]:
        names, samples = self._sizes
        return Queue("file_names", names, _NAMES_CAPACITY), Queue("samples", samples, self._capacity)

    def stop(self, session: Any) -> None:
        self._coordinator.request_stop()
        session.run(self._close)
        # A thread in the middle of a slow read cannot be interrupted; it ends with the process.
        self._coordinator.join(self._threads, stop_grace_period_secs=_JOIN_GRACE_S, ignore_live_threads=True)

    def _enqueue(self, source: RecordSource) -> Any:
        """What one thread runs again and again: read, decode and enqueue one record, with a reader of its own."""
        import tensorflow as tf

        key, value = source.reader().read(self._names)
        place = self._place(key)
        number = _epoch(source.records, place) * source.records + place
        done = source.after_read(place, (value,))
        with tf.control_dependencies([] if done is None else [done]):
            features, label, ok = source.decode_or_flag(place, (tf.identity(value),))
        if not source.skips:
            return self._queue.enqueue([number, features, label])
        kept = tf.cast(ok, tf.int32)
        return self._queue.enqueue_many([tf.expand_dims(part, 0)[:kept] for part in (number, features, label)])

    def _place(self, key: Any) -> Any:
        """The place of the record with that key, int64 []."""
        import tensorflow as tf

        place = self._place_of_key.lookup(key)
        known = tf.debugging.Assert(place >= 0, ["the files have changed since they were looked at:", key])
        with tf.control_dependencies([known]):
            return tf.identity(place)


def _see_that_readers_get_through(source: RecordSource) -> None:
    """A reader raises at a damaged record again and again: unlike tf.data it has no way to leave out a file's rest."""
    if source.files and source.damaged_files:
        path, problem = next(iter(source.damaged_files.items()))
        raise PipelineBenchError(
            f"{path}, {problem}; a TensorFlow 1 reader does not get beyond it, whatever on_error says.",
            "Write the file again, or use feed_dict, fifo_queue or tf_data, which leave out the rest of the file.",
        )


def _see_that_a_batch_fits(batch_size: int, capacity: int, shuffle: int) -> None:
    """A queue that never holds a batch beyond what must stay in it would let the step wait for ever."""
    if capacity < shuffle + batch_size:
        raise PipelineBenchError(
            f"reader_queue's capacity of {capacity} samples is less than a batch and what shuffle keeps:"
            f" {batch_size} + {shuffle}.",
            f"Set capacity to {shuffle + batch_size} at least.",
        )


def _sample_queue(source: RecordSource, capacity: int, shuffle: int) -> Any:
    """The queue of single samples: their numbers, features and labels."""
    import tensorflow as tf

    v1 = tf.compat.v1
    dtypes = ["int64", *(spec.dtype for spec in source.sample_specs)]
    shapes = [(), *(spec.shape for spec in source.sample_specs)]
    if shuffle:
        return v1.RandomShuffleQueue(capacity, shuffle, dtypes, shapes, name="samples")
    kind = v1.PaddingFIFOQueue if source.uneven else v1.FIFOQueue
    return kind(capacity, dtypes, shapes, name="samples")


def _places_by_key(source: RecordSource) -> Any:
    """The table from a reader's key to the record's place; -1 for a key that the source does not know."""
    import tensorflow as tf

    keys = [source.key_of(place) for place in range(source.records)]
    pairs = tf.lookup.KeyValueTensorInitializer(keys, range(source.records), tf.string, tf.int64)
    return tf.compat.v1.lookup.StaticHashTable(pairs, -1)


def _epoch(records: int, place: Any) -> Any:
    """How many times the record at that place was read before, int64 [].

    One thread at a time: a count read after another thread's visit would give two samples the same number. That
    happens where an epoch is so short that a thread still reads a record when others read it for the next epoch.
    """
    import tensorflow as tf

    visits = graph_ops.shared_variable(_VISITS, [records], tf.int64)

    def visit() -> Any:
        one = tf.constant(1, tf.int64)
        counted = tf.raw_ops.ResourceScatterAdd(resource=visits.handle, indices=place, updates=one)
        with tf.control_dependencies([counted]):
            return tf.raw_ops.ResourceGather(resource=visits.handle, indices=place, dtype=tf.int64) - 1

    # The lock is the same for every thread's own part of the graph, as the variable is.
    return tf.CriticalSection(shared_name=_VISITS).execute(visit, exclusive_resource_access=False)


def _dequeue(queue: Any, samples: int) -> list[Any]:
    """So many samples, on the queue's own device."""
    import tensorflow as tf

    with tf.device("/cpu:0"):
        return list(queue.dequeue_many(samples))
