"""tf_data: a tf.data pipeline with prefetch, today's way; its batches never enter Python either."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from pipeline_bench.backends import DatasetBackend
from pipeline_bench.errors import UsageError
from pipeline_bench.sources import SampleSource, Source
from pipeline_bench.sources.datasets import Auto, PipelineOptions, prefetched
from pipeline_bench.sources.records import RecordSource

# What means nothing for batches that are made in the graph, and what nothing for samples that come out of Python.
_OF_RECORDS = ("interleave", "batch_before_map", "cache", "shuffle", "from_generator")
_OF_DECODING = ("parallel_calls", "deterministic", "interleave", "batch_before_map", "cache")


class TfDataOptions(PipelineOptions):
    """How records become batches, and how far ahead of the model the pipeline works."""

    prefetch: Annotated[
        Annotated[int, Field(ge=0)] | Auto,
        Field(description="batches ready ahead of the step; 0: none; auto: AUTOTUNE"),
    ] = "auto"
    device_prefetch: Annotated[
        bool | Auto, Field(description="copy batches to the GPU ahead of the step; auto: where the model is on one")
    ] = "auto"

    @model_validator(mode="after")
    def _decodes_once(self) -> TfDataOptions:
        unused = self.changed(_OF_DECODING)
        if self.from_generator and unused:
            raise ValueError(
                f"from_generator = true has Python read and decode, so {unused} would change nothing; "
                "leave out the one or the other"
            )
        return self

    def changed(self, names: tuple[str, ...]) -> str:
        """Return those of the names whose option is not what it is by default."""
        fields = type(self).model_fields
        return ", ".join(name for name in names if getattr(self, name) != fields[name].default)


class TfData(DatasetBackend):
    """Of files: read, decode, batch, prefetch. Else one map over an endless dataset makes the batches."""

    name = "tf_data"
    summary = "tf.data: maps that decode records or make batches, prefetch behind, to the device where there is a GPU"
    Options = TfDataOptions

    @property
    def works_ahead(self) -> bool:
        return bool(self.options.prefetch != 0)

    def ahead_batches(self, batch_size: int) -> int:
        return 0 if self.options.prefetch == "auto" else int(self.options.prefetch)

    @property
    def copies_ahead(self) -> bool:
        return bool(self.options.device_prefetch)

    @property
    def pipeline(self) -> PipelineOptions:
        return self.options  # type: ignore[no-any-return]

    def check(self, source: Source) -> None:
        """Refuse options that mean nothing for the source, rather than measure something else under their name."""
        options: TfDataOptions = self.options
        if not isinstance(source, SampleSource):
            unused, why = options.changed(_OF_RECORDS), "it makes whole batches in the graph"
            hint = "Leave that out, or use a source of files, image_folder for one."
        elif not isinstance(source, RecordSource):
            unused, why = options.changed(_OF_DECODING), "its samples come out of Python one after the other"
            hint = "Leave that out; prefetch, device_prefetch and shuffle are what there is for it."
        else:
            _check_batches(source, options)
            return
        if unused:
            raise UsageError(
                f"tf_data was given {unused}, which would change nothing for the source {source.name}: {why}.", hint
            )

    def batches(self, made: Any, source: Source) -> Any:
        options: TfDataOptions = self.options
        one_call = isinstance(source, SampleSource)
        return prefetched(made, options.prefetch, one_call=one_call, deterministic=options.deterministic)

    def to_device(self, batches: Any, device: str) -> Any:
        """Return the dataset, prefetched to the device if the options say so; nothing may be built on it after that."""
        import tensorflow as tf

        if not self.options.device_prefetch:
            return None
        ahead = self.options.prefetch or 1
        buffer_size = tf.data.AUTOTUNE if ahead == "auto" else ahead
        return batches.apply(tf.data.experimental.prefetch_to_device(device, buffer_size))


def _check_batches(source: RecordSource, options: TfDataOptions) -> None:
    if options.batch_before_map and (source.skips or source.uneven):
        why = 'with source.on_error = "skip"' if source.skips else "of samples that differ in size"
        raise UsageError(
            f"tf_data cannot decode whole batches {why} (options.batch_before_map = true).",
            "Set options.batch_before_map = false, which decodes the records one by one.",
        )
