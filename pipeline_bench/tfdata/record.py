"""A user's pipeline as the tree of calls that made it, recorded while their code runs.

    with Recording() as recording:                    # before the user's module is imported
        value = loading.call(task.target, "dataset")
    recipe = recording.recipe(value)                  # UserCodeError where it is no dataset

A call within another one is hidden: `from_generator` is one stage, whatever it calls itself. `apply` shows the calls
within in its place, and is a stage where its dataset was made by none of them. Datasets that a function of the user's
makes while it is traced, for `interleave` or `apply(parallel_interleave(…))` say, are the inner stages of that stage.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.pipeline import Location
from pipeline_bench.tfdata import describe, public_api
from pipeline_bench.tfdata.dataset_graph import unwrapped
from pipeline_bench.tfdata.public_api import Entry, Run, is_dataset
from pipeline_bench.tfdata.recipe import Recipe, RecordedCall, outside_of_graph, upstream
from pipeline_bench.user_code import source_loops
from pipeline_bench.user_code.source_loops import SourceLoop

_DISTRIBUTED_NOTE = (
    "The dataset is distributed by a tf.distribute strategy; the dataset that it was made of was diagnosed, in one "
    "process and with its own batch size."
)
_ALLOWED = "it must return a tf.data.Dataset, or a tuple, list or dict whose first dataset is to be diagnosed"
_DISTRIBUTING = ("experimental_distribute_dataset", "distribute_datasets_from_function")
"""Methods of a `tf.distribute` strategy: what the user's function returns after one is no tf.data dataset."""


@dataclass
class _Open:
    """A call under way: the user's function in it, and the calls that this one makes within."""

    function: Any = None
    inner: list[RecordedCall] = field(default_factory=list)


class _Thread(threading.local):
    """Where a thread of the user's code is."""

    def __init__(self) -> None:
        self.open: list[_Open] = []


