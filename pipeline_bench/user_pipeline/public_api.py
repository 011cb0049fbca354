"""The public functions of tf.data that make a dataset, and how they are intercepted while a user's code runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

FILE_READERS = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
"""The classes that read files one after another, or several at once by `num_parallel_reads`."""
_EXPERIMENTAL_CLASSES = ("CsvDataset", "SqlDataset")


@dataclass(frozen=True, eq=False)
class Entry:
    """A public way to make a dataset: a method of `tf.data.Dataset`, a static method of it, or a class."""

    method: str
    kind: Literal["method", "static", "class"]
    owner: type
    original: Callable[..., Any]
    """The function behind it: of a method it takes the dataset first, of a class it is the constructor."""

    @property
    def attribute(self) -> str:
        """Where it is found at its owner."""
        return "__init__" if self.kind == "class" else self.method

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Its parameters; of a method the first is the dataset, of a class there is no first one for the object."""
        signature = inspect.signature(self.original)
        if self.kind != "class":
            return signature
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call it: a new dataset."""
        return self.owner(*args, **kwargs) if self.kind == "class" else self.original(*args, **kwargs)

    def is_behind(self, function: Any) -> bool:
        """Whether a function that the user gave is this very one: ``interleave(tf.data.TFRecordDataset)``."""
        while isinstance(function, functools.partial):
            function = function.func
        return function is self.owner if self.kind == "class" else inspect.unwrap(function) is self.original


Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]
Handler = Callable[[Entry, tuple[Any, ...], dict[str, Any], Run], Any]
"""Gets the entry, the arguments (without the object that a constructor fills), and what makes the dataset of them."""


@functools.cache
def entries() -> dict[str, Entry]:
    """All of them by name, as this TensorFlow has them."""
    import tensorflow as tf

    found = {}
    dataset = tf.data.Dataset
    for name in dir(dataset):
        raw = inspect.getattr_static(dataset, name)
        function = raw.__func__ if isinstance(raw, staticmethod) else raw
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if "DatasetV2" in str(inspect.signature(function).return_annotation):
            kind: Literal["method", "static"] = "static" if isinstance(raw, staticmethod) else "method"
            found[name] = Entry(name, kind, dataset, function)
    classes = [getattr(tf.data, name) for name in FILE_READERS]
    classes += [getattr(tf.data.experimental, name) for name in _EXPERIMENTAL_CLASSES]
    names = (*FILE_READERS, *_EXPERIMENTAL_CLASSES)
    for name, made in zip(names, classes, strict=True):
        found[name] = Entry(name, "class", made, made.__init__)
    return found


@contextmanager
def intercepted(handler: Handler) -> Iterator[None]:
    """Have every call of the public functions pass through the handler, in all threads, until the end of the block."""
    from tensorflow.python.data.ops import map_op

    listed = entries().values()
    internal = map_op._MapDataset  # make_csv_dataset makes its map of this, past the public method
    constructor = internal.__init__
    before = [(entry, inspect.getattr_static(entry.owner, entry.attribute)) for entry in listed]
    try:
        for entry in listed:
            wrapper = _wrapper(entry, handler)
            setattr(entry.owner, entry.attribute, staticmethod(wrapper) if entry.kind == "static" else wrapper)
        internal.__init__ = _as_map(constructor, handler)
        yield
    finally:
        internal.__init__ = constructor
        for entry, raw in before:
            setattr(entry.owner, entry.attribute, raw)


def _wrapper(entry: Entry, handler: Handler) -> Callable[..., Any]:
    if entry.kind == "class":

        @functools.wraps(entry.original)
        def constructor(self: Any, *args: Any, **kwargs: Any) -> None:
            def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                entry.original(self, *args, **kwargs)
                return self

            handler(entry, args, kwargs, run)

        return constructor

    @functools.wraps(entry.original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return handler(entry, args, kwargs, lambda args, kwargs: entry.original(*args, **kwargs))

    return function


def _as_map(original: Callable[..., Any], handler: Handler) -> Callable[..., Any]:
    """The constructor behind `map`, told as the public method; a call of that one hides it as all that is within."""
    entry = entries()["map"]

    @functools.wraps(original)
    def constructor(self: Any, input_dataset: Any, map_func: Any, *args: Any, **kwargs: Any) -> None:
        def run(*_: Any) -> Any:
            original(self, input_dataset, map_func, *args, **kwargs)
            return self

        handler(entry, (input_dataset, map_func), {}, run)

    return constructor
