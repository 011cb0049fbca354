"""Batches are taken apart into samples only to be batched anew."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = {"unbatch", "batch"}
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def arrays() -> tf.data.Dataset:
    with np.load(DATA / "arrays.npz") as file:
        chunks = file["features"].reshape(-1, 320, 64), file["labels"].reshape(-1, 320)
    return tf.data.Dataset.from_tensor_slices(chunks).repeat()


def scale(features: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.clip_by_value(features, -2.0, 2.0), tf.one_hot(labels, 10)


def make_dataset() -> tf.data.Dataset:
    return arrays().map(scale).unbatch().batch(320).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    return arrays().map(scale, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
