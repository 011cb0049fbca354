"""two_layer: the dense network of the 2017 tutorial, with its initialisers, loss, optimiser and accuracy."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.models import GradientModel, binary_labels, flat_features
from pipeline_bench.sources import Batch

_WEIGHT_STDDEV = 0.1
_BIAS = 0.1


class TwoLayerOptions(plugins.Options):
    """Widths and learning rate."""

    hidden_widths: Annotated[
        tuple[Annotated[int, Field(ge=1, le=2**20)], ...],
        Field(min_length=1, description="units of each hidden layer; one layer of 1024 in the tutorial"),
    ] = (1024,)
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False, description="Adam's learning rate")] = 1e-2


class TwoLayer(GradientModel):
    """Dense + ReLU for each hidden width, then dense to one logit; mean sigmoid cross-entropy; Adam."""

    name = "two_layer"
    summary = "dense + ReLU, dense to one logit, sigmoid cross-entropy, Adam: the tutorial's network"
    Options = TwoLayerOptions

    def loss(self, batch: Batch) -> Any:
        """Features [batch, …] and labels [batch, 1] or [batch] in."""
        import tensorflow as tf

        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=binary_labels(batch), logits=self._logits(batch))
        return tf.reduce_mean(losses)

    def accuracy(self, evaluation: Batch) -> Any:
        import tensorflow as tf

        answers = tf.cast(self._logits(evaluation) > 0, tf.float32)
        return tf.reduce_mean(tf.cast(tf.equal(answers, binary_labels(evaluation)), tf.float32))

    def _logits(self, batch: Batch) -> Any:
        """Return the logits [batch, 1]; seeds on the ops keep the variables the same in any graph."""
        import tensorflow as tf

        v1 = tf.compat.v1
        hidden = flat_features(batch)
        widths = [int(hidden.shape[-1]), *self.options.hidden_widths, 1]
        for i, (width_in, width_out) in enumerate(pairwise(widths)):
            initializer = v1.random_normal_initializer(stddev=_WEIGHT_STDDEV, seed=100 + i)
            weights = v1.get_variable(f"weights_{i}", [width_in, width_out], initializer=initializer)
            biases = v1.get_variable(f"biases_{i}", [width_out], initializer=v1.constant_initializer(_BIAS))
            hidden = tf.matmul(tf.nn.relu(hidden) if i else hidden, weights) + biases
        return hidden
