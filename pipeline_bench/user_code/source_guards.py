"""Which conditions and caches keep the text of a loop from making a call each time that the loop goes round.

    for epoch in range(3):                        if name not in made:              @functools.cache
        if epoch == 0:                                made[name] = build(name)      def build(name): ...
            dataset = build()

A condition counts that looks at what changes from round to round: at what the loop sets, or what the call is kept in.
One such as `if training:` comes out alike each time.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from operator import add, floordiv, mul, sub, truediv
from types import FrameType
from typing import Any

_CACHES = ("cache", "memo")
"""Parts of the names of decorators that keep what a function has returned."""
_TAKING = ("next", "get_next")
"""Take an element of an iterator, by their names."""
_AS_LONG = ("bar", "enumerate", "reversed", "tqdm", "track")
"""How the names end of what gives as many elements as its first argument, such as progress bars."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOOPS = (ast.For, ast.AsyncFor, ast.While, *COMPREHENSIONS)
_OPERATIONS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv, ast.FloorDiv: floordiv}


def is_kept(frame: FrameType) -> bool:
    """Return whether a function under way keeps what it makes, so that its next call need not make it again."""
    code = frame.f_code
    made = frame.f_globals.get(code.co_name)
    if getattr(getattr(made, "__wrapped__", None), "__code__", None) is code and hasattr(made, "cache_info"):
        return True
    return _is_kept(code.co_filename, code.co_name, code.co_firstlineno, frame.f_lineno)


@functools.lru_cache(maxsize=4096)  # a script may make thousands of datasets in one line
def is_conditional(file: str, loop_line: int, line: int) -> bool:
    """Return whether a loop, by its first line, reaches a line of it only in some rounds."""
    loop = next((node for node in nodes(file) if _is_loop(node) and node.lineno == loop_line), None)
    if loop is None:
        return False
    changing = _stored([loop])
    behind = [each for each in nodes(file) if getattr(each, "lineno", 0) > loop_line]
    deciding = [each for each in behind if isinstance(each, ast.If) and changing & _mentioned([each.test])]
    parts: list[Sequence[Any]] = [[each] for each in behind if isinstance(each, ast.ExceptHandler)]
    parts += [part for each in deciding for part in (each.body, each.orelse)]
    return any(spans(part, line) for part in parts)


def most_taken(loop: ast.For, known: Mapping[str, Any]) -> Iterator[int]:
    """Yield after how many elements a `for` over `enumerate(…)` is left, for each `break` that its counter decides.

    Args:
        loop: that counts what it takes.
        known: the variables where it runs; a number that is not among them yields nothing.
    """
    target, counts = loop.target, loop.iter
    if not isinstance(counts, ast.Call) or ast.unparse(counts.func) != "enumerate" or not isinstance(target, ast.Tuple):
        return
    if any(isinstance(each, ast.Continue) for each in _walk(loop.body)):  # it may never come to the `break`
        return
    if _stored(loop.body) & _mentioned([target.elts[0]]):
        return
    begins = [*counts.args[1:], *(each.value for each in counts.keywords)]
    first = _number(begins[0], known) if begins else 0
    for node in loop.body:
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare) or len(node.test.ops) > 1:
            continue
        ends = any(isinstance(each, ast.Break) for each in node.body)
        counted = ast.unparse(node.test.left) == ast.unparse(target.elts[0])
        more = {ast.Eq: 1, ast.GtE: 1, ast.Gt: 2}.get(type(node.test.ops[0]))
        number = _number(node.test.comparators[0], known)
        if ends and counted and more is not None and number is not None and first is not None and number >= first:
            yield number - first + more


def rounds(loop: Any, known: Mapping[str, Any]) -> int | None:
    """Return how often a `for` goes round at the most, by what it goes over or a `break`; None if that is not known.

    Args:
        loop: what it may be.
        known: the variables where it runs.
    """
    if not isinstance(loop, ast.For):
        return None
    numbers = (_most(loop.iter, known), *most_taken(loop, known))
    return min((number for number in numbers if number is not None), default=None)


