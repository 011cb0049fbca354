"""Gzipped logs are interleaved without parallel calls, and parsed line by line."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "interleave(lines)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def lines(log: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TextLineDataset(log, compression_type="GZIP").map(parse)


def parse(line: tf.Tensor) -> tf.Tensor:
    numbers = tf.strings.to_number(tf.strings.split(line), tf.int32)
    return tf.ensure_shape(numbers, [200])


def logs() -> tf.data.Dataset:
    return tf.data.Dataset.list_files(str(DATA / "logs" / "*.gz"), shuffle=False).repeat()


def make_dataset() -> tf.data.Dataset:
    return logs().interleave(lines, cycle_length=8, block_length=16).batch(64)


def expert() -> tf.data.Dataset:
    dataset = logs().interleave(lines, cycle_length=8, block_length=16, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(64).prefetch(tf.data.AUTOTUNE)
