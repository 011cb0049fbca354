"""How a pipeline was made: the tree of calls that its last dataset depends on, with the datasets that they made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.graph_ops import is_deterministic
from pipeline_bench.model.calls import TAKE_ANY
from pipeline_bench.model.pipeline import INFINITE, Location, Shared, Stage
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.tfdata import composing, dataset_graph, describe, divisions, function_digest, likeness, public_api
from pipeline_bench.tfdata.likeness import Made
from pipeline_bench.tfdata.public_api import Invocation
from pipeline_bench.user_code import source_guards
from pipeline_bench.user_code.source_loops import SourceLoop

OWN_FILE_NOTE = "The dataset's own cache file was not used; a fresh one took its place."
_OF_A_GRAPH = (
    "The dataset belongs to a graph of its own, from which it cannot be taken.",
    "Make it outside of tf.Graph().as_default() and of any tf.function.",
)


@dataclass(frozen=True, eq=False)
class RecordedCall(Invocation):
    """A recorded call with its live arguments, which can be made again."""

    result: Any = None
    """The dataset that it made."""
    inputs: tuple[int, ...] = ()
    """The calls that made the datasets among its arguments, in the order of the arguments."""
    inner: tuple[RecordedCall, ...] = ()
    location: Location | None = None
    loops: frozenset[SourceLoop] = frozenset()
    """The loops of the script's that made it and make another each time they go round."""
    draws_traced: bool = False
    """Whether its function drew from Python's or NumPy's random numbers while TensorFlow traced it."""

    def stage(self, behind: Sequence[Any] = ()) -> Stage:
        """Return the call as plain data; `behind` as of `describe.function`."""
        function = self._user_function(behind)
        return Stage(
            id=self.id,
            method=self.method,
            inputs=self.inputs,
            arguments=describe.arguments(self.given()),
            function=function,
            place=self.location,
            element=describe.element(self.result.element_spec),
            inner=tuple(call.stage() for call in self.inner),
            serial=function is not None and function.python and is_deterministic(),
        )

    def _user_function(self, behind: Sequence[Any]) -> UserFunction | None:
        if self.function is None:
            return None
        function = describe.function(self.function, self.result, self.method == "from_generator", behind)
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

    @property
    def placed(self) -> str:
        """Its method with its place, as the subject of a sentence: ``take, train.py:12,``."""
        return self.method if self.location is None else f"{self.method}, {self.location.short},"

    @property
    def named(self) -> str:
        """Its label with its place, as the subject of a sentence: ``map(decode), train.py:12,``."""
        return self.label if self.location is None else f"{self.label}, {self.location.short},"

    @property
    def lists_anew(self) -> bool:
        """Whether it lists files in another order in each pass."""
        return self.method == "list_files" and self.given().get("shuffle") is not False


def writes_files(method: str, given: Mapping[str, Any]) -> bool:
    """Return whether a call with these arguments keeps elements in files: `cache` with a file name, `snapshot`."""
    name = given.get("filename", "")
    return method == "snapshot" or (method == "cache" and not (isinstance(name, str | bytes) and not name))


class _HasInputs(Protocol):
    @property
    def inputs(self) -> tuple[int, ...]: ...


