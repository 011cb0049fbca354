"""Functions that do not do what they should."""

import os
import sys
import threading
import time

import tensorflow as tf


def open_file(path):
    raise FileNotFoundError(f"no such file: {path}")


def raises():
    try:
        open_file("a\nb.csv")
    except FileNotFoundError as error:
        raise RuntimeError("cannot make the dataset") from error


def traced_wrongly():
    return tf.data.Dataset.range(3).map(lambda x: x + "text")


def exits():
    sys.exit("not today")


def interrupted():
    raise KeyboardInterrupt


def asks():
    input("which folder? ")


def wants(size):
    return tf.data.Dataset.range(size)


def wants_two(folder, size):
    return tf.data.Dataset.range(size)


def takes_none():
    return tf.data.Dataset.range(1)


def forks():
    child = os.fork()
    if child == 0:
        raise ValueError("in the child of the fork")
    os.waitpid(child, 0)
    return tf.data.Dataset.range(2)


def leaves_a_thread():
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    print("chatter")
    return tf.data.Dataset.range(2)


number = 5
