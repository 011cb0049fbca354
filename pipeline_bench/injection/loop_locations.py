"""The loops of one line of a program, distinguished by what they iterate over: a training, and its validation."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline_bench import user_code

_ENDS = ("StopIteration", "OutOfRangeError")
"""What a loop that takes its batches itself handles as its data have ended."""
_OF_A_READING = 4
"""References to what a reading of a frame's variables left: the frame's, a list's, a loop's and that of the asking."""
_ENDED = "_pipeline_bench_ended"
"""The attribute of what it handles then that has the loop which ended."""
_PATIENCE = 2
"""Loops of a line whose data did not come again, from which on new data beside them belong to the last of these."""


class Line(NamedTuple):
    """A line of the program that takes batches, by itself or by a library that it calls."""

    file: str
    number: int
    by: str = ""
    """The library's line, ``loop.py:7``; empty where it takes them itself."""

    def __str__(self) -> str:
        return f"{self.file}:{self.number}{self.by and ', by '}{self.by}"


class Loop(NamedTuple):
    """A loop of a line: the one over its first data, or over later ones."""

    line: Line
    data_number: int = 1

    def __str__(self) -> str:
        return f"{self.line}, data {self.data_number}" if self.data_number > 1 else str(self.line)


@dataclass(eq=False)
class _Place:
    """One loop of a line.

    Attributes:
        loop: the line, and which of its data.
        path: from where it was called.
        data: what it iterates over.
        again: whether some of that came again.
        taken: the number of its latest batch when it last began to iterate.
        begun: when that was, as the number of loops that had begun to so far.
    """

    loop: Loop
    path: int
    data: list[weakref.ref[Any]]
    again: bool = False
    taken: int = 0
    begun: int = 0

    def holds(self, data: Any) -> bool:
        """Return whether it iterates over this object."""
        return any(of() is data for of in self.data)

    @property
    def is_free(self) -> bool:
        """Whether all that it iterated over is gone."""
        self.data = [each for each in self.data if each() is not None]
        return not self.data


class Places:
    """The loops of all lines.

    A new object at a line, as one made for each epoch, takes the place of one that is gone, and else is another loop's.
    A loop goes on where it handles the end of its data, ``except StopIteration: batches = iter(data)``, but not in what
    it calls there.
    """

    def __init__(self) -> None:
        self._of_line: dict[Line, list[_Place]] = {}
        self._latest: _Place | None = None
        self._begun = 0

    def loop(self, line: Line, path: int, data: Any, taken: Callable[[Loop], int]) -> Loop:
        """Return the loop that begins to iterate.

        Args:
            line: its own.
            path: from where it was called, by any number.
            data: what it iterates over; None: not known, so that all of them are one loop.
            taken: gives the number of the latest batch of a loop; 0: it has taken none; less: it is not watched.
        """
        try:
            reference = weakref.ref(data)
        except TypeError:  # None, or an object that cannot be referred to so
            return Loop(line)
        places = self._of_line.setdefault(line, [])
        place = next((each for each in places if each.holds(data)), self._going_on(line, data))
        if place is not None:
            place.again = True
        else:
            place = self._of_new(places, path, taken)
            if place is None:
                place = _Place(Loop(line, len(places) + 1), path, [])
                places.append(place)
            place.data.append(reference)
        self._latest, place.taken = place, max(0, taken(place.loop))
        self._begun = place.begun = self._begun + 1
        return place.loop

    def _going_on(self, line: Line, data: Any) -> _Place | None:
        """Return the loop of other lines of the file that this one handles the end of; None: it handles none's."""
        error = sys.exc_info()[1]
        if error is None or type(error).__name__ not in _ENDS:
            return None
        others = (places for other, places in self._of_line.items() if (other.file, other.by) == (line.file, line.by))
        found = [each for places in others for each in places if each.holds(data)]
        if not found:
            return None
        # What the handler calls before, as an evaluation, is no part of the loop that has ended, but the latest then.
        of_data: dict[int, _Place] = vars(error).setdefault(_ENDED, {})
        ended = of_data.setdefault(id(data), max(found, key=lambda each: each.begun))
        trace = error.__traceback__  # begins with who handles it
        return ended if trace is not None and trace.tb_frame.f_lineno == line.number else None

    def _of_new(self, places: list[_Place], path: int, taken: Callable[[Loop], int]) -> _Place | None:
        """Return which of a line's loops iterates over an object that was not seen before; None: another one does."""
        latest = self._latest
        if latest in places and latest is not None and latest.taken == taken(latest.loop):
            return latest  # nothing was taken since: one loop takes from both, as by `zip`
        same = [each for each in places if each.path == path]
        once = [each for each in same if not each.again]
        free = next((each for each in same if each.is_free), None)
        if same and free is None and len(once) < _PATIENCE:  # it would be another loop's
            _forget_old_values(same)
            free = next((each for each in same if each.is_free), None)
        if free is not None:
            free.again = False
            return free
        return once[-1] if len(once) >= _PATIENCE else None


def _forget_old_values(places: Sequence[_Place]) -> None:
    """Have the functions that run here hold nothing any more that a loop iterates over and no variable of theirs has.

    Before Python 3.13, who reads a frame's `f_locals` leaves the values of its variables there until they are read
    again. AutoGraph reads those of all callers where a function that it converts calls `super`. Frames that nobody read
    are left alone, as they would hold what they have from then on; so is one whose own code called `locals()` and has
    the result, which a reading would change.
    """
    if sys.version_info >= (3, 13):
        return
    data = [of() for each in places for of in each.data]
    read = [each for each in gc.get_referrers(*data) if type(each) is dict]
    del data
    for frame in user_code.outward(sys._getframe(1)):
        code = frame.f_code
        names = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for each in read:  # a reading of this frame has its variables by name, its arguments among them
            is_its_own = names.issuperset(each) and all(name in each for name in given)
            if is_its_own and sys.getrefcount(each) <= _OF_A_READING:
                _ = frame.f_locals
