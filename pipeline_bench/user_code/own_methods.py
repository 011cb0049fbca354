"""What methods read of their object, by which it is known that a call of one gives the same: ``self.load(path)``.

It is so where they are the class's own, and its `__init__` alone sets what they read.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from pipeline_bench.user_code import source_guards
from pipeline_bench.user_code.call_keys import outside_of
from pipeline_bench.user_code.set_anew import attributes_set, chain, changing, init_methods, is_name

_CHANGES = frozenset(
    ("append", "clear", "extend", "fill", "insert", "pop", "put", "remove", "reverse", "sort", "update")
)
"""Methods that change what they are of."""


class Owner:
    """The object of the method that a line is in."""

    def __init__(self, name: str, definition: ast.ClassDef, file: str, kind: type) -> None:
        """Look at an object.

        Args:
            name: by which the method has it: ``self``.
            definition: of its class.
            file: that this is in.
            kind: that class, or one that it inherits from.
        """
        self.name, self._nodes, self._kind = name, source_guards.nodes(file), kind
        self._set_elsewhere = attributes_set(file)
        self._methods = {each.name: each for each in definition.body if isinstance(each, ast.FunctionDef)}

    @classmethod
    def of(cls, method: ast.AST, file: str, namespace: Mapping[str, Any]) -> Owner | None:
        """Return the object of a method; None of a function that is none, or whose class is no global name.

        Args:
            method: its definition.
            file: that it is in.
            namespace: the global names there.
        """
        classes = (each for each in source_guards.nodes(file) if isinstance(each, ast.ClassDef))
        found = next((each for each in classes if method in each.body), None)
        kind = namespace.get(found.name) if found is not None else None
        name = _object_of(method)
        return Owner(name, found, file, kind) if found is not None and name and isinstance(kind, type) else None

    def reads_of(self, nodes: Iterable[ast.AST]) -> list[str] | None:
        """Return the attributes that the methods read which some nodes call of it, and those that these call.

        None where they may do more than read what stays as it is: set one, or hand the object on; and where objects of
        the class may have other methods, or are told apart by other things than which they are.
        """
        called: dict[str, ast.FunctionDef] = {}
        read: dict[str, None] = {}
        # What the nodes read themselves is among what their calls depend on.
        if not all(self._collects(each, self.name, {}, called) for each in nodes):
            return None
        looked_at: set[str] = set()
        while names := called.keys() - looked_at:
            looked_at |= names
            lines = [(line, _object_of(called[name])) for name in names for line in called[name].body]
            if not all(self._collects(line, name, read, called) for line, name in lines):
                return None
        is_set = any(self._sets(name, name in called) for name in (*read, *called))
        stays = not is_set and not any(map(self._is_computed, read))
        return sorted(read) if stays and self._are_own(called) else None

    def holds(self, name: str) -> bool:
        """Return whether objects of the class have something for good: all else only looks something up in it.

        Outside of an `__init__`, nothing is set in it, and no part of it is called or handed on.
        """
        calls = [each for each in self._nodes if isinstance(each, ast.Call)]
        lengths = [each.args[0] for each in calls if is_name(each.func, "len") and each.args]
        given = [part for each in calls for part in (each.func, *each.args, *(other.value for other in each.keywords))]
        used = [*changing(self._nodes), *(part for part in given if part not in lengths)]
        changed = {id(each) for node in used for each in chain(node)}
        if name in self._set_elsewhere or self._changes_variable_of(name):
            return False
        looked_at = {
            id(each.value)
            for each in self._nodes
            if isinstance(each, ast.Subscript | ast.Attribute) and id(each) not in changed
        }
        allowed = {*looked_at, *map(id, lengths), *self._of_init}
        places = [each for each in self._nodes if isinstance(each, ast.Attribute) and each.attr == name]
        return not self._is_computed(name) and all(id(each) in allowed for each in places)

    def _changes_variable_of(self, name: str) -> bool:
        """Return whether a function changes in place what it gave a name: ``ids = self.table["id"].values``."""
        of_init = self._of_init
        for function in (each for each in self._nodes if isinstance(each, ast.FunctionDef) and id(each) not in of_init):
            inside = list(ast.walk(function))
            named = {
                target.id
                for each in inside
                if isinstance(each, ast.Assign) and any(_is_attribute(part, name) for part in chain(each.value))
                for target in each.targets
                if isinstance(target, ast.Name)
            }
            if any(isinstance(part, ast.Name) and part.id in named for each in inside for part in _changed_by(each)):
                return True
        return False

    def _collects(self, node: ast.AST, name: str, read: dict[str, None], called: dict[str, ast.FunctionDef]) -> bool:
        """Add what a node reads of the object by a name, and the methods that it calls; return whether that is all."""
        inside = list(ast.walk(node))
        attributes = [each for each in inside if isinstance(each, ast.Attribute) and is_name(each.value, name)]
        known = {id(each.value) for each in attributes}
        functions = {id(each.func) for each in inside if isinstance(each, ast.Call)}
        for each in attributes:
            method = self._methods.get(each.attr)
            if method is None and id(each) in functions and self._is_inherited(each.attr):
                return False
            if method is None:
                read[each.attr] = None
            elif id(each) in functions and _object_of(method):
                called[each.attr] = method
            else:
                return False
        handed_on = any((is_name(each, name) and id(each) not in known) or is_name(each, "super") for each in inside)
        return not handed_on and all(isinstance(each.ctx, ast.Load) for each in attributes)

    def _are_own(self, called: Mapping[str, ast.FunctionDef]) -> bool:
        """Return whether objects of its class, and of those that inherit from it, have these methods as defined."""
        for name, method in called.items():
            own = vars(self._kind).get(self._named(name))
            if not isinstance(own, FunctionType) or own.__code__.co_firstlineno != method.lineno:
                return False
        others = list(_inheriting(self._kind))
        plain: object = object.__hash__
        by_identity = all(each.__hash__ is plain for each in (self._kind, *others))
        return by_identity and not any(self._named(name) in vars(each) for each in others for name in called)

    def _is_inherited(self, name: str) -> bool:
        """Return whether a method of that name, whose text is not looked at, is one of the user's."""
        found = inspect.getattr_static(self._kind, self._named(name), None)
        return isinstance(found, FunctionType | classmethod | staticmethod)

    def _is_computed(self, name: str) -> bool:
        return isinstance(inspect.getattr_static(self._kind, self._named(name), None), property)

    def _named(self, name: str) -> str:
        """Return the name of an attribute as the class has it."""
        return outside_of(self._kind.__name__, name)

    def _sets(self, name: str, always: bool) -> bool:
        """Return whether the file sets an attribute of that name, outside of an `__init__` or anywhere."""
        setting = {id(each) for each in changing(self._nodes) if isinstance(each, ast.Attribute) and each.attr == name}
        return bool(setting if always else setting - self._of_init) or name in self._set_elsewhere

    @property
    def _of_init(self) -> set[int]:
        """What is within an `__init__` of the file, by identity."""
        return {id(each) for method in init_methods(self._nodes) for each in ast.walk(method)}

    def functions(self, nodes: Iterable[ast.AST]) -> Iterator[Any]:
        """Yield what is called of the object by name in some nodes, its own or inherited."""
        for each in (part for node in nodes for part in ast.walk(node)):
            if isinstance(each, ast.Attribute) and is_name(each.value, self.name):
                yield inspect.getattr_static(self._kind, self._named(each.attr), None)


def _is_attribute(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name


def _changed_by(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node changes a part of, or all of, in place."""
    match node:
        case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
            yield from chain(node.value)
        case ast.AugAssign(target=target):
            yield from chain(target)
        case ast.Call(func=ast.Attribute(attr="shuffle") | ast.Name(id="shuffle"), args=[first, *_]):
            yield from chain(first)
        case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in _CHANGES:
            yield from chain(of)


def _object_of(method: ast.AST) -> str:
    """Return the name by which a method has its object; empty of a function that has none, or has a decorator."""
    match method:
        case ast.FunctionDef(decorator_list=[], args=ast.arguments(posonlyargs=[], args=[first, *_])):
            return first.arg
    return ""


def _inheriting(kind: type) -> Iterator[type]:
    subclasses: list[type] = type.__subclasses__(kind)
    for each in subclasses:
        yield each
        yield from _inheriting(each)
