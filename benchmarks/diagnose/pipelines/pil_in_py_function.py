"""A small set of images is decoded by Pillow in tf.py_function anew in every epoch, though it fits in memory."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

FAULT = "map(read)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def read(path: tf.Tensor) -> tf.Tensor:
    def pixels(name: tf.Tensor) -> tf.Tensor:
        with Image.open(name.numpy().decode()) as image:
            return tf.constant(np.asarray(image.convert("L").resize((96, 96))))

    image = tf.py_function(pixels, [path], tf.uint8)
    return tf.ensure_shape(image, [96, 96])


def make_dataset() -> tf.data.Dataset:
    return tf.data.Dataset.list_files(str(DATA / "scenes" / "*.jpg"), shuffle=False).map(read).shuffle(64).batch(32)


def expert() -> tf.data.Dataset:
    files = tf.data.Dataset.list_files(str(DATA / "scenes" / "*.jpg"), shuffle=False)
    dataset = files.map(read, num_parallel_calls=tf.data.AUTOTUNE).cache()
    return dataset.shuffle(64).batch(32).prefetch(tf.data.AUTOTUNE)
