"""Compressed shards are read by flat_map, one after another."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "flat_map(read)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def read(shard: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(shard, compression_type="GZIP")


def shards() -> tf.data.Dataset:
    return tf.data.Dataset.list_files(str(DATA / "readings" / "*.gz"), shuffle=False).repeat()


def to_reading(record: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_raw(record, tf.uint8)


def make_dataset() -> tf.data.Dataset:
    return shards().flat_map(read).batch(16).map(to_reading).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    dataset = shards().interleave(read, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(16).map(to_reading, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
