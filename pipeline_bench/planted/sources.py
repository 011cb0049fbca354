"""planted: samples that take as long to read, to decode and to copy as the options say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pipeline_bench import graph_ops
from pipeline_bench.plugins import Options
from pipeline_bench.sources import Batch, Identity, Source

Milliseconds = Annotated[float, Field(ge=0, le=10_000)]

FEATURES = 8
EPOCH_SAMPLES = 4096


class PlantedOptions(Options):
    """How long a batch takes to read, to decode and to copy."""

    batch_size: Annotated[int, Field(ge=1, le=4096, description="samples in a batch")] = 16
    read_ms: Annotated[
        tuple[Milliseconds, ...], Field(min_length=1, description="of batch 0, 1, 2 … and then from the first again")
    ] = (0.0,)
    decode_ms: Annotated[Milliseconds, Field(description="where the backend finishes its batches")] = 0.0
    copy_ms: Annotated[Milliseconds, Field(description="between input and model, under planted_copy")] = 0.0


class Planted(Source):
    """Numbered samples of a few features that cost nothing but their delays."""

    name = "planted"
    listed = False
    summary = "samples that take as long as the options say"
    Options = PlantedOptions
    timing_options = frozenset({"read_ms", "decode_ms", "copy_ms"})

    @property
    def batch_size(self) -> int:
        return int(self.options.batch_size)

    @property
    def identity(self) -> Identity:
        return Identity(EPOCH_SAMPLES, lambda numbers: (numbers % EPOCH_SAMPLES).astype(np.float32))

    @property
    def copy_us(self) -> float:
        """What `PlantedCopy` waits."""
        return float(1000 * self.options.copy_ms)

    def produce(self, samples: int) -> tuple[Any, ...]:
        import tensorflow as tf

        with tf.device("/cpu:0"):
            calls = graph_ops.call_counter("planted_calls")
            numbers = calls * samples + tf.range(samples, dtype=tf.int64)
            read_us = [1000 * read_ms for read_ms in self.options.read_ms]
            if not any(read_us):
                return (numbers,)
            now_us = tf.gather(tf.constant(read_us, tf.float64), calls % len(read_us))
            with tf.control_dependencies([graph_ops.steady_delay(now_us, "planted_read")]):
                return (tf.identity(numbers),)

    def finish(self, carried: Sequence[Any]) -> Batch:
        (numbers,) = carried
        return self.batch_of(held([numbers], 1000 * self.options.decode_ms, "planted_decode")[0])

    def sample_batch(self, purpose: str) -> Batch:
        import tensorflow as tf

        return self.batch_of(tf.range(self.batch_size, dtype=tf.int64))._replace(numbers=None)

    def batch_of(self, numbers: Any) -> Batch:
        """Build the samples of those numbers, int64 [samples]."""
        import tensorflow as tf

        place = tf.cast(numbers % EPOCH_SAMPLES, tf.float32)
        features = tf.tile(place[:, tf.newaxis], [1, FEATURES])
        return Batch(features, tf.cast(features[:, :1] > EPOCH_SAMPLES / 2, tf.float32), numbers)


def held(tensors: Sequence[Any], latency_us: float, name: str) -> list[Any]:
    """Build the tensors as they are so many microseconds after they are there."""
    import tensorflow as tf

    if not latency_us:
        return list(tensors)
    with tf.device("/cpu:0"), tf.control_dependencies(tensors):
        wait = graph_ops.steady_delay(latency_us, name)
    with tf.control_dependencies([wait]):
        return [tf.identity(tensor) for tensor in tensors]
