"""The random batch of the 2017 tutorial: normal features, and a label that says whether their sum is positive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import graph_ops
from pipeline_bench.sources import SEEDS, Batch, FeatureOptions, Moments, Source, labelled_by_sum

DAY_MS = 86_400_000


class SyntheticOptions(FeatureOptions):
    """The shape of a batch and how long it takes to arrive."""

    latency_ms: Annotated[
        float,
        Field(ge=0, le=DAY_MS, allow_inf_nan=False, description="wait per batch; holds no core and no GIL"),
    ] = 0.0
    batch_ms: Annotated[
        float | None,
        Field(
            gt=0,
            le=DAY_MS,
            allow_inf_nan=False,
            description="how long a batch takes in all: what making it leaves of that is waited",
        ),
    ] = None


class Synthetic(Source):
    """A graph op on the CPU stands in for reading a file; ops with seeds give every backend the same samples."""

    name = "synthetic"
    summary = "random normal features; the label is 1 where they sum to more than 0"
    Options = SyntheticOptions
    reads_storage = False
    timing_options = frozenset({"latency_ms", "batch_ms"})

    @property
    def moments(self) -> Moments:
        return Moments(mean=0.0, std=1.0)

    def produce(self, samples: int) -> tuple[Any, ...]:
        """Features [samples, features], after the waits; of samples made singly, every batch_size-th one waits."""
        import tensorflow as tf

        if self.options.batch_ms is None:
            return (self._late(samples),)
        with tf.device("/cpu:0"):
            begun_s = tf.timestamp()
            with tf.control_dependencies([begun_s]):
                made = self._late(samples)
            with tf.control_dependencies([made]):
                batch_us = self.options.batch_ms * 1000
                rest = self._once_a_batch(samples, lambda name: graph_ops.fill_up(begun_s, batch_us, name), "fill_up")
            with tf.control_dependencies([rest]):
                return (tf.identity(made),)

    def _late(self, samples: int) -> Any:
        """Features [samples, features], after the latency."""
        import tensorflow as tf

        with tf.device("/cpu:0"):
            if self.options.latency_ms == 0:
                return self._features(samples, "training")
            latency_us = self.options.latency_ms * 1000
            waited = self._once_a_batch(samples, lambda name: graph_ops.steady_delay(latency_us, name), "latency")
            with tf.control_dependencies([waited]):
                return self._features(samples, "training")

    def _once_a_batch(self, samples: int, wait: Callable[[str], Any], name: str) -> Any:
        """Return the wait for a batch; for less than a batch, whole at the first of its samples.

        A share of the wait at every sample would not do: a sleep of some 100 µs takes twice as long as it says.
        """
        import tensorflow as tf

        if samples >= self.batch_size:
            return wait(f"synthetic_{name}")
        before = graph_ops.call_counter(f"synthetic_{name}_calls") * samples
        first = tf.math.floormod(before, self.batch_size) < samples
        return tf.cond(first, lambda: wait(f"synthetic_{name}"), lambda: tf.constant(0.0, tf.float64))

    def finish(self, carried: Sequence[Any]) -> Batch:
        return labelled_by_sum(carried[0])

    def sample_batch(self, purpose: str) -> Batch:
        return self.finish([self._features(self.batch_size, purpose)])

    def _features(self, samples: int, purpose: str) -> Any:
        import tensorflow as tf

        return tf.random.normal([samples, self.options.features], seed=SEEDS[purpose])
