"""A user's pipeline as the tree of calls that made it, recorded while their code runs.

    with Recording() as recording:                    # before the user's module is imported
        value = loading.call(task.target, "dataset")
    recipe = recording.recipe(value)                  # UserCodeError where it is no dataset

A call within another one is hidden: `from_generator` is one stage, whatever it calls itself. `apply` shows the calls
within in its place, and is a stage where its dataset was made by none of them. Datasets that a function of the user's
makes while it is traced, for `interleave` say, are the inner stages of that stage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from pipeline_bench.errors import UserCodeError
from pipeline_bench.user_pipeline import (
    Place,
    Stage,
    UserFunction,
    arguments,
    distribution,
    elements,
    functions,
    user_code,
)
from pipeline_bench.user_pipeline.public_api import Entry, Run, intercepted

OWN_FILE_NOTE = "The dataset's own cache file was not used; a fresh one took its place."
_ALLOWED = "it must return a tf.data.Dataset, or a tuple, list or dict whose first dataset is to be diagnosed"


@dataclass(frozen=True, eq=False)
class Call:
    """A recorded call with its live arguments, which can be made again."""

    id: int
    entry: Entry | None
    """None of a dataset that came from elsewhere and cannot be made again."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    """The dataset that it made."""
    inputs: tuple[int, ...] = ()
    """The calls that made the datasets among its arguments, in the order of the arguments."""
    inner: tuple[Call, ...] = ()
    place: Place | None = None

    @property
    def method(self) -> str:
        """The public name, or ``opaque``."""
        return self.entry.method if self.entry else "opaque"

    def given(self) -> dict[str, Any]:
        """The live arguments that were given, by parameter name."""
        return arguments.bound(self.entry, self.args, self.kwargs) if self.entry else {}

    def function(self) -> Any | None:
        """The user's function among the arguments."""
        given = self.given()
        name = arguments.function_name(given)
        return None if name is None else given[name]

    def stage(self) -> Stage:
        """The call as plain data."""
        given = self.given()
        return Stage(
            id=self.id,
            method=self.method,
            inputs=self.inputs,
            arguments=arguments.told(given),
            function=self._described(),
            place=self.place,
            element=elements.describe(self.result.element_spec),
            inner=tuple(call.stage() for call in self.inner),
        )

    def _described(self) -> UserFunction | None:
        function = self.function()
        if function is None:
            return None
        told = functions.describe(function, self.result, self.method == "from_generator")
        if user_code.is_converted(told.file or "") and self.place is not None:
            # A function that is defined in a converted one: AutoGraph's file is gone when anyone looks.
            return told.model_copy(update={"file": self.place.file, "line": self.place.line})
        return told

    def writes_files(self) -> bool:
        """Whether it keeps elements in files of the user's: `cache` with a file name, `snapshot`."""
        given = self.given()
        filename = given.get("filename", "")
        return self.method == "snapshot" or (self.method == "cache" and not _is_empty(filename))

    def needs_own_files(self) -> bool:
        """Whether it, or a call of its function, keeps elements in files of the user's."""
        return self.writes_files() or any(call.needs_own_files() for call in self.inner)

    @property
    def label(self) -> str:
        """As `Stage.label`."""
        function = self.function()
        return self.method if function is None else f"{self.method}({functions.name(function)})"


def _is_empty(filename: Any) -> bool:
    return isinstance(filename, str | bytes) and not filename


class Recipe:
    """How a pipeline was made: the calls that its sink depends on."""

    def __init__(self, calls: Mapping[int, Call], sink: int, notes: tuple[str, ...] = ()) -> None:
        self.calls: dict[int, Call] = {number: calls[number] for number in sorted(_needed(calls, sink))}
        self.sink = sink
        own_files = any(call.needs_own_files() for call in self.calls.values())
        self.notes = (*notes, OWN_FILE_NOTE) if own_files else notes
        self.stages: tuple[Stage, ...] = tuple(call.stage() for call in self.calls.values())
        """Upstream first, by id."""

    def dataset(self, number: int) -> Any:
        """The dataset of a stage as the user made it.

        It is for asking: its `element_spec`, `cardinality()`, `options()`. Taking elements from it would write the
        user's cache files; `rewriting.rebuild` and `rewriting.upstream` give one that does not.
        """
        return self.calls[number].result

    def stage(self, number: int) -> Stage:
        """The stage of that id.

        Raises:
            KeyError: there is none.
        """
        return {stage.id: stage for stage in self.stages}[number]


def _needed(calls: Mapping[int, Call], sink: int) -> set[int]:
    needed: set[int] = set()
    waiting = [sink]
    while waiting:
        number = waiting.pop()
        if number not in needed:
            needed.add(number)
            waiting += calls[number].inputs
    return needed


