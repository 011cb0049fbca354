"""Spectrograms of sounds that are shifted at random, computed one after another."""

import os
from pathlib import Path

import tensorflow as tf

FAULT = "map(spectrogram)"
ALLOW_REORDERING = True

DATA = Path(os.environ["DIAGNOSE_DATA"])


def spectrogram(path: tf.Tensor) -> tf.Tensor:
    sound, _ = tf.audio.decode_wav(tf.io.read_file(path), desired_channels=1, desired_samples=16_000)
    shift = tf.random.uniform([], -1600, 1600, tf.int32)
    sound = tf.roll(tf.squeeze(sound, -1), shift, 0)
    stft = tf.signal.stft(sound, frame_length=400, frame_step=100, fft_length=512)
    mel = tf.signal.linear_to_mel_weight_matrix(64, 257, 16_000)
    return tf.math.log(tf.matmul(tf.abs(stft), mel) + 1e-6)


def make_dataset() -> tf.data.Dataset:
    files = tf.data.Dataset.list_files(str(DATA / "audio" / "*.wav"), shuffle=False)
    return files.shuffle(200, seed=1).repeat().map(spectrogram).batch(16).prefetch(1)


def expert() -> tf.data.Dataset:
    files = tf.data.Dataset.list_files(str(DATA / "audio" / "*.wav"), shuffle=False)
    dataset = files.shuffle(200, seed=1).repeat().map(spectrogram, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(16).prefetch(tf.data.AUTOTUNE)
