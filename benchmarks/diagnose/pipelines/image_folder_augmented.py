"""Images from a folder, decoded and augmented at random in one map, which tf.data does not parallelise by itself."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(load)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])

CLASSES = sorted(path.name for path in (DATA / "images").iterdir())


def load(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    image = tf.image.resize(image, [160, 160])
    image = tf.image.random_flip_left_right(image)
    image = tf.image.random_brightness(image, 32)
    image = tf.image.random_contrast(image, 0.8, 1.2)
    image = tf.image.random_saturation(image, 0.8, 1.2)
    label = tf.argmax(tf.equal(tf.strings.split(path, os.sep)[-2], CLASSES))
    return image / 255.0, label


def make_dataset() -> tf.data.Dataset:
    files = tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), seed=1)
    return files.repeat().map(load).batch(16).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    files = tf.data.Dataset.list_files(str(DATA / "images" / "*" / "*.jpg"), seed=1)
    files = files.repeat()
    return files.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)
