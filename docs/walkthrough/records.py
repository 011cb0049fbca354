"""Windows of a series from a store that answers after 4 ms; run by itself it starts a tf.data service of two workers.

TensorFlow's servers listen on every interface of the machine: start them where no other host reaches it.
"""

import signal
import sys
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

SERIES = np.sin(np.arange(100_000, dtype=np.float32) / 50)
LENGTH = 4_000


def window(number: Any) -> Any:
    """Return a window that begins at random."""
    start = tf.random.uniform([], 0, len(SERIES) - LENGTH, tf.int64)
    return tf.gather(SERIES, start + tf.range(LENGTH, dtype=tf.int64))


def scale(values: Any) -> Any:
    """Return values with mean 0 and spread 1."""
    return (values - values.mean()) / values.std()


def make_dataset() -> Any:
    """Return batches of scaled windows."""
    ds = tf.data.Dataset.range(2_000)
    ds = ds.map(window)
    ds = ds.apply(sleep(4000))  # the store
    ds = ds.map(lambda values: tf.numpy_function(scale, [values], tf.float32))
    return ds.batch(16)


if __name__ == "__main__":
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    workers = [service.WorkerServer(service.WorkerConfig(dispatcher_address=address)) for _ in range(2)]
    sys.stderr.write(f"{dispatcher.target}\nOther machines can reach it, without a password, as long as this runs.\n")
    signal.pause()
