"""Bare steps of the emulated device, timed without the program: what a step costs that has no input at all.

The truth is that of a machine left alone, and what the hypervisor takes from a few steps has no part in it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline_bench import graph_ops

FIRST_STEPS = 20
STEPS = 80
_BLOCK_STEPS = 20


def ceilings(device_ms: Sequence[float], steps: int = STEPS) -> dict[str, Any]:
    """Return ``{"ceiling_ms": [...]}``: the ms of a `session.run` on a resident batch, for each device.

    It is the median of the best block of steps: other work only makes one longer.

    Args:
        device_ms: how long each device is busy with a step.
        steps: how many are timed after the first ones.
    """
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    return {"ceiling_ms": [_ceiling_ms(each, steps) for each in device_ms]}


def _ceiling_ms(device_ms: float, steps: int) -> float:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        resident = v1.get_variable("resident", initializer=tf.zeros([16, 8]), trainable=False)
        with tf.control_dependencies([resident.read_value()]):
            took_s = graph_ops.steady_delay(device_ms * 1000, "bare_overshoot")
        session.run(v1.global_variables_initializer())
        ended_s = []
        for _ in range(FIRST_STEPS + steps):
            session.run([took_s.op, took_s])
            ended_s.append(time.perf_counter())
    steps_s = np.diff(ended_s[FIRST_STEPS:])
    return (
        min(float(np.median(block)) for block in np.array_split(steps_s, max(1, len(steps_s) // _BLOCK_STEPS))) * 1000
    )
