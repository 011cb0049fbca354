"""mobilenet: a small network of keras.applications, MobileNetV2, trained from random weights on images."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.models import Model, TrainingGraph, cross_entropy, share_right
from pipeline_bench.sources import Batch

_SMALLEST_SIDE = 32
_COLOURS = 3
_RANK = 4


class MobileNetOptions(plugins.Options):
    """Its width, the classes that it distinguishes, and the learning rate."""

    alpha: Annotated[float, Field(ge=0.1, le=2, description="width of the network; 1 is the published one")] = 0.35
    classes: Annotated[int, Field(ge=2, le=2**16, description="classes of the labels")] = 10
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False, description="Adam's learning rate")] = 1e-3


class MobileNet(Model):
    """MobileNetV2 as Keras builds it, softmax cross-entropy, Adam.

    A training step updates the moving averages of its batch normalisation, as Keras's own `fit` does; the accuracy is
    taken with them, so that it says little before some thousand steps (their momentum is 0.999).
    """

    name = "mobilenet"
    summary = "MobileNetV2 of keras.applications, random weights, softmax cross-entropy, Adam: images from 32 × 32 on"
    Options = MobileNetOptions

    def build(self, batch: Batch, evaluation: Batch) -> TrainingGraph:
        """Features [batch, height, width, 1 or 3], 0 to 1, and labels [batch] or [batch, 1] in.

        Raises:
            PipelineBenchError: the features have another shape.
        """
        import tensorflow as tf

        v1 = tf.compat.v1
        graph = v1.get_default_graph()
        images = _images(batch)
        tf.keras.utils.set_random_seed(graph.seed or 0)  # every initialiser of Keras takes its own seed from this one
        network = tf.keras.applications.MobileNetV2(
            input_shape=tuple(images.shape[1:]),
            alpha=self.options.alpha,
            weights=None,
            classes=self.options.classes,
            classifier_activation=None,
        )
        before = len(graph.get_operations())
        logits = network(images, training=True)
        # Keras makes these ops in a graph, and leaves it to its own `fit`, which is not used here, to run them.
        averages = [op for op in graph.get_operations()[before:] if op.type.startswith("Assign")]
        loss = cross_entropy(logits, batch, self.options.classes)
        weights = [variable.value for variable in network.trainable_variables]
        minimize = v1.train.AdamOptimizer(self.options.learning_rate).minimize(loss, var_list=weights)
        accuracy = share_right(network(_images(evaluation), training=False), evaluation, self.options.classes)
        return TrainingGraph(tf.group(minimize, *averages), loss, accuracy)


def _images(batch: Batch) -> Any:
    """Features as float32 [batch, height, width, 3] from -1 to 1, as the network takes them; grey ones thrice."""
    import tensorflow as tf

    shape = tuple(batch.features.shape)
    fits = len(shape) == _RANK and min(shape[1] or 0, shape[2] or 0) >= _SMALLEST_SIDE and shape[3] in (1, _COLOURS)
    if not fits:
        raise PipelineBenchError(
            f"The model mobilenet takes images of at least 32 × 32 pixels with 1 or 3 channels, and the source gives "
            f"samples of shape {shape[1:]}.",
            "Use a source of images, such as image_folder, with image_size = 32 or more.",
        )
    images = tf.cast(batch.features, tf.float32) * 2 - 1
    return images if shape[3] == _COLOURS else tf.repeat(images, _COLOURS, axis=3)
