"""Waits that are measured inside a TensorFlow graph, and read from Python now and then.

The graph writes a row a batch into a resource on the CPU: when it asked (seconds since 1970, as `tf.timestamp` tells
it), and how long it was blocked. Python reads the rows in blocks, because reading one a step would cost more than the
rest of the measuring.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

ROWS = 16_384
"""At 5 reads a second, up to 80,000 batches a second are kept; of more, the oldest are lost and counted."""
ENDED = -2.0
"""In place of a wait: the loop asked, and there was no batch."""
LEFT = -3.0
"""In place of a wait: another pass begins."""
_UNSETTLED = 2
"""A row is counted just before it is written: while the graph may be running, the newest are left for the next time."""


@dataclass(frozen=True)
class Taken:
    """Rows that were read: when each asked (``time.monotonic_ns``), its wait in ns or a mark, and how many were lost.

    The marks are `ENDED` and `LEFT`, as they are.
    """

    at_ns: npt.NDArray[np.int64]
    wait_ns: npt.NDArray[np.int64]
    lost: int = 0


class Ring:
    """The rows' resource. Made in eager mode, outside of any strategy's variables.

    Attributes:
        traced: whether some graph writes here.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        # Made by its own class, a variable is none of a strategy's, mirrored or otherwise, where one is in scope. A
        # function that was traced with it keeps its resource for as long as the function lives.
        from tensorflow.python.ops.resource_variable_ops import ResourceVariable

        self.traced = False
        self._taken = 0
        self._lock = threading.Lock()
        with tf.init_scope(), tf.device("/cpu:0"):
            self._rows_variable = ResourceVariable(tf.zeros([ROWS, 2], tf.float64), trainable=False)
            self._count_variable = ResourceVariable(tf.zeros([], tf.int64), trainable=False)
            self._rows, self._count = self._rows_variable.handle, self._count_variable.handle

    def write(self, at_s: Any, wait_s: Any) -> None:
        """Build the ops that write a new row, float64 [] each, or run them in eager mode."""
        import tensorflow as tf

        if not tf.executing_eagerly():
            self.traced = True
        # A row is not counted before there is something to write: where there is no batch the rest of the graph ends.
        with tf.device("/cpu:0"), tf.control_dependencies([at_s, wait_s]):
            index = tf.raw_ops.ResourceCountUpTo(resource=self._count, limit=2**62, T=tf.int64)
            slot = tf.math.floormod(index, ROWS)
            row = tf.stack([tf.cast(at_s, tf.float64), tf.cast(wait_s, tf.float64)])
            tf.raw_ops.ResourceScatterUpdate(resource=self._rows, indices=slot, updates=row)

    def add(self, wait_s: Any) -> None:
        """Build the ops that add a wait, float64 [], to the newest row: of a step that takes several batches."""
        import tensorflow as tf

        with tf.device("/cpu:0"):
            count = tf.raw_ops.ReadVariableOp(resource=self._count, dtype=tf.int64)
            slot = tf.math.floormod(count - 1, ROWS)
            row = tf.stack([tf.constant(0.0, tf.float64), tf.cast(wait_s, tf.float64)])
            tf.raw_ops.ResourceScatterAdd(resource=self._rows, indices=slot, updates=row)

    def mark(self, kind: float) -> None:
        """Write a row that is a mark, now."""
        import tensorflow as tf

        with tf.device("/cpu:0"):
            self.write(tf.timestamp(), tf.constant(kind, tf.float64))

    def take(self, settled: bool = True) -> Taken:
        """Every row that is new since the last call.

        Args:
            settled: whether no graph that writes here is running.
        """
        import tensorflow as tf

        with self._lock, tf.init_scope(), tf.device("/cpu:0"):
            count = int(tf.raw_ops.ReadVariableOp(resource=self._count, dtype=tf.int64))
            if not settled:
                count = max(self._taken, count - _UNSETTLED)
            if count == self._taken:
                return Taken(np.empty(0, np.int64), np.empty(0, np.int64))
            rows = np.asarray(tf.raw_ops.ReadVariableOp(resource=self._rows, dtype=tf.float64))
            lost = max(0, count - self._taken - ROWS)
            picked = rows[np.arange(self._taken + lost, count) % ROWS]
            self._taken = count
        offset_ns = time.time_ns() - time.monotonic_ns()
        at_ns = (picked[:, 0] * 1e9).astype(np.int64) - offset_ns
        waits = np.where(picked[:, 1] < 0, picked[:, 1], picked[:, 1] * 1e9).astype(np.int64)
        return Taken(at_ns, waits, lost)


def stamped(fetch: Callable[[], Any], keep: Callable[[Any, Any, Any], None]) -> Any:
    """Build what `fetch` builds between two time stamps of the graph.

    Args:
        fetch: builds a structure of tensors.
        keep: builds what keeps its wait; given the structure, when the first stamp was taken, in s since 1970, and the
            seconds between the two.

    Returns:
        The structure, `behind` what keeps the wait.
    """
    import tensorflow as tf

    with tf.device("/cpu:0"):
        before = tf.timestamp()
    with tf.control_dependencies([before]):
        structure = fetch()
    tensors = [each for each in tf.nest.flatten(structure, expand_composites=True) if tf.is_tensor(each)]
    with tf.control_dependencies([before, *tensors]), tf.device("/cpu:0"):
        after = tf.timestamp()
    return behind(lambda: keep(structure, before, after - before), structure)


def behind(keep: Callable[[], None], structure: Any) -> Any:
    """The structure, each tensor of which is available only after what `keep` builds has run.

    So nothing that needs it begins before the wait has been kept. Beside the model, the few ops that keep it would wake
    a thread of their own, which costs a step ten times as much as they do.
    """
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    first = len(graph.get_operations())
    keep()
    with tf.control_dependencies(last_of(graph.get_operations()[first:])):
        return tf.nest.map_structure(_identity, structure, expand_composites=True)


def last_of(made: Sequence[Any]) -> list[Any]:
    """Those of some ops that none of the others needs: when they have run, all have."""
    needed = {id(tensor.op) for op in made for tensor in op.inputs}
    needed |= {id(before) for op in made for before in op.control_inputs}
    return [op for op in made if id(op) not in needed]


def _identity(value: Any) -> Any:
    import tensorflow as tf

    return tf.identity(value) if tf.is_tensor(value) else value
