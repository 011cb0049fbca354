"""Pillow opens and resizes the images in tf.numpy_function, one call after another."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

FAULT = "map(decode)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def open_image(path: bytes) -> np.ndarray:
    with Image.open(path.decode()) as image:
        return np.asarray(image.convert("RGB").resize((224, 224), Image.Resampling.LANCZOS))


def decode(path: tf.Tensor) -> tf.Tensor:
    image = tf.numpy_function(open_image, [path], tf.uint8)
    image.set_shape([224, 224, 3])
    return tf.cast(image, tf.float32) / 127.5 - 1.0


def make_dataset() -> tf.data.Dataset:
    paths = sorted(map(str, (DATA / "images").glob("*/*.jpg")))
    return tf.data.Dataset.from_tensor_slices(paths).shuffle(400, seed=1).repeat().map(decode).batch(16).prefetch(1)


def expert() -> tf.data.Dataset:
    paths = sorted(map(str, (DATA / "images").glob("*/*.jpg")))
    dataset = tf.data.Dataset.from_tensor_slices(paths).shuffle(400, seed=1).repeat()
    return dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)
