"""A user's own callable, named in a scenario: found without running it, loaded, and its exceptions explained.

``path/to/file.py:function`` or ``package.module:function``.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline_bench.errors import UsageError, did_you_mean, sentence
from pipeline_bench.records.samples import RecordError
from pipeline_bench.text import line_of

_OWN_FOLDER = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class CallableName:
    """Where a callable is: a file or a module, and the name of the function in it."""

    place: str
    function: str

    @classmethod
    def parse(cls, text: str) -> CallableName:
        """Take ``file.py:function`` or ``package.module:function`` apart.

        Raises:
            ValueError: it is neither; the message says what is allowed.
        """
        place, colon, function = text.rpartition(":")
        is_name = function.isidentifier() and (place.endswith(".py") or all(map(str.isidentifier, place.split("."))))
        if not (colon and is_name):
            raise ValueError("it must be path/to/file.py:function or package.module:function")
        return cls(place, function)

    @property
    def in_file(self) -> bool:
        """Whether it names a file and not a module."""
        return self.place.endswith(".py")

    def __str__(self) -> str:
        return f"{self.place}:{self.function}"

    def check(self, arguments: Mapping[str, Any]) -> None:
        """See that it is there and takes the arguments, as far as its source says, without running any of it.

        Raises:
            UsageError: the file or module is not there or no Python, has no such function, or that takes others.
        """
        path = Path(self.place) if self.in_file else _module_file(self.place)
        if path is None:  # a module without Python source: only its import can tell
            return
        try:
            tree = ast.parse(path.read_bytes(), str(path))
        except OSError as error:
            raise UsageError(
                f"source.callable {self}: {path} cannot be read: {error.strerror}.",
                f"Give path/to/file.py:function; a relative path begins at {Path.cwd()}.",
            ) from None
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f"{path}, line {line}" if line else str(path)
            raise UsageError(f"source.callable {self}: {where}: {error.args[0]}.", "Repair the file.") from None
        defined = _defined(tree.body)
        if defined is not None and self.function not in defined:
            public = [name for name in defined if not name.startswith("_")]
            raise UsageError(
                f"source.callable {self}: {path} defines no {self.function!r}.",
                sentence(did_you_mean(self.function, public)),
            )
        function = (defined or {}).get(self.function)
        if isinstance(function, ast.FunctionDef) and not function.decorator_list:
            self._check_arguments(function.args, arguments)

    def _check_arguments(self, takes: ast.arguments, arguments: Mapping[str, Any]) -> None:
        positional = [argument.arg for argument in (*takes.posonlyargs, *takes.args)]
        required = positional[: len(positional) - len(takes.defaults)]
        keyword_only = zip(takes.kwonlyargs, takes.kw_defaults, strict=True)
        required += [argument.arg for argument, default in keyword_only if default is None]
        allowed = [argument.arg for argument in (*takes.args, *takes.kwonlyargs)]
        unknown = [name for name in arguments if name not in allowed and takes.kwarg is None]
        if unknown:
            raise UsageError(
                f"source.arguments: {self} takes no {unknown[0]!r}.", sentence(did_you_mean(unknown[0], allowed))
            )
        missing = [name for name in required if name not in arguments]
        if missing:
            raise UsageError(
                f"source.arguments: {self} needs {missing[0]!r}, which has no default.",
                f"Write arguments = {{ {missing[0]} = … }}, or give it a default.",
            )

    def load(self) -> Callable[..., Any]:
        """Import the file or module and return the function.

        Raises:
            RecordError: importing it raises, or there is no such function after all.
        """
        try:
            module = _imported_file(Path(self.place)) if self.in_file else _imported_module(self.place)
        except (Exception, SystemExit) as error:
            show(error)
            raise RecordError(f"The generator {self} cannot be imported: {line_of(error)}{where_in(error)}.") from error
        found = getattr(module, self.function, None)
        if not callable(found):
            what = f"it is a {type(found).__name__}" if hasattr(module, self.function) else "there is none of that name"
            raise RecordError(f"The generator {self} is no function: {what}.")
        loaded: Callable[..., Any] = found
        return loaded


def where_in(error: BaseException, function: Any = None) -> str:
    """The line that an exception came from, as `` (train.py:12)``; empty where none is known.

    Args:
        error: as caught.
        function: the user's callable: the innermost line in its own file is meant, if there is one; else the innermost
            that is not this package's.
    """
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = _file_of(function)
    inside = [each for each in lines if each[0] == own] or [each for each in lines if not _is_ours(each[0])]
    return f" ({Path(inside[-1][0]).name}:{inside[-1][1]})" if inside else ""


def show(error: BaseException) -> None:
    """Write the traceback to stderr, from the first frame that is not this package's."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)
    sys.stderr.flush()


def _is_ours(file: str) -> bool:
    return file.startswith((_OWN_FOLDER, "<frozen importlib"))


def _file_of(function: Any) -> str | None:
    try:
        return inspect.getsourcefile(inspect.unwrap(function)) if function is not None else None
    except (TypeError, ValueError):
        return None


def _module_file(name: str) -> Path | None:
    """The source file of a module, found without importing any package around it; None where it has no source.

    Raises:
        UsageError: there is no such module.
    """
    folders: list[str] | None = [str(Path.cwd()), *sys.path]
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        part = ".".join(parts[:end])
        spec = PathFinder.find_spec(part, folders) if folders is not None else None
        if spec is None and end == 1 and part in sys.builtin_module_names:
            return None
        if spec is None:
            raise UsageError(
                f"source.callable: there is no module {part!r}.",
                f"Install it, or give path/to/file.py:function; modules are also looked for in {Path.cwd()}.",
            )
        folders = list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else None
    origin = spec.origin if spec else None
    return Path(origin) if origin and origin.endswith(".py") else None


def _defined(body: list[ast.stmt]) -> dict[str, ast.stmt] | None:
    """What a module's statements define at its top, by name; None where only running it can tell."""
    found: dict[str, ast.stmt] = {}
    for statement in body:
        names, inner = _names(statement)
        if "*" in names or "__getattr__" in names:
            return None
        found |= dict.fromkeys(names, statement)
        nested = _defined(inner)
        if nested is None:
            return None
        found |= nested
    return found


def _names(statement: ast.stmt) -> tuple[list[str], list[ast.stmt]]:
    """The names that a statement defines itself, and the statements in it that are run with it."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name], []
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(alias.asname or alias.name).partition(".")[0] for alias in names], []
    inner = [each for block in ("body", "orelse", "finalbody") for each in getattr(statement, block, [])]
    inner += [each for handler in getattr(statement, "handlers", []) for each in handler.body]
    if inner:
        return [], inner
    return [
        node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ], []


def _imported_file(path: Path) -> ModuleType:
    """Import a file as if it were a module of its own folder, so that it finds the files beside it."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = path.stem if path.stem not in sys.modules else f"_generator_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _imported_module(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)
