"""reader_queue: file names in a queue, readers in threads, samples in a queue: TensorFlow 1's own pipeline of files."""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.backends import Backend, Input, QueueInput, dequeue, timed_take
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.sources import Source
from pipeline_bench.sources.records import RecordSource

# As string_input_producer has it.
_NAMES_CAPACITY = 32
_BATCHES_QUEUED = 5
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

    It repeats the files without end, in their order. A thread reads a record, finds its index by the reader's key,
    decodes it and enqueues one sample; the step dequeues a batch of them.
    """

    name = "reader_queue"
    summary = "file names in a queue, TensorFlow 1 readers in threads, samples in a queue; batches are dequeued"
    Options = ReaderQueueOptions
    carries_samples = True
    in_loops = True
    works_ahead = True

    def ahead_batches(self, batch_size: int) -> int:
        samples: int = self.options.capacity or _BATCHES_QUEUED * batch_size + self.options.shuffle
        return samples // batch_size

    def check(self, source: Source) -> None:
        if not isinstance(source, RecordSource) or not source.has_reader:
            raise UsageError(
                f"The backend reader_queue has no TensorFlow 1 reader for the source {source.name}.",
                "Use another backend, tf_data for one.",
            )
        if source.uneven and self.options.shuffle:
            raise UsageError(
                f"The samples of {source.name} differ in size, and TensorFlow's RandomShuffleQueue cannot hold such.",
                "Set shuffle = 0: the PaddingFIFOQueue can.",
            )

        options: ReaderQueueOptions = self.options
        if options.capacity is not None and options.capacity <= options.shuffle:
            raise UsageError(
                f"reader_queue's capacity of {options.capacity} samples is no more than the {options.shuffle} that "
                "shuffle keeps: nothing could be taken.",
                f"Set capacity to {options.shuffle + 1} at least.",
            )

    def connect(self, source: Source, device: str | None) -> Input:
        self.check(source)
        assert isinstance(source, RecordSource)
        if source.files and source.damaged_files:
            # A reader raises at a damaged record again and again: unlike tf.data it cannot leave out a file's rest.
            path, problem = next(iter(source.damaged_files.items()))
            raise PipelineBenchError(
                f"{path}, {problem}; a TensorFlow 1 reader does not get beyond it, whatever on_error says.",
                "Write the file again, or use another backend, tf_data for one, which leaves out the rest of the file.",
            )
        return _ReaderInput(source, self.options)


class _ReaderInput(QueueInput):
    def __init__(self, source: RecordSource, options: ReaderQueueOptions) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        # Another one would read a file of the next epoch while this epoch's are still being read.
        threads = min(options.threads, len(source.files))
        capacity = options.capacity or _BATCHES_QUEUED * source.batch_size + options.shuffle
        with tf.device("/cpu:0"):
            names = v1.FIFOQueue(_NAMES_CAPACITY, [tf.string], [[]], name="file_names")
            samples = _sample_queue(source, capacity, options.shuffle)
            self._index_of_key = _indices_by_key(source)
            paths = tf.constant([os.fsencode(file.path) for file in source.files])
            runners = [
                v1.train.QueueRunner(names, [names.enqueue_many([paths])]),
                v1.train.QueueRunner(samples, [self._enqueue(source, names, samples) for _ in range(threads)]),
            ]
        take = timed_take(lambda: dequeue(samples, source.batch_size), source.finish)
        queues = {"file_names": (names, _NAMES_CAPACITY), "samples": (samples, capacity)}
        super().__init__(take, queues, runners, [self._index_of_key.initializer])
        # Files are given out in order, so that only what the other threads have left of theirs can be passed; of a
        # queue that is drawn from, a sample may also be the last one.
        passed = capacity if options.shuffle else 0
        self.reorder_window = (threads - 1) * max(1, source.reorder_window) + passed

    def _enqueue(self, source: RecordSource, names: Any, samples: Any) -> Any:
        """Return the op that one thread runs again and again: it reads, decodes and enqueues a record."""
        import tensorflow as tf

        key, value = source.reader().read(names)
        index = self._index_of_key.lookup(key)
        known = tf.debugging.Assert(index >= 0, ["the files have changed since they were checked:", key])
        with tf.control_dependencies([known]):
            index = tf.identity(index)
        number = _epoch(source.records, index) * source.records + index
        with tf.control_dependencies([source.throttle.wait_op(index)] if source.throttle else []):
            features, label, ok = source.decode_or_flag(index, (tf.identity(value),))
        if not source.skips:
            return samples.enqueue([number, features, label])
        kept = tf.cast(ok, tf.int32)
        return samples.enqueue_many([tf.expand_dims(part, 0)[:kept] for part in (number, features, label)])


def _sample_queue(source: RecordSource, capacity: int, shuffle: int) -> Any:
    """Return the queue of single samples: their numbers, features and labels."""
    import tensorflow as tf

    v1 = tf.compat.v1
    dtypes = ["int64", *(spec.dtype for spec in source.sample_specs)]
    shapes = [(), *(spec.shape for spec in source.sample_specs)]
    if shuffle:
        return v1.RandomShuffleQueue(capacity, shuffle, dtypes, shapes, name="samples")
    kind = v1.PaddingFIFOQueue if source.uneven else v1.FIFOQueue
    return kind(capacity, dtypes, shapes, name="samples")


def _indices_by_key(source: RecordSource) -> Any:
    """Return the table from a reader's key to the record's index; -1 for a key that the source does not know."""
    import tensorflow as tf

    keys = [os.fsencode(source.key_of(index)) for index in range(source.records)]
    pairs = tf.lookup.KeyValueTensorInitializer(keys, range(source.records), tf.string, tf.int64)
    return tf.compat.v1.lookup.StaticHashTable(pairs, -1)


def _epoch(records: int, index: Any) -> Any:
    """Return how many times the record of that index was read before, int64 [].

    One thread at a time: a count read after another thread's visit would give two samples the same number. That
    happens where an epoch is so short that a thread still reads a record when others read it for the next epoch.
    """
    import tensorflow as tf

    visits = graph_ops.shared_variable(_VISITS, [records], tf.int64)

    def visit() -> Any:
        one = tf.constant(1, tf.int64)
        counted = tf.raw_ops.ResourceScatterAdd(resource=visits.handle, indices=index, updates=one)
        with tf.control_dependencies([counted]):
            return tf.raw_ops.ResourceGather(resource=visits.handle, indices=index, dtype=tf.int64) - 1

    # The lock is the same for every thread's own part of the graph, as the variable is.
    return tf.CriticalSection(shared_name=_VISITS).execute(visit, exclusive_resource_access=False)
