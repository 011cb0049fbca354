"""mnist_cnn: the convolutional network of the TensorFlow 1 tutorials, for images of 28 × 28 pixels."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.models import GradientModel, class_labels, flat_features
from pipeline_bench.sources import Batch

_SIDE = 28
_CLASSES = 10
_KERNEL = 5
_CHANNELS = (32, 64)
_DENSE_UNITS = 512
_WEIGHT_STDDEV = 0.1
_BIASES = (0.0, 0.1, 0.1, 0.1)
"""Of each layer, as the tutorial's convolutional.py begins them."""
_MOMENTUM = 0.9
_WEIGHTS_SEED = 200
_DROPOUT_SEED = 210


class MnistCnnOptions(plugins.Options):
    """What the tutorial's program has as constants."""

    dropout: Annotated[float, Field(ge=0, lt=1, description="share of the dense layer's outputs left out")] = 0.5
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False, description="of momentum 0.9")] = 1e-2


class _Layer(NamedTuple):
    weights: Any
    biases: Any


class MnistCnn(GradientModel):
    """Convolution and max-pooling twice, dense + ReLU, dropout, dense; mean softmax cross-entropy; momentum."""

    name = "mnist_cnn"
    summary = "conv 5×5×32, conv 5×5×64, dense 512, dropout, dense 10, softmax cross-entropy: images of 28 × 28"
    Options = MnistCnnOptions

    def loss(self, batch: Batch) -> Any:
        """Features [batch, 784], [batch, 28, 28] or [batch, 28, 28, 1] and labels [batch] or [batch, 1] in.

        Raises:
            PipelineBenchError: the features have another shape.
        """
        import tensorflow as tf

        logits = _logits(_images(batch), _variables(), self.options.dropout)
        labels = class_labels(batch, _CLASSES)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def optimizer(self) -> Any:
        import tensorflow as tf

        return tf.compat.v1.train.MomentumOptimizer(self.options.learning_rate, _MOMENTUM)

    def accuracy(self, evaluation: Batch) -> Any:
        import tensorflow as tf

        answers = tf.argmax(_logits(_images(evaluation), _variables(), dropout=0.0), axis=1)
        right = tf.equal(answers, class_labels(evaluation, _CLASSES))
        return tf.reduce_mean(tf.cast(right, tf.float32))


def _images(batch: Batch) -> Any:
    """Features as float32 [batch, 28, 28, 1]."""
    import tensorflow as tf

    shape = tuple(batch.features.shape[1:])
    if shape not in ((_SIDE * _SIDE,), (_SIDE, _SIDE), (_SIDE, _SIDE, 1)):
        raise PipelineBenchError(
            f"The model mnist_cnn takes samples of 28 × 28 values, and the source gives samples of shape {shape}.",
            "Set image_size = 28 and channels = 1 of a source of images, or features = 784 of synthetic or memory.",
        )
    return tf.reshape(flat_features(batch), [-1, _SIDE, _SIDE, 1])


def _variables() -> list[_Layer]:
    """Weights and biases of the four layers; seeds on the ops keep them the same in any graph."""
    import tensorflow as tf

    v1 = tf.compat.v1
    pooled = (_SIDE // 4) ** 2 * _CHANNELS[1]
    shapes = (
        (_KERNEL, _KERNEL, 1, _CHANNELS[0]),
        (_KERNEL, _KERNEL, *_CHANNELS),
        (pooled, _DENSE_UNITS),
        (_DENSE_UNITS, _CLASSES),
    )
    layers = []
    for i, (shape, bias) in enumerate(zip(shapes, _BIASES, strict=True)):
        initializer = v1.truncated_normal_initializer(stddev=_WEIGHT_STDDEV, seed=_WEIGHTS_SEED + i)
        weights = v1.get_variable(f"weights_{i}", shape, initializer=initializer)
        biases = v1.get_variable(f"biases_{i}", [shape[-1]], initializer=v1.constant_initializer(bias))
        layers.append(_Layer(weights, biases))
    return layers


def _logits(images: Any, layers: list[_Layer], dropout: float) -> Any:
    """Images [batch, 28, 28, 1] to logits [batch, 10]."""
    import tensorflow as tf

    hidden = images
    for layer in layers[:2]:
        convolved = tf.nn.conv2d(hidden, layer.weights, strides=1, padding="SAME")
        hidden = tf.nn.max_pool2d(tf.nn.relu(convolved + layer.biases), ksize=2, strides=2, padding="SAME")
    dense, last = layers[2:]
    flat = tf.reshape(hidden, [-1, dense.weights.shape[0]])
    hidden = tf.nn.relu(tf.matmul(flat, dense.weights) + dense.biases)
    if dropout:
        hidden = tf.nn.dropout(hidden, rate=dropout, seed=_DROPOUT_SEED)
    return tf.matmul(hidden, last.weights) + last.biases
