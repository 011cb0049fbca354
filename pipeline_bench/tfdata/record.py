"""A user's pipeline as the tree of calls that made it, recorded while their code runs.

    with Recording() as recording:                    # before the user's module is imported
        value = loading.call(task.target, "dataset")
    recipe = recording.recipe(value)                  # UserCodeError where it is no dataset

A call within another one is hidden: `from_generator` is one stage, whatever it calls itself. `apply` shows the calls
within in its place, and is a stage where its dataset was made by none of them. Datasets that a function of the user's
makes while it is traced, for `interleave` say, are the inner stages of that stage.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.pipeline import INFINITE, Location, Stage, UserFunction
from pipeline_bench.tfdata import composing, describe, public_api, source_loops, throughput, user_code
from pipeline_bench.tfdata.public_api import Entry, Invocation, Run, is_dataset
from pipeline_bench.tfdata.source_loops import SourceLoop

OWN_FILE_NOTE = "The dataset's own cache file was not used; a fresh one took its place."
_DISTRIBUTED_NOTE = (
    "The function returned a dataset distributed by a tf.distribute strategy; the dataset that it was made of was "
    "diagnosed, in one process and with its own batch size."
)
_ALLOWED = "it must return a tf.data.Dataset, or a tuple, list or dict whose first dataset is to be diagnosed"
_OF_A_GRAPH = (
    "The dataset belongs to a graph of its own, from which it cannot be taken.",
    "Make it outside of tf.Graph().as_default() and of any tf.function.",
)
_DISTRIBUTING = ("experimental_distribute_dataset", "distribute_datasets_from_function")
"""Methods of a `tf.distribute` strategy: what the user's function returns after one is no tf.data dataset."""


@dataclass(frozen=True, eq=False)
class Call(Invocation):
    """A recorded call with its live arguments, which can be made again."""

    result: Any = None
    """The dataset that it made."""
    inputs: tuple[int, ...] = ()
    """The calls that made the datasets among its arguments, in the order of the arguments."""
    inner: tuple[Call, ...] = ()
    location: Location | None = None
    loops: frozenset[SourceLoop] = frozenset()
    """The loops of the script's that made it and make another each time they go round."""

    def stage(self) -> Stage:
        """Return the call as plain data."""
        return Stage(
            id=self.id,
            method=self.method,
            inputs=self.inputs,
            arguments=describe.arguments(self.given()),
            function=self._user_function(),
            place=self.location,
            element=describe.element(self.result.element_spec),
            inner=tuple(call.stage() for call in self.inner),
        )

    def _user_function(self) -> UserFunction | None:
        if self.function is None:
            return None
        function = describe.function(self.function, self.result, self.method == "from_generator")
        if user_code.is_converted(function.file or "") and self.location is not None:
            # A function that is defined in a converted one: AutoGraph's file is gone when anyone looks.
            return function.model_copy(update={"file": self.location.file, "line": self.location.line})
        return function

    def writes_files(self) -> bool:
        """Return whether it keeps elements in files of the user's."""
        return writes_files(self.method, self.given())

    def needs_own_files(self) -> bool:
        """Return whether it, or a call of its function, keeps elements in files of the user's."""
        return self.writes_files() or any(call.needs_own_files() for call in self.inner)

    @property
    def label(self) -> str:
        """As `Stage.label`."""
        return self.method if self.function is None else f"{self.method}({describe.name(self.function)})"


def writes_files(method: str, given: Mapping[str, Any]) -> bool:
    """Return whether a call with these arguments keeps elements in files: `cache` with a file name, `snapshot`."""
    name = given.get("filename", "")
    return method == "snapshot" or (method == "cache" and not (isinstance(name, str | bytes) and not name))


def upstream(calls: Mapping[int, Call], numbers: Iterable[int]) -> set[int]:
    """Return some calls, by id, with all that they depend on."""
    found: set[int] = set()
    waiting = list(numbers)
    while waiting:
        number = waiting.pop()
        waiting += () if number in found else calls[number].inputs
        found.add(number)
    return found


