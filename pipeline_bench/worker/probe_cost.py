"""What the probe of the input wait and the proof of equal work cost: steps with and without, by turns, in one process.

Both kinds of step dequeue from the same queue and train the same variables; one more, again without the probe, shows
the measurement's own error. A sampled step fetches its samples' numbers or the moments of its features beside the
rest; a trial samples as many steps as keep that below 1 % of its time (`worker.sample_audit`).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from pipeline_bench import graph_ops
from pipeline_bench.loops import in_one_tensor
from pipeline_bench.sources import Batch
from pipeline_bench.sources.memory import Memory
from pipeline_bench.sources.synthetic import Synthetic
from pipeline_bench.worker import sample_audit

BARE, PROBED = "bare", "with the probe"
_BATCH_SIZE, _BLOCK_STEPS, _WARMUP_STEPS = 128, 20, 60


def blocks(width: int, rounds: int) -> dict[str, list[float]]:
    """Return the mean µs a step of each block, by kind of step.

    Args:
        width: features of a sample, and units of the network.
        rounds: blocks of each kind.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    queue, runner = _queue(width)
    steps = _steps(queue, width)
    growing = v1.ConfigProto(gpu_options=v1.GPUOptions(allow_growth=True))  # others may use the GPU
    with v1.Session(config=growing) as session:
        session.run(v1.global_variables_initializer())
        runner.create_threads(session, start=True)
        found = _measured(session, steps, rounds)
        session.run(queue.close(cancel_pending_enqueues=True))
    return found


def _queue(width: int) -> tuple[Any, Any]:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.device("/cpu:0"):
        data = tf.random.normal([_BATCH_SIZE, width], seed=1)
        numbers = tf.range(_BATCH_SIZE, dtype=tf.int64)
        queue = v1.FIFOQueue(5, [tf.float32, tf.int64], [[_BATCH_SIZE, width], [_BATCH_SIZE]])
        return queue, v1.train.QueueRunner(queue, [queue.enqueue([data, numbers])])


def _steps(queue: Any, width: int) -> dict[str, list[Any]]:
    """Return what each kind of step fetches."""
    import tensorflow as tf

    v1 = tf.compat.v1
    optimizer = v1.train.AdamOptimizer(1e-2)

    def model(features: Any) -> tuple[Any, Any]:
        labels = tf.cast(tf.reduce_sum(features, axis=1, keepdims=True) > 0, tf.float32)
        normal = v1.random_normal_initializer(stddev=0.1)
        with v1.variable_scope("model", reuse=v1.AUTO_REUSE):
            first, second = v1.get_variable("w1", [width, width], initializer=normal), v1.get_variable("w2", [width, 1])
        logits = tf.matmul(tf.nn.relu(tf.matmul(features, first) + 0.1), second) + 0.1
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        return optimizer.minimize(loss), loss

    def dequeue() -> Any:
        with tf.device("/cpu:0"):
            return queue.dequeue()

    probed, wait_s = graph_ops.timed(dequeue)
    train, loss = model(probed[0])
    numbers = sample_audit.digest(Memory(), Batch(probed[0], None, probed[1]))
    moments = sample_audit.digest(Synthetic(), Batch(probed[0], None))
    return {
        BARE: list(model(dequeue()[0])),
        PROBED: [train, in_one_tensor(loss, wait_s)],
        "numbers shown": [train, in_one_tensor(loss, wait_s, numbers)],
        "moments shown": [train, in_one_tensor(loss, wait_s, moments)],
        "bare again": list(model(dequeue()[0])),
    }


def _measured(session: Any, steps: dict[str, list[Any]], rounds: int) -> dict[str, list[float]]:
    """Return the mean µs a step of each block, without the two slowest steps of a block."""
    for fetches in steps.values():
        for _ in range(_WARMUP_STEPS):
            session.run(fetches)
    blocks: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds):
        for name in list(steps) if turn % 2 else list(steps)[::-1]:
            stamps = [time.perf_counter_ns()]
            for _ in range(_BLOCK_STEPS):
                session.run(steps[name])
                stamps.append(time.perf_counter_ns())
            blocks[name].append(float(np.sort(np.diff(stamps))[:-2].mean()) / 1e3)
    return blocks
