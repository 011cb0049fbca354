"""Calls in the user's functions: found in their source, and handed to something else that makes them.

Functions are compiled anew, with `maker((path,), lambda: load(path))` in the place of `load(path)`. Assignments in a
row to one variable, `x = load(path)` and `x = resize(x)`, count as one call.
"""

from __future__ import annotations

import ast
import builtins
import gc
import linecache
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, TypeGuard

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.text import one_line
from pipeline_bench.user_code import source_guards

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


def calls_in(file: str, line: int, functions: _Functions) -> list[MemoizableCall]:
    """Return the calls in a line of a function, as far as they may depend on nothing but what they are given.

    Args:
        file: that the line is in.
        line: its number.
        functions: of the file, as `functions_of` finds them.
    """
    around = _functions_around(source_guards.nodes(file), line)
    if not around:
        return []
    names = _bound(around[0])
    wanted = {(node.name, _first_line(node)) for node in around}
    namespace = next((each.__globals__ for each in functions[file] if _of(each) in wanted), {})
    return list(
        dict.fromkeys(
            _calls_within(file, around[-1], line, lambda name: name in names or not _is_constant(name, namespace))
        )
    )


def _calls_within(file: str, function: ast.AST, line: int, varies: Callable[[str], bool]) -> Iterator[MemoizableCall]:
    """Yield the calls and the assignments in a row of a function that a line is of, without those of inner functions.

    Args:
        file: that it is in.
        function: its definition.
        line: one in its body.
        varies: whether a name may stand for something else at another call.
    """
    inner = {
        id(node)
        for each in ast.walk(function)
        if each is not function and isinstance(each, _FUNCTIONS)
        for node in ast.walk(each)
    }
    elsewhere = _shared_names(function)
    for statement in ast.walk(function):
        if id(statement) in inner:
            continue
        if isinstance(statement, ast.stmt) and statement.lineno <= line:
            for node in _calls_of(statement):
                if node.lineno <= line <= (node.end_lineno or node.lineno) and (keys := _keys(node, varies)):
                    yield _call(file, [node], keys)
        for run in _runs(statement, line):
            if _variable(run[0]) not in elsewhere and (keys := _keys_of_run(run, varies)):
                yield _call(file, run, keys)


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements that a node holds."""
    for name in ("body", "orelse", "finalbody"):
        if isinstance(block := getattr(node, name, None), list):
            yield block


def _runs(node: ast.AST, line: int) -> Iterator[list[ast.stmt]]:
    """Yield assignments in a row to one variable, two at least, of which one stands in a line and all read the last.

    The first makes the variable of something else, so that what they make is known of it.
    """
    for block in _blocks(node):
        for first, statement in enumerate(block):
            if not _assigns(statement) or _reads(statement.value, _variable(statement)):
                continue
            for last in range(first + 1, len(block)):
                then = block[last]
                name = _variable(statement)
                if not _assigns(then) or _variable(then) != name or not _reads(then.value, name):
                    break
                if any(each.lineno <= line <= (each.end_lineno or each.lineno) for each in block[first : last + 1]):
                    yield block[first : last + 1]


def _assigns(statement: ast.AST) -> TypeGuard[ast.Assign]:
    return bool(_variable(statement))


def _variable(statement: ast.AST) -> str:
    """Return the one variable that a statement assigns to; empty of any other statement."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _keys_of_run(run: Sequence[ast.stmt], varies: Callable[[str], bool]) -> list[ast.expr] | None:
    """Return what assignments depend on beside their variable; None where they cannot be a function of that."""
    own = _variable(run[0])
    found: list[ast.expr] = []
    for each in run:
        keys = _keys(each.value, lambda name: name != own and varies(name)) if _assigns(each) else None
        if keys is None or any(_reads(key, own) for key in keys):
            return None
        found += keys
    return found


