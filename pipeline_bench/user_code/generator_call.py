"""A user's generator: the call that made it, to make it again, from its start or with other code; whether it ends."""

from __future__ import annotations

import ast
import builtins
import copy
import dis
import functools
import gc
import inspect
import itertools
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

from pipeline_bench.user_code import assignments
from pipeline_bench.user_code.function_calls import inner_codes
from pipeline_bench.user_code.source_guards import own_nodes

_SMALL_BYTES = 2**20
"""An array that is no larger may be a list of files or of places, which a generator shuffles."""
_OF_LOCALS = ("STORE_FAST", "DELETE_FAST")
"""How the names of the instructions begin that set or delete a local variable which no other function uses."""
_OF_PICTURES = ("keras.src.legacy.preprocessing.image", "tf_keras.src.preprocessing.image")
"""The modules with the class of what `ImageDataGenerator.flow` and its like make."""

_FUNCTIONS = (FunctionType, MethodType)
_INFINITE = ("float('inf')", "inf", "math.inf", "np.inf", "numpy.inf")


class GeneratorCall:
    """The function and the arguments of a generator: as it was given them, or as they are now where it has begun."""

    def __init__(self, function: FunctionType, arguments: dict[str, Any]) -> None:
        self._function = function
        self._arguments = {name: _snapshot(value) for name, value in arguments.items()}

    @classmethod
    def of(cls, generator: Any) -> GeneratorCall | None:
        """Return the call of a generator; None of another iterator, and where it has begun and lost what it was given.

        A generator has begun where a script has looked at its first batch.
        """
        frame = getattr(generator, "gi_frame", None)
        if frame is None:
            return None
        code, known = generator.gi_code, dict(frame.f_locals)
        begun = inspect.getgeneratorstate(generator) != inspect.GEN_CREATED
        for each in gc.get_referrers(code):
            if type(each) is FunctionType and each.__code__ is code and _encloses(each, known):
                names = inspect.signature(each, follow_wrapped=False).parameters
                arguments = {name: known[name] for name in names if name in known}
                known_no_more = len(arguments) < len(names) or (begun and _has_lost(code, arguments))
                return None if known_no_more else cls(each, arguments)
        return None

    def again(self) -> GeneratorType[Any, Any, Any]:
        """Return a new generator with the same arguments: lists, dicts and small arrays as they were at first."""
        bound = inspect.signature(self._function, follow_wrapped=False).bind_partial()
        bound.arguments.update({name: _snapshot(value) for name, value in self._arguments.items()})
        made: GeneratorType[Any, Any, Any] = self._function(*bound.args, **bound.kwargs)
        return made


def _encloses(function: FunctionType, known: dict[str, Any]) -> bool:
    """Return whether a function's free variables are those of a generator: of several that one definition made."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    try:
        return all(cell.cell_contents is known[name] for name, cell in cells)
    except (KeyError, ValueError):  # one that has no value yet
        return False


def _has_lost(code: CodeType, arguments: Mapping[str, Any]) -> bool:
    """Return whether a generator that has begun may have lost what it was given.

    Its code, or that of a function within it, sets or deletes a parameter; or it may have read from an iterator.
    """
    shared = ("STORE_DEREF", "DELETE_DEREF")
    found = [each for each in dis.get_instructions(code) if each.opname.startswith((*shared, *_OF_LOCALS))]
    for inner in inner_codes(code):  # in which a local variable is another
        found += [each for each in dis.get_instructions(inner) if each.opname.startswith(shared)]
    is_set = not arguments.keys().isdisjoint(itertools.chain.from_iterable(map(_names_stored, found)))
    return is_set or any(isinstance(value, Iterator) for value in arguments.values())


def _names_stored(instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the names that an instruction sets or deletes: some of Python 3.13 set two, or set one and load one."""
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    return names[:1] if "LOAD" in instruction.opname else names


