"""Sources make batches. One file, one class, one name; open to other packages through ``pipeline_bench.sources``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_bench.plugins import Plugin


class Batch(NamedTuple):
    """What a model trains on: tensors whose first axis is the batch; `numbers` are the samples' own, if any.

    A sample's number is int64: the epoch times the samples of an epoch, plus the sample's place in the source.
    """

    features: Any
    labels: Any
    numbers: Any = None

    @property
    def tensors(self) -> tuple[Any, ...]:
        """Those that there are, for a backend to carry; ``Batch(*tensors)`` makes the batch of them again."""
        return tuple(tensor for tensor in self if tensor is not None)


@dataclass(frozen=True)
class Identity:
    """How to tell the samples of a source apart, so that a trial can prove which ones reached its model.

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


class Source(Plugin):
    """Makes the same batches under every backend, as graph ops (``tf.compat.v1``)."""

    timing_options: ClassVar[frozenset[str]] = frozenset()
    """Options that say how long a batch takes and not what it holds; a ceiling is measured with their defaults."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Samples in a batch."""

    @property
    def identity(self) -> Identity | None:
        """How its samples are told apart, where they are numbered: then `finish` gives the batch its numbers."""
        return None

    @property
    def moments(self) -> Moments | None:
        """Mean and standard deviation of its features, where they are random numbers of known distribution."""
        return None

    def prepare(self, config: Any) -> None:
        """Measure what must be known before the graph is built; called once, before any other method.

        Args:
            config: the ConfigProto of the trial's session, for any session that is opened here.
        """

    @abstractmethod
    def produce(self, samples: int) -> tuple[Any, ...]:
        """Ops that make that many new samples at each run: what a backend carries. May be built more than once."""

    @abstractmethod
    def finish(self, carried: Sequence[Any]) -> Batch:
        """Ops that turn what was carried, first axis [batch], into the batch the model trains on."""

    @abstractmethod
    def sample_batch(self, purpose: str) -> Batch:
        """Ops for one batch outside the input: the same for every backend and seed, made without any latency.

        Args:
            purpose: ``evaluation`` or ``ceiling``; each has its own samples.
        """
