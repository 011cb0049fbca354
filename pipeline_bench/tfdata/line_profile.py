"""Which lines of the user's Python take the time of a function."""

from __future__ import annotations

import functools
import linecache
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, NamedTuple

from pipeline_bench.model.pipeline import Location
from pipeline_bench.tfdata import user_code

_Line = tuple[str, int]
"""A file and a line in it."""
Trace = Callable[[FrameType, str, Any], Any]
"""As `sys.settrace` takes it."""
Follow = Callable[[Trace], AbstractContextManager[None]]


class LineCost(NamedTuple):
    """What of a function's time is spent in a line."""

    place: Location
    share: float
    """Of the time in lines that were followed, 0 to 1."""


class LineCosts(NamedTuple):
    """Lines of the user's, the costliest first."""

    own: list[LineCost]
    """Without what is spent in followed lines of the functions that they call."""
    whole: list[LineCost]
    """With it."""


@contextmanager
def in_this_thread(trace: Trace) -> Iterator[None]:
    """Follow the lines that run in this thread in the block."""
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def line_costs(
    function: Callable[[], Any],
    seconds: float,
    follows: Callable[[str], bool] = user_code.is_users,
    follow: Follow = in_this_thread,
) -> LineCosts:
    """Call a function for so long, once at least, and return what its lines cost.

    Following every line costs about 0.5 us a line, so that short lines in a loop look somewhat costlier than they are.

    Args:
        function: what it raises passes through.
        seconds: no further call is begun after that time.
        follows: whether the lines of a file are followed; those of others count for the line that calls them.
        follow: has the lines followed in the block, where they run; of one thread at a time.
    """
    tracer = _Tracer(functools.lru_cache(maxsize=None)(follows))
    end_s = time.monotonic() + seconds
    with follow(tracer.call):
        while True:
            function()
            if time.monotonic() >= end_s:
                break
    total = tracer.own.total()
    return LineCosts(shares(tracer.own, total), shares(tracer.whole, total))


def shares(spent: Counter[_Line], total: int, most: int | None = None) -> list[LineCost]:
    """Return the lines on which a total was spent, by file and number, the costliest first; `most` of them."""
    return [
        LineCost(Location(file=file, line=line, text=linecache.getline(file, line).strip()), part / total)
        for (file, line), part in spent.most_common(most)
    ]


class _Tracer:
    """Charges the time between two events to the followed line that was under way, and to those that called it."""

    def __init__(self, follows: Callable[[str], bool]) -> None:
        self.own: Counter[_Line] = Counter()
        self.whole: Counter[_Line] = Counter()
        self._follows = follows
        self._at: _Line | None = None
        self._callers: list[_Line | None] = []
        self._since_ns = 0

    def call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Follow the lines of functions in these files, no other's."""
        if not self._follows(frame.f_code.co_filename):
            return None
        caller = self._at
        self._charge((frame.f_code.co_filename, frame.f_lineno))
        self._callers.append(caller)
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        here = (frame.f_code.co_filename, frame.f_lineno)
        if event == "return":
            outer = frame.f_back
            followed = outer is not None and self._follows(outer.f_code.co_filename)
            self._charge((outer.f_code.co_filename, outer.f_lineno) if outer is not None and followed else None)
            if self._callers:
                self._callers.pop()
        else:
            self._charge(here)
        return self._line

    def _charge(self, now: _Line | None) -> None:
        at_ns = time.perf_counter_ns()
        if self._at is not None:
            spent_ns = at_ns - self._since_ns
            self.own[self._at] += spent_ns
            for line in {self._at, *self._callers}:
                if line is not None:
                    self.whole[line] += spent_ns
        self._at, self._since_ns = now, time.perf_counter_ns()
