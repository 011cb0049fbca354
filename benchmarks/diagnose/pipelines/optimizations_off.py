"""All default optimizations are off, and with them the parallel map and the prefetch."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(decode)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def decode(record: tf.Tensor) -> tf.Tensor:
    example = tf.io.parse_single_example(record, {"image": tf.io.FixedLenFeature([], tf.string)})
    return tf.image.resize(tf.io.decode_jpeg(example["image"], channels=3), [180, 180])


def records() -> tf.data.Dataset:
    return tf.data.TFRecordDataset(sorted(map(str, (DATA / "photos").glob("*.tfrecord")))).repeat()


def make_dataset() -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return records().map(decode).batch(16).with_options(options)


def expert() -> tf.data.Dataset:
    return records().map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)
