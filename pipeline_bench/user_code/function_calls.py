"""Calls in the user's functions: found in their source, and handed to something else that makes them.

Functions are compiled anew, with `maker((path,), lambda: load(path))` in the place of `load(path)`. Assignments in a
row, `x = load(path)` and `x = resize(x)`, count as one call.
"""

from __future__ import annotations

import ast
import gc
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import PurePath
from types import CodeType, FunctionType
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.text import one_line
from pipeline_bench.user_code import assignments, call_keys, set_anew, source_guards
from pipeline_bench.user_code.call_keys import Varies, keys_of
from pipeline_bench.user_code.own_methods import Owner

_MAKER = "_pipeline_bench_maker_{}_{}_{}_{}"
"""The name of what makes a call, by its place; with two underscores it would be another one within a class."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_Functions = dict[str, list[FunctionType]]
"""Those of each file."""
_Made = tuple[Sequence[ast.expr | ast.stmt], list[ast.expr] | None]
"""A call or assignments in a row, and what they depend on; None where they cannot be a function of that."""
Maker = Callable[[tuple[Any, ...], Callable[[], Any]], Any]
"""Gets the values of a call's arguments, and what makes the call; returns what stands for its result."""


def calls_in(file: str, line: int, functions: _Functions, *, through: bool = False) -> list[MemoizableCall]:
    """Return the calls in a line of a function, as far as they may depend on nothing but what they are given.

    Args:
        file: that the line is in.
        line: its number.
        functions: of the file, as `functions_of` finds them.
        through: whether to return assignments in a row to several variables instead.
    """
    nodes = source_guards.nodes(file)
    around = _functions_around(nodes, line)
    if not around:
        return []
    wanted = {(node.name, _first_line(node)) for node in around}
    namespace = next((each.__globals__ for each in functions[file] if _of(each) in wanted), {})
    varies = call_keys.varying(file, around[0], namespace)
    owner = Owner.of(around[0], file, namespace) if len(around) == 1 else None
    made: list[_Made] = [
        (assignments.members(run), _keys_of_run(run, around[-1], file, varies, owner))
        for run in _runs_in(around[-1], line, through)
    ]
    if not through:
        given = _given_to(around[-1])
        calls = (each for each in _calls_within(around[-1], line) if not _may_turn(each, varies, given))
        made += [([call], keys_of(call, varies)) for call in calls]
    found = ((each, keys) for each, keys in made if keys and not _follows(each, namespace, owner))
    return list(dict.fromkeys(_call(file, each, keys, owner) for each, keys in found))


def _follows(nodes: Sequence[ast.AST], namespace: Mapping[str, Any], owner: Owner | None) -> bool:
    """Return whether functions that some nodes name, or methods of their object, depend on what is set anew."""
    named = [*set_anew.named_in(nodes, namespace), *(() if owner is None else owner.functions(nodes))]
    return set_anew.follow_what_is_set_anew(named)


def runs_through(lines: Sequence[tuple[str, int]], functions: _Functions) -> list[MemoizableCall]:
    """Return assignments in a row to several variables, in lines of files; none begins within others."""
    found: list[MemoizableCall] = []
    every = [call for file, line in lines for call in calls_in(file, line, functions, through=True)]
    for call in sorted(every, key=lambda each: (each.file, each.line, each.column, each.end_line)):
        start = (call.line, call.column)
        if not any((each.line, each.column) < start and each.is_around(call) for each in found) and call not in found:
            found.append(call)
    return found


def _runs_in(function: ast.AST, line: int, through: bool) -> Iterator[list[ast.stmt]]:
    """Yield the assignments in a row of a function that a line is of, to one variable or `through` several."""
    elsewhere, inner = _shared_names(function), _inner_nodes(function)
    runs_of = assignments.through_others if through else assignments.in_a_row
    for statement in ast.walk(function):
        for run in runs_of(statement, line, function) if id(statement) not in inner else ():
            if elsewhere.isdisjoint(map(assignments.variable, assignments.members(run))):
                yield run


