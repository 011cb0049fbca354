"""make_csv_dataset gives batches; features are then made of them in NumPy, one batch after another."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = "map(engineer)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])

NAMES = [f"x{number}" for number in range(10)]


def fourier(*columns: np.ndarray) -> np.ndarray:
    x = np.stack(columns, axis=1)
    triples = np.einsum("ni,nj,nk->nijk", x, x, x).reshape(len(x), -1)
    waves = sum(np.sin(frequency * triples.astype(np.float64)) for frequency in range(1, 9))
    return np.asarray(waves, np.float32)


def engineer(features: dict[str, tf.Tensor], price: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    made = tf.numpy_function(fourier, [features[name] for name in NAMES], tf.float32)
    return tf.ensure_shape(made, [None, 1000]), price


def rows() -> tf.data.Dataset:
    return tf.data.experimental.make_csv_dataset(
        str(DATA / "houses.csv"), batch_size=128, label_name="price", num_epochs=None, shuffle=True, shuffle_seed=1
    )


def make_dataset() -> tf.data.Dataset:
    return rows().map(engineer)


def expert() -> tf.data.Dataset:
    return rows().map(engineer, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
