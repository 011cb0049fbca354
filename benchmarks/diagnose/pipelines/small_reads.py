"""Large records are read with a buffer of 512 bytes."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "TFRecordDataset"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])

FILES = sorted(map(str, (DATA / "blobs").glob("*.tfrecord")))


def make_dataset() -> tf.data.Dataset:
    return tf.data.TFRecordDataset(FILES, buffer_size=512).repeat().batch(16).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    return tf.data.TFRecordDataset(FILES, buffer_size=1 << 20).repeat().batch(16).prefetch(tf.data.AUTOTUNE)
