"""Images that fit in memory are decoded anew in every epoch, before a cheap random flip."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(decode)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def decode(path: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.cast(tf.image.resize(image, [96, 96], "area"), tf.uint8)


def flip(image: tf.Tensor) -> tf.Tensor:
    return tf.image.random_flip_left_right(image)


def files() -> tf.data.Dataset:
    return tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), shuffle=False)


def make_dataset() -> tf.data.Dataset:
    return files().map(decode).map(flip).batch(32).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    dataset = files().map(decode, num_parallel_calls=tf.data.AUTOTUNE).cache()
    return dataset.map(flip, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)
