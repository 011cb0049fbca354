"""Thirty small maps as a library stacks them, and in their midst one in Python that waits."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = "map(weigh)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])

FEATURES = np.load(DATA / "arrays.npz")["features"]


def shifted(by: float) -> Callable[[tf.Tensor], tf.Tensor]:
    def shift(x: tf.Tensor) -> tf.Tensor:
        return x + by

    return shift


def looked_up(x: np.ndarray) -> np.ndarray:
    time.sleep(0.002)
    return x * np.float32(0.5)


def weigh(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(looked_up, [x], tf.float32), [64])


def chain(weigh_calls: int | None) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices(FEATURES).repeat()
    for number in range(15):
        dataset = dataset.map(shifted(0.25 * number))
    dataset = dataset.map(weigh, num_parallel_calls=weigh_calls)
    for number in range(14):
        dataset = dataset.map(shifted(-0.25 * number))
    return dataset.batch(16)


def make_dataset() -> tf.data.Dataset:
    return chain(None).prefetch(1)


def expert() -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 16
    return chain(16).prefetch(tf.data.AUTOTUNE).with_options(options)
