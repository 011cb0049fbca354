"""A backend that carries every source, files too, in every loop: docs/plugins.md shows it, and the tests run it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pipeline_bench.backends import DatasetBackend
from pipeline_bench.plugins import Options
from pipeline_bench.sources import Source


class RepeatedOptions(Options):
    """How often a batch comes."""

    times: Annotated[int, Field(ge=1, description="steps that train on each batch, one after the other")] = 2


class Repeated(DatasetBackend):
    """Data echoing: each batch is trained on several times, so that a slow input is read less often."""

    name = "repeated"
    summary = "tf.data, each batch several times in a row: data echoing"
    Options = RepeatedOptions

    def batches(self, made: Any, source: Source) -> Any:
        import tensorflow as tf

        times = self.options.times
        return made.flat_map(lambda *batch: tf.data.Dataset.from_tensors(batch).repeat(times)).prefetch(1)
