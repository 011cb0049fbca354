"""Where a graph keeps the waits of its batches: a resource on the CPU, which Python reads in blocks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

# Whoever imports this module watches a job of TensorFlow's, in whose process TensorFlow is already.
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from pipeline_bench.graph_ops import clock_s
from pipeline_bench.monitoring.steps import LEFT
from pipeline_bench.system.clocks import wall_minus_monotonic_ns
from pipeline_bench.system.forks import ForkedLock

ROWS = 16_384
"""At 5 reads a second, up to 80,000 batches a second are kept; of more, the oldest are lost and counted."""
_COLUMNS = 3
"""When a batch was asked for, in s since 1970, how long for, in s, or a mark, and the number of its iterator."""
_UNSETTLED = 2
"""A row is counted just before it is written: while the graph may be running, the newest are left for the next time."""
_MOVED_NS = 500_000_000
"""By more than that, between two reads, the wall clock moves against the monotonic one where it is set, or the machine
is suspended, and not where it is adjusted."""


class RingRows(NamedTuple):
    """Rows read from a ring: when each batch was asked for (``time.monotonic_ns``), and its wait in ns or a mark.

    `lost` is how many rows were overwritten before they were read, and `moved` the place of the first row after the
    wall clock was set, or the machine was suspended; None: neither was. `iterators` has the number of the one that gave
    each batch, among those of its graph; None: not known.
    """

    at_ns: npt.NDArray[np.int64]
    wait_ns: npt.NDArray[np.int64]
    lost: int = 0
    moved: int | None = None
    iterators: npt.NDArray[np.int64] | None = None

    def left_where_moved(self) -> RingRows:
        """Return the rows with a mark, `LEFT`, where the clock moved: how long that step took, or waited, is not known.

        Time in which the machine was suspended is no time of the monotonic clock.
        """
        if self.moved is None:
            return self
        at_ns = self.at_ns[self.moved]
        at, waits = (np.insert(rows, self.moved, mark) for rows, mark in ((self.at_ns, at_ns), (self.wait_ns, LEFT)))
        iterators = None if self.iterators is None else np.insert(self.iterators, self.moved, 0)
        return RingRows(at, waits, self.lost, iterators=iterators)


def _moved(wall_ns: npt.NDArray[np.int64], before: tuple[int, int], now: tuple[int, int]) -> int | None:
    """Return which row is the first after the wall clock was set, or the machine was suspended; None: neither was.

    Their number, where it was behind all of them.

    Args:
        wall_ns: when the batch of each row was asked for, by the wall clock.
        before: that clock, and what it was ahead of the monotonic one, at the read before.
        now: the same now.
    """
    moved_ns = now[1] - before[1]
    if abs(moved_ns) <= _MOVED_NS:
        return None
    passed_ns = np.diff(np.concatenate([[before[0]], wall_ns, [now[0]]]))
    return int(np.argmax(passed_ns if moved_ns > 0 else -passed_ns))


def _clocks() -> tuple[int, int]:
    """Return the wall clock, and what it is ahead of the monotonic one, in ns."""
    offset_ns = wall_minus_monotonic_ns()
    return time.monotonic_ns() + offset_ns, offset_ns


class Ring:
    """A resource into which a graph writes a row a batch: when it asked (s since 1970) and how long it was blocked.

    Made in eager mode, outside of any strategy's variables. Read in blocks, because reading one row a step would cost
    more than the rest of the measuring.

    Attributes:
        traced: whether some graph writes here.
    """

    def __init__(self, lasting: bool = False) -> None:
        """Make one.

        Args:
            lasting: whether it stays until the process ends, so that graphs name it and capture nothing: a function
                that captures what its `tf.Module` does not hold cannot be saved with that. Where a process that loads
                such a function has no ring of that name, nothing is written.
        """
        self.traced = False
        self._read, self._clocks = 0, _clocks()
        self._lock = ForkedLock()
        initial = {"rows": tf.zeros([ROWS, _COLUMNS], tf.float64), "count": tf.zeros([], tf.int64)}
        self._name = f"pipeline_bench_{secrets.token_hex(8)}" if lasting else None
        with tf.init_scope(), tf.device("/cpu:0"):
            if lasting:
                for part, value in initial.items():
                    tf.raw_ops.AssignVariableOp(resource=self._named(part), value=value)
                return
            # Made by its own class, a variable is none of a strategy's, mirrored or otherwise, where one is in scope.
            # A function that was traced with it keeps its resource for as long as the function lives.
            self._variables = {part: ResourceVariable(value, trainable=False) for part, value in initial.items()}

    def _named(self, part: str) -> Any:
        shape, dtype = ([ROWS, _COLUMNS], tf.float64) if part == "rows" else ([], tf.int64)
        return tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=f"{self._name}_{part}")

    @property
    def _rows(self) -> Any:
        return self._named("rows") if self._name else self._variables["rows"].handle

    @property
    def _count(self) -> Any:
        return self._named("count") if self._name else self._variables["count"].handle

    def write(self, at_s: Any, wait_s: Any, iterator: int = 0) -> None:
        """Build the ops that write a new row, or run them in eager mode.

        Args:
            at_s: when a batch was asked for, in s since 1970, float64 [].
            wait_s: how long the graph was blocked for it, or a mark, likewise.
            iterator: the number of what gives it among the iterators of its graph.
        """
        if not tf.executing_eagerly():
            self.traced = True

        def build() -> None:
            index = tf.raw_ops.ResourceCountUpTo(resource=self._count, limit=2**62, T=tf.int64)
            slot = tf.math.floormod(index, ROWS)
            row = tf.stack([tf.cast(each, tf.float64) for each in (at_s, wait_s, iterator)])
            tf.raw_ops.ResourceScatterUpdate(resource=self._rows, indices=slot, updates=row)

        # A row is not counted before there is something to write: where there is no batch the rest of the graph ends.
        with tf.device("/cpu:0"), tf.control_dependencies([at_s, wait_s]):
            self._where_it_is(build)

    def _where_it_is(self, build: Callable[[], None]) -> None:
        """Build ops that use this ring; a graph that names it may be loaded where it is not, and leaves them out."""
        if self._name is None or tf.executing_eagerly():
            build()
            return
        tf.cond(tf.raw_ops.VarIsInitializedOp(resource=self._count), build, lambda: None)

    def mark(self, kind: int) -> None:
        """Write a row that is a mark, now."""
        with tf.device("/cpu:0"):
            self.write(clock_s(), tf.constant(kind, tf.float64))

    def peek(self, count: int) -> npt.NDArray[np.int64] | None:
        """Return the waits of the first `count` rows that `read` would return, in ns, while a graph may be running.

        None where there are fewer, or they do not fit the ring.
        """
        with self._lock, tf.init_scope(), tf.device("/cpu:0"):
            first = self._read
            there = int(tf.raw_ops.ReadVariableOp(resource=self._count, dtype=tf.int64)) - first
            if not count <= there <= ROWS:
                return None
            rows = np.asarray(tf.raw_ops.ReadVariableOp(resource=self._rows, dtype=tf.float64))
        waits: npt.NDArray[np.int64] = (rows[np.arange(first, first + count) % ROWS, 1] * 1e9).astype(np.int64)
        return waits

    def read(self, settled: bool = True) -> RingRows:
        """Return every row that is new since the last call.

        Args:
            settled: whether no graph that writes here is running.
        """
        with self._lock, tf.init_scope(), tf.device("/cpu:0"):
            count = int(tf.raw_ops.ReadVariableOp(resource=self._count, dtype=tf.int64))
            if not settled:
                count = max(self._read, count - _UNSETTLED)
            if count == self._read:
                return RingRows(np.empty(0, np.int64), np.empty(0, np.int64))
            rows = np.asarray(tf.raw_ops.ReadVariableOp(resource=self._rows, dtype=tf.float64))
            lost = max(0, count - self._read - ROWS)
            new = rows[np.arange(self._read + lost, count) % ROWS]
            self._read = count
            wall_ns = (new[:, 0] * 1e9).astype(np.int64)
            before, now = self._clocks, _clocks()
            moved = _moved(wall_ns, before, now)
            if moved == len(wall_ns):  # those that the next read returns may be of before, too
                moved, now = None, before
            self._clocks = now
        is_before = np.arange(len(wall_ns)) < (0 if moved is None else moved)
        at_ns = wall_ns - np.where(is_before, before[1], now[1])
        waits = np.where(new[:, 1] < 0, new[:, 1], new[:, 1] * 1e9).astype(np.int64)
        return RingRows(at_ns, waits, lost, moved, new[:, 2].astype(np.int64))
