"""What calls in the user's Python gave, kept by their arguments while a trial runs; which arguments are drawn anew.

What is kept by such arguments, as by the number of a frame, is seldom asked for again.
"""

from __future__ import annotations

import builtins
import io
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.model.edits import Edit
from pipeline_bench.model.function_edits import Memoize
from pipeline_bench.user_code import call_results
from pipeline_bench.user_code.function_calls import Maker, compiled_with

_WRITING = frozenset("wax+")
"""Letters in the mode of a file that is opened to write to it."""
_TIMES_AGAIN = 3
"""So often the same batch is made again: the few places that one draws may be the same by chance."""
_CALLS_COMPARED = 8
_LATER_SEEDS = (1, 1_000)
"""From which on the two passes have their seeds, behind the first call."""
_Taker = Callable[[], Callable[[], Any]]
_Given = dict[MemoizableCall, list[tuple[Any, ...]]]
"""What calls got, in the order in which they were made."""
Drawn = dict[MemoizableCall, bool | None]
"""Whether the arguments of each call are drawn; None where that is not known."""
_LEAST_COMPARED = 2
"""So many calls of each pass at the least: all that is drawn in front of the first one is the same."""


class Memo:
    """Keeps what a call gave, by its arguments; hands out a copy of what its user may change, such as an array."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._in_place: list[Any] = []
        self._next = 0
        self._lock = threading.Lock()

    def stand_in(self) -> None:
        """From now on, have the kept results stand for those that were not computed yet, by turns."""
        self._in_place = list(self._kept.values())

    def __call__(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key in self._kept:
            return call_results.copied(self._kept[key])
        if self._in_place:
            with self._lock:
                self._next += 1
                return call_results.copied(self._in_place[self._next % len(self._in_place)])
        self._kept[key] = call_results.loaded(make())
        return call_results.copied(self._kept[key])


class Memos:
    """What a trial keeps of the calls that its edits memoize."""

    def __init__(self) -> None:
        self._memos: dict[MemoizableCall, Memo] = {}
        self._in_use = ExitStack()

    def use(self, edits: Iterable[Edit], *, afresh: bool = False) -> None:
        """From now on, have the calls that these edits memoize keep what they give, and no others.

        Args:
            edits: of a trial.
            afresh: whether nothing is known that was kept before.

        Raises:
            PipelineBenchError: the file of a call has changed.
        """
        calls = [edit.call for edit in edits if isinstance(edit, Memoize)]
        memos = {} if afresh else self._memos
        self._in_use.close()
        self._in_use.enter_context(compiled_with({call: memos.setdefault(call, Memo()) for call in calls}))

    def stand_in(self) -> None:
        """As `Memo.stand_in`, of each whose arguments come again: what is drawn anew hits none of those kept so far."""
        self._in_use.enter_context(writing_refused())
        for call, memo in self._memos.items():
            if call.drawn is False:
                memo.stand_in()


def stand_for_all(edits: Iterable[Edit]) -> bool:
    """Return whether what a trial with these edits keeps may stand for what it had no time to make."""
    return all(edit.call.drawn is False for edit in edits if isinstance(edit, Memoize))


@contextmanager
def writing_refused() -> Iterator[None]:
    """Have the user's code fail that opens a file to write to it, by Python or `tf.io.gfile`, in the block.

    Results that stand in for others would be in it for good, as in a cache that a script keeps of its own. A file that
    is open by then is written to, as is one that a library in C opens.
    """
    from tensorflow.python.lib.io.file_io import FileIO

    plain_os, plain_gfile = os.open, FileIO._prewrite_check

    def opens(path: Any, flags: int, *given: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            _refuse(path)
        return plain_os(path, flags, *given, **options)

    def checks(file: Any) -> None:
        _refuse(file.name)
        plain_gfile(file)

    with (
        user_code.patched(builtins, "open", noting_writes(builtins.open, _refuse)),
        user_code.patched(io, "open", noting_writes(io.open, _refuse)),
        user_code.patched(os, "open", opens),
        user_code.patched(FileIO, "_prewrite_check", checks),
    ):
        yield


def _refuse(file: Any) -> None:
    if _by_user():
        raise OSError(f"{file} is not written to: what a trial had no time to make, other results stand for")


def noting_writes(plain: Callable[..., Any], note: Callable[[Any], None]) -> Callable[..., Any]:
    """Return an `open` that first notes each file which it opens to write to."""

    def opens(file: Any, mode: str = "r", *given: Any, **options: Any) -> Any:
        if not _WRITING.isdisjoint(mode):
            note(file)
        return plain(file, mode, *given, **options)

    return opens


def _by_user() -> bool:
    """Return whether the user's code, rather than this program's, is the innermost that led to here."""
    for frame in user_code.outward(sys._getframe(3)):  # that called what stands in the place of `open`
        file = frame.f_code.co_filename
        if file.startswith(user_code.OURS):
            return False
        if user_code.is_users(file):
            return True
    return False


def in_the_same_batch(calls: Sequence[MemoizableCall], again: _Taker, end_s: float, alive: Callable[[], None]) -> Drawn:
    """Return of each call whether it gets other arguments where the same batch is made again; not known if that fails.

    Args:
        calls: in the user's Python.
        again: returns what makes the same batch each time.
        end_s: by the monotonic clock; each batch may be the last one then.
        alive: called after each batch, as a sign of life.
    """
    given: _Given = {call: [] for call in calls}
    try:
        with compiled_with({call: _noting(keys) for call, keys in given.items()}):
            take = again()
            take()
            first = {call: set(keys) for call, keys in given.items()}
            for _ in range(_TIMES_AGAIN):
                take()
                alive()
                if time.monotonic() > end_s:
                    break
    except Exception:  # whatever it is: that they are the same is not known then
        return dict.fromkeys(calls)
    return {call: set(keys) != first[call] for call, keys in given.items()}


def by_later_draws(calls: Sequence[MemoizableCall], taker: _Taker, end_s: float, alive: Callable[[], None]) -> Drawn:
    """Return of each call whether it gets others of its arguments if only what is drawn behind a first call differs.

    A generator that shuffles what it goes over has drawn before that, one that draws a place for each call has not.
    It is not known where it fails, draws from a random generator of its own, or made too few calls in the time.

    Args:
        calls: in the user's Python.
        taker: returns what makes a batch, from the first one on.
        end_s: by the monotonic clock; each batch may be the last one then.
        alive: called after each batch, as a sign of life.
    """
    passes: list[_Given] = []
    try:
        with user_code.python_draws_as_before():
            for later in _LATER_SEEDS:
                seeds = itertools.chain([0], itertools.count(later))
                given: _Given = {call: [] for call in calls}
                passes.append(given)
                user_code.seed_python(next(seeds))
                with compiled_with({call: _noting(keys, seeds) for call, keys in given.items()}):
                    take = taker()
                    for _ in range(_CALLS_COMPARED):
                        take()
                        alive()
                        if time.monotonic() > end_s or all(len(keys) >= _CALLS_COMPARED for keys in given.values()):
                            break
    except Exception:  # whatever it is: nothing is known of them then
        return dict.fromkeys(calls)
    return {call: _differ(*(given[call] for given in passes)) for call in calls}


def _differ(one: Sequence[tuple[Any, ...]], other: Sequence[tuple[Any, ...]]) -> bool | None:
    """Return whether one of two lists has what the other has not; in another order is the same.

    None where they do not begin alike, though all that is drawn from the generators that are seeded is alike till then.
    """
    count = min(len(one), len(other))
    if count < _LEAST_COMPARED or one[0] != other[0]:
        return None
    return set(one[:count]) != set(other[:count])


def _noting(keys: list[tuple[Any, ...]], seeds: Iterator[int] | None = None) -> Maker:
    """Return what makes a call, and notes what it is given; with seeds, all that is drawn behind it begins from one."""

    def note(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        keys.append(key)
        made = make()
        if seeds is not None:
            user_code.seed_python(next(seeds))
        return made

    return note
