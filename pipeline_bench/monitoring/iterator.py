"""Watches what a loop takes from Python's own iterators: those of PyTorch's DataLoader and of grain."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

from pipeline_bench.monitoring.device import device_of
from pipeline_bench.monitoring.record import JobRecord
from pipeline_bench.monitoring.steps import ENDED, LEFT, JobSummary, LoopSteps


class IteratorMonitor:
    """Times the batches of every iterator that one loop is given.

    Attributes:
        folder: where the session was saved; None where it was not.
    """

    on_tf_data = False

    def __init__(self, name: str, framework: str) -> None:
        """Begin.

        Args:
            name: of the loop.
            framework: whose device the loop works on: ``torch`` or ``jax``.
        """
        self.folder: Path | None = None
        self._record = JobRecord(name, device_of(framework))
        self._steps = LoopSteps(self._record.log)
        self._ready: Any = None
        self._record.progress = self._progress
        self._record.buffered = self._buffered

    def timed(self, iterator: Any) -> Any:
        """Return the same iterator, which now tells how long each `next` took; it stays an instance of its class.

        Raises:
            TypeError: instances of its class cannot be given another one.
        """
        iterator.__class__ = _timed_class(type(iterator))  # type: ignore[arg-type] # a class can be hashed
        iterator._pipeline_bench_steps = self._steps
        self._ready = iterator
        self._steps.receive(time.monotonic_ns(), LEFT)
        return iterator

    @property
    def summary(self) -> JobSummary:
        """The figures so far."""
        self._steps.flush()
        return self._record.summary()

    def close(self, out: Path | None = None) -> None:
        """End, and keep the session in a folder of its own below `out`; None keeps no file."""
        self._steps.flush()
        self._ready = None
        _, self.folder = self._record.finish(None, out)

    def drop(self) -> None:
        """End, and leave nothing: the loop was no training."""
        self._ready = None
        self._record.drop()

    def _progress(self) -> Any:
        self._steps.flush()
        return self._record.log.totals

    def _buffered(self) -> tuple[float, float] | None:
        """Return how many batches a DataLoader's workers have ready, and how many they may have; None elsewhere."""
        iterator = self._ready
        tasks = getattr(iterator, "_task_info", None)
        workers, factor = getattr(iterator, "_num_workers", 0), getattr(iterator, "_prefetch_factor", None)
        if tasks is None or not workers or not factor:
            return None
        arrived = sum(len(task) > 1 for task in list(tasks.values()))
        return float(arrived + iterator._worker_result_queue.qsize()), float(workers * factor)


@functools.cache
def _timed_class(plain: type) -> type:
    """Return a subclass that tells its waits, under the same name."""
    if hasattr(plain, "_pipeline_bench_steps"):  # an iterator that serves every epoch
        return plain

    def __next__(self: Any) -> Any:  # noqa: N807 - it stands in the place of that method
        receive = self._pipeline_bench_steps.receive
        start_ns = time.monotonic_ns()
        try:
            batch = plain.__next__(self)  # type: ignore[attr-defined] # it is an iterator's class
        except StopIteration:
            receive(start_ns, ENDED)
            raise
        receive(start_ns, time.monotonic_ns() - start_ns)
        return batch

    named = {"__module__": plain.__module__, "__qualname__": plain.__qualname__}
    return type(plain.__name__, (plain,), {"__next__": __next__, "_pipeline_bench_steps": None, **named})
