"""Calls in the user's functions: found in their source, and handed to something else that makes them.

Functions are compiled anew, with `maker((path,), lambda: load(path))` in the place of `load(path)`.
"""

from __future__ import annotations

import ast
import builtins
import gc
import linecache
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.text import one_line

_MAKER = "_pipeline_bench_maker_{}_{}_{}_{}"
"""The name of what makes a call, by its place; with two underscores it would be another one within a class."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_OWN_NAMES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)
_NOT_ALWAYS = (ast.IfExp, ast.BoolOp, ast.Yield, ast.YieldFrom, ast.Await)
"""Expressions of which a part runs sometimes only, or that hand control to somebody else."""
_OF_FRAMES = ("super", "locals", "vars", "eval", "exec")
"""Built-in functions that see the function that calls them."""

_Functions = dict[str, list[FunctionType]]
"""Those of each file."""
Maker = Callable[[tuple[Any, ...], Callable[[], Any]], Any]
"""Gets the values of a call's arguments, and what makes the call; returns what stands for its result."""


def calls_in(file: str, line: int, functions: _Functions | None = None) -> list[MemoizableCall]:
    """Return the calls in a line of a function, as far as they may depend on nothing but what they are given."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    around = _functions_around(tree, line)
    if not around:
        return []
    names = _bound(around[0])
    wanted = {(node.name, _first_line(node)) for node in around}
    made = (functions if functions is not None else functions_of({file}))[file]
    namespace = next((each.__globals__ for each in made if _of(each) in wanted), {})
    inner = {
        id(node)
        for each in ast.walk(around[-1])
        if each is not around[-1] and isinstance(each, _FUNCTIONS)
        for node in ast.walk(each)
    }
    found = []
    for statement in ast.walk(around[-1]):
        if isinstance(statement, ast.stmt) and id(statement) not in inner and statement.lineno <= line:
            for node in _calls_of(statement):
                if node.lineno <= line <= (node.end_lineno or node.lineno):
                    keys = _keys(node, lambda name: name in names or not _is_constant(name, namespace))
                    if keys:
                        found.append(_call(file, node, keys))
    return list(dict.fromkeys(found))


def _calls_of(statement: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls in a statement's own expressions, those that hold others first."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr | ast.withitem | ast.keyword):
            yield from (node for node in ast.walk(child) if isinstance(node, ast.Call))


def _call(file: str, node: ast.Call, keys: list[ast.expr]) -> MemoizableCall:
    return MemoizableCall(
        file=file,
        line=node.lineno,
        column=node.col_offset,
        end_line=node.end_lineno or node.lineno,
        end_column=node.end_col_offset or 0,
        text=one_line(ast.unparse(node), 60),
        arguments=tuple(dict.fromkeys(map(ast.unparse, keys))),
    )


def _functions_around(tree: ast.AST, line: int) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the definitions of functions in whose body a line is, the outermost first."""
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _FUNCTIONS) and node.body[0].lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return sorted(found, key=lambda node: node.lineno)


def _bound(function: ast.AST) -> set[str]:
    """Return the names that a function, or one in it, makes something of its own."""
    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.ExceptHandler)) and node is not function and node.name:
            names.add(node.name)
    return names


def _keys(node: ast.AST, varies: Callable[[str], bool]) -> list[ast.expr] | None:
    """Return the parts without calls that an expression depends on; None where it cannot be a function of them."""
    if isinstance(node, (*_OWN_NAMES, *_NOT_ALWAYS)) or (isinstance(node, ast.Name) and node.id in _OF_FRAMES):
        return None
    if isinstance(node, ast.FormattedValue | ast.Starred | ast.keyword):
        return _keys(node.value, varies)
    inside = ast.walk(_tensor_of(node))
    whole = not any(isinstance(each, (ast.Call, *_OWN_NAMES, *_NOT_ALWAYS)) for each in inside)
    if whole and isinstance(node, ast.expr) and not isinstance(node, ast.Slice | ast.Tuple):
        return [node] * any(isinstance(each, ast.Name) and varies(each.id) for each in ast.walk(node))
    found: list[ast.expr] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.Call) and child is node.func and isinstance(child, ast.Attribute):
            child = child.value  # noqa: PLW2901 - what a method is of
        if isinstance(child, ast.expr | ast.keyword):
            keys = _keys(child, varies)
            if keys is None:
                return None
            found += keys
    return found


