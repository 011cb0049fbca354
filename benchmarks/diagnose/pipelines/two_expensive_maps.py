"""Two expensive random maps, one behind the other, share one thread."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = {"map(distort)", "map(jitter)"}
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def decode(path: tf.Tensor) -> tf.Tensor:
    return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3, ratio=2), [160, 160]) / 255.0


def distort(image: tf.Tensor) -> tf.Tensor:
    image = tf.image.random_crop(image, [128, 128, 3])
    return tf.image.resize(image, [192, 192], "bicubic")


def jitter(image: tf.Tensor) -> tf.Tensor:
    return tf.image.random_hue(tf.clip_by_value(image, 0.0, 1.0), 0.1)


def images() -> tf.data.Dataset:
    files = tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), shuffle=False)
    return files.map(decode, num_parallel_calls=tf.data.AUTOTUNE).cache().repeat()


def make_dataset() -> tf.data.Dataset:
    return images().map(distort).map(jitter).batch(16).prefetch(1)


def expert() -> tf.data.Dataset:
    dataset = images().map(distort, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.map(jitter, num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)
