"""An interleave with a cycle of one reads compressed shards one after another."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "interleave(read)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def read(shard: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(shard, compression_type="GZIP").map(to_reading)


def to_reading(record: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.io.decode_raw(record, tf.uint8), [16_384])


def shards() -> tf.data.Dataset:
    return tf.data.Dataset.list_files(str(DATA / "readings" / "*.gz"), shuffle=False).repeat()


def make_dataset() -> tf.data.Dataset:
    return shards().interleave(read, cycle_length=1).batch(16).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    dataset = shards().interleave(read, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(16).prefetch(tf.data.AUTOTUNE)
