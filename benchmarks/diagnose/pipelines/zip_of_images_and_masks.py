"""Images and masks are zipped; the images come from Pillow, one call after another."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

FAULT = "map(read_image)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])

NAMES = sorted(path.stem for path in (DATA / "scenes").glob("*.jpg"))


def pixels(name: bytes) -> np.ndarray:
    with Image.open(DATA / "scenes" / f"{name.decode()}.jpg") as image:
        return np.asarray(image.resize((256, 192), Image.Resampling.LANCZOS))


def read_image(name: tf.Tensor) -> tf.Tensor:
    image = tf.ensure_shape(tf.numpy_function(pixels, [name], tf.uint8), [192, 256, 3])
    return tf.image.convert_image_dtype(image, tf.float32)


def read_mask(name: tf.Tensor) -> tf.Tensor:
    file = tf.io.read_file(tf.strings.join([str(DATA / "masks") + os.sep, name, ".png"]))
    return tf.image.resize(tf.io.decode_png(file, 1), [192, 256], "nearest")


def make_dataset() -> tf.data.Dataset:
    names = tf.data.Dataset.from_tensor_slices(NAMES).repeat()
    return tf.data.Dataset.zip((names.map(read_image), names.map(read_mask))).batch(8).prefetch(2)


def expert() -> tf.data.Dataset:
    names = tf.data.Dataset.from_tensor_slices(NAMES).repeat()
    images = names.map(read_image, num_parallel_calls=tf.data.AUTOTUNE)
    masks = names.map(read_mask, num_parallel_calls=tf.data.AUTOTUNE)
    return tf.data.Dataset.zip((images, masks)).batch(8).prefetch(tf.data.AUTOTUNE)
