"""A function of the user's that is named: checked in the parent without importing it, loaded and called in a child."""

from __future__ import annotations

import ast
import base64
import contextlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from pipeline_bench.errors import UsageError, UserCodeError, did_you_mean
from pipeline_bench.model.pipeline import Target
from pipeline_bench.text import is_utf8, safe
from pipeline_bench.tfdata import script, user_code

_EXAMPLES = {"dataset": "train.py:make_dataset", "model": "train.py:make_model", "generator": "train.py:samples"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DOUBTFUL = frozenset({"*", "__getattr__", "globals", "exec", "vars", "setattr"})
"""Names and calls in a file that make it possible that it has names which its text does not show."""
_TRAINING = "training"
_MAIN_HINT = "put what runs the script under `if __name__ == '__main__':`"


def parse(text: str, argument: int | None = None, what: str = "dataset") -> Target:
    """Return the target of ``train.py:make_dataset`` or ``package.module:make_dataset``, checked as by `check`.

    Raises:
        UsageError: there is no colon, or see `check`.
    """
    _require_text(text)
    where, colon, name = text.rpartition(":")
    if not colon or not where:
        hint = f"write FILE.py:FUNCTION, such as {_EXAMPLES[what]}"
        raise UsageError(f"{text!r} does not name a function in a file", hint)
    is_file = where.endswith(".py") or "/" in where or Path(where).exists()
    target = Target(file=where if is_file else None, module=None if is_file else where, name=name, argument=argument)
    check(target, what)
    return target


def is_script(text: str) -> bool:
    """Return whether a whole script is named, ``train.py``, and no function in it."""
    return text.endswith(".py")


def parse_script(
    text: str, arguments: Sequence[str], model: Any = None, argument: int | None = None
) -> tuple[Target, Target | None]:
    """Return the target of a whole script, and the same as the model's where the script calls a `fit`.

    Args:
        text: the script's file.
        arguments: what it is to be run with.
        model: has to be None, as `argument` has: they go with a function that makes the dataset.
        argument: see `model`.

    Raises:
        UsageError: there is no such file, it is no valid Python, or something is given that a script does not take.
    """
    if model is not None or argument is not None:
        option = "--model" if model is not None else "--batch-arg"
        raise UsageError(
            f"{text} is a whole script: {option} goes with a function", f"write {text}:FUNCTION, or leave it out"
        )
    _require_text(text)
    _parsed(_source_of_file(text, "dataset"), text)
    whole = Target(file=text, name="", arguments=tuple(arguments))
    return whole, whole if script.calls_fit(Path(text)) else None


def check(target: Target, what: str = "dataset") -> ast.AST | None:
    """Check that a function exists as far as its source shows; the user's code is read, never imported.

    What cannot be decided is accepted: a name that is assigned, imported or may come from ``import *``.

    Returns:
        What the source defines under the name; None where it has no source or does not define it by itself.

    Raises:
        UsageError: there is no such file or module, no such name in it, or it is no valid Python.
    """
    where, name = str(target.file or target.module), target.name
    source = _source_of_file(where, what) if target.file is not None else _source_of_module(where)
    if source is None:
        return None
    _require_text(str(source.absolute()))
    tree = _parsed(source, where)
    defined = dict(_bound_names(tree))
    functions = [node.name for node in tree.body if isinstance(node, _DEFINITIONS)]
    if not name:
        raise UsageError(f"{where}: names no function", f"write one behind the colon: {', '.join(functions)}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is not the name of a function", f"write {where}:FUNCTION")
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    if name.partition(".")[0] not in defined and not _DOUBTFUL & (defined.keys() | called):
        raise UsageError(f"there is no function {name!r} in {where}", did_you_mean(name, functions))
    return defined.get(name)


def check_arguments(definition: ast.AST | None, name: str, given: Mapping[str, Any]) -> None:
    """Check that a function takes the keyword arguments, where its source shows what it takes.

    Raises:
        UsageError: it does not, or needs others.
    """
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return
    takes = definition.args
    positional = [each.arg for each in (*takes.posonlyargs, *takes.args)]
    required = positional[: len(positional) - len(takes.defaults)]
    required += [each.arg for each, value in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if value is None]
    allowed = [each.arg for each in (*takes.args, *takes.kwonlyargs)]
    for unknown in given:
        if unknown not in allowed and takes.kwarg is None:
            raise UsageError(f"{name} takes no {unknown!r}", did_you_mean(unknown, allowed))
    for missing in required:
        if missing not in given:
            hint = f"write arguments = {{ {missing} = … }}, or give it a default"
            raise UsageError(f"{name} needs {missing!r}, which has no default", hint)


def _require_text(path: str) -> None:
    """Refuse a path whose bytes are no text: it is sent to a trial as JSON, and TensorFlow makes no op in such a file.

    Raises:
        UsageError: the path is so.
    """
    if not is_utf8(path):
        raise UsageError(
            f"{path} holds bytes that are no text in this locale's encoding, {sys.getfilesystemencoding()}",
            "rename the file or its folder, or set LC_ALL to a UTF-8 locale such as C.UTF-8",
        )


def _source_of_file(where: str, what: str) -> Path:
    path, example = Path(where), f"FILE.py:FUNCTION, such as {_EXAMPLES[what]}"
    if path.is_dir():
        raise UsageError(f"{where} is a folder", f"name a file in it: {example}")
    if not path.exists():
        near = did_you_mean(path.name, [each.name for each in path.parent.glob("*.py")]) if path.parent.is_dir() else ""
        hint = near if near.startswith("did you mean") else f"check the path; a relative one begins at {Path.cwd()}"
        raise UsageError(f"there is no file {where}", hint)
    if path.suffix != ".py":
        raise UsageError(f"{where} is not a .py file", f"write {example}")
    return path


def _source_of_module(where: str) -> Path | None:
    """The file of a module, found without importing it or a package around it; None where it has no source to read."""
    parts = where.split(".")
    if not all(part.isidentifier() for part in parts):
        raise UsageError(f"{where!r} is neither a .py file nor the name of a module", "write FILE.py:FUNCTION")
    folders: list[str] | None = [str(Path.cwd()), *sys.path]
    spec = None
    for depth in range(1, len(parts) + 1):
        full = ".".join(parts[:depth])
        spec = importlib.machinery.PathFinder.find_spec(full, folders)
        if spec is None:
            if full in sys.builtin_module_names:
                return None
            raise UsageError(f"there is no module {full}", "write FILE.py:FUNCTION, or run where it can be imported")
        folders = list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else None
        if folders is None and depth < len(parts):
            raise UsageError(f"{full} is a module, not a package: there is no {where}", "check the name")
    file = spec.origin if spec is not None else None
    return Path(file) if file is not None and file.endswith(".py") else None


def _parsed(path: Path, shown: str) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=shown)
    except SyntaxError as error:
        where = f"{shown}:{error.lineno}" if error.lineno else shown
        raise UsageError(f"{where}: {error.msg}", "correct the file; Python cannot read it") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{shown} cannot be read: {error}", "check the file") from error