def upstream(calls: Mapping[int, _HasInputs], numbers: Iterable[int]) -> set[int]:
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
        self,
        calls: Mapping[int, RecordedCall],
        sink: int,
        notes: tuple[str, ...] = (),
        within: SourceLoop | None = None,
    ) -> None:
        """Take a pipeline from the calls that were recorded.

        Raises:
            UserCodeError: a function of it reads a dataset that every trial would keep in files of the user's.
        """
        needed = upstream(calls, [sink])
        _check_captured(calls, needed)
        # Numbered anew: what other threads of the user's code make meanwhile is between them by chance.
        parts = [part for number in needed for part in _with_inner(calls[number])]
        known = sorted({number for part in parts for number in (part.id, *part.inputs)})
        numbers = {number: new for new, number in enumerate(known)}
        self.calls: dict[int, RecordedCall] = {
            numbers[each]: _numbered(calls[each], numbers) for each in sorted(needed)
        }
        self.sink = numbers[sink]
        own_files = any(call.needs_own_files() for call in self.calls.values())
        kinds = divisions.mixed, divisions.behind_maps, _listed_apart, _drawn_once, _dropped_results
        self.warnings = tuple(warning for kind in kinds for warning in kind(calls, needed))
        self.notes = (*notes, *[OWN_FILE_NOTE] * own_files)
        behind = _maps_behind(calls, needed)
        elsewhere, left = _elsewhere(calls, needed), dataset_graph.left_early(calls[sink].result)
        shared, taken = _shared(calls, elsewhere), {before for call in calls.values() for before in call.inputs}
        # What is passed over again before it is made anew, or keeps its elements in files, is read more than once.
        again = {before for each in needed if calls[each].method == "repeat" for before in calls[each].inputs}
        lasting = upstream(calls, again | {each for each in needed if calls[each].writes_files()})
        anew: set[int] = set()
        for each in sorted(needed - lasting):  # upstream first: what is made of something new is new
            if within in calls[each].loops or not anew.isdisjoint(calls[each].inputs):
                anew.add(each)
        self.stages: tuple[Stage, ...] = tuple(
            self.calls[numbers[each]]
            .stage(behind.get(each, ()))
            .model_copy(
                update={
                    "shared": shared.get(each, False),
                    "others_go_on": not taken.isdisjoint(elsewhere.get(each, ())),
                    "left_early": left.get(id(calls[each].result), False),
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

    def same_kind_before(self, call: RecordedCall) -> int:
        """Return the first stage in front of a call that gives elements of the kind that it takes.

        No shuffle need then be filled for one of them.
        """
        number = call.inputs[0]
        while self.calls[number].method in TAKE_ANY:
            number = self.calls[number].inputs[0]
        return number


def outside_of_graph(calls: Mapping[int, RecordedCall], sink: int) -> dict[int, RecordedCall]:
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


def _made_again(call: RecordedCall, inputs: Iterator[Any]) -> RecordedCall:
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


def _maps_behind(calls: Mapping[int, RecordedCall], needed: Collection[int]) -> dict[int, list[Any]]:
    """Return of each map the maps in a row that take what it gives, each of them alone, as their datasets."""
    takers: dict[int, list[int]] = {}
    for number in needed:
        for each in calls[number].inputs:
            takers.setdefault(each, []).append(number)
    found: dict[int, list[Any]] = {}
    for number in sorted(needed, reverse=True):  # downstream first
        alone = takers.get(number, [])
        if calls[number].method == "map" and len(alone) == 1 and calls[alone[0]].method == "map":
            found[number] = [calls[alone[0]].result, *found.get(alone[0], ())]
    return found


def _input_shares(calls: Mapping[int, RecordedCall], call: RecordedCall) -> tuple[float, ...]:
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


def _check_captured(calls: Mapping[int, RecordedCall], needed: Collection[int]) -> None:
    """Check that no function reads a dataset made outside of it that keeps elements in files: no other can be given it.

    Raises:
        UserCodeError: one does.
    """
    made = {id(getattr(call.result, "_variant_tensor", None)): number for number, call in calls.items()}
    for call in (calls[number] for number in needed if calls[number].function is not None):
        wrappers: Any = getattr(call.result, "_functions", tuple)()
        taken = [id(tensor) for each in wrappers for tensor in getattr(each.function, "captured_inputs", ())]
        read = upstream(calls, [made[each] for each in taken if each in made])
        if kept := next((calls[each] for each in sorted(read) if calls[each].needs_own_files()), None):
            where = f", line {kept.location.line}," if kept.location is not None else ""
            raise UserCodeError(
                f"{call.label} reads a dataset that {kept.method}{where} keeps in files, which each trial would fill.",
                f"Make the dataset in the function, or leave the {kept.method} out for the diagnosis.",
            )


def _listed_apart(calls: Mapping[int, RecordedCall], needed: Collection[int]) -> Iterator[str]:
    """Yield, as warnings, which `zip` joins files that are listed twice, in two orders."""
    for joining in (calls[number] for number in sorted(needed) if calls[number].method == "zip"):
        above = [upstream(calls, [number]) for number in joining.inputs]
        listed = [[number for number in sorted(branch) if calls[number].method == "list_files"] for branch in above]
        first = [calls[numbers[0]] for numbers in listed if numbers]
        orders = {describe.arguments(each.given()).get("seed") if each.lists_anew else "sorted" for each in first}
        mixes = [any(_mixes_anew(calls[number]) for number in branch) for branch in above]
        if len({each.id for each in first}) > 1 and (None in orders or len(orders) > 1) and not all(mixes):
            yield (
                f"{joining.placed} joins the files that {' and '.join(each.placed for each in first)} list, each in an "
                "order of its own: those that belong together, such as pictures and their masks, do not meet. "
                "list_files(…, shuffle=False) keeps them together; what mixes them stands behind the zip."
            )


def _mixes_anew(call: RecordedCall) -> bool:
    """Return whether a call shuffles by no seed: what is joined of two such branches belongs together in no order."""
    return call.method == "shuffle" and call.given().get("seed") is None


def _drawn_once(calls: Mapping[int, RecordedCall], needed: Collection[int]) -> Iterator[str]:
    """Yield, as warnings, which maps draw in Python while TensorFlow traces them.

    Not of seeds that Keras draws so for itself, of which its layers make others in the graph.
    """
    for call in (calls[number] for number in sorted(needed) if calls[number].draws_traced):
        function = call.stage().function
        if function is not None and not function.changes_seeds:
            yield (
                f"{call.named} draws random numbers by Python or NumPy while TensorFlow traces it, which is once: all "
                "samples of all epochs get the same. Draw by tf.random in their place, and diagnose again."
            )


def _dropped_results(calls: Mapping[int, RecordedCall], needed: Collection[int]) -> Iterator[str]:
    """Yield, as warnings, which calls are statements, as ``dataset.cache()``, so that nothing takes what they give.

    Each is told once, also where its line runs several times. A `take` is none of them: notebooks look at one so.
    """
    told: set[Location] = set()
    for number, call in sorted(calls.items()):
        place = call.location
        if number in needed or place is None or place in told or call.method == "take":
            continue
        is_dropped = source_guards.is_result_dropped(place.file, place.line, call.method)
        if is_dropped and not upstream(calls, [number]).isdisjoint(needed):
            told.add(place)
            yield (
                f"{call.placed} does nothing: it returns a new dataset, which that statement drops. Assign it, as in "
                f"`dataset = dataset.{call.method}(…)`, if it was meant to be part of the pipeline."
            )


def _with_inner(call: RecordedCall) -> Iterator[RecordedCall]:
    yield call
    for inner in call.inner:
        yield from _with_inner(inner)


def _numbered(call: RecordedCall, numbers: Mapping[int, int]) -> RecordedCall:
    inputs, inner = (numbers[each] for each in call.inputs), (_numbered(each, numbers) for each in call.inner)
    return replace(call, id=numbers[call.id], inputs=tuple(inputs), inner=tuple(inner))


def _elsewhere(calls: Mapping[int, RecordedCall], needed: Collection[int]) -> dict[int, list[int]]:
    """Return the calls not needed that come from the place of one needed, by that one; of others nothing."""
    places = {calls[number].location for number in needed} - {None}
    # `interleave(tf.data.TFRecordDataset)` has the files' datasets made in its own place.
    own = {inner.id for call in calls.values() for inner in call.inner if inner.location == call.location}
    others: dict[Location | None, list[int]] = {}
    for each in calls.keys() - own - set(needed):
        if calls[each].location in places:
            others.setdefault(calls[each].location, []).append(each)
    return {number: others[calls[number].location] for number in needed if calls[number].location in others}


def _shared(calls: Mapping[int, RecordedCall], elsewhere: Mapping[int, Collection[int]]) -> dict[int, bool | Shared]:
    """Return `Stage.shared` of the calls whose line makes others too, as of `_elsewhere`."""
    made: dict[int, Made] = {}
    others = {each for numbers in elsewhere.values() for each in numbers}
    # Each is looked at once: a line may make one for each of many files.
    for number in sorted(upstream(calls, [*elsewhere, *others])):
        call, stage = calls[number], calls[number].stage()
        digest = function_digest.of(call.function, call.result, call.method)
        made[number] = likeness.made(stage, digest, [made[each] for each in stage.inputs])
    return {number: made[number].shared({made[each] for each in numbers}) for number, numbers in elsewhere.items()}
