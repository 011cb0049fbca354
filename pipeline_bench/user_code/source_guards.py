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
import linecache
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

_CACHES = ("cache", "memo")
"""Parts of the names of decorators that keep what a function has returned."""
_TAKING = ("next", "get_next")
"""Take an element of an iterator, by their names."""


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
    for node in nodes(file):
        if not isinstance(node, ast.If | ast.ExceptHandler) or node.lineno <= loop_line:
            continue
        if isinstance(node, ast.ExceptHandler) and _spans([node], line):
            return True
        if isinstance(node, ast.If) and _in_branch(node, line) and changing & _mentioned([node.test]):
            return True
    return False


def most_taken(loop: ast.For, known: Mapping[str, Any]) -> Iterator[int]:
    """Yield after how many elements a `for` over `enumerate(…)` is left, for each `break` that its counter decides.

    Args:
        loop: that counts what it takes.
        known: the variables where it runs; a number that is not among them yields nothing.
    """
    target, counts = loop.target, loop.iter
    if not isinstance(counts, ast.Call) or ast.unparse(counts.func) != "enumerate" or len(counts.args) != 1:
        return
    if not isinstance(target, ast.Tuple) or counts.keywords:
        return
    for node in loop.body:
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        ends = any(isinstance(each, ast.Break) for each in node.body)
        counted = ast.unparse(node.test.left) == ast.unparse(target.elts[0])
        more = {ast.Eq: 1, ast.GtE: 1, ast.Gt: 2}.get(type(node.test.ops[0]))
        number = _number(node.test.comparators[0], known)
        if ends and counted and more is not None and number is not None:
            yield number + more


def rounds(loop: ast.For, known: Mapping[str, Any]) -> int | None:
    """Return how often a `for` over a `range`, or a progress bar of one, goes round; None if that is not known.

    Nor is it if it calls for two elements of one iterator, so that a round is not one element.

    Args:
        loop: that takes an element in each round.
        known: the variables where it runs.
    """
    counts = loop.iter
    if isinstance(counts, ast.Call) and counts.args and isinstance(counts.args[0], ast.Call):
        counts = counts.args[0]
    named = isinstance(counts, ast.Call) and ast.unparse(counts.func).rpartition(".")[-1] in ("range", "trange")
    if not named or not isinstance(counts, ast.Call) or not 1 <= len(counts.args) <= 2:  # noqa: PLR2004 - from, to
        return None
    calls = [node for node in _walk(loop.body) if isinstance(node, ast.Call)]
    taken = [ast.unparse(node) for node in calls if ast.unparse(node.func).rpartition(".")[-1] in _TAKING]
    ends = [_number(each, known) for each in counts.args]
    if len(taken) != len(set(taken)) or None in ends:
        return None
    return max(0, (ends[-1] or 0) - (ends[0] or 0 if len(ends) > 1 else 0))


def _number(node: ast.expr, known: Mapping[str, Any]) -> int | None:
    """Return the whole number that an expression is where these variables are known; None where it is none."""
    found: Any = None
    if isinstance(node, ast.Constant):
        found = node.value
    elif isinstance(node, ast.Name):
        found = known.get(node.id)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):  # as of argparse
        found = getattr(known.get(node.value.id), "__dict__", {}).get(node.attr)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = _number(node.left, known), _number(node.right, known)
        if left is not None and right is not None:
            found = left + right if isinstance(node.op, ast.Add) else left - right
    return found if isinstance(found, int) and not isinstance(found, bool) else None


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
    if isinstance(node, ast.If) and _spans(node.body, line):
        return _leads_to_keeping([node.test], node.body, shared)
    after = [each for each in function.body if each.lineno > (node.end_lineno or 0)] if hasattr(node, "lineno") else []
    if isinstance(node, ast.If) and (node.end_lineno or 0) < line and _returns(node.body):
        return _leads_to_keeping([node.test], after, shared)
    if isinstance(node, ast.Try) and _returns(node.body) and not _spans(node.body, line) and node.lineno < line:
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


def _in_branch(node: Any, line: int) -> bool:
    return _spans(node.body, line) or _spans(node.orelse, line)


def _spans(nodes: list[Any], line: int) -> bool:
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
    statements = (each for each in nodes(file) if isinstance(each, ast.Expr) and _spans([each], line))
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