def _tensor_of(node: ast.AST) -> ast.AST:
    """Return what an expression is the value of, as ``path`` of ``path.numpy()``; of another one itself."""
    match node:
        case ast.Call(func=ast.Attribute(value=tensor, attr="numpy"), args=[], keywords=[]):
            return tensor
    return node


def _is_constant(name: str, namespace: Mapping[str, Any]) -> bool:
    """Return whether a global name is a module, a function or a class, or a value that nothing can change."""
    value = namespace.get(name, getattr(builtins, name, None))
    return isinstance(value, ModuleType | FunctionType | BuiltinFunctionType | type) or (
        value is not None and is_key(value)
    )


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min(node.lineno, *(each.lineno for each in node.decorator_list)) if node.decorator_list else node.lineno


def functions_of(files: AbstractSet[str]) -> _Functions:
    """Return the functions that the code of files has made."""
    found: _Functions = {file: [] for file in files}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in found:
            found[each.__code__.co_filename].append(each)
    return found


@contextmanager
def compiled_with(makers: Mapping[MemoizableCall, Maker]) -> Iterator[None]:
    """Have calls made by others in the block, in every function that makes them.

    Args:
        makers: of calls as `calls_in` gives them.

    Raises:
        PipelineBenchError: a file has changed, or the function of a call is not there.
    """
    changed: list[tuple[FunctionType, CodeType]] = []
    try:
        for file, functions in functions_of({call.file for call in makers}).items() if makers else ():
            calls = [call for call in makers if call.file == file]
            codes = _compiled(file, calls)
            found = [(each, codes[_of(each)]) for each in functions if _of(each) in codes]
            same = [(each, new) for each, new in found if new.co_freevars == each.__code__.co_freevars]
            if not same:
                raise PipelineBenchError(f"the function of {PurePath(file).name}:{calls[0].line} was not found")
            for function, new in same:
                function.__globals__.update({_name(call): makers[call] for call in calls})
                changed.append((function, function.__code__))
                function.__code__ = new
        yield
    finally:
        for function, old in changed:
            function.__code__ = old


def _of(function: FunctionType) -> tuple[str, int]:
    return function.__code__.co_name, function.__code__.co_firstlineno


def _name(call: MemoizableCall) -> str:
    return _MAKER.format(call.line, call.column, call.end_line, call.end_column)


def _compiled(file: str, calls: Iterable[MemoizableCall]) -> dict[tuple[str, int], CodeType]:
    """Return the code of the functions around calls, with the calls made by their makers, by name and first line."""
    tree = ast.parse("".join(linecache.getlines(file)))
    nodes = {_place(each): each for each in ast.walk(tree) if isinstance(each, ast.Call)}
    new: dict[ast.AST, ast.Call] = {}
    around: set[tuple[str, int]] = set()
    for call in calls:
        node = nodes.get((call.line, call.column, call.end_line, call.end_column))
        if node is None:
            raise PipelineBenchError(f"{PurePath(file).name} has changed")
        around.update((each.name, _first_line(each)) for each in _functions_around(tree, call.line))
        text = f"{_name(call)}(({''.join(f'{each}, ' for each in call.arguments)}), lambda: _)"
        made = ast.parse(text, mode="eval").body
        assert isinstance(made, ast.Call)
        for each in ast.walk(made):
            ast.copy_location(each, node)
        new[node] = made
    code = compile(_Replace(new).visit(tree), file, "exec", dont_inherit=True)
    codes = ((each.co_name, each.co_firstlineno, each) for each in _inside(code))
    return {(name, line): each for name, line, each in codes if (name, line) in around}


def _place(node: ast.expr) -> tuple[int, int, int | None, int | None]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


class _Replace(ast.NodeTransformer):
    """Puts calls of makers around calls."""

    def __init__(self, new: Mapping[ast.AST, ast.Call]) -> None:
        self._new = new

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        made = self._new.get(node, node)
        if made is not node and isinstance(made.args[1], ast.Lambda):
            made.args[1].body = node
        return made


def _inside(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _inside(each)


def is_key(value: Any) -> bool:
    """Return whether a value cannot change, so that it can name a result."""
    import numpy as np

    if isinstance(value, tuple):
        return all(map(is_key, value))
    return isinstance(value, str | bytes | numbers.Number | bool | None | PurePath | np.generic)
