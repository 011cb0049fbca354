"""Sources make batches. One file, one class, one name; open to other packages through ``pipeline_bench.sources``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from pipeline_bench.plugins import Plugin


class Batch(NamedTuple):
    """What a model trains on: two tensors whose first axis is the batch."""

    features: Any
    labels: Any


class Source(Plugin):
    """Makes the same batches under every backend, as graph ops (``tf.compat.v1``)."""

    timing_options: ClassVar[frozenset[str]] = frozenset()
    """Options that say how long a batch takes and not what it holds; a ceiling is measured with their defaults."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Samples in a batch."""

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
