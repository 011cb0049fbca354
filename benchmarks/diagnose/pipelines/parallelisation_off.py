"""An option that was set while debugging keeps tf.data from running the map in parallel."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(decode)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def decode(path: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, [224, 224], "bicubic")


def files() -> tf.data.Dataset:
    return tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), shuffle=False).repeat()


def make_dataset() -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False
    return files().map(decode).batch(16).with_options(options)


def expert() -> tf.data.Dataset:
    return files().map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)
