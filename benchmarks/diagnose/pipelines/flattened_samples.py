"""A map flattens and labels one small sample a call; its function takes no batch as it is written."""

import numpy as np
import tensorflow as tf

FAULT = "map(flatten)"
ALLOW_REORDERING = False

_DRAWN = np.random.default_rng(7)
PICTURES = _DRAWN.integers(0, 255, (20_000, 28, 28), dtype=np.uint8)
LABELS = _DRAWN.integers(0, 10, (20_000, 1))


def flatten(picture: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.reshape(tf.cast(picture, tf.float32) / 255.0, [784]), tf.one_hot(label[0], 10)


def flatten_batch(pictures: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.reshape(tf.cast(pictures, tf.float32) / 255.0, [-1, 784]), tf.one_hot(labels[:, 0], 10)


def make_dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((PICTURES, LABELS)).repeat().map(flatten).batch(64)


def expert() -> tf.data.Dataset:
    rows = tf.data.Dataset.range(len(PICTURES)).repeat().batch(64)
    return rows.map(lambda i: flatten_batch(tf.gather(PICTURES, i), tf.gather(LABELS, i)))
