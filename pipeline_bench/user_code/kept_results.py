"""What calls in the user's Python gave, kept by their arguments while a trial runs."""

from __future__ import annotations

import builtins
import io
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.model.edits import Edit
from pipeline_bench.model.function_edits import Memoize
from pipeline_bench.user_code import call_results
from pipeline_bench.user_code.function_calls import compiled_with

_WRITING = frozenset("wax+")
"""Letters in the mode of a file that is opened to write to it."""


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

    modules: tuple[Any, ...] = (builtins, io)
    plain, plain_os, plain_gfile = [module.open for module in modules], os.open, FileIO._prewrite_check

    def opens(path: Any, flags: int, *given: Any, **options: Any) -> int:
        _refuse(path, bool(flags & (os.O_WRONLY | os.O_RDWR)))
        return plain_os(path, flags, *given, **options)

    def checks(file: Any) -> None:
        _refuse(file.name, is_writing=True)
        plain_gfile(file)

    try:
        for module in modules:
            module.open = _refusing(module.open)
        os.open, FileIO._prewrite_check = opens, checks
        yield
    finally:
        os.open, FileIO._prewrite_check = plain_os, plain_gfile
        for module, before in zip(modules, plain, strict=True):
            module.open = before


def _refuse(file: Any, is_writing: bool) -> None:
    if is_writing and _by_user():
        raise OSError(f"{file} is not written to: what a trial had no time to make, other results stand for")


def _refusing(plain: Callable[..., Any]) -> Callable[..., Any]:
    def opens(file: Any, mode: str = "r", *given: Any, **options: Any) -> Any:
        _refuse(file, not _WRITING.isdisjoint(mode))
        return plain(file, mode, *given, **options)

    return opens


def _by_user() -> bool:
    """Return whether the user's code, rather than this program's, is the innermost that led to here."""
    frame = sys._getframe(3)  # that called what stands in the place of `open`
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(user_code.OURS):
            return False
        if user_code.is_users(file):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
