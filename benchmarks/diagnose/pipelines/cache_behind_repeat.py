"""The cache stands behind an endless repeat, so that it is never read."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(spectrum)"
ALLOW_REORDERING = False

DATA = Path(os.environ["DIAGNOSE_DATA"])


def spectrum(path: tf.Tensor) -> tf.Tensor:
    sound, _ = tf.audio.decode_wav(tf.io.read_file(path), desired_channels=1, desired_samples=16_000)
    return tf.abs(tf.signal.stft(sound[:, 0], 512, 256))


def files() -> tf.data.Dataset:
    return tf.data.Dataset.list_files(str(DATA / "audio" / "*.wav"), shuffle=False)


def make_dataset() -> tf.data.Dataset:
    dataset = files().map(spectrum, num_parallel_calls=tf.data.AUTOTUNE).repeat().cache()
    return dataset.batch(25).prefetch(tf.data.AUTOTUNE)


def expert() -> tf.data.Dataset:
    dataset = files().map(spectrum, num_parallel_calls=tf.data.AUTOTUNE).cache().repeat()
    return dataset.batch(25).prefetch(tf.data.AUTOTUNE)
