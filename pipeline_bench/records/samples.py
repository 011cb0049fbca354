"""Numbered samples that Python can give one by one: what sources of files and a user's generator have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.sources import Batch, Source


class RecordError(PipelineBenchError):
    """A record that cannot be read or decoded; the message names its file and which record of it."""


@dataclass(frozen=True)
class ArraySpec:
    """Type and shape of an array, as of one sample: ``string`` for bytes; None for a size that differs."""

    dtype: str
    shape: tuple[int | None, ...] = ()


class Sample(NamedTuple):
    """One decoded record: its number, see `sources.Batch`; features and label as `SampleSource.sample_specs` says."""

    number: int
    features: npt.NDArray[Any]
    label: npt.NDArray[Any]


class SampleOptions(plugins.Options):
    """What every source of single samples has."""

    batch_size: Annotated[int, Field(ge=1, le=2**24, description="samples in a batch")] = 32
    on_error: Annotated[
        Literal["raise", "skip"],
        Field(description="a record that cannot be decoded ends the trial, or is left out and counted"),
    ] = "raise"


class SampleSource(Source):
    """Numbered samples, each of which comes once an epoch; all but the graph's ops is known after `prepare`."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.skipped: dict[int, str] = {}
        """The places of records that were left out, and why; see `SampleOptions.on_error`. Filled while reading."""

    @property
    def batch_size(self) -> int:
        return int(self.options.batch_size)

    @property
    def skips(self) -> bool:
        """Whether a record that cannot be decoded is left out, and does not end the trial."""
        return bool(self.options.on_error == "skip")

    @property
    @abstractmethod
    def sample_specs(self) -> tuple[ArraySpec, ArraySpec]:
        """Features and label of one sample."""

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """The shape of one sample's features at the model; samples that differ in size are padded with 0 up to it."""
        return tuple(int(size or 0) for size in self.sample_specs[0].shape)

    @property
    def uneven(self) -> bool:
        """Whether samples differ in size."""
        return None in self.sample_specs[0].shape

    @property
    def reorder_window(self) -> int:
        """How many samples one of several `streams` may hold back while the others go on."""
        return 0

    @abstractmethod
    def streams(self, threads: int) -> list[Iterator[Sample]]:
        """The samples, epoch after epoch without end, read and decoded in Python, for so many threads or fewer.

        Every sample comes once an epoch, from one of them; a single stream has them in their order.

        Raises:
            RecordError: while iterating, of a record that cannot be read or decoded and is not skipped.
        """

    @abstractmethod
    def reserved(self, purpose: str) -> Sequence[Sample]:
        """A batch of samples for `sample_batch`, read beforehand and without any latency."""

    def check(self) -> None:
        """See that what is to be read is there; called by the parent, before the first trial, without TensorFlow.

        Raises:
            UsageError: it is not: an empty folder, a file that may not be read.
        """

    def finish(self, carried: Sequence[Any]) -> Batch:
        """Numbers [batch], features and labels, first axis [batch], into the batch the model trains on."""
        import tensorflow as tf

        numbers, features, labels = carried
        if self.uneven:
            features = _padded(features, self.padded_shape)
        features = tf.ensure_shape(features, [self.batch_size, *self.padded_shape])
        labels = tf.ensure_shape(labels, [self.batch_size, *self.sample_specs[1].shape])
        return Batch(features, labels, tf.ensure_shape(numbers, [self.batch_size]))

    def produce(self, samples: int) -> tuple[Any, ...]:
        raise PipelineBenchError(
            f"The source {self.name} gives single samples, which this backend does not know how to carry.",
            "Use a backend that does: feed_dict, fifo_queue, reader_queue, tf_data, py_dataset.",
        )

    def sample_batch(self, purpose: str) -> Batch:
        import tensorflow as tf

        with tf.device("/cpu:0"):
            return self.finish([tf.constant(array) for array in self.stacked(self.reserved(purpose))])

    def placeholders(self) -> list[Any]:
        """Placeholders for what `stacked` gives: numbers [batch], features and labels, first axis [batch]."""
        import tensorflow as tf

        specs = (ArraySpec("int64"), *self.sample_specs)
        return [tf.compat.v1.placeholder(spec.dtype, [self.batch_size, *spec.shape]) for spec in specs]

    def stacked(self, samples: Sequence[Sample]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any]]:
        """Numbers [batch], features and labels, first axis [batch]; features of differing size padded at their end."""
        of_features, of_label = self.sample_specs
        numbers = np.array([sample.number for sample in samples], dtype=np.int64)
        labels = np.array([sample.label for sample in samples], dtype=of_label.dtype)
        if not self.uneven:
            return numbers, np.stack([sample.features for sample in samples]), labels
        largest = np.max([sample.features.shape for sample in samples], axis=0)
        features = np.zeros((len(samples), *largest), dtype=of_features.dtype)
        for row, sample in zip(features, samples, strict=True):
            row[tuple(slice(size) for size in sample.features.shape)] = sample.features
        return numbers, features, labels


def _padded(features: Any, shape: Sequence[int]) -> Any:
    """Features [batch, …] cut and padded with 0 at the end to [batch, *shape]."""
    import tensorflow as tf

    cut = features[(slice(None), *(slice(size) for size in shape))]
    missing = [tf.constant(0), *(size - tf.shape(cut)[axis + 1] for axis, size in enumerate(shape))]
    return tf.pad(cut, [[0, size] for size in missing])
