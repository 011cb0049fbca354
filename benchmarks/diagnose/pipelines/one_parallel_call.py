"""The map was given one parallel call."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(decode)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def decode(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, [150, 150], "area"), tf.strings.split(path, os.sep)[-2]


def files() -> tf.data.Dataset:
    return tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), shuffle=False).repeat()


def make_dataset() -> tf.data.Dataset:
    return files().map(decode, num_parallel_calls=1).batch(32)


def expert() -> tf.data.Dataset:
    return files().map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)
