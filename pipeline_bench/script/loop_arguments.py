"""Which arguments of a call in a loop are made of nothing that the loop takes, as far as its text says."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import FrameType, ModuleType
from typing import Any

from pipeline_bench.user_code import source_guards

_COMPUTE = ("keras", "numpy", "tensorflow")
"""Packages whose functions make an array of numbers, as of a shape."""
_STRUCTURES = (ast.Constant, ast.List, ast.Name, ast.Tuple, ast.expr_context)
_COMPUTING = (ast.Attribute, ast.BinOp, ast.Call, ast.UnaryOp, ast.keyword, ast.operator, ast.unaryop)


def of_no_batch(frame: FrameType, size: int, names: Sequence[str]) -> frozenset[int | str]:
    """Return those arguments, by place or name, that the loop around the call makes of numbers alone.

    There is none where the text does not tell which call it is, or has no loop around it. What is there before the loop
    may be made of a batch all the same: the loop over the batches may be around the function's call.

    Args:
        frame: of the code that makes the call.
        size: how many arguments are given by their place.
        names: those of the others.
    """
    line, first = frame.f_lineno, frame.f_code.co_firstlineno
    nodes = source_guards.nodes(frame.f_code.co_filename)
    around = [each for each in nodes if isinstance(each, ast.Call | ast.For | ast.While) and each.lineno >= first]
    around = [each for each in around if each.lineno <= line <= (each.end_lineno or line)]
    loops = [each for each in around if not isinstance(each, ast.Call)]
    calls = [each for each in around if isinstance(each, ast.Call) and len(each.args) == size]
    calls = [each for each in calls if [named.arg for named in each.keywords] == [*names]]
    if len(calls) != 1 or not loops:
        return frozenset()
    outermost = min(loops, key=lambda each: each.lineno)
    shared = {name for each in nodes if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
    code = frame.f_code
    own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}  # a function's may be of the batch: its size
    text = _LoopText(outermost, shared, {name: each for name, each in frame.f_globals.items() if name not in own})
    given: Iterator[tuple[int | str, ast.expr]] = chain(
        enumerate(calls[0].args), ((str(each.arg), each.value) for each in calls[0].keywords)
    )
    return frozenset(place for place, value in given if text.is_free(value))


class _LoopText:
    """What a loop sets and reads, and its module's variables."""

    def __init__(self, loop: ast.AST, shared: set[str], known: Mapping[str, Any]) -> None:
        """Read the loop.

        Args:
            loop: that runs.
            shared: names that functions set outside of themselves.
            known: the module's variables.
        """
        nodes = [*ast.walk(loop)]
        self._shared, self._known = shared, known
        self._set = [each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        named = (getattr(each, field, None) for each in nodes for field in ("name", "rest"))  # as by a `case`
        self._set += [name for name in named if isinstance(name, str)]
        self._read = [each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
        self._assigned = [each for each in nodes if isinstance(each, ast.Assign)]

    def is_free(self, value: ast.expr) -> bool:
        """Return whether an argument is made of numbers alone, there or by the loop, which does no more with it."""
        if not isinstance(value, ast.Name):
            return self._is_of_numbers(value)
        if value.id in self._shared or self._read.count(value.id) > 1:  # as in `noise += x`, `noise[:] = x`
            return False
        made = [each.value for each in self._assigned if [ast.unparse(to) for to in each.targets] == [value.id]]
        return 0 < len(made) == self._set.count(value.id) and all(map(self._is_of_numbers, made))

    def _is_of_numbers(self, value: ast.expr) -> bool:
        parts = [*ast.walk(value)]
        names = {each.id for each in parts if isinstance(each, ast.Name)}
        is_plain = all(isinstance(each, (*_STRUCTURES, *_COMPUTING)) for each in parts)
        is_fixed = names.isdisjoint(self._set) and names.isdisjoint(self._shared)
        return is_plain and is_fixed and all(name in self._known and _is_fixed(self._known[name]) for name in names)


def _is_fixed(value: Any) -> bool:
    """Return whether a variable is a number, several of them, or a package that computes of what it is given alone."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in _COMPUTE
    several = isinstance(value, tuple | list) and len(value) > 0
    return isinstance(value, int | float | str) or (several and all(map(_is_fixed, value)))
