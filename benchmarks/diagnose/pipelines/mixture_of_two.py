"""Two datasets are mixed at random; the samples of one of them are rendered in Python."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

FAULT = "map(render)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def draw(key: np.int64) -> np.ndarray:
    number = int(key)
    canvas = Image.new("L", (640, 640))
    pen = ImageDraw.Draw(canvas)
    for ring in range(1, 6):
        pen.ellipse([number % 50, ring * 8, 640 - ring * 6, 640 - number % 70], outline=20 * ring, width=3)
    return np.asarray(canvas.rotate(number % 360, Image.Resampling.BICUBIC).resize((128, 128)), np.float32)


def render(number: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(draw, [number], tf.float32), [128, 128])


def blank(number: tf.Tensor) -> tf.Tensor:
    return tf.fill([128, 128], tf.cast(number, tf.float32))


def mixed(parallel_calls: int | None) -> tf.data.Dataset:
    numbers = tf.data.Dataset.range(500).repeat()
    drawn = numbers.map(render, num_parallel_calls=parallel_calls)
    return tf.data.Dataset.sample_from_datasets([drawn, numbers.map(blank)], [0.7, 0.3], seed=1)


def make_dataset() -> tf.data.Dataset:
    return mixed(None).batch(32).prefetch(1)


def expert() -> tf.data.Dataset:
    return mixed(tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)
