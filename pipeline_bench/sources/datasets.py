"""Any source as an endless `tf.data.Dataset`: made, or read, cached, shuffled, repeated, numbered, decoded, batched.

A dataset that repeats does not say which epoch an element is of. So the elements are counted behind the repetition,
and a sample's epoch is the count over the records of an epoch: whatever the stages before have done, they give each
record one turn an epoch. A record that is skipped therefore keeps its turn until the numbers are given.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, TypeGuard

import numpy as np
from pydantic import Field, model_validator

from pipeline_bench import plugins
from pipeline_bench.sources import Sample, SampleSource, Source
from pipeline_bench.sources.records import RecordSource, zeros_of
from pipeline_bench.system.files import ScratchFolder
from pipeline_bench.system.processes import allowed_cpus

Auto = Literal["auto"]

# How many files a parallel interleave has open for each one of its cycle: two more are opened ahead, and where order
# does not matter, they may be read before one that is not ready. Found with files of 20 ms latency on TensorFlow 2.21:
# cycles of 2, 4 and 16 files were 5.6, 11.6 and 33 times as fast as reading one by one.
OPEN_PER_TURN = 3

# Beside the graph's seed, which is the run's: without one of its own a shuffle depends on how many ops came before.
_SHUFFLE_SEED = 1
_TURNS = 2**62


class PipelineOptions(plugins.Options):
    """How records become batches."""

    parallel_calls: Annotated[
        Annotated[int, Field(ge=1)] | Auto,
        Field(description="batches made, or records decoded, at a time; auto: AUTOTUNE"),
    ] = 1
    deterministic: Annotated[
        bool, Field(description="keep the order of what is made at a time; false: what is ready goes first")
    ] = True
    interleave: Annotated[
        Annotated[int, Field(ge=1, le=4096)] | Auto,
        Field(description="files that take turns, opened ahead as TensorFlow does; 1: one by one; auto: one a CPU"),
    ] = 1
    batch_before_map: Annotated[bool, Field(description="batch the records, then decode a batch in one call")] = False
    cache: Annotated[
        Literal["none", "records", "samples", "disk"],
        Field(
            description="keep records, or decoded samples, in memory, or decoded samples on disk while a trial lasts"
        ),
    ] = "none"
    shuffle: Annotated[
        int, Field(ge=0, le=2**24, description="samples in the shuffle buffer, another order each epoch; 0: none")
    ] = 0
    from_generator: Annotated[
        bool, Field(description="Python reads and decodes the records, Dataset.from_generator carries the samples")
    ] = False

    @model_validator(mode="after")
    def _caches_what_is_made(self) -> PipelineOptions:
        if self.batch_before_map and self.cache in ("samples", "disk"):
            raise ValueError(
                f'cache = "{self.cache}" keeps single samples, which batch_before_map = true does not make; '
                'allowed beside it: cache = "none" or "records"'
            )
        return self

    def decodes(self, source: Source) -> TypeGuard[RecordSource]:
        """Return whether TensorFlow reads and decodes the source's records, and not Python."""
        return isinstance(source, RecordSource) and not self.from_generator


