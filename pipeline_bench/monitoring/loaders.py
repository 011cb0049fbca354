"""Watches one loop of a job over Python's iterators, of PyTorch or of grain."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline_bench.monitoring.loop import LoopMonitor
from pipeline_bench.monitoring.record import LEAST_STEPS, SavedJob
from pipeline_bench.monitoring.sampling import device_of
from pipeline_bench.monitoring.steps import AGAIN, ENDED, LEFT

_AN_ITERATOR_A_BATCH = (
    "it makes an iterator for every batch: each begins anew, with its workers, and throws away what they have ready; "
    "take the batches with a for over the data, or with next of one iterator"
)


class LoaderMonitor(LoopMonitor):
    """Times the batches of every iterator, of PyTorch's DataLoader or of grain, that one loop is given."""

    def __init__(self, name: str, framework: str, out: Path | None = None) -> None:
        """Begin; `framework` is that of the loop's device, see `device_of`."""
        super().__init__(name, device_of(framework), out)
        self._ready: Callable[[], Any] = lambda: None
        """Gives the last iterator while its loop holds it: workers end with that."""
        self.record.buffered = self._buffered

    def timed(self, iterator: Any, making_ns: int = 0) -> Any:
        """Return the same iterator, which now reports how long each `next` took; it stays an instance of its class.

        Args:
            iterator: that a loop begins to take from.
            making_ns: how long it took to make, which just ended, with its workers: the first batch waits for that too.

        Raises:
            TypeError: instances of its class cannot be given another one.
        """
        iterator.__class__ = _timed_class(type(iterator))  # type: ignore[arg-type] # a class can be hashed
        iterator._pipeline_bench_steps, iterator._pipeline_bench_making_ns = self._steps, making_ns
        self._ready = weakref.ref(iterator)
        # Who shows a batch each epoch makes an iterator for it too, and trains in another loop meanwhile.
        steps = self._steps
        is_alone = steps.is_latest and not steps.is_over
        is_again = is_alone and steps.most_in_a_row == 1 and steps.begun >= LEAST_STEPS
        steps.receive(time.monotonic_ns() - making_ns, AGAIN if is_again else LEFT, threading.get_ident())
        return iterator

    def close(self, reason: str | None = None) -> SavedJob:
        """End, and keep the session; see `LoopMonitor`."""
        self.read(settled=True)
        if self._steps.single:
            self.record.remarks.append(_AN_ITERATOR_A_BATCH)
        return super().close(reason)

    def _buffered(self) -> tuple[float, float] | None:
        """Return how many batches a DataLoader's workers have ready, and how many they may have; None elsewhere."""
        iterator = self._ready()
        tasks = getattr(iterator, "_task_info", None)
        workers, factor = getattr(iterator, "_num_workers", 0), getattr(iterator, "_prefetch_factor", None)
        if tasks is None or not workers or not factor:
            return None
        arrived = sum(len(task) > 1 for task in list(tasks.values()))
        came, pinned = iterator._worker_result_queue, iterator._data_queue
        # With pinned memory a thread moves what came into a queue of its own.
        ready = arrived + came.qsize() + (pinned.qsize() if pinned is not came else 0)
        return float(ready), float(workers * factor)


@functools.cache
def _timed_class(plain: type) -> type:
    """Return a subclass that reports its waits, under the same name."""
    if hasattr(plain, "_pipeline_bench_steps"):  # an iterator that serves every epoch
        return plain

    def __next__(self: Any) -> Any:  # noqa: N807 - it stands in the place of that method
        receive = self._pipeline_bench_steps.receive
        start_ns = time.monotonic_ns()
        making_ns, self._pipeline_bench_making_ns = self._pipeline_bench_making_ns, 0
        try:
            batch = plain.__next__(self)  # type: ignore[attr-defined] # it is an iterator's class
        except StopIteration:
            receive(start_ns, ENDED, threading.get_ident(), id(self), time.monotonic_ns() - start_ns)
            raise
        asked_ns = start_ns - making_ns
        receive(asked_ns, time.monotonic_ns() - asked_ns, threading.get_ident(), id(self))
        return batch

    named = {"__module__": plain.__module__, "__qualname__": plain.__qualname__}
    own = {"__next__": __next__, "_pipeline_bench_steps": None, "_pipeline_bench_making_ns": 0}
    return type(plain.__name__, (plain,), {**own, **named})
