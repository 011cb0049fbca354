"""The call that made a generator, to make it again: from its start, and with other code."""

from __future__ import annotations

import copy
import gc
import inspect
from types import FunctionType, GeneratorType
from typing import Any

_SMALL_BYTES = 2**20
"""An array that is no larger may be a list of files or of places, which a generator shuffles."""


class GeneratorCall:
    """The function and the arguments of a generator that has not begun."""

    def __init__(self, function: FunctionType, arguments: dict[str, Any]) -> None:
        self._function = function
        self._arguments = {name: _snapshot(value) for name, value in arguments.items()}

    @classmethod
    def of(cls, generator: Any) -> GeneratorCall | None:
        """Return the call of a generator; None where it has begun, or is no function's, as another iterator."""
        frame = getattr(generator, "gi_frame", None)
        if frame is None or inspect.getgeneratorstate(generator) != inspect.GEN_CREATED:
            return None
        code, known = generator.gi_code, dict(frame.f_locals)
        for each in gc.get_referrers(code):
            if type(each) is FunctionType and each.__code__ is code and _encloses(each, known):
                return cls(each, known)
        return None

    def again(self) -> GeneratorType[Any, Any, Any]:
        """Return a new generator with the same arguments: lists, dicts and small arrays as they were at first."""
        given = {name: _snapshot(value) for name, value in self._arguments.items()}
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, parameter in inspect.signature(self._function, follow_wrapped=False).parameters.items():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                positional += given[name]
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                named |= given[name]
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                named[name] = given[name]
            else:
                positional.append(given[name])
        made: GeneratorType[Any, Any, Any] = self._function(*positional, **named)
        return made


def _encloses(function: FunctionType, known: dict[str, Any]) -> bool:
    """Return whether a function's free variables are those of a generator: of several that one definition made."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    try:
        return all(cell.cell_contents is known[name] for name, cell in cells)
    except (KeyError, ValueError):  # one that has no value yet
        return False


def _snapshot(value: Any) -> Any:
    """Return a value as it is now, where a generator may change it in place."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.copy() if value.nbytes <= _SMALL_BYTES else value
    return copy.copy(value) if isinstance(value, list | dict | set) else value
