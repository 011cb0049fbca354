"""The public functions of tf.data that make a dataset: what each takes, and how they are intercepted."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Literal

import numpy as np

from pipeline_bench import user_code

FILE_READERS = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
"""The classes that read files one after another, or several at once by `num_parallel_reads`."""
ASSERT_CARDINALITY = "apply(assert_cardinality)"
"""The label of a stage that hands on its elements, and fails if their count is another."""
_EXPERIMENTAL_CLASSES = ("CsvDataset", "SqlDataset")
_SEARCHED = 16
"""A longer list of data, such as a million file names, or of rows of data, is not searched for datasets."""
_LOADERS = ("torch", "grain")
"""The packages of other loaders."""
_DATA = (str, bytes, int, float, os.PathLike, np.generic, np.ndarray)


@dataclass(frozen=True, eq=False)
class Entry:
    """A public way to make a dataset: a method of `tf.data.Dataset`, a static method of it, or a class."""

    method: str
    kind: Literal["method", "static", "class"]
    owner: type
    original: Callable[..., Any]
    """The function behind it: of a method it takes the dataset first, of a class it is the constructor."""

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Its parameters; of a method the first is the dataset, of a class there is no first one for the object."""
        signature = inspect.signature(self.original)
        if self.kind != "class":
            return signature
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that were given, by parameter name, without the dataset of a method."""
        given: dict[str, Any] = {}
        for name, value in self.signature.bind_partial(*args, **kwargs).arguments.items():
            is_rest = self.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            given |= value if is_rest else {name: value}
        if self.kind == "method":
            given.pop(next(iter(self.signature.parameters)), None)
        return given

    def make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call it and return the new dataset."""
        return self.owner(*args, **kwargs) if self.kind == "class" else self.original(*args, **kwargs)

    def is_behind(self, function: Any) -> bool:
        """Return whether a function of the user's is this very one: ``interleave(tf.data.TFRecordDataset)``."""
        while isinstance(function, functools.partial):
            function = function.func
        return function is self.owner if self.kind == "class" else inspect.unwrap(function) is self.original


@dataclass(frozen=True, eq=False)
class Invocation:
    """A call of a public function, with its arguments."""

    id: int
    entry: Entry | None
    """None of a dataset that came from elsewhere and cannot be made again."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The public name, or ``opaque``."""
        return self.entry.method if self.entry else "opaque"

    def given(self) -> dict[str, Any]:
        """Return the arguments that were given, by parameter name."""
        return self.entry.given(self.args, self.kwargs) if self.entry else {}

    @property
    def function_parameter(self) -> str | None:
        """The name of the argument that holds the user's function."""
        return function_name(self.given())

    @property
    def function(self) -> Any | None:
        """The user's function among the arguments."""
        return self.given().get(self.function_parameter or "")


Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]
Handler = Callable[[Entry, tuple[Any, ...], dict[str, Any], Run], Any]
"""Gets the entry, the arguments (without the object that a constructor fills), and what makes the dataset of them."""


@functools.cache
def entries() -> dict[str, Entry]:
    """Return all of them by name, as this TensorFlow has them."""
    import tensorflow as tf

    found = {}
    dataset = tf.data.Dataset
    for name in dir(dataset):
        raw = inspect.getattr_static(dataset, name)
        function = raw.__func__ if isinstance(raw, staticmethod) else raw
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if "DatasetV2" in str(inspect.signature(function).return_annotation):
            found[name] = Entry(name, "static" if isinstance(raw, staticmethod) else "method", dataset, function)
    for module, names in ((tf.data, FILE_READERS), (tf.data.experimental, _EXPERIMENTAL_CLASSES)):
        for name in names:
            owner = getattr(module, name)
            found[name] = Entry(name, "class", owner, owner.__init__)
    return found


@contextmanager
def intercepted(handler: Handler) -> Iterator[None]:
    """Pass every call of the public functions through the handler, in all threads, until the block ends."""
    from tensorflow.python.data.ops import map_op

    listed = entries()
    internal = map_op._MapDataset  # make_csv_dataset makes its map of this, past the public method
    with ExitStack() as patches:
        for entry in listed.values():
            if entry.kind == "class":
                patches.enter_context(
                    user_code.patched(entry.owner, "__init__", _constructor(entry, entry.original, handler))
                )
                continue
            wrapper = _function(entry, handler)
            patches.enter_context(
                user_code.patched(
                    entry.owner, entry.method, staticmethod(wrapper) if entry.kind == "static" else wrapper
                )
            )
        # The internal class shows as the public method, and is hidden within a call of that.
        constructor = _constructor(listed["map"], internal.__init__, handler)
        patches.enter_context(user_code.patched(internal, "__init__", constructor))
        yield


