"""Functions that turn against the process that runs them, and pipelines that cannot be measured."""

import ctypes
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf

SECONDS = os.environ["HOSTILE_SECONDS"]
"""How long what is left running would last, by which it is known again."""


def numbers():
    return tf.data.Dataset.range(100).map(_unhurried).batch(10)


def _unhurried(number):
    return tf.ensure_shape(tf.py_function(_nap, [number], tf.int64), [])


def _nap(number):
    """What is measured for seconds is not to hold a core for as long."""
    time.sleep(0.001)
    return number


def exits_with_3():
    sys.exit(3)


def exits_at_once():
    os._exit(0)


def aborts():
    os.abort()


def goes_on_in_a_fork():
    if os.fork():
        os._exit(0)
    return numbers()


def hangs_in_a_fork_and_removes_its_temporary_folder():
    if os.fork() == 0:
        time.sleep(600)
    for number in os.listdir("/proc/self/fd"):
        path = os.path.realpath(f"/proc/self/fd/{number}")
        if "pipeline-bench-scratch" in path:
            shutil.rmtree(path)
    return numbers()


def leaves_a_tree_of_processes():
    subprocess.Popen(["bash", "-c", "setsid bash -c 'setsid sleep $0 & sleep $0' $0 & sleep $0", SECONDS])
    time.sleep(0.3)
    os._exit(0)


def closes_every_file():
    os.closerange(3, 1024)
    return numbers()


def floods():
    subprocess.Popen(["yes", SECONDS])
    return numbers()


def sleeps():
    time.sleep(600)


def holds_the_lock():
    ctypes.PyDLL(None).sleep(600)


def nothing():
    numbers()


def an_array():
    return np.zeros(3)


def an_iterator():
    return iter(numbers())


class _SilentError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raises_what_has_no_text():
    raise _SilentError


def of_a_graph():
    with tf.Graph().as_default():
        return tf.data.Dataset.range(tf.random.uniform([], 9, 10, tf.int64)).batch(3)


def _broken(number):
    if int(number) == 20:
        raise ValueError("sample 20 has no label")
    return number


def raises_later():
    return tf.data.Dataset.range(50).map(lambda number: tf.py_function(_broken, [number], tf.int64))


def raises_what_steers():
    raise ValueError("a lone \udcff\ud800 surrogate, \x1b]0;a title\x07 and \x9b2J")


def raises_megabytes():
    raise ValueError("x" * 8_000_000)


def _breaks_with(text):
    def broken(number):
        raise ValueError(text)

    return tf.data.Dataset.range(50).map(lambda number: tf.py_function(broken, [number], tf.int64))


def raises_what_steers_later():
    return _breaks_with("\x1b]0;a title\x07a bell\x07 and \x9b2J")  # a lone surrogate here crashes TensorFlow


def raises_megabytes_later():
    return _breaks_with("x" * 8_000_000)


def _stuck(number):
    time.sleep(600 if int(number) == 5 else 0)
    return number


def hangs_later():
    return tf.data.Dataset.range(50).map(lambda number: tf.py_function(_stuck, [number], tf.int64))


def used_up():
    state = {"given": 0}

    def samples():
        while state["given"] < 300:
            state["given"] += 1
            yield state["given"]

    return tf.data.Dataset.from_generator(samples, output_signature=tf.TensorSpec((), tf.int32)).batch(3)


def long_vectors():
    return (
        tf.data.Dataset.range(20).map(_unhurried).map(lambda number: tf.zeros(5_000_000) + tf.cast(number, tf.float32))
    )


def cached_in_a_file():
    return tf.data.Dataset.range(100).map(_unhurried).cache(os.environ["HOSTILE_CACHE"]).batch(10)


def goes_elsewhere():
    os.chdir("/")
    os.environ.clear()
    sys.path.clear()
    return tf.data.Dataset.range(100).map(_unhurried).map(lambda _: (tf.zeros(4), tf.zeros(1))).batch(10)


def slow():
    return tf.data.Dataset.range(9999).map(lambda number: tf.py_function(_slowly, [number], tf.int64))


def _slowly(number):
    time.sleep(0.05)
    return number


def make_model():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    print("the model is made")
    return model
