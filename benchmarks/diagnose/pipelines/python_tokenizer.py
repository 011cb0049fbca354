"""A tokenizer written in Python stands before bucketing by length; TensorFlow has ops for all that it does."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

FAULT = "map(encode)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])

WORDS = (DATA / "vocabulary.txt").read_text().split()
IDS = {word: number + 1 for number, word in enumerate(WORDS)}
TABLE = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(WORDS, tf.range(1, len(WORDS) + 1, dtype=tf.int64)), default_value=0
)


def tokens(line: bytes) -> tuple[np.ndarray, np.int64]:
    label, review = line.decode().split("\t")
    words = review.lower().replace("!", "").split()
    return np.array([IDS.get(word, 0) for word in words]), np.int64(label)


def encode(line: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    ids, label = tf.numpy_function(tokens, [line], (tf.int64, tf.int64))
    return tf.ensure_shape(ids, [None]), tf.ensure_shape(label, [])


def encode_in_graph(line: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    parts = tf.strings.split(line, "\t")
    words = tf.strings.split(tf.strings.regex_replace(tf.strings.lower(parts[1]), "!", ""))
    return TABLE.lookup(words), tf.strings.to_number(parts[0], tf.int64)


def length(ids: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
    return tf.shape(ids)[0]


def make_dataset() -> tf.data.Dataset:
    lines = tf.data.TextLineDataset(str(DATA / "reviews.txt"))
    return lines.map(encode).bucket_by_sequence_length(length, [20, 40], [64, 64, 64]).prefetch(1)


def expert() -> tf.data.Dataset:
    lines = tf.data.TextLineDataset(str(DATA / "reviews.txt"))
    dataset = lines.map(encode_in_graph, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.bucket_by_sequence_length(length, [20, 40], [64, 64, 64]).cache().prefetch(tf.data.AUTOTUNE)
