"""mnist_cnn: the convolutional network of the TensorFlow 1 tutorials, for images of 28 × 28 pixels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.models import GradientModel, cross_entropy, flat_features, share_right
from pipeline_bench.scenario import Runtime
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
    partition: Annotated[
        bool,
        Field(description="each layer on the next CPU device, with what it takes to train it; the last ones share"),
    ] = False


class _Layer(NamedTuple):
    weights: Any
    biases: Any
    device: str | None
    """What the layer is on, as `tf.device` takes it; None: where the model is."""


class MnistCnn(GradientModel):
    """Convolution and max-pooling twice, dense + ReLU, dropout, dense; mean softmax cross-entropy; momentum."""

    name = "mnist_cnn"
    summary = "conv 5×5×32, conv 5×5×64, dense 512, dropout, dense 10, softmax cross-entropy: images of 28 × 28"
    Options = MnistCnnOptions

    def check(self, runtime: Runtime) -> None:
        if not self.options.partition:
            return
        if runtime.device != "cpu" or runtime.cpu_devices == 1:
            raise UsageError(
                f"mnist_cnn was given partition, which spreads its layers over CPU devices, and the runtime has "
                f"device = {runtime.device!r} and cpu_devices = {runtime.cpu_devices}.",
                'Set runtime.device = "cpu" and runtime.cpu_devices to 2 or more: 4 gives each layer its own.',
            )
        if runtime.replicas > 1:
            raise UsageError(
                "mnist_cnn was given partition, and the runtime replicas: both say which devices its layers are on.",
                "Set partition = false, or runtime.replicas = 1.",
            )

    def loss(self, batch: Batch) -> Any:
        """Features [batch, 784], [batch, 28, 28] or [batch, 28, 28, 1] and labels [batch] or [batch, 1] in.

        Raises:
            PipelineBenchError: the features have another shape.
        """
        return cross_entropy(_logits(_images(batch), self._layers(), self.options.dropout), batch, _CLASSES)

    def optimizer(self) -> Any:
        import tensorflow as tf

        momentum = tf.compat.v1.train.MomentumOptimizer

        class Partitioned(momentum):  # type: ignore[misc,valid-type]
            """Has the gradient of each op on the op's own device; by default all are on the first one."""

            def compute_gradients(self, *args: Any, **settings: Any) -> Any:
                return super().compute_gradients(*args, **settings | {"colocate_gradients_with_ops": True})

        return (Partitioned if self.options.partition else momentum)(self.options.learning_rate, _MOMENTUM)

    def accuracy(self, evaluation: Batch) -> Any:
        return share_right(_logits(_images(evaluation), self._layers(), dropout=0.0), evaluation, _CLASSES)

    def _layers(self) -> list[_Layer]:
        """Return the four layers' variables, on the layers' devices: the next one for each, and then the last again."""
        last = len(self.devices) - 1
        layers = []
        for i, shape in enumerate(_shapes()):
            device = self.devices[min(i, last)] if self.options.partition else None
            with _on(device):
                layers.append(_Layer(*_variables(i, shape), device))
        return layers


def _on(device: str | None) -> AbstractContextManager[Any]:
    """Put what is built on a device, or leave it where the model is: `tf.device` of None would forget that."""
    import tensorflow as tf

    return nullcontext() if device is None else tf.device(device)


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


def _shapes() -> Iterator[tuple[int, ...]]:
    """Yield the shape of each layer's weights."""
    pooled = (_SIDE // 4) ** 2 * _CHANNELS[1]
    yield (_KERNEL, _KERNEL, 1, _CHANNELS[0])
    yield (_KERNEL, _KERNEL, *_CHANNELS)
    yield (pooled, _DENSE_UNITS)
    yield (_DENSE_UNITS, _CLASSES)


def _variables(layer: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Weights and biases; a seed on the op keeps them the same in any graph."""
    import tensorflow as tf

    v1 = tf.compat.v1
    initializer = v1.truncated_normal_initializer(stddev=_WEIGHT_STDDEV, seed=_WEIGHTS_SEED + layer)
    weights = v1.get_variable(f"weights_{layer}", shape, initializer=initializer)
    biases = v1.get_variable(f"biases_{layer}", [shape[-1]], initializer=v1.constant_initializer(_BIASES[layer]))
    return weights, biases


def _logits(images: Any, layers: list[_Layer], dropout: float) -> Any:
    """Images [batch, 28, 28, 1] to logits [batch, 10]."""
    import tensorflow as tf

    hidden = images
    for layer in layers[:2]:
        with _on(layer.device):
            convolved = tf.nn.conv2d(hidden, layer.weights, 1, "SAME")
            active = tf.nn.relu(convolved + layer.biases)
            hidden = tf.nn.max_pool2d(active, 2, 2, "SAME")
    dense, last = layers[2:]
    with _on(dense.device):
        flat = tf.reshape(hidden, [-1, dense.weights.shape[0]])
        hidden = tf.nn.relu(tf.matmul(flat, dense.weights) + dense.biases)
        if dropout:
            hidden = tf.nn.dropout(hidden, rate=dropout, seed=_DROPOUT_SEED)
    with _on(last.device):
        return tf.matmul(hidden, last.weights) + last.biases
