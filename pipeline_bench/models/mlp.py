"""mlp: dense layers with tanh behind each, the small network of the articles on leaving Python."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.errors import UsageError
from pipeline_bench.models import GradientModel, flat_features
from pipeline_bench.scenario import Runtime
from pipeline_bench.sources import Batch

_WEIGHTS_SEED = 300
_TARGETS_SEED = 320


class MlpOptions(plugins.Options):
    """Widths and learning rate."""

    widths: Annotated[
        tuple[Annotated[int, Field(ge=1, le=2**16)], ...],
        Field(min_length=1, description="units of each layer, the outputs last; the article's network is 16, 8"),
    ] = (16, 8)
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False, description="Adam's learning rate")] = 1e-3


class Mlp(GradientModel):
    """Dense + tanh for each width; the sum of squared errors; Adam.

    What it is to learn is made of its own input, so that every source will do: the tanh of a linear map of the features
    onto its outputs, drawn once from a normal distribution of stddev 1 / √features. It is the same in every trial.
    There is no accuracy: it estimates numbers, none of which is right or wrong.
    """

    name = "mlp"
    summary = "dense + tanh layers, sum of squared errors against a map of the features, Adam: 16, 8 by default"
    Options = MlpOptions

    def check(self, runtime: Runtime) -> None:
        super().check(runtime)
        if runtime.replicas > 1:
            raise UsageError(
                "The model mlp cannot be replicated: its loss is a sum over the batch, and replicas share the mean of "
                "their gradients.",
                "Use two_layer or mnist_cnn, or set runtime.replicas = 1.",
            )

    def loss(self, batch: Batch) -> Any:
        """Features [batch, …] in; labels are not looked at."""
        import tensorflow as tf

        v1 = tf.compat.v1
        features = flat_features(batch)
        values = int(features.shape[-1])
        hidden = features
        for i, (width_in, width_out) in enumerate(pairwise([values, *self.options.widths])):
            initializer = v1.random_normal_initializer(stddev=width_in**-0.5, seed=_WEIGHTS_SEED + i)
            weights = v1.get_variable(f"weights_{i}", [width_in, width_out], initializer=initializer)
            biases = v1.get_variable(f"biases_{i}", [width_out], initializer=v1.zeros_initializer())
            hidden = tf.tanh(tf.matmul(hidden, weights) + biases)
        targets = tf.tanh(tf.matmul(features, tf.constant(_linear_map(values, self.options.widths[-1]))))
        return tf.reduce_sum(tf.square(hidden - targets))


def _linear_map(values: int, outputs: int) -> Any:
    """Return the map from the features to the targets, float32 [values, outputs]."""
    drawn = np.random.default_rng(_TARGETS_SEED).standard_normal((values, outputs), dtype=np.float32)
    return drawn * np.float32(values**-0.5)
