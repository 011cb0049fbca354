"""Sources make batches. One file, one class, one name; open to other packages through ``pipeline_bench.sources``.

A `Source` makes whole batches by ops of the graph. A `SampleSource` gives numbered samples one by one, from Python.
A `sources.records.RecordSource` reads them from files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.plugins import Options, Plugin

SEEDS = {"training": 1, "evaluation": 2, "ceiling": 3}
"""Of the random numbers of a source that makes its samples, by what they are for."""


class RecordError(PipelineBenchError):
    """A record that cannot be read or decoded; the message names its file and which record of it."""

    def __str__(self) -> str:
        return self.in_full  # TensorFlow keeps of an error in Python its text alone


class Batch(NamedTuple):
    """What a model trains on: tensors whose first axis is the batch; `numbers` are those of the samples, if any.

    A sample's number is int64: the epoch times the samples of an epoch, plus the sample's index in the source.
    """

    features: Any
    labels: Any
    numbers: Any = None

    @property
    def tensors(self) -> tuple[Any, ...]:
        """The tensors that are there, for a backend to carry; ``Batch(*tensors)`` makes the batch of them again."""
        return tuple(tensor for tensor in self if tensor is not None)


@dataclass(frozen=True)
class Identity:
    """How to identify the samples of a source, so that a trial can prove which ones reached its model.

    `fingerprints` gives, for an int64 array of any numbers from 0 on, the first feature of each of these samples,
    float32, NaN where it is not known: what comes with a number must be that sample. `shuffled_samples` is how many
    samples the source's own shuffling may hold back while others pass: its buffer, or an epoch; so many that have not
    come are not yet lost.
    """

    epoch_samples: int
    fingerprints: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]]
    shuffled_samples: int = 0


@dataclass(frozen=True)
class Moments:
    """What the features of a source of random numbers must look like."""

    mean: float
    std: float


@dataclass(frozen=True)
class ArraySpec:
    """Type and shape of an array, as of one sample: ``string`` for bytes; None for a size that differs."""

    dtype: str
    shape: tuple[int | None, ...] = ()


class Sample(NamedTuple):
    """One decoded record: its number, see `Batch`; features and label as `SampleSource.sample_specs` says."""

    number: int
    features: npt.NDArray[Any]
    label: npt.NDArray[Any]


class Source(Plugin):
    """Makes the same batches under every backend, as graph ops (``tf.compat.v1``)."""

    timing_options: ClassVar[frozenset[str]] = frozenset()
    """Options that say how long a batch takes and not what it holds; a ceiling is measured with their defaults."""

    reads_storage: ClassVar[bool] = True
    """Whether it reads what several hosts may share; else its batches are made in the trial's own process."""

    skips: bool = False
    """Whether a record that cannot be decoded is left out, and does not end the trial."""

    skipped: Mapping[int, str] = MappingProxyType({})
    """The indices of records that were left out, and why. Filled while reading."""

    damaged_files: Mapping[str, str] = MappingProxyType({})
    """Files of which only the first records are used, and what is wrong with the next one."""

    @property
    def batch_size(self) -> int:
        """Samples in a batch: the option of that name."""
        return int(self.options.batch_size)

    @property
    def numbered_specs(self) -> tuple[ArraySpec, ...] | None:
        """What `numbered` gives; None where samples cannot be asked for by their number."""
        return None

    @property
    def has_numbers(self) -> bool:
        """Whether samples can be asked for by their number; known without reading a file, which may not be there."""
        return self.numbered_specs is not None

    def numbered(self, number: int) -> tuple[npt.NDArray[Any], ...]:
        """Give the sample of that number in Python, in parts that `finish` takes once they are stacked to a batch.

        Threads and processes ask at a time; a process has a source that was not prepared, by fork or by pickle.
        """
        raise NotImplementedError

    @property
    def identity(self) -> Identity | None:
        """How its samples are identified, where they are numbered: then `finish` gives the batch its numbers."""
        return None

    @property
    def moments(self) -> Moments | None:
        """Mean and standard deviation of its features, where they are random numbers of known distribution."""
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as it was made: nothing that it has opened or found since goes to another process."""
        return type(self), (self.options.model_dump(mode="json"),)

    def check(self) -> None:
        """See that what is to be read is there; called by the parent, before the first trial, without TensorFlow.

        Raises:
            UsageError: it is not: an empty folder, a file that may not be read.
        """

    def prepare(self, config: Any) -> None:
        """Measure what must be known before the graph is built; called once, before any other method.

        Args:
            config: the ConfigProto of the trial's session, for any session that is opened here.
        """

    @abstractmethod
    def produce(self, samples: int) -> tuple[Any, ...]:
        """Build ops that make that many new samples at each run: what a backend carries. May be built again."""

    @abstractmethod
    def finish(self, carried: Sequence[Any]) -> Batch:
        """Build ops that turn what was carried, first axis [batch], into the batch the model trains on."""

    @abstractmethod
    def sample_batch(self, purpose: str) -> Batch:
        """Build one batch outside the input: the same for every backend and seed, made without any latency.

        Args:
            purpose: ``evaluation`` or ``ceiling``; each has its own samples.
        """


class FeatureOptions(Options):
    """What every source has that makes batches of random features."""

    batch_size: Annotated[int, Field(ge=1, le=2**24, description="samples in a batch")] = 128
    features: Annotated[int, Field(ge=1, le=2**24, description="float32 features of a sample")] = 1024


class SampleOptions(Options):
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
        self.skips = self.options.on_error == "skip"
        self.skipped: dict[int, str] = {}

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
        """Whether samples differ in size; asked before files are made, so a source that reads them to know says it."""
        return None in self.sample_specs[0].shape

    @property
    def reorder_window(self) -> int:
        """How many samples one of several `streams` may hold back while the others go on."""
        return 0

    @abstractmethod
    def streams(self, threads: int) -> list[Iterator[Sample]]:
        """Return the samples, epoch after epoch without end, read and decoded in Python, for so many threads or fewer.

        Every sample comes once an epoch, from one of them; a single stream has them in their order.

        Raises:
            RecordError: while iterating, of a record that cannot be read or decoded and is not skipped.
        """

    @abstractmethod
    def reserved(self, purpose: str) -> Sequence[Sample]:
        """Return a batch of samples for `sample_batch`, read beforehand and without any latency."""

    def finish(self, carried: Sequence[Any]) -> Batch:
        """Turn numbers [batch], features and labels, first axis [batch], into the batch the model trains on."""
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
            "Use a backend that does; docs/plugins.md says what it takes.",
        )

    def sample_batch(self, purpose: str) -> Batch:
        import tensorflow as tf

        with tf.device("/cpu:0"):
            return self.finish([tf.constant(array) for array in self.stacked(self.reserved(purpose))])

    def placeholders(self, batch: bool = True) -> list[Any]:
        """Placeholders for what `stacked` gives: numbers, features and labels; else for those of a single sample."""
        import tensorflow as tf

        first = (self.batch_size,) if batch else ()
        specs = (ArraySpec("int64"), *self.sample_specs)
        return [tf.compat.v1.placeholder(spec.dtype, first + spec.shape) for spec in specs]

    def next_batch(self, stream: Iterator[Sample]) -> tuple[npt.NDArray[Any], ...]:
        """Take a batch from one of the `streams`, as `stacked` gives it."""
        return self.stacked(list(islice(stream, self.batch_size)))

    def stacked(self, samples: Sequence[Sample], whole: bool = False) -> tuple[npt.NDArray[Any], ...]:
        """Return numbers [batch], features and labels, first axis [batch].

        Features of differing size are padded at their end, to the largest of them; where `whole`, they are cut and
        padded to `padded_shape`.
        """
        of_features, of_label = self.sample_specs
        numbers = np.array([sample.number for sample in samples], dtype=np.int64)
        labels = np.array([sample.label for sample in samples], dtype=of_label.dtype)
        if not self.uneven:
            return numbers, np.stack([sample.features for sample in samples]), labels
        largest = np.max([sample.features.shape for sample in samples], axis=0)
        shape = self.padded_shape if whole else tuple(largest.tolist())
        features = np.zeros((len(samples), *shape), dtype=of_features.dtype)
        for row, sample in zip(features, samples, strict=True):
            cut = sample.features[tuple(map(slice, shape))]
            row[tuple(map(slice, cut.shape))] = cut
        return numbers, features, labels


def labelled_by_sum(features: Any) -> Batch:
    """Return features [batch, n] with the label whether they sum to more than 0, float32 [batch, 1]."""
    import tensorflow as tf

    return Batch(features, tf.cast(tf.reduce_sum(features, axis=1, keepdims=True) > 0, tf.float32))


def _padded(features: Any, shape: Sequence[int]) -> Any:
    """Features [batch, …] cut and padded with 0 at the end to [batch, *shape]."""
    import tensorflow as tf

    cut = features[(slice(None), *map(slice, shape))]
    missing = [tf.constant(0), *(size - tf.shape(cut)[axis + 1] for axis, size in enumerate(shape))]
    return tf.pad(cut, [[0, size] for size in missing])
