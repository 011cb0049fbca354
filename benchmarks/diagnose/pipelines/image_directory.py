"""Keras decodes the directory anew in each epoch; a random augmentation behind it runs on one core."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = {"map(<lambda>)", "map(augment)"}  # the former is Keras' decoding: more CPU time, but on all cores
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def augment(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.image.random_hue(image / 255.0, 0.1)
    image = tf.image.random_saturation(image, 0.7, 1.3)
    return tf.image.random_flip_left_right(image), label


def photos() -> tf.data.Dataset:
    return tf.keras.utils.image_dataset_from_directory(
        str(DATA / "images"), image_size=(128, 128), batch_size=None, seed=1, verbose=False
    )


def make_dataset() -> tf.data.Dataset:
    return photos().repeat().map(augment).batch(32).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    dataset = photos().cache().shuffle(320, seed=1).repeat().map(augment, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(32).prefetch(tf.data.AUTOTUNE)
