"""A user's generator: the call that made it, to make it again, from its start or with other code; whether it ends."""

from __future__ import annotations

import ast
import copy
import functools
import gc
import inspect
import textwrap
from types import FunctionType, GeneratorType
from typing import Any

from pipeline_bench.user_code.source_guards import own_nodes

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


def never_ends(function: Any) -> bool:
    """Return whether a generator's text shows that it never ends: its values come from a ``while True`` without an end.

    Of a lambda that calls a function, that function's text counts. What another exception may end is not endless.
    """
    try:
        return _never_ends(function)
    except Exception:  # not written in a file, a part of a larger expression, a name without a value
        return False


def _never_ends(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    if hasattr(function, "__wrapped__"):  # whose text is that of another
        return False
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    defined = next((each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.Lambda)), None)
    if isinstance(defined, ast.Lambda) and isinstance(defined.body, ast.Call) and isinstance(function, FunctionType):
        known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        called = known.get(defined.body.func.id) if isinstance(defined.body.func, ast.Name) else None
        return isinstance(called, FunctionType) and called is not function and never_ends(called)
    if not isinstance(defined, ast.FunctionDef):
        return False
    leaves = any(isinstance(each, ast.Return | ast.Raise) for each in own_nodes(defined.body))
    loops = [each for each in defined.body if isinstance(each, ast.While) and _is_true(each.test)]
    return not leaves and any(_yields(loop) and not _breaks(loop.body) for loop in loops)


def _is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _yields(loop: ast.While) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own_nodes(loop.body))


def _breaks(body: list[ast.stmt]) -> bool:
    """Return whether a loop's body has a `break` of that loop, and not of one within it."""
    for statement in body:
        if isinstance(statement, ast.Break):
            return True
        names = ("orelse",) if isinstance(statement, ast.For | ast.While) else ("body", "orelse", "finalbody")
        parts = [getattr(statement, name, []) for name in names]
        parts += [each.body for name in ("handlers", "cases") for each in getattr(statement, name, [])]
        if not isinstance(statement, ast.FunctionDef) and any(map(_breaks, parts)):
            return True
    return False
