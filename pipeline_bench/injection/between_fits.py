"""What a program does between its calls of `fit`, as where each trains on a part of its data: how long, and where."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic_ns
from typing import Any

from pipeline_bench.system import interrupts


class _Thread(threading.local):
    """Where a thread is.

    Attributes:
        in_fit: whether it is in a `fit`.
        ended_ns: when its last `fit` ended; 0: it has ended none.
        computed_ns: for how long since then a model computed, and trained nothing.
        looks: has others see where it is until its next `fit`.
    """

    in_fit = False
    ended_ns = computed_ns = 0
    looks: Any = None


class BetweenFits:
    """That of one process; each thread's calls are in a row of their own."""

    def __init__(self) -> None:
        """Begin."""
        self._thread = _Thread()
        self._lines: Any = None
        self._between_ns = self._fits_ns = 0

    @contextmanager
    def fit(self) -> Iterator[None]:
        """Take in a call of `fit`; one within another is a part of that."""
        thread = self._thread
        if thread.in_fit:
            yield
            return
        begun_ns, thread.in_fit = monotonic_ns(), True
        if thread.ended_ns:
            self._between_ns += max(0, begun_ns - thread.ended_ns - thread.computed_ns)
        self.end(counts=True)
        try:
            yield
        finally:
            thread.in_fit, thread.ended_ns, thread.computed_ns = False, monotonic_ns(), 0
            self._fits_ns += thread.ended_ns - begun_ns
            with interrupts.to_the_end(), suppress(Exception):  # the program is not to hear of it
                self._begin_looks()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Leave out that a model of this thread's computes, as in a validation."""
        thread = self._thread
        if thread.in_fit or self._lines is None:
            yield
            return
        begun_ns = monotonic_ns()
        try:
            with self._lines.paused(threading.get_ident()):
                yield
        finally:
            thread.computed_ns += monotonic_ns() - begun_ns

    def end(self, counts: bool = False) -> None:
        """Look no more at where this thread is; where what was seen does not count, no other `fit` came."""
        looks, self._thread.looks = self._thread.looks, None
        if looks is not None:
            looks.close()
            self._lines.end(threading.get_ident(), counts=counts)

    def record(self) -> dict[str, Any] | None:
        """Return how long it was in all, beside the calls themselves, and the line that took most of it, as data.

        None where there was no second call.
        """
        if not self._between_ns:
            return None
        found = {"seconds": self._between_ns / 1e9, "fits_s": self._fits_ns / 1e9}
        most = None if self._lines is None else self._lines.costliest()
        return found if most is None else {**found, "line": most.place.short, "line_share": most.share}

    def _begin_looks(self) -> None:
        """Look at where this thread is, again and again, until its next `fit`."""
        from pipeline_bench.monitoring import sampling, wait_lines  # not before the first fit

        if self._lines is None:
            self._lines = wait_lines.WaitLines()
        self._lines.begin(threading.get_ident())
        self._thread.looks = sampling.SamplerThread((), sampling.Readings(), self._lines.sample)
