"""A NumPy function normalises one vector a call; it would take a batch of them as it is."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = "map(normalise)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])

FEATURES: np.ndarray = np.load(DATA / "arrays.npz")["features"]


def clipped(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(x, -1, 1) * np.float32(0.5) + np.float32(0.5))


def normalise(x: tf.Tensor) -> tf.Tensor:
    y = tf.numpy_function(clipped, [x], tf.float32)
    y.set_shape(x.shape)
    return y


def make_dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(FEATURES).shuffle(5000, seed=1).repeat().map(normalise).batch(128)


def expert() -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices(FEATURES).shuffle(5000, seed=1).repeat()
    return dataset.batch(128).map(normalise).prefetch(tf.data.AUTOTUNE)
