"""Lines are split into words one by one, and gathered into ragged batches afterwards."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(split)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def split(line: tf.Tensor) -> tf.Tensor:
    return tf.strings.split(tf.strings.lower(line))


def make_dataset() -> tf.data.Dataset:
    lines = tf.data.TextLineDataset(str(DATA / "reviews.txt")).repeat()
    return lines.map(split).ragged_batch(128, drop_remainder=True)


def expert() -> tf.data.Dataset:
    lines = tf.data.TextLineDataset(str(DATA / "reviews.txt")).repeat()
    return lines.batch(128, drop_remainder=True).map(split, num_parallel_calls=tf.data.AUTOTUNE).prefetch(4)