def _calls_within(function: ast.AST, line: int) -> Iterator[ast.Call]:
    """Yield the calls of a function that a line is of, without those of inner functions."""
    inner = _inner_nodes(function)
    for statement in ast.walk(function):
        if isinstance(statement, ast.stmt) and id(statement) not in inner and statement.lineno <= line:
            calls = _calls_of(statement)
            yield from (each for each in calls if each.lineno <= line <= (each.end_lineno or each.lineno))


def _inner_nodes(function: ast.AST) -> set[int]:
    """Return the nodes of the functions within a function, by their ids."""
    defined = (each for each in ast.walk(function) if each is not function and isinstance(each, _FUNCTIONS))
    return {id(node) for each in defined for node in ast.walk(each)}


def _keys_of_run(
    run: Sequence[ast.stmt],
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    file: str,
    varies: Varies,
    owner: Owner | None,
) -> list[ast.expr] | None:
    """Return what assignments depend on beside their variables; None where they cannot be a function of that.

    What is behind a statement that is not of them is to be the same in front of it, where the diff asks for it.
    """
    members = assignments.members(run)
    own = {assignments.variable(each) for each in members} - {""}
    given = _given_to(function)
    sure: AbstractSet[str] = given
    found: list[ast.expr] = []
    made, passed, leaves = "", False, False
    for each in run:
        if each not in members:
            passed = True
        elif isinstance(each, ast.If) and not assignments.variable(each):
            leaves = True
        else:
            if _may_turn(each, call_keys.but(made, varies), given):
                return None
            value = assignments.value(each)
            keys = None if made else _keys_of_lookup(each, varies, owner)
            keys = keys or keys_of(value, call_keys.but(made, varies), sure)
            if keys is None or any(assignments.reads(key, name) for key in keys for name in own):
                return None
            if passed and not all(call_keys.stays(key, file) for key in keys):
                return None
            # Behind what leaves where there is none, as `BOXES[name]`, it may fail in front of that.
            if leaves and not all(ast.unparse(key) in sure or isinstance(key, ast.Name) for key in keys):
                return None
            found += keys
            sure = sure | call_keys.asked_for(value)
            made = assignments.variable(each)
    return found


