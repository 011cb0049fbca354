"""Samples of several inputs in a dict are normalised one by one, though every op takes a batch."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = "map(to_inputs)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def to_inputs(sample: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    age = tf.clip_by_value(sample["age"], 18.0, 90.0) / 90.0
    profile = tf.clip_by_value(sample["profile"] * 0.5, -1.0, 1.0)
    town = tf.strings.to_hash_bucket_fast(tf.strings.lower(sample["town"]), 100)
    return {"age": age, "profile": profile, "town": town}, tf.cast(sample["bought"] > 4, tf.float32)


def samples() -> tf.data.Dataset:
    with np.load(DATA / "arrays.npz") as arrays:
        features, labels = arrays["features"], arrays["labels"]
    columns = {
        "age": np.abs(features[:, 0] * 50),
        "profile": features,
        "town": np.array([f"Town {label}" for label in labels]),
        "bought": labels,
    }
    return tf.data.Dataset.from_tensor_slices(columns).shuffle(5000, seed=1).repeat()


def make_dataset() -> tf.data.Dataset:
    return samples().map(to_inputs).batch(256).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    return samples().batch(256).map(to_inputs, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
