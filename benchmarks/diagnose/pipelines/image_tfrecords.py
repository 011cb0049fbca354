"""A sharded TFRecord set of JPEGs, parsed and cropped at random one record after another."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(parse_and_crop)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])

FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def parse_and_crop(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.io.decode_jpeg(example["image"], channels=3)
    image = tf.image.random_crop(image, [192, 192, 3])
    return tf.image.random_flip_left_right(image), example["label"]


def records() -> tf.data.Dataset:
    shards = tf.data.Dataset.list_files(str(DATA / "photos" / "*.tfrecord"), shuffle=False)
    return shards.interleave(tf.data.TFRecordDataset, cycle_length=4).shuffle(256, seed=1).repeat()


def make_dataset() -> tf.data.Dataset:
    return records().map(parse_and_crop).batch(32, drop_remainder=True).prefetch(2)


def expert() -> tf.data.Dataset:
    dataset = records().map(parse_and_crop, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(32, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
