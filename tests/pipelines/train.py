"""A training script with several ways to make a dataset, as people write them."""

import functools
import os

import tensorflow as tf
from neighbour import SCALE


def decode(x, *, scale=1):
    y = tf.cast(x, tf.float32) * scale
    if y > 4.0:  # becomes a tf.cond
        y = y + 0.5
    return y, x


def jitter(y, x):
    return y + tf.random.uniform([]), x


def through_python(y, x):
    return tf.py_function(lambda value: value * 2, [y], tf.float32), x


def named(y, x):
    return {"image": y, "label": x}


class Shift:
    def __call__(self, element):
        return {**element, "image": element["image"] + 1}

    def back(self, element):
        return {**element, "image": element["image"] - 1}


def augment(dataset):
    return dataset.map(named).map(Shift())


def make_dataset():
    dataset = tf.data.Dataset.range(20)
    dataset = dataset.shuffle(5, seed=3)
    dataset = dataset.map(functools.partial(decode, scale=SCALE), num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(jitter).map(through_python)
    dataset = dataset.apply(augment).map(Shift().back)
    return (
        dataset.apply(tf.data.experimental.assert_cardinality(20))
        .batch(8, drop_remainder=True)
        .repeat()
        .prefetch(tf.data.AUTOTUNE)
    )


def make_batches(size):
    return tf.data.Dataset.range(20).map(lambda x: x + 1).batch(size)


def make_sources():
    ones = tf.data.Dataset.from_tensor_slices([1, 1, 1])
    twos = tf.data.Dataset.from_tensors(2).repeat(3)
    joined = tf.data.Dataset.sample_from_datasets([ones.concatenate(twos), twos], seed=1)
    return tf.data.Dataset.zip((joined, {"count": tf.data.Dataset.counter()}))


def make_interleave(folder):
    def opened(name):
        lines = tf.data.TextLineDataset(name).skip(1)
        return lines.map(tf.strings.length)

    files = tf.data.Dataset.list_files(os.path.join(folder, "*.txt"), shuffle=False)
    return files.interleave(opened, cycle_length=2, num_parallel_calls=2)


def make_options():
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = 4
    return tf.data.Dataset.range(3).with_options(options)


def make_long():
    dataset = tf.data.Dataset.range(4)
    for step in range(30):
        dataset = dataset.map(lambda x, step=step: x + step)
    return dataset


def make_pair():
    return tf.data.Dataset.range(3).batch(3), tf.data.Dataset.range(1)


def make_distributed():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    return strategy.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(4))


def make_distributed_by_function():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    return strategy.distribute_datasets_from_function(lambda context: tf.data.Dataset.range(8).batch(2))


def make_nothing():
    tf.data.Dataset.range(3)


def make_iterator():
    return iter(tf.data.Dataset.range(3))


def make_array():
    import numpy as np

    return np.zeros(3)


READY = tf.data.Dataset.range(7).batch(7)

if __name__ == "__main__":
    raise SystemExit("the main guard does not hold")