def take_alone(
    statements: Sequence[Any], names: Collection[str], lines: Collection[int], function: str | None = None
) -> bool:
    """Return whether loops take one element of an iterator in each round, and nothing beside them takes any.

    Who looks at one by `next`, in no loop, counts for none.

    Args:
        statements: all that the iterator's names are known in.
        names: of the iterator.
        lines: where these loops begin.
        function: the name of one that takes an element of the iterator that it is given.
    """
    own, everywhere = [*own_nodes(statements)], [*_walk(statements)]
    others = {id(node) for each in everywhere if _has_own(each, names) for node in ast.walk(each)}
    used = {id(node) for node in everywhere if _is_load(node) and node.id in names and id(node) not in others}
    loops = [node for node in own if _is_loop(node)]
    in_loops = {id(node) for node in _walk(loops)}
    calls = [node for node in own if isinstance(node, ast.Call)]
    taken = {id(each) for call in calls if _name(call) in _TAKING for each in _given(call)}
    looks = {each for each in used & taken if each not in in_loops}
    taken |= {id(each) for call in calls if _name(call) == function for each in _given(call)}
    headers = [loop.iter for loop in loops if isinstance(loop, ast.For) and loop.lineno in lines]
    in_body = taken - {id(node) for node in _walk(headers)}  # a header is evaluated once
    over = {id(each) for header in headers for each in _gone_over(header)}
    return used <= {id(node) for node in own} and len(used - looks) == 1 and used - looks <= in_body | over


def _gone_over(counts: Any) -> Iterator[Any]:
    """Yield what gives an element in each round of a `for`: what it goes over, or what that hands on."""
    if not isinstance(counts, ast.Call):
        yield counts
    elif (name := _name(counts)) in ("islice", "iter", "zip") or name.casefold().endswith(_AS_LONG):
        for each in counts.args if name == "zip" else counts.args[:1]:
            yield from _gone_over(each)


def _given(call: ast.Call) -> Iterator[Any]:
    """Yield what a call is given, also before its dot."""
    yield from (*call.args, *(each.value for each in call.keywords))
    if isinstance(call.func, ast.Attribute):
        yield call.func.value


def _has_own(node: Any, names: Collection[str]) -> bool:
    """Return whether what is by some names within a function is its own."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return False
    inside = [*ast.walk(node)]
    own = {each.arg for each in inside if isinstance(each, ast.arg)}
    own |= {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    shared = {name for each in inside if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
    return own - shared >= {*names}


def _is_load(node: Any) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def given(file: str, function: str, known: Mapping[str, Any]) -> list[Any]:
    """Return what the calls of a function in a file hand over, as far as it is known."""
    calls = [node for node in nodes(file) if isinstance(node, ast.Call) and _name(node) == function]
    return [_value(each, known) for call in calls for each in _given(call)]


def takes_one(function: Any) -> bool:
    """Return whether the text of a function takes one element: it does so in one place, and in no loop."""
    inside = [*ast.walk(function)]
    taking = [node for node in inside if isinstance(node, ast.Call) and _name(node) in _TAKING]
    return len(taking) == 1 and not any(isinstance(each, LOOPS) for each in inside)


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[-1]


def is_as_long(name: str) -> bool:
    """Return whether what goes by a qualified name hands on each element that it is given, as a progress bar does."""
    return any(part.endswith(_AS_LONG) for part in name.casefold().split("."))


@functools.lru_cache(maxsize=256)
def changed(file: str, loop_line: int) -> frozenset[str]:
    """Return what the loops that begin in a line set: names, attributes, and what they set an item of.

    What any function declares `global` counts, too.
    """
    shared = (name for node in nodes(file) if isinstance(node, ast.Global) for name in node.names)
    loops = [node for node in nodes(file) if _is_loop(node) and node.lineno == loop_line]
    return frozenset((*_stored(loops), *shared))


def _most(counts: ast.expr, known: Mapping[str, Any]) -> int | None:
    """Return how many elements what a `for` goes over gives at the most: a `range`, or what ends with one."""
    if not isinstance(counts, ast.Call):
        return None
    name, arguments = _name(counts), counts.args
    if name in ("range", "trange"):
        found: int | None = _computed(lambda *ends: len(range(*ends)), *(_number(each, known) for each in arguments))
        return found
    if name == "islice" and len(arguments) > 1:
        return _number(arguments[1 if len(arguments) == 2 else 2], known)  # noqa: PLR2004 - none, or from, to
    inner = arguments if name == "zip" else arguments[:1] if name.casefold().endswith(_AS_LONG) else ()
    return min((number for each in inner if (number := _most(each, known)) is not None), default=None)


def _number(node: ast.expr, known: Mapping[str, Any]) -> int | None:
    """Return the whole number that an expression is where these variables are known; None where it is none."""
    found = _value(node, known)
    return int(found) if isinstance(found, Integral) and not isinstance(found, bool) else None


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return what an expression is, as far as it is plain data where these variables are known; nothing is run."""
    found: Any = None
    match node:
        case ast.Constant(value=found):
            pass
        case ast.Name(id=name):
            found = known.get(name)
        case ast.Attribute() if (text := ast.unparse(node)) in known:
            found = known[text]
        case ast.Attribute(value=owner, attr=name):
            found = _attribute(_value(owner, known), name)
        case ast.Subscript(value=owner, slice=ast.Constant(value=key)):
            held = _value(owner, known)
            found = dict.get(held, key) if isinstance(held, dict) else None
        case ast.BinOp(left=left, op=op, right=right):
            found = _computed(_OPERATIONS.get(type(op)), _value(left, known), _value(right, known))
        case ast.Call(func=ast.Name(id="int"), args=[value], keywords=[]):
            found = _computed(int, _value(value, known))
    return found


