"""Watches synchronous training on several workers: each one's wait for its own input, and apart from it for others.

The iterator of a distributed dataset asks the other workers whether they have a batch, so that timed as a whole it
shows every worker the slowest one's wait. What is timed here is this worker's own part of it, and each collective.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.monitoring.device import device_of
from pipeline_bench.monitoring.record import WARMUP_STEPS, JobRecord
from pipeline_bench.monitoring.steps import ENDED, LEFT, JobSummary, LoopSteps


class Collectives:
    """How long this worker was at collectives, from having its own part ready to having the result."""

    def __init__(self) -> None:
        self._total_ns = self._since_ns = self._asked = 0
        self._until_ns = {True: 0, False: 0}
        self._lock = threading.Lock()

    def asked(self, at_ns: int) -> None:
        """A step begins; the first ones, which trace and compile, are left out."""
        self._asked += 1
        if self._asked == WARMUP_STEPS:
            self._since_ns = at_ns
            self._until_ns = {True: at_ns, False: at_ns}

    def add(self, at_ns: npt.NDArray[np.int64], took_ns: npt.NDArray[np.int64], *, eager: bool) -> None:
        """Take in collectives by when they began; those that overlap count once.

        Those of a graph come later than eager ones, and none of the two runs beside the other.
        """
        if not self._since_ns:
            return
        with self._lock:
            for begin, end in sorted(zip(at_ns.tolist(), (at_ns + took_ns).tolist(), strict=True)):
                self._total_ns += max(0, end - max(begin, self._until_ns[eager]))
                self._until_ns[eager] = max(self._until_ns[eager], end)

    @property
    def mean_ms(self) -> float | None:
        """A step's, in ms; None where there was none."""
        steps = self._asked - WARMUP_STEPS
        return self._total_ns / steps / 1e6 if steps > 0 and self._total_ns else None


class DistributedMonitor:
    """Times one loop over a distributed dataset in eager mode, and every collective of this process meanwhile.

    Attributes:
        folder: where the session was saved; None where it was not.
    """

    on_tf_data = False

    def __init__(self, name: str) -> None:
        """Begin.

        Args:
            name: of the loop.
        """
        from pipeline_bench.monitoring.ring import Ring

        self.folder: Path | None = None
        self._ring = Ring(lasting=True)
        self._collectives = Collectives()
        self._own_ns = 0
        self._record = JobRecord(name, device_of("tensorflow"), after_poll=_reader(self))
        self._steps = LoopSteps(self._record.log)
        self._record.progress = self._progress

    def next(self, take: Callable[[], Any]) -> Any:
        """Take a batch; what of that was this worker's own input is its wait (`own`)."""
        start_ns, self._own_ns = time.monotonic_ns(), 0
        try:
            batch = take()
        except BaseException:
            self._steps.receive(start_ns, ENDED)
            raise
        self._collectives.asked(start_ns)
        self._steps.receive(start_ns, self._own_ns)
        return batch

    def begin(self) -> None:
        """The loop begins to read the dataset, or does so again."""
        self._steps.receive(time.monotonic_ns(), LEFT)

    def own(self, take: Callable[[], Any]) -> Any:
        """Take this worker's own part of a batch."""
        start_ns = time.monotonic_ns()
        try:
            return take()
        finally:
            self._own_ns += time.monotonic_ns() - start_ns

    def collective(self, reduce: Callable[[Any], Any], tensor: Any) -> Any:
        """Return what a collective makes of this worker's tensor, timed."""
        import tensorflow as tf

        from pipeline_bench.monitoring.probe import stamped

        if tf.executing_eagerly():
            start_ns = time.monotonic_ns()
            reduced = reduce(tensor)
            self._collectives.add(np.array([start_ns]), np.array([time.monotonic_ns() - start_ns]), eager=True)
            return reduced
        with tf.control_dependencies([tensor]):
            return stamped(lambda: reduce(tensor), lambda _, at_s, wait_s: self._ring.write(at_s, wait_s))

    @property
    def summary(self) -> JobSummary:
        """The figures so far."""
        self.read(settled=False)
        return self._record.summary()

    def read(self, settled: bool) -> None:
        """Bring what graphs have measured, and the steps, into the record."""
        rows = self._ring.read(settled)
        self._collectives.add(rows.at_ns, rows.wait_ns, eager=False)
        self._steps.flush()

    def close(self, out: Path | None = None) -> None:
        """End, and keep the session in a folder of its own below `out`; None keeps no file."""
        self.read(settled=True)
        self._record.collective_ms = self._collectives.mean_ms
        _, self.folder = self._record.finish(None, out)

    def drop(self) -> None:
        """End, and leave nothing: the loop was no training."""
        self._record.drop()

    def _progress(self) -> Any:
        self._steps.flush()
        return self._record.log.totals


def _reader(monitor: DistributedMonitor) -> Callable[[], None]:
    reference = weakref.ref(monitor)

    def read() -> None:
        alive = reference()
        if alive is not None:
            alive.read(settled=False)

    return read
