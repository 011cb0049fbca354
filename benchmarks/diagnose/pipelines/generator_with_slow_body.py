"""A generator fetches rows from a store that answers after a millisecond; the rows fit in memory."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = "from_generator(rows)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def rows() -> Iterator[np.ndarray]:
    with np.load(DATA / "arrays.npz") as arrays:
        features = arrays["features"][:800]
    for row in features:
        time.sleep(0.001)
        yield row


def make_dataset() -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([64], tf.float32))
    return dataset.batch(32).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([64], tf.float32))
    return dataset.batch(32).cache().prefetch(tf.data.AUTOTUNE)
