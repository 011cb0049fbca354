"""Loads the scripts of tests/pipelines as a child would, in this process, and records them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline_bench.model.pipeline import Stage, Target
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.script import loading
from pipeline_bench.tfdata.recipe import Recipe
from pipeline_bench.tfdata.record import Recording

PIPELINES = Path(__file__).parents[1] / "pipelines"
TRAIN = PIPELINES / "train.py"
FAILING = PIPELINES / "failing.py"


@contextmanager
def importing() -> Iterator[None]:
    """Undo what importing a user's script does to this process."""
    path, argv, modules = list(sys.path), list(sys.argv), dict(sys.modules)
    try:
        yield
    finally:
        sys.path[:], sys.argv[:] = path, argv
        for name, module in list(sys.modules.items()):
            if modules.get(name) is not module and str(PIPELINES) in str(getattr(module, "__file__", "")):
                del sys.modules[name]  # also where another test's script of that name was there before


def call(name: str, argument: int | None = None, file: Path = TRAIN) -> Any:
    """What the function of that script returns."""
    with importing():
        return loading.call(Target(file=str(file), name=name, argument=argument), "dataset")


def module(file: Path) -> ModuleType:
    """The module of a file, which no import finds."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def recipe(name: str, argument: int | None = None, file: Path = TRAIN) -> Recipe:
    """The recipe of a function of that script."""
    with Recording() as recording:
        value = call(name, argument, file)
    return recording.recipe(value)


def recipe_of(function: Callable[[], Any]) -> Recipe:
    """The recipe of a function of a test."""
    with Recording() as recording:
        value = function()
    return recording.recipe(value)


def function_of(stage: Stage) -> UserFunction:
    """What is known of the user's function of a stage."""
    assert stage.function is not None
    return stage.function


def values(dataset: Any) -> list[Any]:
    """The elements as Python values, to compare."""
    return [plain(element) for element in dataset.as_numpy_iterator()]


def plain(value: Any) -> Any:
    """Arrays as lists, in any structure."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(part) for part in value)
    return value.tolist() if hasattr(value, "tolist") else value