def _given_to(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of the parameters that a function sets to nothing else."""
    given = {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    return given - {
        each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def _may_turn(node: ast.stmt | ast.expr, varies: Varies, given: AbstractSet[str]) -> bool:
    """Return whether a test may come out otherwise than in what was compared: ``if self.epoch > 9``.

    What is then made may be random. What a function is given counts as its values do where it is called.
    """
    tests = (part for test in _tests_in(node) for part in ast.walk(test))
    return any(varies(part) and not (isinstance(part, ast.Name) and part.id in given) for part in tests)


def _tests_in(node: ast.stmt | ast.expr) -> Iterator[ast.expr]:
    """Yield what decides in a node whether a call is made: what ``if``, ``and`` and ``or`` ask for first."""
    for each in ast.walk(node):
        match each:
            case ast.If(test=test):
                yield test
            case ast.IfExp(test=test, body=one, orelse=other) if _holds_call(one) or _holds_call(other):
                yield test
            case ast.BoolOp(values=[*_, last] as values) if any(map(_holds_call, values[1:])):
                yield from (value for value in values if value is not last)


def _holds_call(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) for each in ast.walk(node))


def _keys_of_lookup(statement: ast.stmt, varies: Varies, owner: Owner | None) -> list[ast.expr] | None:
    """Return the object that a statement looks up rows in a table of, and what it looks up; None where it does not."""
    table = assignments.looks_up(statement) if assignments.assigns(statement) else None
    if table is None or owner is None or not set_anew.is_name(table.value, owner.name) or not owner.holds(table.attr):
        return None
    beside = keys_of(assignments.value(statement), varies, table=ast.unparse(table))
    return None if beside is None else [table.value, *beside]


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


def _call(
    file: str, nodes: Sequence[ast.expr | ast.stmt], keys: Sequence[ast.expr], owner: Owner | None
) -> MemoizableCall:
    """Return a call, or assignments in a row, as data; `owner`: the object of the method that it is in."""
    first, last = nodes[0], nodes[-1]
    texts = (ast.unparse(each) for each in nodes if not isinstance(each, ast.If) or assignments.variable(each))
    arguments = tuple(dict.fromkeys(map(ast.unparse, keys)))
    is_named = owner is not None and owner.name in arguments and len(arguments) > 1
    reads = owner.reads_of(nodes) if owner is not None and is_named else None
    return MemoizableCall(
        file=file,
        line=first.lineno,
        column=first.col_offset,
        end_line=_end(last)[0],
        end_column=_end(last)[1],
        text=one_line("; ".join(texts), 60),
        variable=next(filter(None, map(assignments.variable, reversed(nodes))), ""),
        arguments=arguments,
        owner="" if owner is None or reads is None else owner.name,
        owner_reads=tuple(reads or ()),
    )


def _functions_around(nodes: Iterable[ast.AST], line: int) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the definitions of functions in whose body a line is, the outermost first."""
    found = [
        node
        for node in nodes
        if isinstance(node, _FUNCTIONS) and node.body[0].lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return sorted(found, key=lambda node: node.lineno)


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
        for block in assignments.blocks(node):
            block[:] = self._joined(block)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return self._made(node, (node.lineno, node.col_offset), node)

    def _joined(self, block: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return statements, those of a run as its first: ``x = maker((path,), lambda: (lambda x: g(x))(f(path)))``.

        Where it leaves if there is no ``x``, ``x if x is None else g(x)``; the statement that leaves comes behind it,
        as does what stands between, and what assigns ``x`` to a part of something.
        """
        instead: dict[int, list[ast.stmt]] = {}
        for index, first in enumerate(block):
            start = (first.lineno, first.col_offset)
            ends = [place[2:] for place, call in self._calls.items() if call.variable and place[:2] == start]
            last = max((n for n in range(index, len(block)) if _end(block[n]) in ends), default=None)
            if last is None or not isinstance(first, ast.Assign):
                continue
            made, name = self._made(first.value, start, first), assignments.variable(first)
            leaving: list[ast.expr] = []  # one at most
            for then in assignments.members(block[index : last + 1])[1:]:
                given = assignments.variable(then)
                if isinstance(then, ast.If) and not given:
                    leaving.append(then.test)
                    continue
                body = assignments.value(then)
                for test in leaving:
                    body = ast.IfExp(test, ast.Name(name, ast.Load()), body)
                of = ast.Lambda(ast.arguments([], [ast.arg(name)], None, [], [], None, []), body)
                made = self._made(_at(ast.Call(of, [made], []), then), start, then)
                stored = then.targets if isinstance(then, ast.Assign) and not given else []
                instead[id(then)] = [_at(ast.Assign([part], ast.Name(name, ast.Load())), then) for part in stored]
                name = given or name
            instead[id(first)] = [_at(ast.Assign([ast.Name(name, ast.Store())], made), first)]
        return [new for each in block for new in instead.get(id(each), [each])]

    def _made(self, value: ast.expr, start: tuple[int, int], at: ast.expr | ast.stmt) -> ast.expr:
        """Return a value as the maker of a call, or of a run, that stands from there to the end of a node gives it."""
        call = self._calls.get((*start, *_end(at)))
        if call is None:
            return value
        self.missing.discard(call)
        named = [each for each in call.arguments if each != call.owner]
        if call.owner:  # which cannot be a key itself, as it may change
            named += [f"{call.owner}.__hash__()", *(f"{call.owner}.{each}" for each in call.owner_reads)]
        keys = "".join(f"{each}, " for each in named)
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
