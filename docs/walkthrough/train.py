"""Train a small network to tell circles, squares and triangles apart: ``python docs/walkthrough/train.py``.

The pictures are drawn at the first run, into the folder for temporary files. The input pipeline has a plain fault, for
docs/diagnose.md to find: ``pipeline-bench diagnose docs/walkthrough/train.py:make_dataset``.
"""

import random
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle")
PICTURES = 600
SIZE = 96
DATA = Path(tempfile.gettempdir()) / "pipeline-bench-walkthrough"


def draw(shape: str, rng: random.Random) -> Image.Image:
    """A picture of 480 by 360 with one shape on it, somewhere."""
    image = Image.effect_noise((480, 360), 60).convert("RGB")
    pen = ImageDraw.Draw(image)
    x, y, r = rng.randint(100, 380), rng.randint(100, 260), rng.randint(40, 90)
    colour = (rng.randint(150, 255), rng.randint(0, 80), rng.randint(0, 80))
    if shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif shape == "square":
        pen.rectangle((x - r, y - r, x + r, y + r), fill=colour)
    else:
        pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=colour)
    return image


def pictures() -> list[str]:
    """The paths of the pictures, which are drawn where they are missing."""
    rng = random.Random(1)  # noqa: S311 - no secret
    paths = []
    for number in range(PICTURES):
        shape = SHAPES[number % len(SHAPES)]
        path = DATA / shape / f"{number:04}.jpg"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draw(shape, rng).save(path, quality=92)
        paths.append(str(path))
    return paths


def decode(path: bytes) -> np.ndarray:
    """The picture at a path, as float32[96, 96, 3] between 0 and 1."""
    with Image.open(path.decode()) as image:
        small = image.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
        return np.asarray(small, np.float32) / 255.0


def load(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A picture and the number of its shape."""
    image = tf.numpy_function(decode, [path], tf.float32)
    label = tf.argmax(tf.equal(tf.strings.split(path, "/")[-2], SHAPES))
    return tf.ensure_shape(image, [SIZE, SIZE, 3]), label


def flip(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The picture or its mirror image."""
    return tf.image.random_flip_left_right(image), label


def make_dataset(batch_size: int = 32) -> tf.data.Dataset:
    """Batches of pictures and labels: one epoch."""
    paths = tf.data.Dataset.from_tensor_slices(pictures()).shuffle(PICTURES, seed=1)
    return paths.map(load).map(flip).batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def make_model() -> keras.Model:
    """A small convolutional network, compiled."""
    model = keras.Sequential(
        [
            keras.layers.Input((SIZE, SIZE, 3)),
            keras.layers.Conv2D(16, 5, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(64, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(len(SHAPES)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss=loss, metrics=["accuracy"])
    return model


if __name__ == "__main__":
    make_model().fit(make_dataset(), epochs=5)
