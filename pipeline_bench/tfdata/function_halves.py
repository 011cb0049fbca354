"""The text of a map's function in two: what it is before one of its statements, and from there on.

A function that calls another one of its file in a statement can also be divided within that one. Pure.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline_bench.tfdata import map_functions, variables
from pipeline_bench.tfdata.map_functions import CalledFunction
from pipeline_bench.user_code import source_guards

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LOOKS_INTO_ITSELF = frozenset({"locals", "vars", "globals", "eval", "exec", "dir", "super", "__class__"})
_NOT_PLAIN = "its parameters are not all plain names without defaults"
NAME_ENDS = [("_fixed", "_random"), ("_fixed_part", "_random_part"), ("_before_random", "_from_random_on")]
"""What the names of both halves of a function end with; a patch takes the first pair that is free."""
_HALF = "the_half_of_what_it_calls"
"""Stands in the text of a half for the name of the called function's half."""


class CannotSplitError(Exception):
    """A function cannot be divided; the message says why, as the end of a sentence."""


@dataclass(frozen=True)
class Split:
    """A function divided behind some of its statements.

    Attributes:
        statements: how many of its body belong to the first half, without the docstring; of one that is divided within
            a function that it calls, how many of that function's.
        line: the last one of the first half, from 1; of that function's, likewise.
        parameters: those that are given the elements, in the order of what the map gives.
        crossing: the variables that the second half takes from the first.
        bodies: the text of both halves, without indentation.
        given: what such a lambda gives, of each half the texts by parameter.
        owner: the parameter of a method that is its object, in a tuple; empty of any other function.
        within: how the function is divided that it calls; None where only it itself is.
        gives: what such a lambda gives; see `CalledFunction.gives`.
    """

    statements: int
    line: int
    parameters: tuple[str, ...]
    crossing: tuple[str, ...]
    bodies: tuple[str, str]
    given: tuple[dict[str, str], dict[str, str]]
    owner: tuple[str, ...] = ()
    within: Within | None = None
    gives: tuple[str, ...] = ("",)

    def fixed(self, name: str, called: str = "") -> str:
        """Return the definition of the first half, which gives what crosses.

        Args:
            name: of the half.
            called: the name of the first half of the function that it calls, where that is divided.
        """
        takes = (*self.owner, *self.parameters, *self.given[0])
        body = self.bodies[0].replace(_HALF, called)
        return _definition(name, takes, f"{body}return {', '.join(self.crossing)}\n")

    def random(self, name: str, called: str = "") -> str:
        """Return the definition of the second half, which takes what crosses; see `fixed`."""
        takes = (*self.owner, *self.crossing, *self.given[1])
        return _definition(name, takes, self.bodies[1].replace(_HALF, called))

    def mapped(self, half: int, name: str) -> str:
        """Return the text of what a map is given for a half of that name, as ``self.load_fixed``: it, or a lambda."""
        own, given = ", ".join((self.parameters, self.crossing)[half]), self.given[half]
        call = f"{name}({own}{''.join(f', {parameter}={text}' for parameter, text in given.items())})"
        if len(self.gives) == 1:
            return f"lambda {own}: {call}" if given else name
        made = f"*{call}" if half == 0 and len(self.crossing) > 1 else call
        takes, gives = (", ".join(each or one for each in self.gives) for one in (own, made))
        return f"lambda {takes}: ({gives})"


class Within(NamedTuple):
    """How a function is divided that another one of its file calls.

    Attributes:
        name: of the called function.
        line: where its definition begins, from 1.
        split: its division.
        ahead: how many statements of the calling function come before the one with the call.
    """

    name: str
    line: int
    split: Split
    ahead: int


