"""Watches one loop of a job over Python's iterators, of PyTorch or of grain."""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType, GeneratorType
from typing import Any

from pipeline_bench.monitoring.loop import LoopMonitor
from pipeline_bench.monitoring.record import LEAST_STEPS, SavedJob
from pipeline_bench.monitoring.sampling import device_of
from pipeline_bench.monitoring.steps import AGAIN, ENDED, LEFT
from pipeline_bench.system import interrupts
from pipeline_bench.user_code import outward

_AN_ITERATOR_A_BATCH = (
    "it makes an iterator for every batch: each begins anew, with its workers, and throws away what they have ready; "
    "take the batches with a for over the data, or with next of one iterator"
)
_CYCLED = (
    "itertools.cycle keeps the batches of the first pass in memory, and repeats them without shuffling them again: "
    "only that pass takes from the loader, and the later ones are not measured"
)
_MOST_LOOKS = 4
"""Who looks for a `cycle` goes over all objects of the process, for some 50 ms."""


class LoaderMonitor(LoopMonitor):
    """Times the batches of every iterator, of PyTorch's DataLoader or of grain, that one loop is given."""

    def __init__(self, name: str, framework: str, out: Path | None = None) -> None:
        """Begin; `framework` is that of the loop's device, see `device_of`."""
        super().__init__(name, device_of(framework), out)
        self._ready: Callable[[], Any] = lambda: None
        """Gives the last iterator while its loop holds it: workers end with that."""
        self.record.buffered = self._buffered
        self._records_gradients = getattr(sys.modules.get("torch"), "is_grad_enabled", None)
        self._unrecorded = 0
        """How many batches it took while PyTorch recorded no gradients."""
        self._looks: int | None = None
        """At how many ends of iterators, at most, it is looked whether a `cycle` asked them; None before the first."""
        self._cycles = False
        """Whether a `cycle` asked each iterator that ended, as far as that was looked at."""
        self._cycled_from = -1
        """How many steps had begun at the end of the last iterator that a `cycle` asked; -1 before."""

    @property
    def is_cycled(self) -> bool:
        """Whether `itertools.cycle` repeats the batches, without asking the iterator that gave them.

        Not where steps began since: in a `zip` with a `cycle`, other data still give a batch for each.
        """
        return self._cycled_from == self._steps.begun

    @property
    def saw_training(self) -> bool:
        """See `LoopMonitor`; not of a batch of validation now and then, in front of other batches that are trained on.

        One takes those while no gradients are recorded.
        """
        is_beside = 2 * self._fed < self._seen and 2 * self._unrecorded > self._steps.begun
        return super().saw_training and not is_beside

    def timed(self, iterator: Any, making_ns: int = 0) -> Any:
        """Return the same iterator, which now reports how long each `next` took; it stays an instance of its class.

        Args:
            iterator: that a loop begins to take from.
            making_ns: how long it took to make, which just ended, with its workers: the first batch waits for that too.

        Raises:
            TypeError: instances of its class cannot be given another one.
        """
        timed_class = _timed_class(type(iterator))  # type: ignore[arg-type] # a class can be hashed
        self._ready = weakref.ref(iterator)
        iterator._pipeline_bench_steps, iterator._pipeline_bench_making_ns = self._steps, making_ns
        iterator._pipeline_bench_ended, iterator._pipeline_bench_took = self._see_end, self._see_batch
        iterator.__class__ = timed_class  # last: what refuses an attribute stays as it is
        if self._looks is None:
            names_it = any("cycle" in frame.f_code.co_names for frame in outward(sys._getframe(1)))
            self._looks = _MOST_LOOKS * names_it
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
        if self.is_cycled:
            self.record.remarks.append(_CYCLED)
        return super().close(reason)

    def _see_batch(self) -> None:
        if self._records_gradients is not None and not self._records_gradients():
            self._unrecorded += 1

    def _see_end(self, iterator: Any) -> None:
        """Take in that an iterator has ended; see whether a `cycle` asked it, if that may be."""
        if self._looks:
            try:
                self._cycles = _is_cycled(iterator, sys._getframe(2))
            except Exception as error:
                if interrupts.raised_by_handler(error):
                    raise
            self._looks = self._looks - 1 if self._cycles else 0
        if self._cycles:
            self._cycled_from = self._steps.begun

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


def _is_cycled(iterator: Any, frame: FrameType) -> bool:
    """Return whether a `cycle` takes from an iterator, or from a generator that asked it, from where `frame` is."""
    frames = set(outward(frame))  # no generator that runs is told by `gc.get_referrers` to refer to anything
    cycles = (each for each in gc.get_objects() if type(each) is itertools.cycle)
    taken = (each for cycle in cycles for each in gc.get_referents(cycle))
    return any(each is iterator or (type(each) is GeneratorType and each.gi_frame in frames) for each in taken)


@functools.cache
def _timed_class(plain: type) -> type:
    """Return a subclass that reports its waits, under the same name."""
    if hasattr(plain, "_pipeline_bench_steps"):  # an iterator that serves every epoch
        return plain

    def __next__(self: Any) -> Any:  # noqa: N807 - it stands in the place of that method
        if self._pipeline_bench_steps is None:  # its own code made another one of this class
            return plain.__next__(self)  # type: ignore[attr-defined] # it is an iterator's class
        receive = self._pipeline_bench_steps.receive
        start_ns = time.monotonic_ns()
        making_ns, self._pipeline_bench_making_ns = self._pipeline_bench_making_ns, 0
        try:
            batch = plain.__next__(self)  # type: ignore[attr-defined] # likewise
        except StopIteration:
            receive(start_ns, ENDED, threading.get_ident(), id(self), time.monotonic_ns() - start_ns)
            self._pipeline_bench_ended(self)
            raise
        asked_ns = start_ns - making_ns
        receive(asked_ns, time.monotonic_ns() - asked_ns, threading.get_ident(), id(self))
        self._pipeline_bench_took()
        return batch

    named = {"__module__": plain.__module__, "__qualname__": plain.__qualname__}
    own = {"__next__": __next__, "_pipeline_bench_steps": None, "_pipeline_bench_making_ns": 0}
    return type(plain.__name__, (plain,), {**own, **named})
