"""Whether a script's loop calls more for each batch than the step that a trial makes, as far as its text says.

    for batch in dataset:                  # a step is one call of train_d, and the loop makes eleven of two functions
        for _ in range(5):
            train_d(batch)
            train_d(batch)
        train_g()

Followed are the loop, the functions between it and the call, and functions of the user's that these call. A branch of a
condition counts if the call is in it; another, if it is for every so many steps: ``if step % 5 == 0``.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

from pipeline_bench import user_code
from pipeline_bench.script import training_calls
from pipeline_bench.user_code import source_guards, source_loops
from pipeline_bench.user_code.source_loops import SourceLoop

_TRAINS = ("GradientTape", "train_on_batch")
_DEEPEST = 3
"""So many calls of the user's own functions within each other are followed."""
_ENDS = (ast.Break, ast.Continue, ast.Raise, ast.Return)
_APART = (ast.AsyncFunctionDef, ast.ClassDef, ast.FunctionDef, ast.If, ast.Match)
"""Statements that do not run what is in them, or not always."""


class _Found(NamedTuple):
    """A call in a text."""

    call: ast.Call
    at_times: bool
    """Whether it is made for every so many steps."""


def part(name: str, taken_in: Sequence[SourceLoop], step: FrameType | None = None) -> str:
    """Return the name of what makes a step, if the loop calls more for each batch; else nothing.

    Args:
        name: of what makes the step.
        taken_in: the loops around what took the first batch, inner ones first.
        step: the frame that calls what makes the step; None: the innermost of the user's.
    """
    if step is None:
        frames = user_code.outward(sys._getframe(1))
        step = next((each for each in frames if user_code.origin(each.f_code.co_filename) == "user"), None)
    return name if step is not None and _makes_more(step, taken_in) else ""


def _makes_more(step: FrameType, taken_in: Sequence[SourceLoop]) -> bool:
    around = [*source_loops.around(innermost=step)]
    within = [*takewhile(lambda each: each not in taken_in, around)]
    if len(within) == len(around):  # the loop that takes the batches is not around it
        return False
    if within:
        return True
    loop, frame = around[0], step
    while id(frame) != loop.frame:
        if _calls_more(_body(frame.f_code), scope_of(frame), frame.f_lineno):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    begun = (each for each in source_guards.nodes(loop.file) if isinstance(each, ast.For | ast.While))
    body = next((each.body for each in begun if each.lineno == loop.line), [])
    return _calls_more(body, scope_of(frame), frame.f_lineno)


def scope_of(frame: FrameType) -> Mapping[str, Any]:
    """Return the variables that a frame knows."""
    return {**frame.f_globals, **frame.f_locals}


def _body(code: CodeType) -> list[ast.stmt]:
    """Return the statements of a function of the user's; none of another, nor of what is not found."""
    if user_code.origin(code.co_filename) != "user":
        return []
    found = source_guards.function_of(code.co_filename, code.co_name, code.co_firstlineno)
    return found.body if isinstance(found, ast.FunctionDef) else []


def _calls_more(body: list[ast.stmt], scope: Mapping[str, Any], line: int, depth: int = 0) -> bool:
    """Return whether statements call what trains, or any `tf.function`, in another line than this one."""
    for found in _calls(body, line):
        call = found.call
        if line in range(call.lineno, (call.end_lineno or call.lineno) + 1):
            continue
        if getattr(call.func, "attr", "") in _TRAINS and not found.at_times:
            return True
        value, owner = held(call.func, scope)
        if _is_tf_function(value):
            if not found.at_times or _trains(value.python_function):
                return True
        elif isinstance(value, FunctionType) and depth < _DEEPEST and not found.at_times:
            code = value.__code__
            own = {code.co_varnames[0]: owner} if owner is not None and code.co_argcount else {}
            if _calls_more(_body(code), {**value.__globals__, **own}, 0, depth + 1):
                return True
    return False


def _calls(body: Iterable[ast.stmt], line: int, at_times: bool = False) -> Iterator[_Found]:
    """Yield the calls that statements make in each round in which it comes to a line of theirs, and those at times."""
    for statement in body:
        if isinstance(statement, ast.If):
            taken = [each for each in (statement.body, statement.orelse) if source_guards.spans(each, line)]
            is_periodic = not taken and any(isinstance(each, ast.Mod) for each in ast.walk(statement.test))
            for branch in taken or [statement.body] * is_periodic:
                yield from _calls(branch, line, at_times or is_periodic)
            if taken and isinstance(taken[0][-1], _ENDS):
                return
        elif not isinstance(statement, _APART):
            yield from _calls_in(statement, line, at_times)
        if isinstance(statement, _ENDS):
            return


def _calls_in(statement: ast.stmt, line: int, at_times: bool) -> Iterator[_Found]:
    """Yield the calls of a statement that is no condition: its own, and those of the statements in it."""
    inner = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    own = [each for each in ast.iter_child_nodes(statement) if not isinstance(each, ast.stmt | ast.ExceptHandler)]
    for each in own:
        yield from (_Found(node, at_times) for node in ast.walk(each) if isinstance(node, ast.Call))
    for statements in inner:
        yield from _calls(statements, line, at_times)


def held(node: ast.expr, scope: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what a name, or an attribute of one, holds, and of a method what it is of; nothing of the user's runs."""
    if isinstance(node, ast.Name):
        return scope.get(node.id), None
    if not isinstance(node, ast.Attribute):
        return None, None
    owner, _ = held(node.value, scope)
    try:
        found = None if owner is None else inspect.getattr_static(owner, node.attr)
    except AttributeError:
        return None, None
    if isinstance(found, staticmethod):
        return found.__func__, None
    return found, None if isinstance(owner, ModuleType | type) else owner


def _is_tf_function(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "get_concrete_function") and hasattr(kind, "python_function")


def _trains(function: Callable[..., Any]) -> bool:
    """Return whether the text of a function calls what trains."""
    code = getattr(function, "__code__", None)
    body = [] if code is None else _body(code)
    return training_calls.trains(ast.Module(body=body, type_ignores=[]))
