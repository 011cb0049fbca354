"""Which lines of a user's function take its time: their own, with the libraries' that they call."""

from __future__ import annotations

import linecache
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from pipeline_bench.model.pipeline import Location
from pipeline_bench.tfdata import user_code


class LineCost(NamedTuple):
    """The line that takes the most of a function's time."""

    place: Location
    share: float
    """Of the time in lines of the user's, 0 to 1."""


def costliest(function: Callable[[], Any], seconds: float) -> LineCost | None:
    """Call a function for so long, once at least, and return its costliest line; None where no line is the user's.

    Following every line costs about 0.3 us a line, so that short lines in a loop look somewhat costlier than they are.

    Args:
        function: runs in this thread alone; what it raises passes through.
        seconds: no further call is begun after that time.
    """
    spent: Counter[tuple[str, int]] = Counter()
    tracer = _Tracer(spent)
    before, end_s = sys.gettrace(), time.monotonic() + seconds
    sys.settrace(tracer.call)
    try:
        while True:
            function()
            if time.monotonic() >= end_s:
                break
    finally:
        sys.settrace(before)
    total = spent.total()
    if not total:
        return None
    (file, line), most = spent.most_common(1)[0]
    place = Location(file=file, line=line, text=linecache.getline(file, line).strip())
    return LineCost(place, most / total)


class _Tracer:
    """Charges the time between two events to the line of the user's that was under way."""

    def __init__(self, spent: Counter[tuple[str, int]]) -> None:
        self._spent = spent
        self._at: tuple[str, int] | None = None
        self._since_ns = 0

    def call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Follow the lines of functions of the user's, no other's."""
        if user_code.origin(frame.f_code.co_filename) != "user":
            return None
        self._charge((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        here = (frame.f_code.co_filename, frame.f_lineno)
        if event == "return":
            outer = frame.f_back
            theirs = outer is not None and user_code.origin(outer.f_code.co_filename) == "user"
            self._charge((outer.f_code.co_filename, outer.f_lineno) if outer is not None and theirs else None)
        else:
            self._charge(here)
        return self._line

    def _charge(self, now: tuple[str, int] | None) -> None:
        at_ns = time.perf_counter_ns()
        if self._at is not None:
            self._spent[self._at] += at_ns - self._since_ns
        self._at, self._since_ns = now, time.perf_counter_ns()
