"""The cache stands before the decoding, so that only the names of the files are kept."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(decode)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def decode(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    label = tf.strings.split(path, os.sep)[-2]
    return tf.image.resize(image, [64, 64], "area"), label


def files() -> tf.data.Dataset:
    return tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), shuffle=False)


def make_dataset() -> tf.data.Dataset:
    return files().cache().map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    dataset = files().map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(32).cache().prefetch(tf.data.AUTOTUNE)
