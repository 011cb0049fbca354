"""Where each PyDataset is given its workers: the call in the user's source that takes them as arguments."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FrameType
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.model.calls import POOL
from pipeline_bench.model.pipeline import Location
from pipeline_bench.tfdata.public_api import after_import
from pipeline_bench.user_code import source_guards

_made_in: dict[int, Location] = {}
"""The call that each PyDataset's workers are set in, by its identity."""
_without_init: set[int] = set()
"""The identities of those whose class does not call Keras' `__init__`."""


def of(data: Any) -> Location | None:
    """Return the call that a PyDataset's workers are set in, or that makes it; None where it is not known."""
    return _made_in.get(id(data))


def by_attributes(data: Any) -> bool:
    """Return whether no argument of a call sets a PyDataset's workers, but attributes of what the call makes do."""
    return id(data) in _without_init


@contextmanager
def recorded() -> Iterator[None]:
    """Note where each PyDataset that is made in the block is given its workers."""

    def patch(keras: Any) -> None:
        owner = keras.utils.PyDataset
        plain = owner.__init__

        def __init__(self: Any, *arguments: Any, **named: Any) -> None:  # noqa: N807 - in that method's place
            plain(self, *arguments, **named)
            _note(self, _place_of_workers(self, owner))

        def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
            if not vars(self):  # its first one: the `__init__` of its class may never call Keras'
                _note(self, _call_of_init(self), without_init=True)
            super(owner, self).__setattr__(name, value)

        for each in (__init__, __setattr__):
            patches.enter_context(user_code.patched(owner, each.__name__, each))

    with ExitStack() as patches, after_import("keras", patch):
        yield


def _note(made: Any, place: Location | None, *, without_init: bool = False) -> None:
    _made_in.pop(id(made), None)  # of one that is gone, whose identity this one has now
    _without_init.discard(id(made))
    if place is not None:
        _made_in[id(made)] = place
    if place is not None and without_init:
        _without_init.add(id(made))


def _call_of_init(made: Any) -> Location | None:
    """Return the call in the user's code that has an object's `__init__` run now; None where none does."""
    frames = list(user_code.outward(sys._getframe(1)))
    own = [number for number, frame in enumerate(frames) if _is_method_of(made, frame)]
    if not own or frames[own[-1]].f_code.co_name != "__init__":
        return None
    return next(user_code.calls(frames[own[-1] + 1 : own[-1] + 2]), None)


def _place_of_workers(made: Any, base: type) -> Location | None:
    """Return the call that makes a PyDataset if its class hands further arguments on, else the call in it that could.

    None of a user's class upon a library's, which may not take the arguments.
    """
    kind = type(made)
    own = kind.__mro__[: kind.__mro__.index(base)]
    if _is_users(kind) and any("__init__" in vars(each) and not _is_users(each) for each in own):
        return None
    for frame in user_code.outward(sys._getframe(1)):
        place = next(user_code.calls([frame]), None)
        if place is not None and not (_is_method_of(made, frame) and _hands_on(frame.f_code, place)):
            return place
    return None


def _is_method_of(made: Any, frame: FrameType) -> bool:
    """Return whether a frame runs a method of the very object: another class may make it in an `__init__` too."""
    code = frame.f_code
    return code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is made


def _hands_on(code: CodeType, place: Location) -> bool:
    """Return whether a function hands each of `POOL` that it is given on to the call in a place."""
    call = _call_in(place)
    if call is None:
        return False
    named = code.co_argcount + code.co_kwonlyargcount
    further = code.co_varnames[named + bool(code.co_flags & CO_VARARGS)] if code.co_flags & CO_VARKEYWORDS else None
    given = {each.arg for each in call.keywords if each.arg is not None}
    in_dict = any(
        each.arg is None and isinstance(each.value, ast.Name) and each.value.id == further for each in call.keywords
    )
    taken = code.co_varnames[:named]
    return all(name in given if name in taken else in_dict and name not in given for name in POOL)


def _call_in(place: Location) -> ast.Call | None:
    """Return the call that ends in a place; None where the file has it no more."""
    end = place.end_line, place.end_column
    calls = (each for each in source_guards.nodes(place.file) if isinstance(each, ast.Call))
    return next((each for each in calls if (each.end_lineno, each.end_col_offset) == end), None)


def _is_users(kind: type) -> bool:
    return user_code.is_users(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
