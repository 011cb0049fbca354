"""String ops clean and hash one query at a time; they take a batch as well."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(features)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def features(query: tf.Tensor) -> dict[str, tf.Tensor]:
    query = tf.strings.strip(tf.strings.lower(query))
    return {
        "word": tf.strings.to_hash_bucket_fast(query, 10_000),
        "start": tf.strings.to_hash_bucket_fast(tf.strings.substr(query, 0, 3), 1000),
        "length": tf.strings.length(query),
    }


def make_dataset() -> tf.data.Dataset:
    queries = tf.data.TextLineDataset(str(DATA / "queries.txt"))
    return queries.shuffle(1000, seed=1).repeat().map(features).batch(512, drop_remainder=True)


def expert() -> tf.data.Dataset:
    queries = tf.data.TextLineDataset(str(DATA / "queries.txt"))
    dataset = queries.shuffle(1000, seed=1).repeat().batch(512, drop_remainder=True)
    return dataset.map(features, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