@dataclass(frozen=True)
class _Whole:
    """A function that may be divided; `outer` are the variables that its lambda uses, the rest is as in `Split`."""

    lines: list[str]
    body: list[ast.stmt]
    begin: int
    parameters: tuple[str, ...]
    elements: tuple[str, ...]
    given: dict[str, str]
    owner: tuple[str, ...]
    outer: set[str]
    gives: tuple[str, ...]

    def split(
        self, place: tuple[int, int], crossing: tuple[str, ...], bodies: tuple[str, str], within: Within | None = None
    ) -> Split:
        """Return it divided into these halves; `place` is how many statements the first one has, and its last line."""
        named = [variables.named(ast.parse(each).body) for each in bodies]
        used = [{each: text for each, text in self.given.items() if each in names} for names in named]
        given = used[0], used[1]
        return Split(*place, self.elements, crossing, bodies, given, self.owner, within, self.gives)


def splits(
    text: str, name: str, line: int, called: CalledFunction | None = None, is_method: bool = False
) -> list[Split]:
    """Return every way to divide a function, the longest first half first.

    Args:
        text: of the file.
        name: of the function.
        line: where its definition begins, from 1.
        called: how the map's lambda calls the function; None where the function is the map's own.
        is_method: whether the map's function is a method of an object.

    Raises:
        CannotSplitError: there is none that is sure to do the same.
    """
    whole = _whole(text, name, line, called, is_method)
    found, hidden = [], set[str]()
    for count, first, last in _cuts(whole):
        if not first:
            continue
        lines, between = whole.lines, first[-1].end_lineno or 0
        imports = _imports(first)
        bodies = (
            _dedented(lines[first[0].lineno - 1 : between]),
            "".join(imports) + _dedented(lines[between : last[-1].end_lineno]),
        )
        crossing = _crossing(whole, first, variables.needed(last))
        hides = whole.outer & {*whole.elements, *crossing}  # as the parameters of a half's lambda
        hidden |= hides
        if crossing and len(imports) < count and not hides:
            found.append(whole.split((count, between), crossing, bodies))
    if not found and hidden:
        raise CannotSplitError(f"its lambda uses {min(hidden)}, which is also the name of a variable in it")
    if not found:
        raise CannotSplitError("there is no line between two of its statements where it could be divided")
    return found[::-1]


def splits_within(
    text: str, name: str, line: int, called: CalledFunction | None = None, is_method: bool = False
) -> list[Split]:
    """Return every way to divide a function within one of its file that it calls once, in a statement of its own body.

    That function gets what the map gets, and nothing that is computed before: else it is no wrapper of it. Of each
    statement the longest first half comes first.

    Args:
        text: of the file.
        name: of the function that the map runs.
        line: where its definition begins, from 1.
        called: how the map's lambda calls the function; None where the function is the map's own.
        is_method: whether the map's function is a method of an object.

    Raises:
        CannotSplitError: the function itself cannot be divided anywhere.
    """
    whole, found = _whole(text, name, line, called, is_method), list[Split]()
    local = {*whole.elements, *variables.bound(whole.body, whole.parameters)}
    for count, first, last in _cuts(whole):
        call = _wrapped_call(last[0])
        of_call = None if call is None else map_functions.call_of(call, local)
        if call is None or of_call is None or not of_call.elements or of_call.owner:
            continue
        is_once = sum(node.id == of_call.name for node in _names(whole.body)) == 1
        is_whole = not map_functions.has_comment(ast.get_source_segment(text, call) or "#")
        definition = _only_definition(text, of_call.name)
        if definition is None or not is_once or not is_whole or variables.stored(first) & {*of_call.elements}:
            continue
        try:
            ways = splits(text, definition.name, definition.lineno, of_call)
        except CannotSplitError:
            continue
        for way in ways:
            within = Within(definition.name, definition.lineno, way, count)
            found += _divided_within(whole, (first, last), call, of_call, within)
    return found


def chosen(ways: Iterable[Split], statements: int, within: str) -> Split | None:
    """Return the division behind so many statements, of the function itself or within one that it calls, by name."""
    named = (each for each in ways if within == ("" if each.within is None else each.within.name))
    return next((each for each in named if each.statements == statements), None)