def _shared_names(function: ast.AST) -> set[str]:
    """Return the names that a function shares with others: global and nonlocal ones, and those that inner ones read."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
        elif isinstance(node, (*_FUNCTIONS, ast.Lambda)) and node is not function:
            found.update(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
    return found


def _calls_of(statement: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls in a statement's own expressions, those that hold others first."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr | ast.withitem | ast.keyword):
            yield from (node for node in ast.walk(child) if isinstance(node, ast.Call))


def _call(file: str, nodes: Sequence[ast.expr | ast.stmt], keys: list[ast.expr]) -> MemoizableCall:
    """Return a call, or assignments in a row, as data."""
    first, last = nodes[0], nodes[-1]
    return MemoizableCall(
        file=file,
        line=first.lineno,
        column=first.col_offset,
        end_line=_end(last)[0],
        end_column=_end(last)[1],
        text=one_line("; ".join(map(ast.unparse, nodes)), 60),
        variable=_variable(first),
        arguments=tuple(dict.fromkeys(map(ast.unparse, keys))),
    )


def _functions_around(nodes: Iterable[ast.AST], line: int) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the definitions of functions in whose body a line is, the outermost first."""
    found = [
        node
        for node in nodes
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
    return min(each.lineno for each in (node, *node.decorator_list))


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
    calls = tuple(calls)
    replace = _Replace(calls)
    around = {(each.name, _first_line(each)) for call in calls for each in _functions_around(ast.walk(tree), call.line)}
    code = compile(replace.visit(tree), file, "exec", dont_inherit=True)
    if replace.missing:
        raise PipelineBenchError(f"{PurePath(file).name} has changed")
    codes = ((each.co_name, each.co_firstlineno, each) for each in inner_codes(code))
    return {(name, line): each for name, line, each in codes if (name, line) in around}


class _Replace(ast.NodeTransformer):
    """Has calls, and assignments in a row, made by their makers."""

    def __init__(self, calls: Iterable[MemoizableCall]) -> None:
        self._calls = {(call.line, call.column, call.end_line, call.end_column): call for call in calls}
        self.missing = set(self._calls.values())

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for block in _blocks(node):
            block[:] = self._joined(block)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return self._made(node, (node.lineno, node.col_offset), node)

    def _joined(self, block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield statements, those of a run as one: ``x = maker((path,), lambda: (lambda x: g(x))(f(path)))``."""
        index = 0
        while index < len(block):
            first = block[index]
            start = (first.lineno, first.col_offset)
            ends = [place[2:] for place, call in self._calls.items() if call.variable and place[:2] == start]
            end = max(ends, default=None)
            value = first.value if isinstance(first, ast.Assign) else None
            last = next((n for n in range(index, len(block)) if _end(block[n]) == end), None)
            if last is None or value is None:
                yield first
                index += 1
                continue
            for then in block[index + 1 : last + 1]:
                assert isinstance(then, ast.Assign)
                of = ast.Lambda(ast.arguments([], [ast.arg(_variable(then))], None, [], [], None, []), then.value)
                value = self._made(_at(ast.Call(of, [value], []), then), start, then)
            assert isinstance(first, ast.Assign)
            yield _at(ast.Assign(first.targets, value), first)
            index = last + 1

    def _made(self, value: ast.expr, start: tuple[int, int], at: ast.expr | ast.stmt) -> ast.expr:
        """Return a value as the maker of a call, or of a run, that stands from there to the end of a node gives it."""
        call = self._calls.get((*start, *_end(at)))
        if call is None:
            return value
        self.missing.discard(call)
        keys = "".join(f"{each}, " for each in call.arguments)
        made = ast.parse(f"{_name(call)}(({keys}), lambda: _)", mode="eval").body
        for each in ast.walk(made):
            ast.copy_location(each, at)
        assert isinstance(made, ast.Call)
        assert isinstance(made.args[1], ast.Lambda)
        made.args[1].body = value
        return made


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _at(made: Any, node: ast.AST) -> Any:
    """Return a node that was made, in the place of another."""
    return ast.fix_missing_locations(ast.copy_location(made, node))


def inner_codes(code: CodeType) -> Iterator[CodeType]:
    """Return the codes of the functions and classes that are defined in one, also of those within these."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from inner_codes(each)


def is_key(value: Any) -> bool:
    """Return whether a value cannot change, so that it can name a result."""
    import numpy as np

    if isinstance(value, tuple):
        return all(map(is_key, value))
    return isinstance(value, str | bytes | numbers.Number | bool | None | PurePath | np.generic)
