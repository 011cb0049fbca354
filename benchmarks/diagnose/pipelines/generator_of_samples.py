"""A generator hands over small NumPy samples one by one, for ever; each costs a call of Python."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = "from_generator(samples)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])

BATCH = 64
SIGNATURE = (tf.TensorSpec([64], tf.float32), tf.TensorSpec([], tf.int64))


def samples() -> Iterator[tuple[np.ndarray, np.int64]]:
    with np.load(DATA / "arrays.npz") as arrays:
        features, labels = arrays["features"], arrays["labels"]
    while True:
        yield from zip(features, labels, strict=True)


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    with np.load(DATA / "arrays.npz") as arrays:
        features, labels = arrays["features"], arrays["labels"]
    order = np.arange(len(labels))
    while True:
        taken, order = order[:BATCH], np.roll(order, -BATCH)
        yield features[taken], labels[taken]


def make_dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(samples, output_signature=SIGNATURE).batch(BATCH)


def expert() -> tf.data.Dataset:
    signature = (tf.TensorSpec([BATCH, 64], tf.float32), tf.TensorSpec([BATCH], tf.int64))
    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(tf.data.AUTOTUNE)
