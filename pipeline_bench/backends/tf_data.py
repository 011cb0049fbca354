"""tf_data: a tf.data pipeline with prefetch, today's way; its batches never enter Python either."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from pipeline_bench import graph_ops
from pipeline_bench.backends import Backend, EagerInput, InGraph, Input, Take
from pipeline_bench.errors import UsageError
from pipeline_bench.records import RecordSource, pipeline
from pipeline_bench.records.pipeline import Auto, PipelineOptions
from pipeline_bench.records.samples import Sample, SampleSource
from pipeline_bench.sources import Batch, Source
from pipeline_bench.system.scratch import ScratchFolder

# What means nothing for batches that are made in the graph, and what nothing for samples that come out of Python.
_OF_RECORDS = ("interleave", "batch_before_map", "cache", "shuffle", "from_generator")
_OF_DECODING = ("parallel_calls", "deterministic", "interleave", "batch_before_map", "cache")


class TfDataOptions(PipelineOptions):
    """How records become batches, and how far ahead of the model the pipeline works."""

    from_generator: Annotated[
        bool, Field(description="Python reads and decodes the records, Dataset.from_generator carries the samples")
    ] = False
    prefetch: Annotated[
        Annotated[int, Field(ge=0)] | Auto,
        Field(description="batches ready ahead of the step; 0: none; auto: AUTOTUNE"),
    ] = "auto"
    device_prefetch: Annotated[
        bool | Auto, Field(description="copy batches to the GPU ahead of the step; auto: where the model is on one")
    ] = "auto"

    @model_validator(mode="after")
    def _decodes_once(self) -> TfDataOptions:
        undone = _changed(self, _OF_DECODING)
        if self.from_generator and undone:
            raise ValueError(
                f"from_generator = true has Python read and decode, so {undone} would change nothing; "
                "leave out the one or the other"
            )
        return self


class TfData(Backend):
    """Of files: read, decode, batch, prefetch. Else one map over an endless dataset makes the batches."""

    name = "tf_data"
    summary = "tf.data: maps that decode records or make batches, prefetch behind, to the device where there is a GPU"
    Options = TfDataOptions
    in_loops = True
    eager = True

    def check(self, source: Source) -> None:
        _check(source, self.options)

    def python_part(self, source: Source) -> str | None:
        in_python = isinstance(source, SampleSource) and not isinstance(source, RecordSource)
        return "reads and decodes the samples" if in_python or self.options.from_generator else None

    def connect(self, source: Source, device: str | None) -> Input:
        import tensorflow as tf

        v1 = tf.compat.v1
        ends = _Ends()
        dataset, to_device = self._to_device(self._made(source, ends), device)
        with tf.device(to_device or "/cpu:0"):
            iterator = v1.data.make_initializable_iterator(dataset)

        def take() -> tuple[Batch, Any]:
            tensors, wait_s = graph_ops.timed(iterator.get_next)
            return _batch(source, tensors), wait_s

        feeding = _IteratorInput(take, iterator.initializer, _out_of_order_samples(source, self.options), ends)
        if self.python_part(source) is None:
            feeding.in_graph = InGraph(start=[iterator.initializer])
        return feeding

    def connect_eagerly(self, source: Source, device: str | None) -> EagerInput:
        import tensorflow as tf

        ends = _Ends()

        def whole(*tensors: Any) -> tuple[Any, ...]:
            return _batch(source, tensors).tensors

        # What a graph does to a batch behind the iterator, Keras has to find done in front of it.
        dataset, to_device = self._to_device(self._made(source, ends, whole), device)

        @cache
        def iterator() -> Any:
            # Only where it is asked for: Keras makes its own, and a dataset's second one shuffles in another order.
            with tf.init_scope(), tf.device(to_device or "/cpu:0"):
                return iter(dataset)

        def take() -> tuple[Batch, Any]:
            tensors, wait_s = graph_ops.timed(lambda: next(iterator()))
            return Batch(*tensors), wait_s

        return EagerInput(take, dataset, _out_of_order_samples(source, self.options), ends.close)

    def _made(self, source: Source, ends: _Ends, whole: Callable[..., Any] | None = None) -> Any:
        """The dataset of batches, each changed by `whole` where that is given, with its prefetch."""
        import tensorflow as tf

        self.check(source)
        with tf.device("/cpu:0"):
            dataset = _dataset(source, self.options, ends)
            if whole is not None and isinstance(source, SampleSource):
                dataset = dataset.map(whole)
            return _tuned(dataset, source, self.options)

    def _to_device(self, dataset: Any, device: str | None) -> tuple[Any, str | None]:
        """The dataset, prefetched to the device where the options say so; and that device, else None."""
        import tensorflow as tf

        options: TfDataOptions = self.options
        if not (device and options.device_prefetch):
            return dataset, None
        # Must stay the last transformation, and the iterator must live where the batches go.
        ahead = options.prefetch or 1
        buffer_size = tf.data.AUTOTUNE if ahead == "auto" else ahead
        return dataset.apply(tf.data.experimental.prefetch_to_device(device, buffer_size)), device


def _batch(source: Source, tensors: Sequence[Any]) -> Batch:
    """The batch of what was carried."""
    return source.finish(tensors) if isinstance(source, SampleSource) else Batch(*tensors)


class _Ends:
    """What a pipeline leaves outside the graph: what its generator raised, and the folder of its cache."""

    def __init__(self) -> None:
        self.raised: list[Exception] = []
        self.cache: ScratchFolder | None = None

    def noting(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """The samples; what they raise is kept, since TensorFlow hands on no more than its text."""
        try:
            yield from samples
        except Exception as error:
            self.raised.append(error)
            raise

    def close(self) -> None:
        """Remove what is left; raises what a generator raised."""
        if self.cache:
            self.cache.remove()
        if self.raised:
            raise self.raised[0]


class _IteratorInput(Input):
    def __init__(self, take: Take, initializer: Any, reorder_window: int, ends: _Ends) -> None:
        super().__init__(*take(), take)
        self.reorder_window = reorder_window
        self._initializer = initializer
        self._ends = ends

    def start(self, session: Any) -> None:
        session.run(self._initializer)

    def stop(self, session: Any) -> None:
        self._ends.close()


def _changed(options: PipelineOptions, names: tuple[str, ...]) -> str:
    """Those of the names whose option is not what it is by default."""
    fields = TfDataOptions.model_fields
    return ", ".join(name for name in names if getattr(options, name) != fields[name].default)


def _check(source: Source, options: TfDataOptions) -> None:
    """Refuse options that mean nothing for the source, rather than measure something else under their name."""
    if not isinstance(source, SampleSource):
        if given := _changed(options, _OF_RECORDS):
            raise UsageError(
                f"tf_data was given {given}, which would change nothing for the source {source.name}: it makes whole "
                "batches in the graph.",
                "Leave that out, or use a source of files, image_folder for one.",
            )
    elif not isinstance(source, RecordSource):
        if given := _changed(options, _OF_DECODING):
            raise UsageError(
                f"tf_data was given {given}, which would change nothing for the source {source.name}: its samples come "
                "out of Python one after the other.",
                "Leave that out; prefetch, device_prefetch and shuffle are what there is for it.",
            )
    elif options.batch_before_map and (source.skips or source.uneven):
        why = 'with source.on_error = "skip"' if source.skips else "of samples that differ in size"
        raise UsageError(
            f"tf_data cannot decode whole batches {why} (options.batch_before_map = true).",
            "Set options.batch_before_map = false, which decodes the records one by one.",
        )


def _out_of_order_samples(source: Source, options: TfDataOptions) -> int:
    if isinstance(source, RecordSource) and not options.from_generator:
        return pipeline.reorder_window(source, options)
    if isinstance(source, SampleSource):
        return options.shuffle
    return (pipeline.most(options.parallel_calls) - 1) * source.batch_size


def _dataset(source: Source, options: TfDataOptions, ends: _Ends) -> Any:
    """Endless batches: of a `SampleSource` what its `finish` takes, of another source what `Batch` does."""
    import tensorflow as tf

    if isinstance(source, RecordSource) and not options.from_generator:
        return pipeline.of_records(source, options, _cache_file(source, ends) if options.cache == "disk" else "")
    if isinstance(source, SampleSource):
        return pipeline.of_generator(source, lambda: ends.noting(source.streams(1)[0]), options)

    def make(_: Any) -> tuple[Any, ...]:
        return source.finish(source.produce(source.batch_size)).tensors

    return tf.data.Dataset.from_tensors(0).repeat().map(make, num_parallel_calls=pipeline.calls(options.parallel_calls))


def _cache_file(source: RecordSource, ends: _Ends) -> str:
    """Where the decoded samples of an epoch go; it is removed at the end."""
    features, label = source.sample_specs
    sample_bytes = math.prod(source.padded_shape) * np.dtype(features.dtype).itemsize + np.dtype(label.dtype).itemsize
    ends.cache = ScratchFolder(source.records * sample_bytes, "The decoded samples of an epoch")
    return str(ends.cache.path / "samples")


def _tuned(dataset: Any, source: Source, options: TfDataOptions) -> Any:
    """The dataset with its prefetch, which does what the options say and nothing of its own accord."""
    import tensorflow as tf

    settings = tf.data.Options()
    settings.deterministic = options.deterministic
    if isinstance(source, SampleSource):
        # TensorFlow 2.21 runs a stateless map in parallel unless told not to, and "1 call" must mean one.
        settings.experimental_optimization.map_parallelization = False
    if options.prefetch == 0:
        # Likewise it adds a prefetch of its own, and "none" must mean none.
        settings.experimental_optimization.inject_prefetch = False
    else:
        dataset = dataset.prefetch(tf.data.AUTOTUNE if options.prefetch == "auto" else options.prefetch)
    return dataset.with_options(settings)