def _function(entry: Entry, handler: Handler) -> Callable[..., Any]:
    @functools.wraps(entry.original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return handler(entry, args, kwargs, lambda args, kwargs: entry.original(*args, **kwargs))

    return function


def _constructor(entry: Entry, original: Callable[..., Any], handler: Handler) -> Callable[..., Any]:
    is_own = original is entry.original

    @functools.wraps(original)
    def constructor(self: Any, *args: Any, **kwargs: Any) -> None:
        def run(new_args: tuple[Any, ...], new_kwargs: dict[str, Any]) -> Any:
            original(self, *(new_args if is_own else args), **(new_kwargs if is_own else kwargs))
            return self

        # An internal class takes more than the public method: of its arguments the dataset and the function are passed.
        handler(entry, args if is_own else args[:2], kwargs if is_own else {}, run)

    return constructor


def is_dataset(value: object) -> bool:
    """Return whether it is a tf.data dataset."""
    import tensorflow as tf

    return isinstance(value, tf.data.Dataset)


def loader_hint(value: object) -> str:
    """Return what measures other loaders, if a value is one of PyTorch or of grain; empty for anything else."""
    packages = {each.__module__.partition(".")[0] for each in type(value).__mro__}
    if packages.isdisjoint(_LOADERS):
        return ""
    return "`pipeline-bench compare loaders` trains one model with tf.data, a PyDataset, grain and a DataLoader"


def is_symbolic(dataset: Any) -> bool:
    """Return whether a dataset belongs to a graph, as one that is made in a `tf.function` does."""
    import tensorflow as tf

    return any(tf.is_symbolic_tensor(part) for part in tf.nest.flatten(dataset, expand_composites=True))


def function_name(given: Mapping[str, Any]) -> str | None:
    """Return the name of the argument that holds the user's function: the first that can be called and is no type."""
    for name, value in given.items():
        if callable(value) and not is_dataset(value) and not name.endswith(("dtype", "types")):
            return name
    return None


def datasets(*arguments: Any) -> list[Any]:
    """Return the datasets among the arguments, nested in tuples, lists and dicts too, in their order."""
    import tensorflow as tf

    found: list[Any] = []
    replaced(arguments, tf.data.Dataset, found.append)
    return found


def replaced(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return the arguments with each object of a kind in them replaced."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(replaced(part, kind, change) for part in value))
    if type(value) in (tuple, list) and not (len(value) > _SEARCHED and _is_data(value[0])):
        return type(value)(replaced(part, kind, change) for part in value)
    if type(value) is dict:
        return {key: replaced(part, kind, change) for key, part in value.items()}
    return value


def _is_data(value: Any) -> bool:
    """Return whether a value is data, or holds nothing else."""
    return all(map(_is_data, value)) if type(value) in (tuple, list) else isinstance(value, _DATA)


@contextmanager
def after_import(name: str, action: Callable[[Any], None]) -> Iterator[None]:
    """Call `action` with the module: now where it is imported, else after its first import in the block."""
    if name in sys.modules:
        action(sys.modules[name])
        yield
        return
    finder = _Finder(name, action)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:  # the user's code may have cleared it
            sys.meta_path.remove(finder)


class _Finder:
    """Finds nothing itself: the other finders' loader of one module, with an action behind it."""

    def __init__(self, name: str, action: Callable[[Any], None]) -> None:
        self._name = name
        self._action = action
        self._is_looking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self._is_looking:  # asked by another one that looks for the same module
            return None
        self._is_looking = True
        try:
            return self._found(name, path, target)
        finally:
            self._is_looking = False

    def _found(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None and spec.loader is not None:
                self._act_behind(spec.loader)
                return spec
        return None

    def _act_behind(self, loader: Any) -> None:
        plain = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            plain(module)
            self._action(module)

        loader.exec_module = exec_module


def eager_dataset(dataset: Any) -> Any:
    """Return the user's dataset behind the one that a `tf.function` sees of it where it is an argument."""
    import tensorflow as tf

    kinds = (tf.data.Dataset, tf.distribute.DistributedDataset)
    found = dataset
    if not is_symbolic(dataset):
        return dataset
    for frame in user_code.outward(sys._getframe(1)):
        for name in ("args", "kwds"):
            for each in _parts(frame.f_locals.get(name)):
                is_eager = isinstance(each, kinds) and not is_symbolic(each)
                if is_eager and each.element_spec == dataset.element_spec:
                    found = each
    return found


def _parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else list(value.values()) if isinstance(value, dict) else []
