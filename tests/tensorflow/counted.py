"""Records that are their own numbers, in files of several records, for what one file a record cannot show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.sources import ArraySpec, RecordError, SampleOptions
from pipeline_bench.sources.records import Raw, RecordFile, RecordSource

IN_FILES = (9, 1, 4, 12, 2, 7, 3, 6)
RECORDS = sum(IN_FILES)


class CountedOptions(SampleOptions):
    """Which record is bad, which file gives one record less in TensorFlow, and whether samples differ in size."""

    sizes_differ: bool = False
    bad: int | None = None
    short_file: int = -1


class Counted(RecordSource):
    """The features of a record are its place, once; or 1 to 4 times, where sizes differ; its label is its place."""

    name = "counted"
    summary = "records that are their own numbers"
    Options = CountedOptions

    @property
    def files(self) -> Sequence[RecordFile]:
        firsts = accumulate(IN_FILES, initial=0)
        return [
            RecordFile(f"file {i}", first, n, n) for i, (first, n) in enumerate(zip(firsts, IN_FILES, strict=False))
        ]

    @property
    def raw_specs(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec("string"),)

    @property
    def sample_specs(self) -> tuple[ArraySpec, ArraySpec]:
        return ArraySpec("float32", (None if self.options.sizes_differ else 1,)), ArraySpec("int64")

    @property
    def padded_shape(self) -> tuple[int, ...]:
        return (3,) if self.options.sizes_differ else (1,)

    def load(self, place: int) -> Raw:
        return (b"bad" if place == self.options.bad else b"%d" % place,)

    def decode(self, place: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        if raw == (b"bad",):
            raise RecordError(f"{self.name_of(place)} cannot be decoded: it is the bad one.")
        return np.full(place % 4 + 1 if self.options.sizes_differ else 1, int(raw[0]), np.float32), np.array(place)

    def file_dataset(self, path: Any, first: Any) -> Any:
        import tensorflow as tf

        counts = tf.constant(IN_FILES, tf.int64)
        index = tf.strings.to_number(tf.strings.substr(path, 5, -1), tf.int64)
        given = counts[index] - tf.cast(tf.equal(index, self.options.short_file), tf.int64)
        bad = -1 if self.options.bad is None else self.options.bad
        return tf.data.Dataset.range(first, first + given).map(
            lambda place: (tf.where(tf.equal(place, bad), "bad", tf.strings.as_string(place)),)
        )

    def decode_op(self, place: Any, raw: Raw) -> tuple[Any, Any]:
        import tensorflow as tf

        size = place % 4 + 1 if self.options.sizes_differ else tf.constant(1, tf.int64)
        features = tf.fill([size], tf.strings.to_number(raw[0], tf.float32))
        return features if self.options.sizes_differ else tf.ensure_shape(features, [1]), place