def _bound_names(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What is bound at module level, under ``if``, ``try``, ``with`` and loops too, and by ``global`` in functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DEFINITIONS):
            yield child.name, child
            inside = (inner for inner in ast.walk(child) if isinstance(inner, ast.Global))
            yield from ((name, inner) for inner in inside for name in inner.names)
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.split(".")[0], child) for alias in child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id, child
        elif isinstance(child, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and child.name:
            yield child.name, child
        if not isinstance(child, ast.Lambda):
            yield from _bound_names(child)


def from_callable(function: Any, argument: int | None = None) -> Target:
    """Return the target of a function that the caller holds; a text goes to `parse`.

    A function that a child can import is named; one of a notebook, a script's own, a lambda or a closure travels by
    value, with what it refers to.

    Raises:
        UsageError: it is no function, or holds something that cannot travel.
    """
    if isinstance(function, str | os.PathLike):
        return parse(os.fspath(function), argument)
    if not callable(function):
        hint = "give the function that makes it, or 'train.py:make_dataset'"
        raise UsageError(f"a {type(function).__name__} is no function", hint)
    name = safe(str(getattr(function, "__qualname__", type(function).__qualname__)))
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is not None and _is_importable(module, name, function):
        if module.__spec__ is not None and module.__spec__.parent:
            return Target(module=module.__name__, name=name, argument=argument)
        file = str(Path(str(module.__file__)).resolve())
        _require_text(file)
        return Target(file=file, name=name, argument=argument)
    try:
        pickled = base64.b64encode(cloudpickle.dumps(function)).decode()
    except Exception as error:  # whatever the objects that it refers to raise
        hint = "have the function make what it needs itself, or put it into a file and name that: train.py:make_dataset"
        raise UsageError(f"{name} cannot be sent to another process: {user_code.summary(error)}", hint) from error
    return Target(name=name.rsplit("<locals>.", maxsplit=1)[-1], pickled=pickled, argument=argument)


def _is_importable(module: ModuleType, name: str, function: Any) -> bool:
    if module.__name__ == "__main__" or not getattr(module, "__file__", None) or "<" in name:
        return False
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is function


def load(target: Target) -> Any:
    """Return what the target names, imported with its neighbours in reach as by ``python train.py``.

    The working folder stays as it is.

    Raises:
        UserCodeError: the module has no such name.
        BaseException: whatever importing the user's module raises.
    """
    if target.pickled is not None:
        return cloudpickle.loads(base64.b64decode(target.pickled))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing is written beside the user's files
    try:
        module = _import_file(Path(target.file)) if target.file is not None else _import_module(str(target.module))
    finally:
        sys.dont_write_bytecode = before
    found: Any = module
    for part in target.name.split("."):
        if not hasattr(found, part):
            names = [each for each in vars(module) if callable(vars(module)[each]) and not each.startswith("_")]
            hint = did_you_mean(target.name, names)
            raise UserCodeError(f"there is no {target.name!r} in {target.file or target.module}", hint)
        found = getattr(_instance(found, part), part)
    return found


def _instance(found: Any, name: str) -> Any:
    """An object of the class whose method is named, made without arguments; anything else as it is.

    Raises:
        UserCodeError: the class wants arguments.
        BaseException: whatever making the object raises.
    """
    if not inspect.isclass(found) or not inspect.isfunction(inspect.getattr_static(found, name, None)):
        return found
    with contextlib.suppress(ValueError):  # a class of C without a signature
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            hint = f"give its arguments defaults, or name a function that calls {found.__name__}(…).{name}()"
            raise UserCodeError(f"{found.__name__} cannot be made without arguments: {error}", hint) from error
    return found()


_imported: dict[Path, ModuleType] = {}
"""The files that have been run in this process, by their resolved path: each one runs once."""


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserCodeError(f"there is no file {path}", "was it moved, or the working folder changed?")
    whole = path.resolve()
    known = _imported.get(whole)
    if known is not None and sys.modules.get(known.__name__) is known:  # as the dataset's file, and now as the model's
        return known
    sys.path.insert(0, str(whole.parent))
    sys.argv = [str(path)]
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, whole)
    if spec is None or spec.loader is None:
        raise UserCodeError(f"{path} cannot be imported", "name a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # under its name before it runs, as dataclasses and pickle expect
    spec.loader.exec_module(module)
    _imported[whole] = module
    return module


def _import_module(name: str) -> ModuleType:
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def call(target: Target, what: str) -> Any:
    """Load the function and call it, with the target's argument where it has one; an object is taken as it is.

    `what` is ``dataset`` or ``model``. A child that the user's function forks ends here.

    Raises:
        UserCodeError: it raised or exited, cannot be imported, or wants other arguments; `traceback` is the user's.
    """
    import tensorflow as tf

    found = _run(lambda: load(target), f"{target.text} cannot be loaded", what)
    if isinstance(found, tf.data.Dataset | tf.Module | tf.keras.Model):
        return found
    if not callable(found):
        message = f"{target.text} is a {type(found).__name__}, neither a function nor a {what}"
        raise UserCodeError(message, f"name a function that returns the {what}")
    arguments = () if target.argument is None else (target.argument,)
    _check_call(found, arguments, target, what)
    return _run(lambda: found(*arguments), f"{target.name} failed", what)


def reach_training(target: Target) -> script.Training:
    """Run a script up to its training, and return what that was about to use.

    Raises:
        UserCodeError: it raised or ended before, or trains on something that is no tf.data pipeline.
    """
    failed = f"{target.text} failed before its training"
    found: script.Training = _run(lambda: script.run_to_training(target), failed, _TRAINING)
    return found


def _check_call(function: Callable[..., Any], arguments: tuple[int, ...], target: Target, what: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function of C without a signature
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = [p for p in signature.parameters.values() if p.default is p.empty and p.kind not in optional]
        if arguments and not needed:
            raise UserCodeError(f"{target.name} takes no argument", "leave --batch-arg out") from error
        names = ", ".join(each.name for each in needed)
        one = len(needed) == 1
        text = f"{target.name} wants {'an argument' if one else f'{len(needed)} arguments'}: {names}"
        hint = "give them defaults, or name a function without arguments that calls it"
        if any(each.kind is each.KEYWORD_ONLY for each in needed):
            text += f"; {needed[0].name if one else 'some'} by keyword, which --batch-arg does not give"
        elif one and not arguments and what == "dataset":
            hint = f"give it a number by --batch-arg N, or {names} a default"
        raise UserCodeError(text, hint) from error


def _run(function: Callable[[], Any], failed: str, what: str) -> Any:
    process = os.getpid()
    try:
        return function()
    except UserCodeError:
        raise
    except SystemExit as end:
        code = "" if end.code is None else repr(end.code)
        if what == _TRAINING:
            hint = f"its own arguments follow --: pipeline-bench diagnose {Path(sys.argv[0]).name} -- ARGUMENTS"
            raise UserCodeError(f"{failed}: it called sys.exit({code})", hint, user_code.traceback_of(end)) from None
        message = f"{failed}: it called sys.exit({code}) instead of returning a {what}"
        raise UserCodeError(message, _MAIN_HINT, user_code.traceback_of(end)) from None
    except BaseException as error:
        message = f"{failed}: {user_code.summary(error)}"
        raise UserCodeError(message, _hint(error), user_code.traceback_of(error)) from None
    finally:
        if os.getpid() != process:
            os._exit(0)  # a child that the user's function forked must not go on with this trial


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return "install it into the environment that runs pipeline-bench, or run from the folder that it is in"
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "name the module instead of the file: package.module:FUNCTION"
    if isinstance(error, EOFError):
        return "it cannot ask for input here"
    return ""
