"""Models are what is trained. One file, one class, one name; open through ``pipeline_bench.models``."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline_bench.errors import UsageError
from pipeline_bench.plugins import Plugin
from pipeline_bench.scenario import Runtime
from pipeline_bench.sources import Batch


@dataclass(frozen=True)
class TrainingGraph:
    """The tensors and ops of a model, built into the default graph."""

    train: Any
    """The op that trains one step."""
    loss: Any
    """The loss of the step, a scalar; NaN where nothing is trained."""
    accuracy: Any = None
    """The share of right answers on the evaluation batch, 0 to 1, a scalar; None where there is none to measure."""
    busy_s: Any = None
    """Seconds that an emulated device was busy with the step, a float64 scalar; None of a model that computes."""


class Model(Plugin):
    """Trains on a batch. Its initial weights depend on the seed alone, so every backend starts from the same."""

    least_gpus: ClassVar[int] = 1
    """With fewer GPUs than this it is put on the CPU, so that all its variants are on devices of one kind."""

    trains: ClassVar[bool] = True
    """Whether its steps change weights; a model that only does work has no loss and no accuracy."""

    devices: Sequence[str] = ("/cpu:0",)
    """What it may spread its work over, as `tf.device` takes it; set before it is built."""

    def check(self, runtime: Runtime) -> None:
        """Refuse a runtime that its options ask more of; the parent asks before the first trial, without TensorFlow.

        Raises:
            UsageError: there are too few devices for it, or it emulates its device and is to be on another one.
        """
        if self.emulated_device is not None and runtime.device.startswith("gpu"):
            raise UsageError(
                f"The model {self.name} emulates its device, and runtime.device is {runtime.device!r}.",
                'Set runtime.device = "auto" or "cpu".',
            )

    @property
    def emulated_device(self) -> str | None:
        """What to call the device that it only emulates; None for a model that computes, on whatever device."""
        return None

    @abstractmethod
    def build(self, batch: Batch, evaluation: Batch) -> TrainingGraph:
        """Build the model once for training and, with the same variables, once for evaluation."""


class GradientModel(Model):
    """Trained by the gradient of a loss: what can be replicated, and built into a loop of the graph's own.

    Its variables are those of ``tf.compat.v1.get_variable``: built again where variables are reused, it is the same
    model with another batch.
    """

    @abstractmethod
    def loss(self, batch: Batch) -> Any:
        """Return the loss on a batch, a scalar."""

    def optimizer(self) -> Any:
        """Return a new optimiser of ``tf.compat.v1.train``: by default Adam, at the option `learning_rate`."""
        import tensorflow as tf

        return tf.compat.v1.train.AdamOptimizer(self.options.learning_rate)

    def accuracy(self, evaluation: Batch) -> Any:
        """Return the share of right answers on a batch, a scalar; by default None, where there is none to measure."""
        return None

    def build(self, batch: Batch, evaluation: Batch) -> TrainingGraph:
        loss = self.loss(batch)
        train = self.optimizer().minimize(loss)
        return TrainingGraph(train, loss, self.accuracy_of_same(evaluation))

    def accuracy_of_same(self, evaluation: Batch) -> Any:
        """Return the accuracy with the variables that `loss` has made."""
        import tensorflow as tf

        v1 = tf.compat.v1
        with v1.variable_scope(v1.get_variable_scope(), reuse=True):
            return self.accuracy(evaluation)


def flat_features(batch: Batch) -> Any:
    """Features as float32 [batch, values of a sample]."""
    import tensorflow as tf

    values = math.prod(int(size) for size in batch.features.shape[1:])
    return tf.cast(tf.reshape(batch.features, [-1, values]), tf.float32)


def binary_labels(batch: Batch) -> Any:
    """Return labels as float32 [batch, 1], 0 or 1: for classes, whether their number is odd."""
    import tensorflow as tf

    if not batch.labels.dtype.is_integer:
        return batch.labels
    return tf.cast(tf.reshape(tf.math.floormod(batch.labels, 2), [-1, 1]), tf.float32)


def class_labels(batch: Batch, classes: int) -> Any:
    """Return labels as int64 [batch], from 0 up to `classes`; a class beyond the last one counts from 0 again."""
    import tensorflow as tf

    return tf.math.floormod(tf.cast(tf.reshape(batch.labels, [-1]), tf.int64), classes)


def cross_entropy(logits: Any, batch: Batch, classes: int) -> Any:
    """Return the mean softmax cross-entropy of logits [batch, classes], a scalar."""
    import tensorflow as tf

    labels = class_labels(batch, classes)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def share_right(logits: Any, batch: Batch, classes: int) -> Any:
    """Return the share of a batch whose class has the largest of its logits [batch, classes], a scalar."""
    import tensorflow as tf

    right = tf.equal(tf.argmax(logits, axis=1), class_labels(batch, classes))
    return tf.reduce_mean(tf.cast(right, tf.float32))