def _divided_within(
    whole: _Whole, parts: tuple[list[ast.stmt], list[ast.stmt]], call: ast.Call, called: CalledFunction, within: Within
) -> Iterator[Split]:
    """Yield a function divided within the function of a call, where what crosses has names that are free."""
    (first, last), split, lines = parts, within.split, whole.lines
    # A variable that the statement sets, as in `image = load(path)`, may stand for what crosses until then.
    taken = {*whole.parameters, *variables.stored(first), *variables.needed(last)}
    names = tuple(each if each not in taken else f"{within.name}_{each}" for each in split.crossing)
    texts = [", ".join(f"{name}={text}" for name, text in each.items()) for each in split.given]
    takes = [", ".join(filter(None, (*own, text))) for own, text in zip((called.elements, names), texts, strict=True)]
    between = first[-1].end_lineno if first else last[0].lineno - 1
    assert between is not None
    assert call.end_lineno is not None
    ahead = lines[call.lineno - 1].encode()[: call.col_offset].decode()
    behind = lines[call.end_lineno - 1].encode()[call.end_col_offset :].decode()
    changed = f"{ahead}{_HALF}({takes[1]}){behind}"
    rest = [*lines[between : call.lineno - 1], changed, *lines[call.end_lineno : last[-1].end_lineno]]
    before = _dedented(lines[first[0].lineno - 1 : between]) if first else ""
    bodies = (f"{before}{', '.join(names)} = {_HALF}({takes[0]})\n", "".join(_imports(first)) + _dedented(rest))
    needed = variables.needed(ast.parse(bodies[1]).body) - {*names}
    crossing = (*_crossing(whole, first, needed), *names)
    if taken.isdisjoint(names) and len({*names}) == len(names) and whole.outer.isdisjoint((*whole.elements, *crossing)):
        yield whole.split((split.statements, split.line), crossing, bodies, within)


def _wrapped_call(statement: ast.stmt) -> ast.Call | None:
    """Return the only call of a name that a statement assigns or returns the result of, alone or in a tuple."""
    value = statement.value if isinstance(statement, ast.Assign | ast.Return) else None
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    calls = [each for each in values if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)]
    return calls[0] if len(calls) == 1 else None


def _only_definition(text: str, name: str) -> ast.FunctionDef | None:
    """Return the only definition of a name in a file; None where there is none, or it is a class."""
    nodes = ast.walk(ast.parse(text.removeprefix("\ufeff")))
    found = [each for each in nodes if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == name]
    return found[0] if len(found) == 1 and isinstance(found[0], ast.FunctionDef) else None


def _names(statements: list[ast.stmt]) -> Iterator[ast.Name]:
    return (node for each in statements for node in ast.walk(each) if isinstance(node, ast.Name))


def _imports(statements: list[ast.stmt]) -> list[str]:
    """Return the imports among statements, as lines: a module is no tensor, and does not cross."""
    return [f"{ast.unparse(each)}\n" for each in statements if isinstance(each, ast.Import | ast.ImportFrom)]


def _crossing(whole: _Whole, first: list[ast.stmt], needed: set[str]) -> tuple[str, ...]:
    """Return those of the elements, and of the variables that the first statements set, that are needed."""
    return tuple(each for each in (*whole.elements, *variables.bound(first, whole.parameters)) if each in needed)


def _cuts(whole: _Whole) -> Iterator[tuple[int, list[ast.stmt], list[ast.stmt]]]:
    """Yield where a line ends between two statements, up to a return: the statements before and from there on."""
    for count in range(len(whole.body)):
        first, last = whole.body[:count], whole.body[count:]
        if any(isinstance(each, ast.Return) for each in source_guards.own_nodes(first)):
            break
        if whole.begin < whole.body[0].lineno and (not first or (first[-1].end_lineno or 0) < last[0].lineno):
            yield count, first, last


def _whole(text: str, name: str, line: int, called: CalledFunction | None, is_method: bool) -> _Whole:
    """Return a function that may be divided; see `splits`.

    Raises:
        CannotSplitError: it may not.
    """
    function = _found(text, name, line, is_method)
    _check(function, called is not None)
    parameters = tuple(each.arg for each in function.args.args)
    owner = parameters[: int(is_method)]
    elements, given = (parameters[len(owner) :], {}) if called is None else _given(function, called)
    if private := variables.private([function, *map(ast.parse, given.values())]):
        raise CannotSplitError(f"it uses {min(private)}, a private name, which means another one outside of its class")
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    if any(variables.changes(function.body, each) for each in owner):
        raise CannotSplitError("it changes its object")
    gives = ("",) if called is None else called.gives
    beside = [*gives, *([] if called is None else [called.owner])]
    outer = map_functions.names_in([*given.values(), *filter(None, beside)])
    return _Whole(_LINE.findall(text), body, function.lineno, parameters, elements, given, owner, outer, gives)


