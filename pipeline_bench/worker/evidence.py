"""What a step shows of the samples that reached its model, and how often it is asked to.

The evidence is fetched in one tensor with the loss, on as many steps as keep its cost below 1 % of a step: every one
where steps are long.
"""

from __future__ import annotations

import math
from typing import Any

from pipeline_bench.sources import Batch, Source

COST_SHARE = 0.01
"""How much of the mean step all evidence together may cost."""

FIRST_STEPS = 10
"""The shortest of the steps up to here says how many of the later ones are looked at."""

FIRST_UNCHECKED = 2
"""The step that is not looked at among them, where later ones may not be either: the first run of what such a step
fetches takes tens of milliseconds, and belongs into the warm-up."""

# What a step costs more when it is looked at, rounded up: the fetch (`benchmarks.overhead.probe`); in the recorder's
# thread the entry into the ledger, 10 µs for 128 numbers; and the moments, which read every feature twice.
_FETCH_US = 10.0
_US_PER_NUMBER = 0.08
_US_PER_VALUE = 0.001

_ROUNDING = 1e-9


def build(source: Source, batch: Batch) -> Any:
    """The tensor that shows what a batch holds, float64 [n].

    Of numbered samples [2 * samples]: their numbers, then the first feature of each. Of random numbers [3]: how many
    samples there are, the mean of all features, and the mean of their squares. None where the source has neither, or
    the backend has dropped the numbers.
    """
    import tensorflow as tf

    if source.identity is not None:
        if batch.numbers is None:
            return None
        first = tf.reshape(batch.features, [tf.shape(batch.features)[0], -1])[:, 0]
        return tf.concat([tf.cast(batch.numbers, tf.float64), tf.cast(first, tf.float64)], axis=0)
    if source.moments is None:
        return None
    features = tf.cast(batch.features, tf.float32)
    parts = [tf.shape(features)[0], tf.reduce_mean(features), tf.reduce_mean(tf.square(features))]
    return tf.stack([tf.cast(part, tf.float64) for part in parts])


def cost_us(source: Source, values_per_sample: int) -> float:
    """About how many microseconds a step takes longer when it is looked at."""
    if source.identity is not None:
        return _FETCH_US + _US_PER_NUMBER * source.batch_size
    return _FETCH_US + _US_PER_VALUE * source.batch_size * values_per_sample


def values_per_sample(features: Any) -> int:
    """Features of a sample; a size that the graph does not know counts as one: it only says how often to look.

    Args:
        features: the shape of a batch's features, a ``tf.TensorShape``.
    """
    return math.prod(int(size or 1) for size in (features.dims or [1])[1:])


def every(cost_us: float, step_us: float) -> int:
    """One step in so many is looked at, so that it costs at most `COST_SHARE` of a step of `step_us`."""
    return max(1, math.ceil(cost_us / (COST_SHARE * max(step_us, 1e-3)) - _ROUNDING))