class Recording:
    """Records the calls that make datasets until it is left, in each thread that the user's code runs in.

    TensorFlow's own threads, which run a function of a pipeline for each of its elements, are left alone.
    """

    def __init__(self) -> None:
        self._calls: dict[int, RecordedCall] = {}
        self._makers: dict[int, int] = {}
        self._numbers = itertools.count()
        self._thread = _Thread()
        self._distributed: list[tuple[Any, Any]] = []
        """The distributed datasets that were made, each with the dataset that it was made of."""
        self._is_on = False
        self._patches = ExitStack()

    def __enter__(self) -> Recording:
        import tensorflow as tf

        self._is_on = True
        self._patches.enter_context(public_api.intercepted(self._handle))
        owner = tf.distribute.Strategy.__mro__[1]  # where the methods are defined, for all strategies
        for name in _DISTRIBUTING:
            wrapper = self._distributing(getattr(owner, name))
            self._patches.enter_context(user_code.patched(owner, name, wrapper))
        return self

    def __exit__(self, *exception: object) -> None:
        self._patches.close()
        self._is_on = False  # a method that the user's code has kept, patched, records no more

    def recipe(self, value: object, within: SourceLoop | None = None) -> Recipe:
        """Return how the dataset that the user's function returned was made.

        Args:
            value: what it returned, or what a script trains on.
            within: the loop of the script's that goes round once for each pass over it.

        Raises:
            UserCodeError: it is no dataset, and holds none; the message has what was returned and what is allowed. So
                is one that is made of what only a graph has.
        """
        dataset, notes = self._first_dataset(value)
        sink = self._maker(dataset)
        calls = outside_of_graph(self._calls, sink) if public_api.is_symbolic(dataset) else self._calls
        return Recipe(calls, sink, notes, within)

    def place(self, value: object) -> Location | None:
        """Return the line of the last call that made a dataset; None where that is not known."""
        found = self._dataset_of(value)
        call = None if found is None else self._calls.get(self._makers.get(id(unwrapped(found[0])), -1))
        return None if call is None else call.location

    def is_made_in(self, value: object, loop: SourceLoop | None) -> bool:
        """Return whether each round of a loop makes a dataset anew, from its sources on, and it keeps no files."""
        found = self._dataset_of(value)
        needed = [] if found is None else [self._calls[each] for each in upstream(self._calls, [self._maker(found[0])])]
        is_new = [loop in each.loops for each in needed if not each.inputs]
        return bool(is_new) and all(is_new) and not any(each.writes_files() for each in needed)

    def _first_dataset(self, value: object) -> tuple[Any, tuple[str, ...]]:
        found = self._dataset_of(value)
        if found is not None:
            return found
        if isinstance(value, tuple | list | Mapping):
            parts = list(value.values()) if isinstance(value, Mapping) else list(value)
            for position, part in enumerate(parts):
                found = self._dataset_of(part)
                if found is not None:
                    return found[0], (*found[1], _position(value, position))
        raise UserCodeError(f"the function returned {_with_article(value)}; {_ALLOWED}", _hint(value))

    def _dataset_of(self, value: object) -> tuple[Any, tuple[str, ...]] | None:
        """Return a dataset itself, or the one that a distributed one was made of, with the notes on it."""
        for distributed, dataset in self._distributed:
            if distributed is value:
                return dataset, (_DISTRIBUTED_NOTE,)
        return (value, ()) if is_dataset(value) else None

    def _distributing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that distributes a dataset, or what a function of the user's makes, with its calls hidden."""
        signature = inspect.signature(original)

        @functools.wraps(original)
        def distribute(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            parameter = list(bound.arguments)[1]
            given = bound.arguments[parameter]
            made: list[Any] = []

            def make(context: Any) -> Any:
                made.append(self._hidden([], lambda: given(context)))
                return made[-1]

            if callable(given):
                bound.arguments[parameter] = make
            else:
                made.append(given)
            result = self._hidden([_Open()], lambda: original(*bound.args, **bound.kwargs))
            self._distributed += [(result, dataset) for dataset in made[:1]]
            return result

        return distribute

    def _hidden(self, within: list[_Open], run: Callable[[], Any]) -> Any:
        """Run as if within other calls; within none the calls of a function of the user's are visible."""
        before, self._thread.open = self._thread.open, within
        try:
            return run()
        finally:
            self._thread.open = before

    def _handle(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        if not self._is_on or isinstance(threading.current_thread(), threading._DummyThread):
            return run(args, kwargs)
        under_way = self._thread.open
        states = user_code.python_random_states() if entry.method in ("apply", "map") else None
        if entry.method == "apply":
            opening = None if under_way else _opening(entry.given(args, kwargs))
            result = self._hidden(under_way if opening is None else [opening], lambda: run(args, kwargs))
            if id(unwrapped(result)) not in self._makers and not under_way:
                draws_traced = states != user_code.python_random_states()
                self._note(entry, args, kwargs, result, () if opening is None else tuple(opening.inner), draws_traced)
            return result
        if under_way and not self._is_users(entry):
            return run(args, kwargs)
        given = entry.given(args, kwargs)
        under_way.append(_Open(given.get(public_api.function_name(given) or "")))
        try:
            result = run(args, kwargs)
        finally:
            within = under_way.pop()
        draws_traced = states is not None and states != user_code.python_random_states()
        self._note(entry, args, kwargs, result, tuple(within.inner), draws_traced)
        return result

    def _is_users(self, entry: Entry) -> bool:
        """Return whether the user's function makes this call, rather than TensorFlow within another one."""
        function = self._thread.open[-1].function
        by_itself = function is not None and entry.is_behind(function)
        return by_itself or user_code.called_by_other_code(3, {Recording._handle.__code__})

    def _note(
        self,
        entry: Entry,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        inner: tuple[RecordedCall, ...],
        draws_traced: bool = False,
    ) -> None:
        inputs = public_api.datasets(args, kwargs)
        if self._thread.open:  # within a traced function, where the datasets of the function's arguments have no maker
            numbers = [self._makers[id(unwrapped(each))] for each in inputs if id(unwrapped(each)) in self._makers]
        else:
            numbers = [self._maker(each) for each in inputs]
        seen = user_code.location(3), frozenset(source_loops.repeating()), draws_traced
        call = self._keep(RecordedCall(next(self._numbers), entry, args, kwargs, result, tuple(numbers), inner, *seen))
        if self._thread.open:
            self._thread.open[-1].inner.append(call)

    def _maker(self, dataset: Any) -> int:
        """Return the call that made a dataset; a new opaque one where none did."""
        known = self._makers.get(id(unwrapped(dataset)))
        return self._keep(RecordedCall(next(self._numbers), None, (), {}, dataset)).id if known is None else known

    def _keep(self, call: RecordedCall) -> RecordedCall:
        self._makers[id(unwrapped(call.result))] = call.id
        self._calls[call.id] = call
        return call


def _opening(given: Mapping[str, Any]) -> _Open | None:
    """Return an `apply` under way whose function TensorFlow made of one of the user's; None of any other `apply`."""
    function = describe.held(given.get("transformation_func")).get("map_func")
    return None if function is None else _Open(function)


def _position(value: tuple[Any, ...] | list[Any] | Mapping[Any, Any], position: int) -> str:
    where = f"under {list(value)[position]!r}" if isinstance(value, Mapping) else f"at position {position + 1}"
    kind = f"{type(value).__name__} of {len(value)}"
    return f"The function returned a {kind}; the first dataset in it, {where}, was diagnosed."


def _with_article(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def _hint(value: object) -> str:
    if value is None:
        return "does it end with `return dataset`?"
    if isinstance(value, Iterator):
        return "return the dataset itself, not an iterator over it"
    return public_api.loader_hint(value)
