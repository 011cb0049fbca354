"""A bare step of the emulated device, timed without the program: what a step costs that has no input at all.

``python -m benchmarks.accuracy.bare DEVICE_MS`` prints the median ms of `session.run` on a resident batch: the truth is
that of a machine left alone, and what the hypervisor takes from a few steps has no part in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np

FIRST_STEPS = 20
STEPS = 80


def ceiling_ms(device_ms: float) -> float:
    """Run this module in a process of its own and return what it prints."""
    command = [sys.executable, "-m", "benchmarks.accuracy.bare", str(device_ms)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    return float(done.stdout)


def main() -> None:
    import tensorflow as tf

    from pipeline_bench import graph_ops

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    resident = v1.get_variable("resident", initializer=tf.zeros([16, 8]), trainable=False)
    with tf.control_dependencies([resident.read_value()]):
        took_s = graph_ops.steady_delay(float(sys.argv[1]) * 1000, "bare_overshoot")
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        ended_s = []
        for _ in range(FIRST_STEPS + STEPS):
            session.run([took_s.op, took_s])
            ended_s.append(time.perf_counter())
        print(float(np.median(np.diff(ended_s[FIRST_STEPS:]))) * 1000)


if __name__ == "__main__":
    main()