def _found(text: str, name: str, line: int, is_method: bool) -> ast.FunctionDef:
    try:
        tree = ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError):
        raise CannotSplitError("its file cannot be read as Python") from None
    for node in ast.walk(tree):
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.FunctionDef) and each.name == name and each.lineno == line:
                if isinstance(node, ast.ClassDef) != is_method:
                    raise CannotSplitError("it is a method, and not of the object that it is given by")
                return each
    raise CannotSplitError("it has no definition of its own by def, without a decorator")


def _given(function: ast.FunctionDef, called: CalledFunction) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the parameters that a lambda gives the elements, in their order, and what it gives the others, as texts.

    Raises:
        CannotSplitError: a default is no literal, or the function sets one of the other parameters anew.
    """
    texts = called.given(function)
    if texts is None:
        raise CannotSplitError(_NOT_PLAIN)
    of_elements = {text: parameter for parameter, text in texts.items() if text in called.elements}
    given = {parameter: text for parameter, text in texts.items() if text not in called.elements}
    if anew := variables.stored(function.body) & given.keys():
        raise CannotSplitError(f"it sets its parameter {min(anew)} anew")
    return tuple(of_elements[each] for each in called.elements), given


def _check(function: ast.FunctionDef, may_have_defaults: bool) -> None:
    """Raise `CannotSplitError` where a function may not do the same in two halves."""
    given = function.args
    plain = not (given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs)
    plain = plain and bool(given.args) and (may_have_defaults or not given.defaults)
    reasons = {"it has a decorator": bool(function.decorator_list), _NOT_PLAIN: not plain}
    for node in (each for statement in function.body for each in ast.walk(statement)):
        if isinstance(node, ast.Global | ast.Nonlocal):
            reasons["it sets variables of other functions or of its module"] = True
        elif isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            reasons["it is a generator or a coroutine"] = True
        elif isinstance(node, ast.Name) and node.id in _LOOKS_INTO_ITSELF:
            reasons[f"it uses {node.id}"] = True
        elif isinstance(node, ast.Constant | ast.JoinedStr) and node.lineno != node.end_lineno:
            own = function.body[0]
            if not (isinstance(own, ast.Expr) and node is own.value):
                reasons["a text in it has several lines"] = True
    reason = next((each for each, applies in reasons.items() if applies), None)
    if reason is not None:
        raise CannotSplitError(reason)


def _dedented(lines: list[str]) -> str:
    """Return statements from the first column on; a comment, or what is in brackets, may begin left of them."""
    rows = "".join(lines).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    code = (row for row in rows if row.strip() and not row.lstrip().startswith("#"))
    column = next((len(row) - len(row.lstrip()) for row in code), 0)
    moved = [row.lstrip() if row[:column].strip() or not row.strip() else row[column:] for row in rows]
    return "\n".join(moved).strip("\n") + "\n"


def _definition(name: str, parameters: tuple[str, ...], body: str) -> str:
    return f"def {name}({', '.join(parameters)}):\n{textwrap.indent(body, '    ')}"


def stays_as_it_is(value: Any) -> bool:
    """Return whether a value crosses from one map to another as it is: a tensor, or a dict of these."""
    import tensorflow as tf

    if type(value) is dict:
        return all(map(stays_as_it_is, value.values()))
    return isinstance(value, tf.Tensor | tf.RaggedTensor | tf.SparseTensor)


def dicts(values: Iterable[Any]) -> Iterator[int]:
    """Yield the identity of each dict among values, and within these."""
    for each in values:
        if isinstance(each, dict):
            yield id(each)
            yield from dicts(each.values())
