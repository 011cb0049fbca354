"""How full an input's queues are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_bench.backends import Input
from pipeline_bench.model.events import QueueState

_ANSWER_MS = 1000


def states(session: Any, feeding: Input) -> Sequence[QueueState]:
    """Ask the input's queues; one that does not answer in time has no size."""
    import tensorflow as tf

    options = tf.compat.v1.RunOptions(timeout_in_ms=_ANSWER_MS)
    found = []
    for queue in feeding.queues():
        try:
            size = int(session.run(queue.size, options=options))
        except (tf.errors.OpError, RuntimeError):  # the session may just have been closed
            size = None
        found.append(QueueState(name=queue.name, size=size, capacity=queue.capacity))
    return found
