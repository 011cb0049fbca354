"""A filter decodes every image to see whether it is dark, one after another."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "filter(usable)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def usable(path: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.reduce_mean(tf.cast(image, tf.float32)) > 100.0


def thumbnail(path: tf.Tensor) -> tf.Tensor:
    return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3, ratio=8), [24, 32])


def make_dataset() -> tf.data.Dataset:
    files = tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), shuffle=False)
    return files.repeat().filter(usable).map(thumbnail).batch(16)


def expert() -> tf.data.Dataset:
    files = tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), shuffle=False)
    files = files.filter(usable).cache().repeat()
    return files.map(thumbnail, num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)
