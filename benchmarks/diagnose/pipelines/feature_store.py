"""Features are fetched from a store that answers after 4 ms, one request at a time."""

import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = "map(fetch)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])

EMBEDDINGS: np.ndarray = np.load(DATA / "arrays.npz")["features"]


def request(key: np.int64) -> np.ndarray:
    time.sleep(0.004)
    return np.asarray(EMBEDDINGS[key])


def fetch(key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.ensure_shape(tf.numpy_function(request, [key], tf.float32), [64]), key


def keys() -> tf.data.Dataset:
    return tf.data.Dataset.range(1000).shuffle(1000, seed=1).repeat()


def make_dataset() -> tf.data.Dataset:
    return keys().map(fetch).batch(8).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 16
    return keys().map(fetch, num_parallel_calls=16).batch(8).prefetch(tf.data.AUTOTUNE).with_options(options)
