"""Where a function of the user's is: checked in the parent without importing it, loaded and called in a child."""

from __future__ import annotations

import base64
import contextlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from pipeline_bench.errors import UsageError, UserCodeError, did_you_mean
from pipeline_bench.text import is_utf8, safe
from pipeline_bench.user_pipeline import Target, source_names, user_traceback

_EXAMPLES = {"dataset": "train.py:make_dataset", "model": "train.py:make_model"}


def parse(text: str, argument: int | None = None, what: str = "dataset") -> Target:
    """Read ``train.py:make_dataset`` or ``package.module:make_dataset``; the user's code is read, never imported.

    Accepts what it cannot decide: a name that is assigned, imported or may come from ``import *``.

    Raises:
        UsageError: there is no colon, no such file or module, no such name in it, or it is no valid Python.
    """
    _see_that_it_can_be_sent(text)
    example = _EXAMPLES.get(what, _EXAMPLES["dataset"])
    where, colon, name = text.rpartition(":")
    if not colon or not where:
        raise UsageError(f"{text!r} does not name a function in a file", f"write FILE.py:FUNCTION, such as {example}")
    is_file = where.endswith(".py") or "/" in where or Path(where).exists()
    source = _source_file(where, example) if is_file else _source_of_module(where)
    if source is not None:
        _see_that_it_can_be_sent(str(source.absolute()))
        _check_name(source, name, where)
    if is_file:
        return Target(file=where, name=name, argument=argument)
    return Target(module=where, name=name, argument=argument)


def _see_that_it_can_be_sent(path: str) -> None:
    """Refuse a path whose bytes are no text: a trial hears of it in JSON, and TensorFlow makes no op in such a file.

    Raises:
        UsageError: so it is.
    """
    if not is_utf8(path):
        raise UsageError(
            f"{path} holds bytes that are no text in this locale's encoding, {sys.getfilesystemencoding()}",
            "rename the file or its folder, or set LC_ALL to a UTF-8 locale such as C.UTF-8",
        )


def _source_file(where: str, example: str) -> Path:
    path = Path(where)
    if path.is_dir():
        raise UsageError(f"{where} is a folder", f"name a file in it: FILE.py:FUNCTION, such as {example}")
    if not path.exists():
        near = did_you_mean(path.name, [each.name for each in path.parent.glob("*.py")]) if path.parent.is_dir() else ""
        raise UsageError(f"there is no file {where}", near if near.startswith("did you mean") else "check the path")
    if path.suffix != ".py":
        raise UsageError(f"{where} is not a .py file", f"write FILE.py:FUNCTION, such as {example}")
    return path


def _source_of_module(where: str) -> Path | None:
    """The file of a module, found without importing it or a package around it; None where it has no source to read."""
    if not all(part.isidentifier() for part in where.split(".")):
        raise UsageError(f"{where!r} is neither a .py file nor the name of a module", "write FILE.py:FUNCTION")
    folders: list[str] | None = [str(Path.cwd()), *sys.path]
    spec = None
    parts = where.split(".")
    for depth, part in enumerate(parts):
        full = ".".join(parts[: depth + 1])
        spec = importlib.machinery.PathFinder.find_spec(full if depth else part, folders)
        if spec is None:
            if full in sys.builtin_module_names or (depth and folders is None):
                return None
            raise UsageError(f"there is no module {full}", "write FILE.py:FUNCTION, or run where it can be imported")
        folders = list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else None
        if folders is None and depth < where.count("."):
            raise UsageError(f"{full} is a module, not a package: there is no {where}", "check the name")
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _check_name(source: Path, name: str, where: str) -> None:
    names = source_names.of(source, where)
    if not name:
        raise UsageError(f"{where}: names no function", f"write one behind the colon: {', '.join(names.functions)}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is not the name of a function", f"write {where}:FUNCTION")
    if names.complete and name.partition(".")[0] not in names.all:
        raise UsageError(f"there is no function {name!r} in {where}", did_you_mean(name, names.functions))


