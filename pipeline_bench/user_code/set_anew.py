"""What a user's code sets anew, in a file and near it: names and attributes, which may switch what calls give."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import numbers
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.user_code import source_guards

_NEAR = 3
"""So many folders down from one that is around both, modules are of one program."""
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)


@functools.cache
def set_anew(file: str) -> frozenset[str]:
    """Return the names that a file sets more than once, in a loop, or in a function that they are not of."""
    counts = Counter(stored(_of_module(file)))
    return _shared(file).union(name for name, count in counts.items() if count > 1)


@functools.cache
def _shared(file: str) -> frozenset[str]:
    """Return the names that a file sets in a loop, or may in a function that they are not of."""
    nodes = source_guards.nodes(file)
    loops = (each for each in _of_module(file) if isinstance(each, ast.For | ast.While))
    in_loops = (name for loop in loops for name in stored(source_guards.own_nodes([loop])))
    declared = (name for each in nodes if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names)
    return frozenset((*in_loops, *declared))


def _of_module(file: str) -> Iterator[ast.AST]:
    """Yield what is in a file, without what is in functions and classes."""
    nodes = source_guards.nodes(file)
    return source_guards.own_nodes(nodes[0].body if nodes else ())


def stored(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that some nodes assign to, or delete."""
    return (each.id for each in changing(nodes) if isinstance(each, ast.Name))


def changing(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield those of some nodes that something is assigned to, or that are deleted."""
    return (each for each in nodes if not isinstance(getattr(each, "ctx", ast.Load()), ast.Load))


def init_methods(nodes: Iterable[ast.AST]) -> list[ast.FunctionDef]:
    """Return the definitions of `__init__` among some nodes."""
    return [each for each in nodes if isinstance(each, ast.FunctionDef) and each.name == "__init__"]


@functools.cache
def attributes_set(file: str) -> frozenset[str]:
    """Return the names of the attributes that a file, or a module near it, sets anew: all of one, or a part."""
    return set_by_others(file) | _attributes_of(file)


@functools.cache
def set_by_others(file: str) -> frozenset[str]:
    """Return those that modules near it set, which may be global names of the file."""
    return frozenset[str]().union(*map(_attributes_of, _beside(file)))


@functools.cache
def _attributes_of(file: str) -> frozenset[str]:
    return frozenset(_set_in(source_guards.nodes(file)))


@functools.cache
def _set_in_functions(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the global names of which the functions of a file set all or a part, and the attributes that they set.

    What the module itself sets is set before any training, but in a loop.
    """
    nodes, names, attributes = source_guards.nodes(file), {*_shared(file)}, set[str]()
    of_init = _of_objects_in_init(nodes)
    for function in (each for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)):
        own = bound(function)
        for node in changing(ast.walk(function)):
            *parts, root = chain(node)
            if isinstance(node, ast.Subscript) and isinstance(root, ast.Name) and root.id not in own:
                names.add(root.id)
            attributes.update(
                each.attr for each in parts if isinstance(each, ast.Attribute) and id(each) not in of_init
            )
    return frozenset(names), frozenset(attributes)


def _beside(file: str) -> Iterator[str]:
    """Yield the files of the user's modules near a file, by now."""
    for other in {name for name, _ in user_code.users_modules()} - {file}:
        folders = [Path(each).absolute().parent for each in (file, other)]
        around = os.path.commonpath(folders)
        if all(len(each.relative_to(around).parts) <= _NEAR for each in folders):
            yield other


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


@functools.cache
def sets_truths(file: str) -> bool:
    """Return whether a file, or a module near it, may switch something on behind some batches: ``data.augment = True``.

    That sets an attribute which some code reads, or what a function has of the module, to what is true or false.
    """
    every = [source_guards.nodes(each) for each in (file, *_beside(file))]
    attributes = (each for nodes in every for each in nodes if isinstance(each, ast.Attribute))
    read = {each.attr for each in attributes if isinstance(each.ctx, ast.Load)}
    for nodes in every:
        own = _of_objects_in_init(nodes)
        shared = {name for each in nodes if isinstance(each, ast.Global) for name in each.names}
        for each in nodes:
            match each:
                case (
                    ast.Assign(targets=targets, value=ast.Constant(value=bool()))
                    | ast.Assign(targets=targets, value=ast.Compare() | ast.UnaryOp(op=ast.Not()))
                ):
                    set_to = [to for to in targets if isinstance(to, ast.Attribute) and id(to) not in own]
                    names = (to.id for to in targets if isinstance(to, ast.Name))
                    if not read.isdisjoint(to.attr for to in set_to) or not shared.isdisjoint(names):
                        return True
    return False


