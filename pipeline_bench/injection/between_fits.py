"""What a program does between its calls of `fit`, as where each trains on a part of its data: how long, and where."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic_ns
from typing import Any

from pipeline_bench.system import interrupts
from pipeline_bench.text.units import NS_PER_S

_LOOKED_AT_S = 600.0
"""So long after a `fit` the lines are looked at: the program may go on for days."""


class _Thread(threading.local):
    """Where a thread is.

    Attributes:
        is_inside: whether it is in a `fit`, or in what a model computes.
        ended_ns: when its last `fit` ended; 0: it has ended none.
        computed_ns: for how long since then a model computed, and trained nothing.
    """

    is_inside = False
    ended_ns = computed_ns = 0


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep what goes wrong in the block from the program, but what its own handler of a signal raised."""
    try:
        yield
    except Exception as error:
        if interrupts.raised_by_handler(error):
            raise


class BetweenFits:
    """That of one process: each thread's calls are in a row of their own; the first thread's lines are looked at."""

    def __init__(self) -> None:
        """Begin."""
        self._thread = _Thread()
        self._first: int | None = None
        """The thread whose `fit` came first."""
        self._ended_ns = 0
        """When that thread's last `fit` ended."""
        self._lines: Any = None
        self._looks: Any = None
        self._between_ns = self._fits_ns = 0

    @contextmanager
    def fit(self) -> Iterator[None]:
        """Take in a call of `fit`; one within another, or within what a model computes, is a part of that."""
        thread = self._thread
        if thread.is_inside:
            yield
            return
        begun_ns, thread.is_inside = monotonic_ns(), True
        try:
            if thread.ended_ns:
                self._between_ns += max(0, begun_ns - thread.ended_ns - thread.computed_ns)
            self._end_wait(counts=True)
            yield
        finally:
            thread.is_inside, thread.ended_ns, thread.computed_ns = False, monotonic_ns(), 0
            self._fits_ns += thread.ended_ns - begun_ns
            self._begin_wait(thread.ended_ns)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Leave out that a model of this thread's computes, as in a validation."""
        thread = self._thread
        if thread.is_inside or not thread.ended_ns:
            yield
            return
        begun_ns, thread.is_inside = monotonic_ns(), True
        try:
            with self._lines.paused(self._first) if self._is_looked_at() else nullcontext():
                yield
        finally:
            thread.is_inside = False
            thread.computed_ns += monotonic_ns() - begun_ns

    def end(self) -> None:
        """Look no more; what was seen since the last `fit` does not count, as no other came."""
        self._end_wait(counts=False)
        looks, self._looks = self._looks, None
        if looks is not None:
            looks.close()

    def record(self) -> dict[str, Any] | None:
        """Return how long it was in all, beside the calls themselves, and the line that took most of it, as data.

        None where there was no second call.
        """
        if not self._between_ns:
            return None
        found = {"seconds": self._between_ns / NS_PER_S, "fits_s": self._fits_ns / NS_PER_S}
        most = None if self._lines is None else self._lines.costliest()
        return found if most is None else {**found, "line": most.place.short, "line_share": most.share}

    def _is_looked_at(self) -> bool:
        return self._lines is not None and self._first == threading.get_ident()

    def _begin_wait(self, ended_ns: int) -> None:
        """Have others look at where this thread is until its next `fit`, if it is the first that had one."""
        with _unheard():
            if self._first is None:
                from pipeline_bench.monitoring import sampling, wait_lines  # not before the first fit

                self._first = threading.get_ident()
                self._lines = wait_lines.WaitLines()
                self._looks = sampling.SamplerThread((), sampling.Readings(), self._look)
            if self._is_looked_at():
                self._ended_ns = ended_ns
                self._lines.begin(self._first)

    def _end_wait(self, *, counts: bool) -> None:
        with _unheard():
            if self._is_looked_at():
                self._lines.end(self._first, counts=counts)

    def _look(self) -> None:
        if monotonic_ns() - self._ended_ns <= _LOOKED_AT_S * NS_PER_S:
            self._lines.sample()
