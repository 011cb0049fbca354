"""The exercise of the lesson what_utilization_says: one core kept busy, with something and with nothing."""

from __future__ import annotations

import time
from typing import Any

_BUSY_S = 1.0
_MATRIX_SIDE = 256


def two_busy_cores() -> dict[str, Any]:
    """Keep one core busy twice: with matrix products, and with nothing at all."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    with tf.device("/cpu:0"):
        matrix = tf.ones([_MATRIX_SIDE, _MATRIX_SIDE])
        tf.matmul(matrix, matrix).numpy()  # the first one sets things up
        useful = busy(lambda: tf.matmul(matrix, matrix).numpy())
    return {"useful": useful, "useless": busy(lambda: None)}


def busy(work: Any) -> dict[str, Any]:
    """Do something again and again for a second."""
    wall_s, cpu_s, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - wall_s < _BUSY_S:
        work()
        done += 1
    took_s = time.perf_counter() - wall_s
    core_percent = 100 * (time.process_time() - cpu_s) / took_s
    return {"core_percent": core_percent, "done": done}
