"""A queue of three elements, filled once: three dequeues succeed, and the fourth waits until somebody enqueues."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

CAPACITY = 3
ATTEMPTS = 4
PATIENCE_MS = 2000
LOOK_AFTER_S = 1.0


@dataclass(frozen=True)
class Built:
    """The ops of the exercise's graph."""

    fill: Any
    one_more: Any
    sample: Any


def build() -> Built:
    """Return a queue with room for three, and the ops that use it."""
    import tensorflow as tf

    v1 = tf.compat.v1
    queue = v1.FIFOQueue(CAPACITY, dtypes=[tf.float32], shapes=[[]])
    three_samples = tf.random.normal([CAPACITY])
    return Built(
        fill=queue.enqueue_many([three_samples]),
        one_more=queue.enqueue([tf.constant(7.0)]),
        sample=queue.dequeue(),
    )


def fill_once_and_dequeue() -> dict[str, Any]:
    """Fill the queue once, and dequeue four times."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.device("/cpu:0"):
        built = build()
        with tf.compat.v1.Session() as session:
            session.run(built.fill)
            outcomes = [dequeue(session, built) for _ in range(ATTEMPTS)]
            return {"outcomes": outcomes, **rescued(session, built)}


def dequeue(session: Any, built: Built) -> str:
    """TensorFlow would wait for ever; we give it two seconds."""
    import tensorflow as tf

    patience = tf.compat.v1.RunOptions(timeout_in_ms=PATIENCE_MS)
    try:
        session.run(built.sample, options=patience)
    except tf.errors.DeadlineExceededError:
        return "blocked"
    return "succeeded"


def rescued(session: Any, built: Built) -> dict[str, Any]:
    """Let a dequeue wait, and enqueue a sample meanwhile."""
    got: list[float] = []

    def wait_for_a_sample() -> None:
        got.append(float(session.run(built.sample)))

    waiting = threading.Thread(target=wait_for_a_sample, daemon=True)
    waiting.start()
    waiting.join(LOOK_AFTER_S)
    waited = waiting.is_alive()
    session.run(built.one_more)
    waiting.join()
    return {"waited": waited, "got": got[0]}