class Recipe:
    """How a pipeline was made: the calls that its sink depends on."""

    def __init__(
        self, calls: Mapping[int, Call], sink: int, notes: tuple[str, ...] = (), within: SourceLoop | None = None
    ) -> None:
        needed = upstream(calls, [sink])
        # Numbered anew: what other threads of the user's code make meanwhile is between them by chance.
        parts = [part for number in needed for part in _with_inner(calls[number])]
        known = sorted({number for part in parts for number in (part.id, *part.inputs)})
        numbers = {number: new for new, number in enumerate(known)}
        self.calls: dict[int, Call] = {numbers[each]: _numbered(calls[each], numbers) for each in sorted(needed)}
        self.sink = numbers[sink]
        own_files = any(call.needs_own_files() for call in self.calls.values())
        self.notes = (*notes, OWN_FILE_NOTE) if own_files else notes
        shared, left = _shared(calls, needed), throughput.left_early(calls[sink].result)
        # What is passed over again before it is made anew, or keeps its elements in files, is read more than once.
        again = {before for each in needed if calls[each].method == "repeat" for before in calls[each].inputs}
        lasting = upstream(calls, again | {each for each in needed if calls[each].writes_files()})
        anew: set[int] = set()
        for each in sorted(needed - lasting):  # upstream first: what is made of something new is new
            if within in calls[each].loops or not anew.isdisjoint(calls[each].inputs):
                anew.add(each)
        self.stages: tuple[Stage, ...] = tuple(
            self.calls[numbers[each]]
            .stage()
            .model_copy(
                update={
                    "shared": each in shared,
                    "left_early": id(calls[each].result) in left,
                    "anew": each in anew,
                    "input_shares": _input_shares(calls, calls[each]),
                }
            )
            for each in sorted(needed)
        )
        """Upstream first, by id."""

    def dataset(self, number: int) -> Any:
        """Return the dataset of a stage as the user made it.

        It is for asking: its `element_spec`, `cardinality()`, `options()`. Taking elements from it would write the
        user's cache files; `rebuild.rebuild` and `rebuild.stage` give one that does not.
        """
        return self.calls[number].result


def _outside_of_graph(calls: Mapping[int, Call], sink: int) -> dict[int, Call]:
    """Return the calls with those that a pipeline of a `tf.function` depends on made again, outside of its graph.

    Raises:
        UserCodeError: one of them takes what only the graph has, such as a dataset or a tensor of it.
    """
    made = dict(calls)
    for number in sorted(upstream(calls, [sink])):
        call = calls[number]
        if public_api.is_symbolic(call.result):
            made[number] = _made_again(call, iter([made[each].result for each in call.inputs]))
    return made


def _made_again(call: Call, inputs: Iterator[Any]) -> Call:
    import tensorflow as tf

    if call.entry is None:
        raise UserCodeError(*_OF_A_GRAPH)
    given = public_api.replaced((call.args, call.kwargs), tf.data.Dataset, lambda _: next(inputs))
    args, kwargs = public_api.replaced(given, tf.Tensor, _constant)
    try:
        return replace(call, args=args, kwargs=kwargs, result=call.entry.make(args, kwargs))
    except Exception as error:  # whatever TensorFlow, or a function of the user's, says of a tensor of the graph
        raise UserCodeError(*_OF_A_GRAPH) from error


def _constant(tensor: Any) -> Any:
    """Return the value of a tensor that is the same whenever its graph is run; any other as it is."""
    import tensorflow as tf

    value = tf.get_static_value(tensor)
    return tensor if value is None else value


def _input_shares(calls: Mapping[int, Call], call: Call) -> tuple[float, ...]:
    """Return `Stage.input_shares`; of one that never ends, nothing behind it comes."""
    if call.method != "concatenate":
        return ()
    counts = [composing.static(calls[number].result.cardinality()) for number in call.inputs]
    if INFINITE in counts:
        first = counts.index(INFINITE)
        return tuple(float(place == first) for place in range(len(counts)))
    known = [count for count in counts if count is not None and count >= 0]
    total = sum(known)
    return tuple(count / total for count in known) if total and len(known) == len(counts) else ()


def _with_inner(call: Call) -> Iterator[Call]:
    yield call
    for inner in call.inner:
        yield from _with_inner(inner)


def _numbered(call: Call, numbers: Mapping[int, int]) -> Call:
    inputs, inner = (numbers[each] for each in call.inputs), (_numbered(each, numbers) for each in call.inner)
    return replace(call, id=numbers[call.id], inputs=tuple(inputs), inner=tuple(inner))


