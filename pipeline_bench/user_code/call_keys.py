"""What a call in the user's Python depends on: the parts of its text that may stand for something else another time.

Only values that cannot change can name a result. A global name is one for good where its file sets it once.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import numbers
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeGuard

from pipeline_bench import user_code
from pipeline_bench.user_code import source_guards

_OWN_NAMES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)
_NOT_ALWAYS = (ast.IfExp, ast.BoolOp, ast.Yield, ast.YieldFrom, ast.Await)
"""Expressions of which a part runs sometimes only, or that hand control to somebody else."""
_OF_FRAMES = ("super", "locals", "vars", "eval", "exec")
"""Built-in functions that see the function that calls them."""
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)
_NEAR = 3
"""So many folders down from one that is around both, modules are of one program."""

Varies = Callable[[ast.AST], bool]
"""Whether a name, or an attribute whatever it is of, may stand for something else at another call."""


def varying(file: str, function: ast.AST, namespace: Mapping[str, Any]) -> Varies:
    """Return what tells of the names and attributes in a function whether they may vary.

    Args:
        file: that the function is in.
        function: its definition, the outermost of those that hold the call.
        namespace: the global names there.
    """
    names = _bound(function) | _set_anew(file)

    def varies(node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name):
                value = namespace.get(name)
                is_set = name in _set_by_others(file) and value is not None and is_key(value)
                return name in names or is_set or not _is_constant(name, namespace)
            case ast.Attribute(attr=name):
                return name in attributes_set(file)
        return False

    return varies


def but(made: str, varies: Varies) -> Varies:
    """Return `varies`, without a variable that is known."""
    return lambda node: not (isinstance(node, ast.Name) and node.id == made) and varies(node)


@functools.lru_cache(maxsize=16)
def _set_anew(file: str) -> frozenset[str]:
    """Return the names that a file sets more than once, in a loop, or in a function that they are not of."""
    nodes = source_guards.nodes(file)
    own = list(source_guards.own_nodes(nodes[0].body)) if nodes else []
    found = {name for name, count in Counter(_stored(own)).items() if count > 1}
    found.update(name for each in nodes if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names)
    for each in own:
        if isinstance(each, ast.For | ast.While):
            found.update(_stored(source_guards.own_nodes([each])))
    return frozenset(found)


def _stored(nodes: Iterable[ast.AST]) -> Iterator[str]:
    return (each.id for each in changing(nodes) if isinstance(each, ast.Name))


def changing(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield those of some nodes that something is assigned to, or that are deleted."""
    return (each for each in nodes if not isinstance(getattr(each, "ctx", ast.Load()), ast.Load))


def init_methods(nodes: Iterable[ast.AST]) -> list[ast.FunctionDef]:
    """Return the definitions of `__init__` among some nodes."""
    return [each for each in nodes if isinstance(each, ast.FunctionDef) and each.name == "__init__"]


@functools.lru_cache(maxsize=16)
def attributes_set(file: str) -> frozenset[str]:
    """Return the names of the attributes that a file, or a module near it, sets anew: all of one, or a part."""
    return _set_by_others(file).union(_set_in(source_guards.nodes(file)))


@functools.lru_cache(maxsize=16)
def _set_by_others(file: str) -> frozenset[str]:
    """Return those that modules near it set, which may be global names of the file."""
    return frozenset(name for nodes in _beside(file) for name in _set_in(nodes))


def _beside(file: str) -> Iterator[Sequence[ast.AST]]:
    """Yield what is in the user's modules near a file, by now."""
    for other in {name for name, _ in user_code.users_modules()} - {file}:
        folders = [Path(each).absolute().parent for each in (file, other)]
        around = os.path.commonpath(folders)
        if all(len(each.relative_to(around).parts) <= _NEAR for each in folders):
            yield source_guards.nodes(other)


def _set_in(nodes: Sequence[ast.AST]) -> Iterator[str]:
    own = _of_objects_in_init(nodes)
    for each in (part for node in changing(nodes) for part in chain(node)):
        if isinstance(each, ast.Attribute) and id(each) not in own:
            yield each.attr
    for each in nodes:
        match each:
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), *_]):
                yield name


