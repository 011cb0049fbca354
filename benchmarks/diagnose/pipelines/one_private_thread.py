"""A private thread pool of one thread, copied from an example, runs a map that asks for parallel calls."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(decode)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def decode(path: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, [200, 200], "bicubic")


def images() -> tf.data.Dataset:
    files = tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), shuffle=False).repeat()
    return files.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)


def make_dataset() -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return images().with_options(options)


def expert() -> tf.data.Dataset:
    return images()
