"""A QueueRunner fills a small queue, six samples at a time; how often it does so for ten dequeues is counted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pipeline_bench.graph_ops import call_counter, shared_variable

CAPACITY = 3
SAMPLES = 6
DEQUEUES = 10
RERUNS = 12
_SETTLED_S = 0.2
"""How long the count of evaluations must stand still before the runner is taken to be waiting."""
_LOOK_EVERY_S = 0.01
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Built:
    """The ops of the exercise's graph, and the runner of its queue."""

    runner: Any
    sample: Any
    evaluations: Any
    size: Any
    close: Any


def build(threads: int) -> Built:
    """Return the data op, the queue, and the threads that fill it."""
    import tensorflow as tf

    v1 = tf.compat.v1
    calls = call_counter("evaluations")  # 0, 1, 2 … at its runs
    data = calls * SAMPLES + tf.range(SAMPLES, dtype=tf.int64)
    queue = v1.FIFOQueue(CAPACITY, dtypes=[tf.int64], shapes=[[]])
    enqueue = queue.enqueue_many([data])
    counter = shared_variable("evaluations", [], tf.int64)
    return Built(
        runner=v1.train.QueueRunner(queue, [enqueue] * threads),
        sample=queue.dequeue(),
        evaluations=counter.read_value(),
        size=queue.size(),
        close=queue.close(cancel_pending_enqueues=True),
    )


def dequeue_ten_times(threads: int = 1, more: int = 0) -> dict[str, Any]:
    """Dequeue ten elements, then `more`, in a fresh graph and session; return how often the data op was evaluated."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        built = build(threads)
        initialize = v1.global_variables_initializer()
        with v1.Session() as session:
            session.run(initialize)
            return counted(session, built, more)


def counted(session: Any, built: Built, more: int) -> dict[str, Any]:
    """Start the runner, dequeue ten times, and read the counter."""
    import tensorflow as tf

    def dequeue(times: int) -> list[int]:
        return [int(session.run(built.sample)) for _ in range(times)]

    coordinator = tf.compat.v1.train.Coordinator()
    threads = built.runner.create_threads(session, coordinator, start=True)
    samples = dequeue(DEQUEUES)
    at_once = int(session.run(built.evaluations))
    settled = standing_still(session, built)
    samples += dequeue(more)
    in_all = standing_still(session, built)
    coordinator.request_stop()
    session.run(built.close)
    coordinator.join(threads)
    return {
        "samples": samples,
        "at_once": at_once,
        "settled": settled,
        "in_all": in_all,
    }


def standing_still(session: Any, built: Built) -> int:
    """Return how often the data op was evaluated, once the queue is full and that count no longer changes."""
    began_s = since_s = time.monotonic()
    count = -1
    while (looked_s := time.monotonic()) - since_s < _SETTLED_S and looked_s - began_s < _PATIENCE_S:
        evaluations, size = session.run([built.evaluations, built.size])
        if evaluations != count or size < CAPACITY:
            count, since_s = int(evaluations), time.monotonic()
        time.sleep(_LOOK_EVERY_S)
    return count


def many_runs() -> dict[str, Any]:
    """Repeat the ten dequeues a dozen times, once with ten more from the same queue, and once with two threads."""
    runs = [dequeue_ten_times() for _ in range(RERUNS)]
    return {
        "first": runs[0],
        "at_once": [run["at_once"] for run in runs],
        "settled": [run["settled"] for run in runs],
        "rerun": dequeue_ten_times(more=DEQUEUES),
        "two_threads": dequeue_ten_times(threads=2),
    }