def _shared(calls: Mapping[int, Call], needed: Collection[int]) -> set[int]:
    """Return those of the calls needed from whose place in the source others that are not needed come, unlike them.

    Calls are alike that have the same function, and where both draw random numbers or mix, or what is before them does.
    """
    places = {calls[number].location for number in needed} - {None}
    # `interleave(tf.data.TFRecordDataset)` has the files' datasets made in its own place.
    own = {inner.id for call in calls.values() for inner in call.inner if inner.location == call.location}
    others = [each for each in calls.keys() - own - set(needed) if calls[each].location in places]
    if not others:
        return set()
    kinds: dict[int, tuple[UserFunction | None, bool]] = {}
    for number in sorted(upstream(calls, [*needed, *others])):  # each once: there may be a call for each of many files
        stage = calls[number].stage()
        kinds[number] = stage.function, stage.varies or any(kinds[each][1] for each in stage.inputs)
    elsewhere: dict[Location | None, set[tuple[UserFunction | None, bool]]] = {}
    for number in others:
        elsewhere.setdefault(calls[number].location, set()).add(kinds[number])
    return {number for number in needed if elsewhere.get(calls[number].location, set()) - {kinds[number]}}


@dataclass
class _Open:
    """A call under way: the user's function in it, and the calls that this one makes within."""

    function: Any = None
    inner: list[Call] = field(default_factory=list)


class _Thread(threading.local):
    """Where a thread of the user's code is."""

    def __init__(self) -> None:
        self.open: list[_Open] = []


class Recording:
    """Records the calls that make datasets until it is left, in each thread that the user's code runs in.

    TensorFlow's own threads, which run a function of a pipeline for each of its elements, are left alone.
    """

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
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
            self._patches.enter_context(public_api.patched(owner, name, wrapper))
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
        calls = _outside_of_graph(self._calls, sink) if public_api.is_symbolic(dataset) else self._calls
        return Recipe(calls, sink, notes, within)

    def place(self, value: object) -> Location | None:
        """Return the line of the last call that made a dataset; None where that is not known."""
        found = self._dataset_of(value)
        call = None if found is None else self._calls.get(self._makers.get(id(_plain(found[0])), -1))
        return None if call is None else call.location

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
        if entry.method == "apply":
            result = run(args, kwargs)
            if id(_plain(result)) not in self._makers and not under_way:
                self._note(entry, args, kwargs, result, ())
            return result
        if under_way and not self._is_users(entry):
            return run(args, kwargs)
        given = entry.given(args, kwargs)
        under_way.append(_Open(given.get(public_api.function_name(given) or "")))
        try:
            result = run(args, kwargs)
        finally:
            within = under_way.pop()
        self._note(entry, args, kwargs, result, tuple(within.inner))
        return result

    def _is_users(self, entry: Entry) -> bool:
        """Return whether the user's function makes this call, rather than TensorFlow within another one."""
        function = self._thread.open[-1].function
        by_itself = function is not None and entry.is_behind(function)
        return by_itself or user_code.called_by_other_code(3, {Recording._handle.__code__})

    def _note(
        self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, inner: tuple[Call, ...]
    ) -> None:
        inputs = public_api.datasets(args, kwargs)
        if self._thread.open:  # within a traced function, where the datasets of the function's arguments have no maker
            numbers = [self._makers[id(_plain(each))] for each in inputs if id(_plain(each)) in self._makers]
        else:
            numbers = [self._maker(each) for each in inputs]
        place = user_code.location(3), frozenset(source_loops.repeating())
        call = self._keep(Call(next(self._numbers), entry, args, kwargs, result, tuple(numbers), inner, *place))
        if self._thread.open:
            self._thread.open[-1].inner.append(call)

    def _maker(self, dataset: Any) -> int:
        """Return the call that made a dataset; a new opaque one where none did."""
        known = self._makers.get(id(_plain(dataset)))
        return self._keep(Call(next(self._numbers), None, (), {}, dataset)).id if known is None else known

    def _keep(self, call: Call) -> Call:
        self._makers[id(_plain(call.result))] = call.id
        self._calls[call.id] = call
        return call


def _plain(dataset: Any) -> Any:
    """Return the dataset within the wrapper of `tf.compat.v1.data`."""
    return getattr(dataset, "_dataset", dataset) if type(dataset).__name__ == "DatasetV1Adapter" else dataset


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
    return ""
