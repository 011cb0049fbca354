"""How long a thread waits until TensorFlow has ended an iterator that nothing holds any more."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections import defaultdict
from typing import Any

# Whoever imports this module watches a job of TensorFlow's, in whose process TensorFlow is already.
from tensorflow.python.data.ops import iterator_ops

UNTIMED = -1
"""In the place of a probe's number: of the iterators that no probe times."""


class _OfThisThread(threading.local):
    """When TensorFlow's ends of iterators began in this thread, of which probe, and when they had come, by their marks.

    Attributes:
        sums_ns: of those before, by the numbers of their probes: nothing else is kept of them, since a thread that is
            not watched may end any number.
    """

    def __init__(self) -> None:
        self.sums_ns: defaultdict[int, int] = defaultdict(int)
        self.begun_ns: dict[Any, tuple[int, int]] = {}
        self.ended_ns: defaultdict[Any, int] = defaultdict(time.monotonic_ns)


class _Mark:
    """Goes when the iterator before it in a list has gone."""


_waited = _OfThisThread()


def ends_ns(*numbers: int) -> int:
    """Return how long this thread has waited since the last call until iterators had ended, in ns. See `time_ends`.

    Args:
        numbers: of the probes whose iterators these are, or `UNTIMED`.
    """
    _add_ends(_waited)
    return sum(_waited.sums_ns.pop(number, 0) for number in numbers)


def _add_ends(waited: _OfThisThread) -> None:
    """Bring the ends that have come into the sum; another iterator that ends meanwhile does so too."""
    for mark in list(waited.ended_ns):
        begun, ended_ns = waited.begun_ns.pop(mark, None), waited.ended_ns.pop(mark, None)
        if begun is not None and ended_ns is not None:
            number, begun_ns = begun
            waited.sums_ns[number] += ended_ns - begun_ns


@functools.cache
def time_ends() -> None:
    """Keep, from now on, how long each thread waits until TensorFlow has ended an iterator that nothing holds any more.

    That may be a minute: TensorFlow wakes the thread that tunes the pipeline before it says that the pipeline is at its
    end (`CancellationManager::StartCancel`, tensorflow/core/framework/cancellation.cc), and a thread that looks sooner
    sleeps on until it would tune next (`Model::OptimizeLoop`, tensorflow/core/framework/model.cc, 2.21).

    No Python runs between the wait and the program's next instruction: what a signal's handler raises, a
    KeyboardInterrupt for one, would be lost in a `__del__`. So the end is kept by C alone: a list lets go of its last
    item first, here of the iterator, and then of a mark, whose weak reference calls the clock, as a missing key.
    """
    # A module's names may be gone where Python ends before the iterator does.
    waited, add_ends, untimed = _waited, _add_ends, UNTIMED
    make_mark, weakly, clock = _Mark, weakref.ref, time.monotonic_ns

    def __del__(self: Any) -> None:  # noqa: N807 - it becomes that method
        add_ends(waited)
        number = self.__dict__.get("_number", untimed)
        mark = make_mark()
        held = [mark, *(self.__dict__.pop(name, None) for name in ("_components", "_iterator_resource"))]
        self.__dict__["_held"] = held
        waited.begun_ns[weakly(mark, waited.ended_ns.__getitem__)] = number, clock()

    iterator_ops.OwnedIterator.__del__ = __del__
