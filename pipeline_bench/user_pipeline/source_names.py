"""The names that a Python file defines, read from its text without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline_bench.errors import UsageError

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Names:
    """What a file defines at its top level."""

    functions: tuple[str, ...]
    """Functions and classes defined in it, in their order."""
    all: frozenset[str]
    complete: bool
    """Whether there can be no others: it has no ``import *``, no ``globals()``, no ``exec``, no ``__getattr__``."""


def of(path: Path, shown: str) -> Names:
    """Read a file's names; `shown` is how a message calls it.

    Raises:
        UsageError: it cannot be read, or is no valid Python.
    """
    try:
        tree = ast.parse(path.read_bytes(), filename=shown)
    except SyntaxError as error:
        where = f"{shown}:{error.lineno}" if error.lineno else shown
        raise UsageError(f"{where}: {error.msg}", "correct the file; Python cannot read it") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{shown} cannot be read: {error}", "check the file") from error
    defined = tuple(node.name for node in tree.body if isinstance(node, _FUNCTIONS))
    found = frozenset(_names(tree))
    doubtful = {"*", "__getattr__", "globals", "exec", "vars", "setattr"}
    return Names(defined, found, not doubtful & (found | _called(tree)))


def _names(node: ast.AST) -> Iterator[str]:
    """What is bound at module level, under ``if``, ``try``, ``with`` and loops too, and by ``global`` in functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS):
            yield child.name
            yield from (name for inner in ast.walk(child) if isinstance(inner, ast.Global) for name in inner.names)
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[0] for alias in child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif isinstance(child, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and child.name:
            yield child.name
        if not isinstance(child, ast.Lambda):
            yield from _names(child)


def _called(tree: ast.AST) -> set[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}