def _attribute(owner: Any, name: str) -> Any:
    """Return an attribute that is held as it is, as of argparse's and absl's; no property is run."""
    flags = inspect.getattr_static(owner, "__flags", None)
    held = dict.get(flags, name) if isinstance(flags, dict) else None
    return inspect.getattr_static(owner, name, inspect.getattr_static(held, "_value", None))


def _computed(operation: Callable[..., Any] | None, *values: Any) -> Any:
    try:
        return operation(*values) if operation and all(isinstance(each, Real) for each in values) else None
    except (ArithmeticError, TypeError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def _is_kept(file: str, name: str, first_line: int, line: int) -> bool:
    function = function_of(file, name, first_line)
    if function is None:
        return False
    names = (ast.unparse(each).casefold() for each in function.decorator_list)
    if any(part in name for name in names for part in _CACHES):
        return True
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return any(_keeps(node, line, shared, function) for node in ast.walk(function))


def _keeps(node: Any, line: int, shared: set[str], function: Any) -> bool:
    """Return whether a statement of a function has a line run only where nothing was kept by an earlier call."""
    if isinstance(node, ast.If) and spans(node.body, line):
        return _leads_to_keeping([node.test], node.body, shared)
    after = [each for each in function.body if each.lineno > (node.end_lineno or 0)] if hasattr(node, "lineno") else []
    if isinstance(node, ast.If) and (node.end_lineno or 0) < line and _returns(node.body):
        return _leads_to_keeping([node.test], after, shared)
    if isinstance(node, ast.Try) and _returns(node.body) and not spans(node.body, line) and node.lineno < line:
        return _leads_to_keeping(node.body, [*node.handlers, *after], shared)
    return False


def _leads_to_keeping(looked_at: Iterable[Any], then: Iterable[Any], shared: set[str]) -> bool:
    """Return whether what is looked at is set then, and something that outlives the call is set with it."""
    stored = _stored(then)
    outlives = {each for each in stored if not each.isidentifier()} | (stored & shared) | _stored_into(then)
    return bool(outlives) and bool(stored & _mentioned(looked_at))


def _stored(nodes: Iterable[Any]) -> set[str]:
    """Return what statements set: names, attributes, and what they set an item of."""
    found: set[str] = set()
    for node in _walk(nodes):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(ast.unparse(node))
    return found | _stored_into(nodes)


def _stored_into(nodes: Iterable[Any]) -> set[str]:
    return {
        ast.unparse(node.value)
        for node in _walk(nodes)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    }


def _mentioned(nodes: Iterable[Any]) -> set[str]:
    return {ast.unparse(node) for node in _walk(nodes) if isinstance(node, ast.Name | ast.Attribute)}


def _walk(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield from ast.walk(node)


def _returns(body: list[Any]) -> bool:
    return any(isinstance(node, ast.Return) for node in _walk(body))


def spans(nodes: Sequence[Any], line: int) -> bool:
    """Return whether a line is one of some nodes, from the first to the last."""
    return bool(nodes) and nodes[0].lineno <= line <= (nodes[-1].end_lineno or 0)


def _is_loop(node: Any) -> bool:
    return isinstance(node, ast.For | ast.AsyncFor | ast.While)


def function_of(file: str, name: str, first_line: int) -> Any:
    """Return the function of a name whose code begins in a line, which is that of its first decorator."""
    for node in nodes(file):
        is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        if is_named and first_line == min(each.lineno for each in (node, *node.decorator_list)):
            return node
    return None


@functools.lru_cache(maxsize=256)
def is_result_dropped(file: str, line: int, method: str) -> bool:
    """Return whether a statement with that line is a call of that method alone, whose result nothing takes."""
    statements = (each for each in nodes(file) if isinstance(each, ast.Expr) and spans([each], line))
    calls = (each.value for each in statements if isinstance(each.value, ast.Call))
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == method for call in calls)


@functools.lru_cache(maxsize=16)
def nodes(file: str) -> tuple[Any, ...]:
    """Return all that is in a file's text; nothing where it is no Python."""
    try:
        return tuple(ast.walk(ast.parse("".join(linecache.getlines(file)))))
    except (SyntaxError, ValueError, RecursionError):
        return ()


def own_nodes(statements: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Yield what is in statements, without what is in functions and classes within."""
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
