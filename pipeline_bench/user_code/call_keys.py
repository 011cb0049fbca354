"""What a call in the user's Python depends on: the parts of its text that may stand for something else another time.

Only values that cannot change can name a result. A global name is one for good where its file sets it once.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from pipeline_bench.user_code.set_anew import attributes_set, bound, is_key, set_anew, set_by_others

_OWN_NAMES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)
_NOT_ALWAYS = (ast.IfExp, ast.BoolOp, ast.Yield, ast.YieldFrom, ast.Await)
"""Expressions of which a part runs sometimes only, or that hand control to somebody else."""
_OF_FRAMES = ("super", "locals", "vars", "eval", "exec")
"""Built-in functions that see the function that calls them."""

Varies = Callable[[ast.AST], bool]
"""Whether a name, or an attribute whatever it is of, may stand for something else at another call."""


def varying(file: str, function: ast.AST, namespace: Mapping[str, Any]) -> Varies:
    """Return what tells of the names and attributes in a function whether they may vary.

    Args:
        file: that the function is in.
        function: its definition, the outermost of those that hold the call.
        namespace: the global names there.
    """
    names = bound(function) | set_anew(file)

    def varies(node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name):
                value = namespace.get(name)
                is_set = name in set_by_others(file) and value is not None and is_key(value)
                return name in names or is_set or not _is_constant(name, namespace)
            case ast.Attribute(attr=name):
                return name in attributes_set(file)
        return False

    return varies


def but(made: str, varies: Varies) -> Varies:
    """Return `varies`, without a variable that is known."""
    return lambda node: not (isinstance(node, ast.Name) and node.id == made) and varies(node)


def keys_of(
    node: ast.AST, varies: Varies, sure: AbstractSet[str] = frozenset(), table: str = ""
) -> list[ast.expr] | None:
    """Return the parts without calls that an expression depends on; None where it cannot be a function of them.

    Args:
        node: the expression.
        varies: whether a name or an attribute may stand for something else at another call.
        sure: what has a value there, whichever parts of the expression run, as it is written.
        table: what stays as it is, and is no key, as it is written.
    """
    if isinstance(node, ast.FormattedValue | ast.Starred | ast.keyword) and not _is_private(node):
        return keys_of(node.value, varies, sure, table)
    written = {ast.unparse(each) for each in ast.walk(node) if isinstance(each, ast.expr)} if table else set()
    if isinstance(node, ast.expr) and table not in written and _has_no_call(node) and any(map(varies, ast.walk(node))):
        return [node]
    if isinstance(node, ast.IfExp | ast.BoolOp):
        return _keys_of_choice(node, varies, sure)
    if isinstance(node, (*_OWN_NAMES, *_NOT_ALWAYS)) or _is_private(node) or _is_of_frames(node):
        return None
    parts = [] if table and ast.unparse(node) == table else _parts(node, varies)
    return _together([keys_of(part, varies, sure, table) for part in parts])


def _keys_of_choice(node: ast.IfExp | ast.BoolOp, varies: Varies, sure: AbstractSet[str]) -> list[ast.expr] | None:
    """Return the keys of an expression of which a part runs sometimes only; all are asked for each time."""
    parts = node.values if isinstance(node, ast.BoolOp) else [node.test, node.body, node.orelse]
    first, *others = parts
    sure = sure | asked_for(first)
    if isinstance(node, ast.IfExp):
        sure |= asked_for(node.body) & asked_for(node.orelse)
    sometimes = _together([keys_of(each, varies, sure) for each in others])
    if sometimes is None or not sure >= set(map(ast.unparse, sometimes)):
        return None
    return _together([keys_of(first, varies, sure), sometimes])


def asked_for(node: ast.expr) -> AbstractSet[str]:
    """Return the expressions that one asks for whenever it runs, as they are written; none where some may not run."""
    inside = list(ast.walk(node))
    if any(isinstance(each, (*_OWN_NAMES, *_NOT_ALWAYS)) for each in inside):
        return frozenset()
    return {ast.unparse(each) for each in inside if isinstance(each, ast.expr)}


def _together(parts: Iterable[list[ast.expr] | None]) -> list[ast.expr] | None:
    """Return the keys of several expressions; None where one has none."""
    found: list[ast.expr] = []
    for keys in parts:
        if keys is None:
            return None
        found += keys
    return found


def stays(key: ast.expr, file: str) -> bool:
    """Return whether a key is a variable or an attribute that only its function sets anew, or compares such a one."""
    if isinstance(key, ast.Compare) and all(isinstance(each, ast.Is | ast.IsNot) for each in key.ops):
        compared = (each for each in (key.left, *key.comparators) if not isinstance(each, ast.Constant))
        return all(stays(each, file) for each in compared)
    while isinstance(key, ast.Attribute) and key.attr not in attributes_set(file):
        key = key.value
    return isinstance(key, ast.Name) and key.id not in set_anew(file)


def _parts(node: ast.AST, varies: Varies) -> Iterator[ast.AST]:
    """Yield the expressions in one; of a method that is called, what it is of."""
    for child in ast.iter_child_nodes(node):
        is_method = isinstance(node, ast.Call) and child is node.func
        if is_method and isinstance(child, ast.Attribute) and not varies(child):
            yield child.value
        elif isinstance(child, ast.expr | ast.keyword):
            yield child


def _is_of_frames(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in _OF_FRAMES


def _has_no_call(node: ast.AST) -> bool:
    """Return whether an expression can be a key as it is, once its value is known to be one."""
    inside = ast.walk(_tensor_of(node))
    calls = any(isinstance(each, (ast.Call, *_OWN_NAMES, *_NOT_ALWAYS)) for each in inside)
    return not calls and not isinstance(node, ast.Slice | ast.Tuple)


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


def _is_private(node: ast.AST) -> bool:
    """Return whether a name is another one within its class, as ``__read``; the diff names attributes as they are."""
    match node:
        case ast.Name(id=name) | ast.keyword(arg=str(name)):
            return _is_private_name(name)
    return False


def _is_private_name(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def outside_of(of_class: str, name: str) -> str:
    """Return the name that an attribute has outside of the class in which it is written: ``_Pictures__read``."""
    prefix = of_class.lstrip("_")  # Python leaves names as they are in a class of underscores alone
    return f"_{prefix}{name}" if prefix and _is_private_name(name) else name
