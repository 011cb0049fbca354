"""Examples are parsed one by one; tf.io.parse_example takes a batch of them."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(parse)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])

FEATURES = {f"f{column}": tf.io.FixedLenFeature([], tf.float32) for column in range(8)}


def parse(record: tf.Tensor) -> tf.Tensor:
    return tf.io.parse_single_example(record, FEATURES)


def parse_batch(records: tf.Tensor) -> tf.Tensor:
    return tf.io.parse_example(records, FEATURES)


def records() -> tf.data.Dataset:
    return tf.data.TFRecordDataset(sorted(map(str, (DATA / "clicks").glob("*.tfrecord")))).repeat()


def make_dataset() -> tf.data.Dataset:
    return records().map(parse).batch(256).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    return records().batch(256).map(parse_batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
