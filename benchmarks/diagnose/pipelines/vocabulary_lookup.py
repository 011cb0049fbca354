"""Words are looked up in a vocabulary one by one, and batched afterwards."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(to_id)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])

TABLE = tf.lookup.StaticVocabularyTable(
    tf.lookup.TextFileInitializer(
        str(DATA / "vocabulary.txt"),
        tf.string,
        tf.lookup.TextFileIndex.WHOLE_LINE,
        tf.int64,
        tf.lookup.TextFileIndex.LINE_NUMBER,
    ),
    num_oov_buckets=10,
)


def to_id(word: tf.Tensor) -> tf.Tensor:
    word = tf.strings.lower(word)
    return TABLE.lookup(tf.strings.regex_replace(word, "[^a-z]", ""))


def make_dataset() -> tf.data.Dataset:
    return tf.data.TextLineDataset(str(DATA / "queries.txt")).map(to_id).batch(512).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    lines = tf.data.TextLineDataset(str(DATA / "queries.txt"))
    return lines.batch(512).map(to_id, num_parallel_calls=tf.data.AUTOTUNE).cache().prefetch(tf.data.AUTOTUNE)