def _snapshot(value: Any) -> Any:
    """Return a value as it is now, where a generator may change it in place."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.copy() if value.nbytes <= _SMALL_BYTES else value
    return copy.copy(value) if isinstance(value, list | dict | set) else value


def never_ends(function: Any) -> bool:
    """Return whether a generator's text shows that it never ends: its values come from a ``while True`` without an end.

    So do those from `itertools.cycle` or `count`, and from another function that never ends; a ``with`` may be around
    the loop. Of a lambda that calls a function, that function's text counts. One that gives a Keras iterator of
    pictures, as `flow_from_directory` makes it, never ends. What another exception may end is not endless.
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
    if isinstance(defined, ast.Lambda) and isinstance(function, FunctionType):
        return _gives_endless(function, defined.body)
    if not isinstance(defined, ast.FunctionDef):
        return False
    leaves = any(isinstance(each, ast.Return | ast.Raise) for each in own_nodes(defined.body))
    return not leaves and _goes_on(defined.body, _known_in(function, defined))


def _known_in(function: Any, defined: ast.FunctionDef | ast.Lambda) -> dict[str, Any]:
    """Return the values of the names in a function, or a method with its object, that it does not set itself."""
    plain = getattr(function, "__func__", function)
    known = {**plain.__globals__, **inspect.getclosurevars(plain).nonlocals}
    if inspect.ismethod(function) and defined.args.args:
        known[defined.args.args[0].arg] = function.__self__
    return known


def _goes_on(body: Iterable[ast.stmt], known: Mapping[str, Any]) -> bool:
    """Return whether some statements come to one that gives values without an end."""
    for each in body:
        match each:
            case ast.With() if not assignments.suppresses(each):
                endless = _goes_on(each.body, known)
            case ast.Try(handlers=[]):
                endless = _goes_on(each.body, known)
            case ast.While():
                endless = _is_true(each.test) and _yields(each) and not _breaks(each.body)
            case ast.For():
                endless = _is_endless(each.iter, known) and _yields(each) and not _breaks(each.body)
            case ast.Expr(value=ast.YieldFrom(value=value)):
                endless = _is_endless(value, known)
            case _:
                endless = False
        if endless:
            return True
    return False


def _is_endless(node: ast.expr, known: Mapping[str, Any]) -> bool:
    """Return whether an expression gives values without an end: a function that does, `itertools.cycle` or `count`."""
    if not isinstance(node, ast.Call):
        return False
    called = _value_of(node.func, known)
    if called is enumerate:
        return _is_endless(node.args[0], known)
    return called in (itertools.cycle, itertools.count) or (isinstance(called, _FUNCTIONS) and never_ends(called))


def _value_of(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return what a name, or an attribute of one, stands for; None where that is not known. No property is run."""
    match node:
        case ast.Name(id=name):
            return known.get(name, getattr(builtins, name, None))
        case ast.Attribute(value=ast.Name(id=of), attr=name) if of in known:
            found = inspect.getattr_static(known[of], name, None)
            is_own = isinstance(found, FunctionType) and not isinstance(known[of], ModuleType | type)
            return MethodType(found, known[of]) if is_own else found
    return None


def _gives_endless(function: FunctionType, body: ast.expr) -> bool:
    """Return whether what a lambda only calls, or names, never ends: a function, or Keras' iterator of pictures."""
    known, code = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}, function.__code__
    if isinstance(body, ast.Call):
        return _value_of(body.func, known) is not function and _is_endless(body, known)
    if not isinstance(body, ast.Name) or (*code.co_names, *code.co_freevars) != (body.id,):
        return False  # else it is another lambda's text
    return _goes_round(known.get(body.id))


def _goes_round(value: Any) -> bool:
    """Return whether it is such an iterator of Keras 2 or 3, which goes on to the next epoch by itself."""
    kinds = [sys.modules[name].Iterator for name in _OF_PICTURES if name in sys.modules]
    own = ("__iter__", "__next__", "_flow_index")
    return any(
        isinstance(value, kind) and all(getattr(type(value), name) is getattr(kind, name) for name in own)
        for kind in kinds
    )


def _is_true(test: ast.expr) -> bool:
    """Return whether a test always holds: ``True``, or that something is less than infinity."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Compare(ops=[ast.Lt() | ast.LtE()], comparators=[than]):
            return ast.unparse(than) in _INFINITE
    return False


def _yields(loop: ast.While | ast.For) -> bool:
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
