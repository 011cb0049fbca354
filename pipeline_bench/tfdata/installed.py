"""Which installed package a process runs: its code is the user's, though it lies where libraries do."""

from __future__ import annotations

import ast
import sys
import sysconfig
from pathlib import Path
from typing import Any

_SCHEMES = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))


def program() -> str | None:
    """Return the package that was started by `python -m`, or by a command that it installed; None where a file was."""
    main: Any = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).partition(".")[0]
    return None if file is None else _of_command(Path(file).resolve())


def _of_command(file: Path) -> str | None:
    """Return the package whose function a command calls: installers write ``from package.module import function``."""
    if file.parent not in [Path(sysconfig.get_path("scripts", scheme)).resolve() for scheme in _SCHEMES]:
        return None
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    modules = [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    return modules[-1].partition(".")[0] if modules else None