@dataclass
class _Open:
    """A call under way: the user's function in it, and the calls that this one makes within."""

    function: Any = None
    inner: list[Call] = field(default_factory=list)


class Recording:
    """Records the calls that make datasets, on the thread that entered it, until it is left."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._makers: dict[int, int] = {}
        self._count = 0
        self._open: list[_Open] = []
        self._distributed = distribution.Distributed()
        self._thread = 0
        self._patches = ExitStack()

    def __enter__(self) -> Recording:
        self._thread = threading.get_ident()
        self._patches.enter_context(intercepted(self._handle))
        self._patches.enter_context(self._distributed.noted(self._hidden))
        return self

    def __exit__(self, *exception: object) -> None:
        self._patches.close()
        self._thread = 0  # a method that the user's code has kept, patched, records no more

    def recipe(self, value: object) -> Recipe:
        """How the dataset that the user's function returned was made.

        Raises:
            UserCodeError: it is no dataset, and holds none; says what was returned and what is allowed.
        """
        dataset, notes = self._first_dataset(value)
        return Recipe(self._calls, self._maker(dataset), notes)

    def _first_dataset(self, value: object) -> tuple[Any, tuple[str, ...]]:
        origin = self._distributed.origin(value)
        if origin is not None:
            return origin, (distribution.NOTE,)
        if arguments.is_dataset(value):
            return value, ()
        if isinstance(value, tuple | list | Mapping):
            parts = list(value.values()) if isinstance(value, Mapping) else list(value)
            for position, part in enumerate(parts):
                if arguments.is_dataset(part) or self._distributed.origin(part) is not None:
                    dataset, notes = self._first_dataset(part)
                    return dataset, (*notes, _which(value, position, len(parts)))
        raise UserCodeError(f"the function returned {_called(value)}; {_ALLOWED}", _hint(value))

    def _hidden(self, run: Callable[[], Any], visible: bool = False) -> Any:
        """Run with the calls within hidden, or visible again for a function of the user's."""
        before, self._open = self._open, [] if visible else [_Open()]
        try:
            return run()
        finally:
            self._open = before

    def _handle(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        if threading.get_ident() != self._thread:
            return run(args, kwargs)
        if entry.method == "apply":
            result = run(args, kwargs)
            if id(_plain(result)) not in self._makers and not self._open:
                self._note(entry, args, kwargs, result, ())
            return result
        if self._open and not self._is_theirs(entry):
            return run(args, kwargs)
        given = arguments.bound(entry, args, kwargs)
        self._open.append(_Open(given.get(arguments.function_name(given) or "")))
        try:
            result = run(args, kwargs)
        finally:
            within = self._open.pop()
        self._note(entry, args, kwargs, result, tuple(within.inner))
        return result

    def _is_theirs(self, entry: Entry) -> bool:
        """Whether the user's function makes this call, rather than TensorFlow within another one."""
        function = self._open[-1].function
        by_itself = function is not None and entry.is_behind(function)
        return by_itself or user_code.called_by_other_code(3, {Recording._handle.__code__})

    def _note(
        self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, inner: tuple[Call, ...]
    ) -> None:
        inputs = arguments.datasets(args, kwargs)
        if self._open:  # within a traced function, where the datasets of the function's arguments have no maker
            numbers = [self._makers[id(_plain(each))] for each in inputs if id(_plain(each)) in self._makers]
        else:
            numbers = [self._maker(each) for each in inputs]
        call = Call(self._next(), entry, args, kwargs, result, tuple(numbers), inner, user_code.location(3))
        self._makers[id(_plain(result))] = call.id
        self._calls[call.id] = call
        if self._open:
            self._open[-1].inner.append(call)

    def _maker(self, dataset: Any) -> int:
        """The call that made a dataset; a new opaque one where none did."""
        known = self._makers.get(id(_plain(dataset)))
        if known is not None:
            return known
        call = Call(self._next(), None, (), {}, dataset)
        self._makers[id(_plain(dataset))] = call.id
        self._calls[call.id] = call
        return call.id

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


def _plain(dataset: Any) -> Any:
    """The dataset within the wrapper of `tf.compat.v1.data`."""
    return getattr(dataset, "_dataset", dataset) if type(dataset).__name__ == "DatasetV1Adapter" else dataset


def _which(value: object, position: int, count: int) -> str:
    where = f"under {list(value)[position]!r}" if isinstance(value, Mapping) else f"at position {position + 1}"
    return (
        f"The function returned a {type(value).__name__} of {count}; the first dataset in it, {where}, was diagnosed."
    )


def _called(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    article = "an" if name[:1].lower() in "aeio" else "a"
    return f"{article} {name}"


def _hint(value: object) -> str:
    if value is None:
        return "does it end with `return dataset`?"
    if isinstance(value, Iterator):
        return "return the dataset itself, not an iterator over it"
    return ""
