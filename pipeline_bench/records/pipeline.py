"""tf.data pipelines over records: read, cached, shuffled, repeated, numbered, decoded, batched, in the way asked for.

A dataset that repeats does not say which epoch an element is of. So the elements are counted behind the repetition,
and a sample's epoch is the count over the records of an epoch: whatever the stages before have done, they give each
record one turn an epoch. A record that is skipped therefore keeps its turn until the numbers are given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipeline_bench import plugins
from pipeline_bench.records import RecordSource
from pipeline_bench.records.samples import Sample, SampleSource

Auto = Literal["auto"]

# How many files a parallel interleave has open for each one of its cycle: two more are opened ahead, and where order
# does not matter, they may be read before one that is not ready. Found with files of 20 ms latency on TensorFlow 2.21:
# cycles of 2, 4 and 16 files were 5.6, 11.6 and 33 times as fast as reading one by one.
_OPEN_PER_TURN = 3

# Beside the graph's seed, which is the run's: without one of its own a shuffle depends on how many ops came before.
_SHUFFLE_SEED = 1


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

    @model_validator(mode="after")
    def _caches_what_is_made(self) -> PipelineOptions:
        if self.batch_before_map and self.cache in ("samples", "disk"):
            raise ValueError(
                f'cache = "{self.cache}" keeps single samples, which batch_before_map = true does not make; '
                'allowed beside it: cache = "none" or "records"'
            )
        return self


def most(at_a_time: int | Auto) -> int:
    """How many there may be at a time; AUTOTUNE goes up to the CPUs that the process may use."""
    return len(os.sched_getaffinity(0)) if at_a_time == "auto" else at_a_time


def calls(parallel_calls: int | Auto) -> Any:
    """The ``num_parallel_calls`` of a map."""
    import tensorflow as tf

    return {"auto": tf.data.AUTOTUNE, 1: None}.get(parallel_calls, parallel_calls)


def reorder_window(source: RecordSource, options: PipelineOptions) -> int:
    """How many samples the stages of `of_records` may hold back while others pass; see `Input.reorder_window`."""
    files = most(options.interleave)
    if files > 1 and not options.deterministic:
        files *= _OPEN_PER_TURN
    # Before the epochs follow each other, so no more than one of them.
    reorder_window = min(options.shuffle + (files - 1) * source.reorder_window, source.records)
    if not options.deterministic:
        # A map that TensorFlow merges with the batch behind it holds back a whole batch for want of one sample.
        in_a_call = source.batch_size if options.batch_before_map else 1
        reorder_window += most(options.parallel_calls) * in_a_call + source.batch_size
    return reorder_window


def of_generator(source: SampleSource, samples: Callable[[], Iterator[Sample]], options: PipelineOptions) -> Any:
    """Batches of numbers, features and labels, without end, of samples that Python reads and decodes.

    Args:
        source: whose samples they are.
        samples: called when the dataset is iterated.
        options: of these, shuffle.
    """
    import tensorflow as tf

    specs = [tf.TensorSpec(spec.shape, spec.dtype) for spec in source.sample_specs]
    dataset = tf.data.Dataset.from_generator(samples, output_signature=(tf.TensorSpec([], tf.int64), *specs))
    return _batched(_shuffled(dataset, options), source)


def of_records(source: RecordSource, options: PipelineOptions, cache_file: str = "") -> Any:
    """Batches of numbers, features and labels, without end.

    Args:
        source: whose records are read and decoded by TensorFlow.
        options: how.
        cache_file: where ``cache = "disk"`` writes.
    """
    records = _records(source, options.interleave)
    if options.cache == "records":
        records = records.cache()
    if options.batch_before_map:
        return _decoded_by_batch(source, records, options)
    if options.cache in ("samples", "disk"):
        samples = _decoded_before_repeating(source, records, options, cache_file)
    else:
        samples = _decoded(source, records, options)
    return _batched(_kept(samples) if source.skips else samples, source)


def _records(source: RecordSource, files_at_a_time: int | Auto) -> Any:
    """Place and what the record consists of, of every record of one epoch."""
    import tensorflow as tf

    # What a damaged file does not give keeps its turn, as a record that cannot be decoded.
    absent = tuple(tf.zeros([size or 0 for size in spec.shape], spec.dtype) for spec in source.raw_specs)

    def of_file(path: Any, first: Any, count: Any) -> Any:
        records = source.file_dataset(path, first)
        if source.skips:
            records = records.concatenate(tf.data.Dataset.from_tensors(absent).repeat())
        return tf.data.Dataset.zip((tf.data.Dataset.range(first, first + count), records))

    paths = tf.constant([file.path for file in source.files])
    firsts, counts = (
        tf.constant(values, tf.int64)
        for values in ([file.first for file in source.files], [file.records for file in source.files])
    )
    files = tf.data.Dataset.from_tensor_slices((paths, firsts, counts))
    if files_at_a_time == 1:
        return files.flat_map(of_file)
    parallel = tf.data.AUTOTUNE if files_at_a_time == "auto" else files_at_a_time
    return files.interleave(of_file, cycle_length=most(files_at_a_time), num_parallel_calls=parallel)


def _decoded(source: RecordSource, records: Any, options: PipelineOptions) -> Any:
    """Number, features and label of each sample, and whether it is one where records are skipped."""

    def decode(turn: Any, record: Any) -> tuple[Any, ...]:
        place, raw = record
        return (_number(source, turn, place), *_sample(source, place, raw))

    turns = _shuffled(records, options).repeat().enumerate()
    return turns.map(decode, num_parallel_calls=calls(options.parallel_calls))


def _decoded_before_repeating(source: RecordSource, records: Any, options: PipelineOptions, cache_file: str) -> Any:
    """Like `_decoded`, with the samples of the first epoch kept for the others."""
    samples = records.map(
        lambda place, raw: (place, *_sample(source, place, raw)), num_parallel_calls=calls(options.parallel_calls)
    )
    turns = _shuffled(samples.cache(cache_file), options).repeat().enumerate()
    return turns.map(lambda turn, sample: (_number(source, turn, sample[0]), *sample[1:]))


def _decoded_by_batch(source: RecordSource, records: Any, options: PipelineOptions) -> Any:
    """Numbers, features and labels of each batch, which is decoded in one call."""

    def decode(turns: Any, records: Any) -> tuple[Any, ...]:
        places, raw = records
        return (_number(source, turns, places), *source.decode_batch_op(places, raw))

    batches = _shuffled(records, options).repeat().enumerate().batch(source.batch_size, drop_remainder=True)
    return batches.map(decode, num_parallel_calls=calls(options.parallel_calls))


def _sample(source: RecordSource, place: Any, raw: Any) -> tuple[Any, ...]:
    """Features and label, and whether the record could be decoded where it is skipped otherwise."""
    decoded = source.decode_or_flag(place, raw)
    return decoded if source.skips else decoded[:2]


def _kept(samples: Any) -> Any:
    """Those that are flagged as samples, without their flag."""

    # Two functions with a name: TensorFlow reads their source, and cannot tell two lambdas on one line apart.
    def is_sample(*flagged: Any) -> Any:
        return flagged[-1]

    def without_flag(*flagged: Any) -> tuple[Any, ...]:
        return flagged[:-1]

    return samples.filter(is_sample).map(without_flag)


def _number(source: RecordSource, turn: Any, place: Any) -> Any:
    return turn // source.records * source.records + place


def _shuffled(dataset: Any, options: PipelineOptions) -> Any:
    return dataset.shuffle(options.shuffle, seed=_SHUFFLE_SEED) if options.shuffle else dataset


def _batched(samples: Any, source: SampleSource) -> Any:
    """Samples that differ in size are padded up to the largest of their batch."""
    if not source.uneven:
        return samples.batch(source.batch_size, drop_remainder=True)
    shapes = ([], *(list(spec.shape) for spec in source.sample_specs))
    return samples.padded_batch(source.batch_size, padded_shapes=shapes, drop_remainder=True)
