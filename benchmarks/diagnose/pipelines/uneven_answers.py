"""A service answers one request in eight late, and the order makes all others wait for it."""

import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = "map(ask)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def request(key: np.int64) -> np.float32:
    time.sleep(0.03 if key % 8 == 0 else 0.001)
    return np.float32(key)


def ask(key: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(request, [key], tf.float32), [])


def keys() -> tf.data.Dataset:
    return tf.data.Dataset.range(800).shuffle(800, seed=1).repeat()


def threads() -> tf.data.Options:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 8
    return options


def make_dataset() -> tf.data.Dataset:
    return keys().map(ask, num_parallel_calls=8).batch(8).prefetch(1).with_options(threads())


def expert() -> tf.data.Dataset:
    dataset = keys().map(ask, num_parallel_calls=32, deterministic=False).batch(8).prefetch(tf.data.AUTOTUNE)
    options = threads()
    options.threading.private_threadpool_size = 32
    return dataset.with_options(options)
