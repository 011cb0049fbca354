"""What is installed, and which installed package a process runs: its code is the user's, though it lies there."""

from __future__ import annotations

import ast
import functools
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

_SCHEMES = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
_FOLDERS = ("site-packages", "dist-packages")


def inside(file: str) -> str | None:
    """Return a file's path below the folder that it was installed into, ``keras/src/models/model.py``.

    None of what nobody installed. Installed is what lies in a `site-packages`, or below a folder of `sys.path` whose
    metadata lists it, as `pip install --target` makes one.
    """
    parts = Path(file).parts
    for folder in _FOLDERS:
        if folder in parts:
            return "/".join(parts[parts.index(folder) + 1 :])
    roots = (entry.rstrip("/") for entry in sys.path if entry and file.startswith(f"{entry.rstrip('/')}/"))
    for root in sorted(roots, key=len, reverse=True):
        path = file[len(root) + 1 :]
        if path.partition("/")[0] in _installed_in(root):
            return path
    return None


def is_of(file: str, packages: Iterable[str]) -> bool:
    """Return whether a file belongs to one of these packages as they are imported, from wherever: a checkout, too."""
    found = (str(getattr(sys.modules.get(package), "__file__", "")) for package in packages)
    return any(file.startswith(each.removesuffix("__init__.py")) for each in found if each.endswith("/__init__.py"))


@functools.cache
def _installed_in(folder: str) -> frozenset[str]:
    """Return the files and packages at the top of a folder that its metadata lists; empty where it has none."""
    tops: set[str] = set()
    for record in Path(folder).glob("*.dist-info/RECORD"):
        with suppress(OSError), record.open(encoding="utf-8", errors="replace") as lines:
            tops.update(line.partition(",")[0].partition("/")[0] for line in lines)
    return frozenset(tops)


def program() -> str | None:
    """Return the package that was started by `python -m`, or by a command that it installed; None where a file was."""
    main: Any = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).partition(".")[0]
    return None if file is None else _of_command(file)


@functools.cache
def _of_command(name: str) -> str | None:
    """Return the package whose function a command calls: installers write ``from package.module import function``."""
    file = Path(name).resolve()
    if file.parent not in [Path(sysconfig.get_path("scripts", scheme)).resolve() for scheme in _SCHEMES]:
        return None
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    modules = [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    return modules[-1].partition(".")[0] if modules else None
