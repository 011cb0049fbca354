"""The arguments of a recorded call: which are datasets, which is the user's function, and the others told as data."""

from __future__ import annotations

import enum
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pipeline_bench.user_pipeline import Value, elements
from pipeline_bench.user_pipeline.public_api import Entry

LONGEST_TEXT = 80
_LOOKED_THROUGH = 16
_DATA = (str, bytes, int, float, os.PathLike, np.generic, np.ndarray)
_NAMES_OF_FILES = ("filenames", "file_pattern")


def is_dataset(value: object) -> bool:
    """Whether it is a tf.data dataset."""
    import tensorflow as tf

    return isinstance(value, tf.data.Dataset)


def datasets(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The datasets among the arguments, nested in tuples, lists and dicts too, in their order."""
    found: list[Any] = []

    def note(value: Any) -> Any:
        found.append(value)
        return value

    replaced((args, dict(kwargs)), note)
    return found


def replaced(value: Any, replace: Callable[[Any], Any]) -> Any:
    """The arguments with each dataset in them replaced."""
    if is_dataset(value):
        return replace(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(replaced(part, replace) for part in value))
    if type(value) in (tuple, list) and not _is_plain(value):
        return type(value)(replaced(part, replace) for part in value)
    if type(value) is dict:
        return {key: replaced(part, replace) for key, part in value.items()}
    return value


def _is_plain(values: tuple[Any, ...] | list[Any]) -> bool:
    """Whether it is data, such as a list of a million file names, that is not looked through for datasets."""
    return len(values) > _LOOKED_THROUGH and isinstance(values[0], _DATA)


def bound(entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that were given, by parameter name."""
    given: dict[str, Any] = {}
    arguments = entry.signature.bind_partial(*args, **kwargs).arguments
    for name, value in arguments.items():
        if entry.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            given |= value
        else:
            given[name] = value
    if entry.kind == "method":
        given.pop(next(iter(entry.signature.parameters)), None)
    return given


def function_name(given: Mapping[str, Any]) -> str | None:
    """The name of the argument that holds the user's function: the first that can be called and is no type."""
    for name, value in given.items():
        if callable(value) and not is_dataset(value) and not name.endswith(("dtype", "types")):
            return name
    return None


def told(given: Mapping[str, Any]) -> dict[str, Value]:
    """The arguments as data: numbers and short texts as they are, of anything larger what it is."""
    result: dict[str, Value] = {}
    for name, value in given.items():
        if type(value).__name__ == "Options" and hasattr(value, "threading"):
            result |= options_told(value, type(value)())
        elif not callable(value) and not _holds_datasets(value):
            result[name] = _told(name, value)
    return result


def _holds_datasets(value: Any) -> bool:
    return bool(datasets((value,), {}))


def _told(name: str, value: Any) -> Value:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | bytes | os.PathLike | enum.Enum):
        return _cut(value.name if isinstance(value, enum.Enum) else os.fsdecode(value))
    if not isinstance(value, list | tuple | Mapping):
        value = _as_array(value)
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        return _told(name, value.item())
    if name == "weights" and isinstance(value, np.ndarray):
        value = value.tolist()
    count = len(value) if isinstance(value, list | tuple | np.ndarray) else 0
    if name in _NAMES_OF_FILES and count:
        return "1 file" if count == 1 and name == "filenames" else f"{count} {_unit(name)}"
    if (
        isinstance(value, list | tuple)
        and count <= LONGEST_TEXT
        and all(isinstance(part, int | float | str | None) for part in value)
    ):
        text = ", ".join(map(str, value)) if name == "args" else str(list(value))
        return text if len(text) <= LONGEST_TEXT else f"{count} values"
    return _cut(_in_words(value))


def _in_words(value: Any) -> str:
    """A structure of data as `elements.describe` tells it, of a list in it only how long it is."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_in_words(part)}" for key, part in value.items()) + "}"
    if type(value) is tuple and len(value) <= _LOOKED_THROUGH:
        return "(" + ", ".join(map(_in_words, value)) + ")"
    if isinstance(value, list | tuple):
        return f"{len(value)} values"
    return elements.describe(value)


def _unit(name: str) -> str:
    return "files" if name == "filenames" else "patterns"


def _as_array(value: Any) -> Any:
    """The value of an eager tensor of a few numbers or of names; of a large one, or one of a graph, itself."""
    if hasattr(value, "numpy") and value.shape.rank in (0, 1) and getattr(value.dtype, "name", "") != "variant":
        return value.numpy()
    return value


def options_told(options: Any, fresh: Any, prefix: str = "") -> dict[str, Value]:
    """What a `tf.data.Options` sets, unlike a fresh one, by dotted names: ``threading.private_threadpool_size``."""
    result: dict[str, Value] = {}
    for name in sorted(getattr(options, "_options", {})):
        value, unset = getattr(options, name), getattr(fresh, name)
        if hasattr(value, "_options"):
            result |= options_told(value, unset, f"{prefix}{name}.")
        elif value != unset:
            result[prefix + name] = _told(name, value)
    return result


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
