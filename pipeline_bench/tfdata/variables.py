"""Which variables statements set and use, by their text."""

from __future__ import annotations

import ast
from collections.abc import Iterable


def bound(statements: list[ast.stmt], parameters: tuple[str, ...]) -> list[str]:
    """Return the variables that statements set, in the order of the text, without the parameters."""
    nodes = [node for each in statements for node in ast.walk(each)]
    comprehensions = [each.target for each in nodes if isinstance(each, ast.comprehension)]  # which keep theirs
    own = {id(node) for target in comprehensions for node in ast.walk(target)}
    places = [(each.lineno, each.col_offset, each.id) for each in nodes if isinstance(each, ast.Name)]
    sets = (each for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    names = {each.id for each in sets if id(each) not in own}
    other = {each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    ordered = dict.fromkeys(name for *_, name in sorted(places) if name in names)
    return [each for each in (*ordered, *sorted(other - names)) if each not in parameters]


def needed(statements: list[ast.stmt]) -> set[str]:
    """Return the variables that statements use before they set them, as far as that is sure."""
    found, assigned = set[str](), set[str]()
    for each in statements:
        read: ast.AST = each
        plain: list[ast.Name] = []
        targets = [part for target in each.targets for part in _parts(target)] if isinstance(each, ast.Assign) else []
        if isinstance(each, ast.Assign) and all(isinstance(target, ast.Name) for target in targets):
            read, plain = each.value, [target for target in targets if isinstance(target, ast.Name)]
        found |= {node.id for node in ast.walk(read) if isinstance(node, ast.Name)} - assigned
        assigned.update(name.id for name in plain)
    return found


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple) else [target]


def stored(statements: list[ast.stmt]) -> set[str]:
    """Return the variables that statements set or delete, and those of functions and comprehensions within them."""
    nodes = [node for each in statements for node in ast.walk(each)]
    names = {each.id for each in nodes if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    return names | {each.asname or each.name for each in nodes if isinstance(each, ast.alias)}


def changes(statements: list[ast.stmt], name: str) -> bool:
    """Return whether statements set a variable, or a part of what it holds, as an attribute or an item."""
    parts = (node for each in statements for node in ast.walk(each) if isinstance(node, ast.Attribute | ast.Subscript))
    bases = {_base(each) for each in parts if not isinstance(each.ctx, ast.Load)}
    return name in stored(statements) | bases


def private(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that Python spells otherwise within a class: ``__scale`` of ``self.__scale``."""
    every = [each for node in nodes for each in ast.walk(node)]
    names = (getattr(each, field, None) for each in every for field in ("arg", "asname", "attr", "id", "name"))
    return {each for each in names if isinstance(each, str) and each.startswith("__") and not each.endswith("__")}


def _base(part: ast.expr) -> str:
    """Return the variable that an attribute or an item belongs to; empty where it belongs to none."""
    while isinstance(part, ast.Attribute | ast.Subscript):
        part = part.value
    return part.id if isinstance(part, ast.Name) else ""


def named(statements: list[ast.stmt]) -> set[str]:
    """Return the variables that statements name."""
    return {node.id for each in statements for node in ast.walk(each) if isinstance(node, ast.Name)}
