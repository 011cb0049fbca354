"""A function of the user's, or their script: loaded and called in a child."""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.pipeline import Target
from pipeline_bench.script import capture
from pipeline_bench.script.training_data import CapturedTraining
from pipeline_bench.text import REASON, did_you_mean, safe, safe_message
from pipeline_bench.user_code import targets

_TRAINING = "training"
_AGAIN = (
    "its first run, which looked at the pipeline, came to its training: have it accept what that left behind, for each "
    "trial runs it anew; or name the function that makes the dataset, as SCRIPT:FUNCTION"
)
_MAIN_HINT = "put what runs the script under `if __name__ == '__main__':`"


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
            names = [each for each in vars(found) if callable(getattr(found, each)) and not each.startswith("_")]
            hint = did_you_mean(part, names)
            raise UserCodeError(f"there is no {target.name!r} in {target.file or target.module}", hint)
        found = getattr(_instance(found, part), part)
    return found


def _instance(found: Any, name: str) -> Any:
    """Return an object of the class whose method is named, made without arguments; anything else as it is.

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
        raise UserCodeError(f"there is no file {path}", "was it moved, or has the working folder changed?")
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


def reach_training(
    target: Target, waiting: Callable[[], None] = lambda: None, *, again: bool = False
) -> CapturedTraining:
    """Run a script up to its training, and return what that was about to use; see `capture.run_to_training`.

    Args:
        target: the script.
        waiting: called again and again until it trains.
        again: whether it has done so before.

    Raises:
        UserCodeError: it raised or ended before, or trains on something that is no tf.data pipeline.
    """
    failed = f"{target.text} failed before its training"
    script = f"-m {target.module}" if target.file is None else target.file
    arguments_hint = f"its own arguments follow --: pipeline-bench diagnose {safe(script)} -- ARGUMENTS"
    found: CapturedTraining = _run(
        lambda: capture.run_to_training(target, waiting), failed, _TRAINING, _AGAIN * again, arguments_hint
    )
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
        hint = targets.NO_ARGUMENTS_HINT
        if named := [each.name for each in needed if each.kind is each.KEYWORD_ONLY]:
            text = targets.by_keyword(target.name, named)
        elif one and not arguments and what == "dataset":
            hint = f"give it a number by --batch-arg N, or {names} a default"
        raise UserCodeError(text, hint) from error


def _run(function: Callable[[], Any], failed: str, what: str, otherwise: str = "", hint: str = "") -> Any:
    process = os.getpid()
    user_code.keep_imports()
    try:
        return function()
    except UserCodeError:
        raise
    except SystemExit as end:
        code = "" if end.code is None else repr(end.code)
        if what == _TRAINING:
            if refused := _refused_arguments(end):
                raise UserCodeError(f"{failed}: {refused}", hint) from None
            raise UserCodeError(f"{failed}: it called sys.exit({code})", hint, user_code.traceback_of(end)) from None
        message = f"{failed}: it called sys.exit({code}) instead of returning a {what}"
        raise UserCodeError(message, _MAIN_HINT, user_code.traceback_of(end)) from None
    except BaseException as error:
        message = f"{failed}: {user_code.summary(error)}"
        raise UserCodeError(message, _hint(error) or otherwise, user_code.traceback_of(error)) from None
    finally:
        user_code.restore_imports()
        if os.getpid() != process:
            os._exit(0)  # a child that the user's function forked must not go on with this trial


def _refused_arguments(end: SystemExit) -> str:
    """Return what argparse has against the script's arguments, if that ended it; else nothing."""
    for frame, _ in traceback.walk_tb(end.__traceback__):
        if frame.f_code.co_name == "error" and isinstance(frame.f_locals.get("self"), argparse.ArgumentParser):
            return safe_message(str(frame.f_locals.get("message")), REASON)
    return ""


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return "install it into the environment that runs pipeline-bench, or run from the folder that it is in"
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "name the module instead of the file: package.module, or package.module:FUNCTION"
    if isinstance(error, FileExistsError):
        return "each trial runs it anew: have it accept what it made before, as by exist_ok=True, or remove that first"
    lines = (frame.line or "" for frame in traceback.extract_tb(error.__traceback__))
    if isinstance(error, EOFError) or any("stdin" in line for line in lines):
        return "it cannot ask for input here, where standard input is empty: have it take a file, or an argument"
    return ""