def is_set_anew(text: str, file: str) -> bool:
    """Return whether an expression of a file asks for an attribute, or a global name, that code sets anew."""
    inside = list(ast.walk(ast.parse(text, mode="eval")))
    names = {each.id for each in inside if isinstance(each, ast.Name)}
    attributes = {each.attr for each in inside if isinstance(each, ast.Attribute)}
    return not (
        names.isdisjoint(set_anew(file) | set_by_others(file) | _set_in_functions(file)[0])
        and attributes.isdisjoint(attributes_set(file))
    )


def follow_what_is_set_anew(functions: Iterable[Any], seen: AbstractSet[Any] = frozenset()) -> bool:
    """Return whether some functions of the user's, and those that they name, read or make what other code may see.

    That is a global name or an attribute of one that is set anew, as ``SIZE`` behind some epochs, or one they set.
    """
    plain = {each for function in functions for each in _functions_of(function)} - seen
    own = {each for each in plain if user_code.is_users(_file(each))}
    if any(map(_reads_set_anew, own)):
        return True
    named = [of for each in own for of in named_in([_definition(each)], each.__globals__)]
    return bool(own) and follow_what_is_set_anew(named, seen | own)


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """Yield what runs where a value is called: a function without its wrappers, or what makes an object of a class."""
    if isinstance(value, type):
        for name in ("__init__", "__call__"):
            yield from _functions_of(vars(value).get(name))
        return
    value = getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value
    with contextlib.suppress(ValueError):  # of a function that wraps itself
        value = inspect.unwrap(value) if isinstance(value, FunctionType) else value
    if isinstance(value, FunctionType):
        yield value


def _file(function: FunctionType) -> str:
    return function.__code__.co_filename


def _definition(function: FunctionType) -> ast.AST:
    """Return the definition of a function, empty of a lambda, and where its text is not known."""
    code = function.__code__
    return source_guards.function_of(_file(function), code.co_name, code.co_firstlineno) or ast.Module([], [])


@functools.lru_cache(maxsize=4096)
def _reads_set_anew(function: FunctionType) -> bool:
    """Return whether a function sets a global name, or reads one, or a part of one, that functions set anew."""
    file, definition = _file(function), _definition(function)
    names, attributes = _set_in_functions(file)
    of_others = frozenset[str]().union(*(_set_in_functions(each)[1] for each in _beside(file)))
    if not names.isdisjoint(function.__code__.co_freevars):
        return True
    inside, own = list(ast.walk(definition)), bound(definition)
    if isinstance(definition, ast.Module):  # of a lambda
        return any(name in names and name in function.__globals__ for name in function.__code__.co_names)
    if any(isinstance(each, ast.Global) for each in inside):
        return True
    for each in inside:
        *parts, root = chain(each)
        if not isinstance(root, ast.Name) or root.id in own or root.id not in function.__globals__:
            continue
        value = function.__globals__[root.id]
        if isinstance(value, ModuleType) and not user_code.is_users(str(getattr(value, "__file__", ""))):
            continue
        asked = {part.attr for part in parts if isinstance(part, ast.Attribute)}
        if root.id in names or (root.id in of_others and is_key(value)) or asked & (attributes | of_others):
            return True
    return False


def named_in(nodes: Iterable[ast.AST], namespace: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what global names in some nodes stand for, and attributes of modules."""
    for each in (part for node in nodes for part in ast.walk(node)):
        match each:
            case ast.Name(id=name):
                yield namespace.get(name)
            case ast.Attribute(value=ast.Name(id=of), attr=name) if isinstance(namespace.get(of), ModuleType | type):
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


def bound(function: ast.AST) -> set[str]:
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


def is_key(value: Any) -> bool:
    """Return whether a value cannot change, so that it can name a result."""
    import numpy as np

    if isinstance(value, tuple):
        return all(map(is_key, value))
    return isinstance(value, str | bytes | numbers.Number | bool | None | PurePath | np.generic)
