"""Which modules of the user's a script runs, as far as its text and theirs say; nothing is imported for that."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path


def parsed(text: str | bytes, shown: str = "<unknown>") -> ast.Module:
    """Return a syntax tree, without the parser's warnings: Python gives them where the user's code runs.

    Raises:
        SyntaxError: it is no valid Python; ValueError and RecursionError as of `ast.parse`.
    """
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(text, filename=shown)


def readable(text: str | bytes) -> ast.Module:
    """Return a syntax tree; an empty one of what Python cannot read."""
    try:
        return parsed(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


def imported(tree: ast.AST, folder: Path) -> Iterator[tuple[Path | None, tuple[str, ...]]]:
    """Yield what a module may import: the folder that it is in, None where Python's path says, and the name in parts.

    What it takes from a module may itself be one, or none.

    Args:
        tree: of the module.
        folder: that its file is in, from which its relative imports are.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((None, tuple(each.name.split("."))) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            of = tuple(node.module.split(".")) if node.module else ()
            around: Path | None = None
            for package in [folder, *folder.absolute().parents][max(node.level - 1, 0) : node.level]:
                around, of = package.absolute().parent, (package.absolute().name, *of)
            yield from ((around, (*of, each.name)) for each in node.names)


def files(folder: Path, name: tuple[str, ...]) -> list[Path]:
    """Return the files in a folder that the import of a module runs, its packages' first; none if it is elsewhere.

    Raises:
        OSError: a folder cannot be looked at, or the name is too long.
    """
    if not all(name):  # a relative import from the root of the file system
        return []
    paths = [folder.joinpath(*name[:depth]) for depth in range(1, len(name) + 1)]
    either = [(path / "__init__.py", path.with_name(f"{path.name}.py")) for path in paths]
    return [file for each in either for file in [next(filter(Path.is_file, each), None)] if file is not None]
