"""Windows of a time series by window and flat_map, a small dataset each; one gather makes a whole batch of them."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = {"window", "flat_map(gather)"}
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])

LENGTH, BATCH = 48, 32


def gather(window: tf.data.Dataset) -> tf.data.Dataset:
    return window.batch(LENGTH, drop_remainder=True)


def to_pair(window: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return window[..., :-1, :], window[..., -1, 0]


def make_dataset() -> tf.data.Dataset:
    series = tf.data.Dataset.from_tensor_slices(np.load(DATA / "series.npy")[:4000])
    windows = series.window(LENGTH, shift=1, drop_remainder=True)
    return windows.flat_map(gather).map(to_pair).batch(BATCH).prefetch(1)


def expert() -> tf.data.Dataset:
    series = tf.constant(np.load(DATA / "series.npy")[:4000])
    starts = tf.data.Dataset.range(len(series) - LENGTH + 1).batch(BATCH)

    def windows(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return to_pair(tf.gather(series, start[:, None] + tf.range(LENGTH, dtype=tf.int64)))

    return starts.map(windows, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