def _of_objects_in_init(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the attributes that an `__init__` names of its object, by identity."""
    return {
        id(each)
        for method in init_methods(nodes)
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute) and method.args.args and is_name(each.value, method.args.args[0].arg)
    }


@functools.lru_cache(maxsize=16)
def sets_truths(file: str) -> bool:
    """Return whether a file, or a module near it, may switch something on behind some batches: ``data.augment = True``.

    That sets an attribute which some code reads, or what a function has of the module, to what is true or false.
    """
    every = [source_guards.nodes(file), *_beside(file)]
    read = {each.attr for nodes in every for each in nodes if _is_read(each)}
    for nodes in every:
        own = _of_objects_in_init(nodes)
        shared = {name for each in nodes if isinstance(each, ast.Global) for name in each.names}
        for each in nodes:
            match each:
                case (
                    ast.Assign(targets=targets, value=ast.Constant(value=bool()))
                    | ast.Assign(targets=targets, value=ast.Compare() | ast.UnaryOp(op=ast.Not()))
                ):
                    attributes = [to for to in targets if isinstance(to, ast.Attribute) and id(to) not in own]
                    names = (to.id for to in targets if isinstance(to, ast.Name))
                    if not read.isdisjoint(to.attr for to in attributes) or not shared.isdisjoint(names):
                        return True
    return False


def _is_read(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)


def is_set_anew(text: str, file: str) -> bool:
    """Return whether an expression of a file asks for an attribute, or a global name, that code sets anew."""
    inside = list(ast.walk(ast.parse(text, mode="eval")))
    names = {each.id for each in inside if isinstance(each, ast.Name)}
    attributes = {each.attr for each in inside if isinstance(each, ast.Attribute)}
    return not (
        names.isdisjoint(_set_anew(file) | _set_by_others(file)) and attributes.isdisjoint(attributes_set(file))
    )


def follow_what_is_set_anew(functions: Iterable[Any], seen: AbstractSet[Any] = frozenset()) -> bool:
    """Return whether some functions of the user's, and those that they name, read or make what other code may see.

    That is a global name or an attribute of one that is set anew, as ``SIZE`` behind some epochs, or one they set.
    """
    plain = {inspect.unwrap(each) for each in functions if isinstance(each, FunctionType)}
    own = {each for each in plain - seen if isinstance(each, FunctionType) and user_code.is_users(_file(each))}
    definitions = {each: _definition(each) for each in own}
    if any(_reads_set_anew(each, definition) for each, definition in definitions.items()):
        return True
    named = (of for each, definition in definitions.items() for of in named_in([definition], each.__globals__))
    return bool(own) and follow_what_is_set_anew([*named], seen | own)


def _file(function: FunctionType) -> str:
    return function.__code__.co_filename


def _definition(function: FunctionType) -> ast.AST:
    """Return the definition of a function, empty of a lambda, and where its text is not known."""
    code = function.__code__
    return source_guards.function_of(_file(function), code.co_name, code.co_firstlineno) or ast.Module([], [])


def _reads_set_anew(function: FunctionType, definition: ast.AST) -> bool:
    file, inside, own = _file(function), list(ast.walk(definition)), _bound(definition)
    if any(isinstance(each, ast.Global) for each in inside):
        return True
    loaded = [each for each in inside if isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Load)]
    for each in loaded:
        *_, root = chain(each)
        is_global = isinstance(root, ast.Name) and root.id in function.__globals__ and root.id not in own
        if is_global and is_set_anew(ast.unparse(each), file):
            return True
    return False


def named_in(nodes: Iterable[ast.AST], namespace: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what global names in some nodes stand for, and attributes of modules."""
    for each in (part for node in nodes for part in ast.walk(node)):
        match each:
            case ast.Name(id=name):
                yield namespace.get(name)
            case ast.Attribute(value=ast.Name(id=of), attr=name) if isinstance(namespace.get(of), ModuleType):
                yield inspect.getattr_static(namespace[of], name, None)


def chain(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node, and what it is a part or an attribute of, and so on."""
    yield node
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
        yield node


def is_name(node: ast.AST, name: str) -> bool:
    """Return whether an expression is a variable of this name."""
    return isinstance(node, ast.Name) and node.id == name


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
        elif isinstance(node, _NAMED) and node is not function and node.name:
            names.add(node.name)
    return names


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
    return isinstance(key, ast.Name) and key.id not in _set_anew(file)


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


def is_key(value: Any) -> bool:
    """Return whether a value cannot change, so that it can name a result."""
    import numpy as np

    if isinstance(value, tuple):
        return all(map(is_key, value))
    return isinstance(value, str | bytes | numbers.Number | bool | None | PurePath | np.generic)
