"""Images that fit in memory are decoded anew in every epoch, in one function with the random flip and brightness."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(load)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def load(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    label = tf.strings.to_hash_bucket_fast(tf.strings.split(path, os.sep)[-2], 10)
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    image = tf.cast(tf.image.resize(image, [96, 96], "area"), tf.uint8)
    image = tf.image.random_flip_left_right(image)
    return tf.image.random_brightness(image, 0.2), label


def files() -> tf.data.Dataset:
    return tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), shuffle=False)


def make_dataset() -> tf.data.Dataset:
    return files().shuffle(64).map(load).batch(32).prefetch(tf.data.AUTOTUNE)


def decode(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    label = tf.strings.to_hash_bucket_fast(tf.strings.split(path, os.sep)[-2], 10)
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.cast(tf.image.resize(image, [96, 96], "area"), tf.uint8), label


def augment(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.image.random_flip_left_right(image)
    return tf.image.random_brightness(image, 0.2), label


def expert() -> tf.data.Dataset:
    dataset = files().map(decode, num_parallel_calls=tf.data.AUTOTUNE).cache().shuffle(64)
    return dataset.map(augment, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)
