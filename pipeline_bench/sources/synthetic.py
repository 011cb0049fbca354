"""The random batch of the 2017 tutorial: normal features, and a label that says whether their sum is positive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.sources import Batch, Source

_SEEDS = {"training": 1, "evaluation": 2, "ceiling": 3}


class SyntheticOptions(plugins.Options):
    """The shape of a batch and how long it takes to arrive."""

    batch_size: Annotated[int, Field(ge=1, description="samples in a batch")] = 128
    features: Annotated[int, Field(ge=1, description="float32 features of a sample")] = 1024
    latency_ms: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="wait per batch, before it is made; holds no core and no GIL"),
    ] = 0.0


class Synthetic(Source):
    """A graph op on the CPU stands in for reading a file; ops with seeds give every backend the same samples."""

    name = "synthetic"
    summary = "random normal features; the label is 1 where they sum to more than 0"
    Options = SyntheticOptions
    timing_options = frozenset({"latency_ms"})

    _overshoot_us = 0

    @property
    def batch_size(self) -> int:
        return int(self.options.batch_size)

    def prepare(self) -> None:
        self._overshoot_us = graph_ops.delay_overshoot_us(round(self.options.latency_ms * 1000))

    def produce(self, samples: int) -> tuple[Any, ...]:
        """Features [samples, features], after the part of the latency that falls on that many samples."""
        import tensorflow as tf

        latency_us = self.options.latency_ms * 1000 * samples / self.batch_size
        with tf.device("/cpu:0"):
            if latency_us == 0:
                return (self._features(samples, "training"),)
            wait = graph_ops.delay(max(1, round(latency_us) - self._overshoot_us))
            with tf.control_dependencies([wait]):
                return (self._features(samples, "training"),)

    def finish(self, carried: Sequence[Any]) -> Batch:
        import tensorflow as tf

        (features,) = carried
        positive = tf.reduce_sum(features, axis=1, keepdims=True) > 0
        return Batch(features, tf.cast(positive, tf.float32))

    def sample_batch(self, purpose: str) -> Batch:
        return self.finish([self._features(self.batch_size, purpose)])

    def _features(self, samples: int, purpose: str) -> Any:
        import tensorflow as tf

        return tf.random.normal([samples, self.options.features], seed=_SEEDS[purpose])