class Resources:
    """What a pipeline leaves outside the graph: what its generator raised, and the folder of its cache."""

    def __init__(self) -> None:
        self.raised: list[Exception] = []
        self._cache: ScratchFolder | None = None

    def noting(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """Give the samples on; what they raise is kept, since TensorFlow hands on no more than its text."""
        try:
            yield from samples
        except Exception as error:
            self.raised.append(error)
            raise

    def cache_file(self, source: RecordSource) -> str:
        """Return where the decoded samples of an epoch go."""
        features, label = source.sample_specs
        sizes = math.prod(source.padded_shape) * np.dtype(features.dtype).itemsize, np.dtype(label.dtype).itemsize
        self._cache = ScratchFolder(source.records * sum(sizes), "The decoded samples of an epoch")
        return str(self._cache.path / "samples")

    def close(self) -> None:
        """Remove what is left; raises what a generator raised."""
        if self._cache:
            self._cache.remove()
        if self.raised:
            raise self.raised[0]


def endless(source: Source, options: PipelineOptions, resources: Resources, finished: bool = False) -> Any:
    """Build endless batches: of a `SampleSource` what its `finish` takes, of another source what `Batch` does.

    Args:
        source: what makes the batches.
        options: how.
        resources: takes what is to be closed after the training.
        finished: the batches are `Batch.tensors` of every source.
    """
    return built(lambda: _endless(source, options, resources), source, finished)


def built(make: Callable[[], Any], source: Source, finished: bool) -> Any:
    """Build what `make` does, and what `endless` says of `finished`.

    AutoGraph leaves the functions alone, which are TensorFlow's calls already: its reading them was half of a trial's
    build.
    """
    import tensorflow as tf

    def build() -> Any:
        made = make()
        if finished and isinstance(source, SampleSource):
            return made.map(lambda *tensors: source.finish(tensors).tensors)
        return made

    return tf.autograph.experimental.do_not_convert(build)()


def _endless(source: Source, options: PipelineOptions, resources: Resources) -> Any:
    import tensorflow as tf

    if options.decodes(source):
        return _of_records(source, options, resources)
    if isinstance(source, SampleSource):
        specs = [tf.TensorSpec(spec.shape, spec.dtype) for spec in source.sample_specs]
        samples = tf.data.Dataset.from_generator(
            lambda: resources.noting(source.streams(1)[0]), output_signature=(tf.TensorSpec([], tf.int64), *specs)
        )
        return batched(_shuffled(samples, options), source)

    def make(_: Any) -> tuple[Any, ...]:
        return source.finish(source.produce(source.batch_size)).tensors

    return tf.data.Dataset.from_tensors(0).repeat().map(make, num_parallel_calls=calls_of(options))


def reorder_window(source: Source, options: PipelineOptions) -> int:
    """Return how many samples the stages of `endless` may hold back while others pass; see `Input.reorder_window`."""
    if not isinstance(source, SampleSource):
        calls = most(options.parallel_calls)
        # While a parallel map's next call still runs, as many behind it may have begun: it has left their buffer.
        return calls * source.batch_size if calls > 1 else 0
    if not options.decodes(source):
        return options.shuffle
    files = most(options.interleave)
    if files > 1 and not options.deterministic:
        files *= OPEN_PER_TURN
    # Before the epochs follow each other, so no more than one of them.
    window = min(options.shuffle + (files - 1) * source.reorder_window, source.records)
    if not options.deterministic:
        # A map that TensorFlow merges with the batch behind it holds back a whole batch for want of one sample.
        in_a_call = source.batch_size if options.batch_before_map else 1
        window += most(options.parallel_calls) * in_a_call + source.batch_size
    return window


def most(at_a_time: int | Auto) -> int:
    """Return how many there may be at a time; AUTOTUNE goes up to the CPUs that the process may use."""
    return allowed_cpus() if at_a_time == "auto" else at_a_time


def calls_of(options: PipelineOptions) -> Any:
    """Return the ``num_parallel_calls`` of a map."""
    import tensorflow as tf

    return {"auto": tf.data.AUTOTUNE, 1: None}.get(options.parallel_calls, options.parallel_calls)


def _of_records(source: RecordSource, options: PipelineOptions, resources: Resources) -> Any:
    """Batches of numbers, features and labels of records that TensorFlow reads and decodes.

    A function is mapped over turn (the count behind the repetition), index and raw record, or over batches of these.
    """
    import tensorflow as tf

    def number(turn: Any, index: Any) -> Any:
        return turn // source.records * source.records + index

    def decode(index: Any, raw: Any) -> tuple[Any, ...]:
        decoded = source.decode_or_flag(index, raw)
        return index, *(decoded if source.skips else decoded[:2])

    def decode_batch(turns: Any, records: Any) -> tuple[Any, ...]:
        return number(turns, records[0]), *source.decode_batch_op(*records)

    def number_decoded(turn: Any, sample: Any) -> tuple[Any, ...]:
        return number(turn, sample[0]), *sample[1:]

    def decode_numbered(turn: Any, record: Any) -> tuple[Any, ...]:
        return number_decoded(turn, decode(*record))

    def turns(dataset: Any) -> Any:
        return _shuffled(dataset, options).repeat().enumerate()

    calls = calls_of(options)
    files = tf.data.Dataset.from_tensor_slices(_columns(source))
    records = _interleaved(files, file_reader(source), options.interleave)
    if options.cache == "records":
        records = records.cache()
    if options.batch_before_map:
        batches = turns(records).batch(source.batch_size, drop_remainder=True)
        return batches.map(decode_batch, num_parallel_calls=calls)
    if options.cache in ("samples", "disk"):
        file = resources.cache_file(source) if options.cache == "disk" else ""
        samples = turns(records.map(decode, num_parallel_calls=calls).cache(file)).map(number_decoded)
    else:
        samples = turns(records).map(decode_numbered, num_parallel_calls=calls)
    return batched(_flagged_samples(samples) if source.skips else samples, source)


def file_reader(source: RecordSource, *, corrected: bool = True) -> Callable[..., Any]:
    """Return what builds the dataset of a file, from its path, the index of its first record, and their number.

    An element is the index of a record and what the record consists of.

    Args:
        source: of the files.
        corrected: whether a throttle corrects its waits by those before, which takes a variable of this process.
    """
    import tensorflow as tf

    # What a damaged file does not give keeps its turn, as a record that cannot be decoded.
    absent = zeros_of(source.raw_specs)
    throttle = source.throttle

    def late(index: Any, raw: Any) -> tuple[Any, Any]:
        assert throttle is not None
        with tf.control_dependencies([throttle.wait_op(index, corrected=corrected)]):
            return index + 1, tf.nest.map_structure(tf.identity, raw)

    def of_file(path: Any, first: Any, count: Any) -> Any:
        records = source.file_dataset(path, first)
        if throttle:
            # A scan, because TensorFlow runs such a map in parallel, and several records would wait side by side.
            records = records.scan(tf.cast(first, tf.int64), late)
        if source.skips:
            records = records.concatenate(tf.data.Dataset.from_tensors(absent).repeat())
        return tf.data.Dataset.zip((tf.data.Dataset.range(first, first + count), records))

    return of_file


def turns_of_files(source: RecordSource, files_at_a_time: int | Auto) -> Any:
    """Return a dataset of the records of all epochs, each its number and its parts, from one source: file by file.

    Whoever takes part of that source's elements, a worker of the tf.data service, has whole files of an epoch, and
    each record keeps the number that it has everywhere. `_of_records` counts the elements behind a repetition instead.
    """
    import tensorflow as tf

    of_file, (paths, firsts, counts) = file_reader(source, corrected=False), _columns(source)

    def of_turn(turn: Any) -> Any:
        epoch, file = turn // len(source.files), turn % len(source.files)
        records = of_file(tf.gather(paths, file), tf.gather(firsts, file), tf.gather(counts, file))
        return records.map(lambda index, raw: (epoch * source.records + index, raw))

    return _interleaved(tf.data.Dataset.range(_TURNS), of_turn, files_at_a_time)


def _columns(source: RecordSource) -> tuple[Any, Any, Any]:
    """Return the files' paths, string [files], their first records and their numbers of records, int64 [files]."""
    import tensorflow as tf

    numbers = [tf.constant([getattr(file, name) for file in source.files], tf.int64) for name in ("first", "records")]
    return tf.constant([os.fsencode(file.path) for file in source.files]), numbers[0], numbers[1]


def _interleaved(files: Any, open_file: Callable[..., Any], files_at_a_time: int | Auto) -> Any:
    """Return the elements of the datasets that `open_file` makes, so many of them open at a time."""
    import tensorflow as tf

    if files_at_a_time == 1:
        return files.flat_map(open_file)
    parallel = tf.data.AUTOTUNE if files_at_a_time == "auto" else files_at_a_time
    return files.interleave(open_file, cycle_length=most(files_at_a_time), num_parallel_calls=parallel)


def _flagged_samples(samples: Any) -> Any:
    """Return those that are flagged as samples, without their flag."""
    return samples.filter(lambda *flagged: flagged[-1]).map(lambda *flagged: flagged[:-1])


def _shuffled(dataset: Any, options: PipelineOptions) -> Any:
    return dataset.shuffle(options.shuffle, seed=_SHUFFLE_SEED) if options.shuffle else dataset


def batched(samples: Any, source: SampleSource) -> Any:
    """Samples that differ in size are padded up to the largest of their batch."""
    if not source.uneven:
        return samples.batch(source.batch_size, drop_remainder=True)
    shapes = ([], *(list(spec.shape) for spec in source.sample_specs))
    return samples.padded_batch(source.batch_size, padded_shapes=shapes, drop_remainder=True)


def prefetched(
    batches: Any,
    ahead: int | Auto,
    *,
    one_call: bool = False,
    deterministic: bool | None = None,
) -> Any:
    """Return the dataset with a prefetch, which does what its options say and nothing of its own accord.

    Args:
        batches: what is prefetched.
        ahead: how many of them are ready.
        one_call: whether a map without parallel calls is to stay so.
        deterministic: the option of that name, where it is set.
    """
    import tensorflow as tf

    settings = tf.data.Options()
    if deterministic is not None:
        settings.deterministic = deterministic
    if one_call:
        # TensorFlow 2.21 runs a stateless map in parallel by default;
        # "1 call" must mean one.
        settings.experimental_optimization.map_parallelization = False
    if ahead == 0:
        # Likewise it adds a prefetch of its own, and "none" must mean none.
        settings.experimental_optimization.inject_prefetch = False
    else:
        buffer_size = tf.data.AUTOTUNE if ahead == "auto" else ahead
        batches = batches.prefetch(buffer_size)
    return batches.with_options(settings)