def from_callable(function: Any, argument: int | None = None) -> Target:
    """The target of a function that the caller holds; a text goes to `parse`.

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
        _see_that_it_can_be_sent(file)
        return Target(file=file, name=name, argument=argument)
    try:
        pickled = base64.b64encode(cloudpickle.dumps(function)).decode()
    except Exception as error:  # whatever the objects that it refers to raise
        hint = "have the function make what it needs itself, or put it into a file and name that: train.py:make_dataset"
        raise UsageError(f"{name} cannot be sent to another process: {user_traceback.message(error)}", hint) from error
    return Target(name=name.rsplit("<locals>.", maxsplit=1)[-1], pickled=pickled, argument=argument)


def _is_importable(module: ModuleType, name: str, function: Any) -> bool:
    if module.__name__ == "__main__" or not getattr(module, "__file__", None) or "<" in name:
        return False
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is function


def load(target: Target) -> Any:
    """What the target names, imported as ``python train.py`` would find its neighbours; the working folder stays.

    Raises:
        UserCodeError: the module has no such name.
        BaseException: whatever importing the user's module raises.
    """
    if target.pickled is not None:
        return cloudpickle.loads(base64.b64decode(target.pickled))
    with _no_bytecode():
        module = _import_file(Path(target.file)) if target.file is not None else _import_module(str(target.module))
    found: Any = module
    for part in target.name.split("."):
        if not hasattr(found, part):
            names = [each for each in vars(module) if callable(vars(module)[each]) and not each.startswith("_")]
            raise UserCodeError(f"there is no {target.name!r} in {target.file or target.module}",
                                did_you_mean(target.name, names))  # fmt: skip
        found = getattr(_instance(found, part), part)
    return found


def _instance(found: Any, name: str) -> Any:
    """An object of the class whose method is named, made without arguments; what else there is, as it is.

    Raises:
        UserCodeError: the class wants arguments.
        BaseException: whatever making the object raises.
    """
    if not inspect.isclass(found) or not inspect.isfunction(inspect.getattr_static(found, name, None)):
        return found
    with contextlib.suppress(ValueError):  # a class of C that does not tell its arguments
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
    known = _imported.get(path.resolve())
    if known is not None and sys.modules.get(known.__name__) is known:  # as the dataset's file, and now as the model's
        return known
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv = [str(path)]
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UserCodeError(f"{path} cannot be imported", "name a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # under its name before it runs, as dataclasses and pickle expect
    spec.loader.exec_module(module)
    _imported[path.resolve()] = module
    return module


def _import_module(name: str) -> ModuleType:
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


@contextlib.contextmanager
def _no_bytecode() -> Iterator[None]:
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing is written beside the user's files
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def call(target: Target, what: str) -> Any:
    """Load the function and call it, with the target's argument where it has one; an object is taken as it is.

    `what` is ``dataset`` or ``model``. A child that the user's function forks ends here.

    Raises:
        UserCodeError: it raised or exited, cannot be imported, or wants other arguments; `traceback` is theirs.
    """
    found = _run(lambda: load(target), f"{target.text} cannot be loaded", what)
    if not _is_to_be_called(found):
        return found
    if not callable(found):
        raise UserCodeError(
            f"{target.text} is a {type(found).__name__}, neither a function nor a {what}",
            f"name a function that returns the {what}",
        )
    arguments = () if target.argument is None else (target.argument,)
    _check_arguments(found, arguments, target, what)
    return _run(lambda: found(*arguments), f"{target.name} failed", what)


def _is_to_be_called(found: Any) -> bool:
    import tensorflow as tf

    return inspect.isclass(found) or not isinstance(found, tf.data.Dataset | tf.Module | tf.keras.Model)


def _check_arguments(function: Callable[..., Any], arguments: tuple[int, ...], target: Target, what: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function of C that does not tell
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        without = [
            each
            for each in signature.parameters.values()
            if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        wanted = [each.name for each in without]
        by_place = not any(each.kind is each.KEYWORD_ONLY for each in without)
        if arguments and not wanted:
            raise UserCodeError(f"{target.name} takes no argument", "leave --batch-arg out") from error
        names = ", ".join(wanted)
        text = f"{target.name} wants {'an argument' if len(wanted) == 1 else f'{len(wanted)} arguments'}: {names}"
        if len(wanted) == 1 and by_place and not arguments and what == "dataset":
            raise UserCodeError(text, f"give it a number by --batch-arg N, or {names} a default") from error
        if not by_place:
            text += f"; {wanted[0] if len(wanted) == 1 else 'some'} by keyword, which --batch-arg does not give"
        raise UserCodeError(text, "give them defaults, or name a function without arguments that calls it") from error


def _run(function: Callable[[], Any], failed: str, what: str) -> Any:
    process = os.getpid()
    try:
        return function()
    except UserCodeError:
        raise
    except SystemExit as end:
        code = "" if end.code is None else repr(end.code)
        message = f"{failed}: it called sys.exit({code}) instead of returning a {what}"
        raise UserCodeError(message, _MAIN_HINT, user_traceback.text(end)) from None
    except BaseException as error:
        message = f"{failed}: {user_traceback.message(error)}"
        raise UserCodeError(message, _hint(error), user_traceback.text(error)) from None
    finally:
        if os.getpid() != process:
            os._exit(0)  # a child that the user's function forked must not go on with this trial


_MAIN_HINT = "put what runs the script under `if __name__ == '__main__':`"


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return "install it into the environment that runs pipeline-bench, or run from the folder that it is in"
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "name the module instead of the file: package.module:FUNCTION"
    if isinstance(error, EOFError):
        return "it cannot ask for input here"
    return ""
