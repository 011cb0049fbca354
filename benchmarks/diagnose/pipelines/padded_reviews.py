"""Documents of eight reviews, with words dropped at random, are encoded one after another and padded to batches."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(encode)"
ALLOW_REORDERING = True

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


def encode(reviews: tf.Tensor) -> tuple[tf.Tensor, ...]:
    document = tf.strings.reduce_join(tf.strings.lower(reviews), separator=" ")
    document = tf.strings.regex_replace(document, "[^a-z ]", "")
    words = tf.strings.split(tf.strings.regex_replace(document, "(ing|ed|es|s)( |$)", " "))
    words = tf.boolean_mask(words, tf.random.uniform(tf.shape(words)) > 0.1)
    pairs = tf.strings.to_hash_bucket_fast(tf.strings.ngrams(words, 2), 50_000)
    return TABLE.lookup(words), pairs, tf.strings.to_number(tf.strings.substr(reviews[0], 0, 1), tf.int32)


def documents() -> tf.data.Dataset:
    return tf.data.TextLineDataset(str(DATA / "reviews.txt")).batch(8).shuffle(750, seed=1).repeat()


def make_dataset() -> tf.data.Dataset:
    return documents().map(encode).padded_batch(32, drop_remainder=True)


def expert() -> tf.data.Dataset:
    dataset = documents().map(encode, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.padded_batch(32, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
