"""The calls that make a pipeline as a graph that edits change, before anything is made again."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import AUTOTUNE, TAKE_ANY, Value
from pipeline_bench.tfdata import composing, service_cluster, splitting
from pipeline_bench.tfdata.public_api import Invocation, entries, replaced
from pipeline_bench.tfdata.recipe import Recipe, RecordedCall


@dataclass(frozen=True)
class Ref:
    """Stands for the dataset of a node, among the arguments of another."""

    id: int


@dataclass(frozen=True, eq=False)
class Node(Invocation):
    """A call to make, its datasets replaced by references."""

    recorded: RecordedCall | None = None
    """The call that it was made from; None of one that an edit inserted."""
    changed: bool = False
    """Whether the recorded dataset cannot stand for it any more, even where its inputs are unchanged."""
    inner: dict[int, dict[str, Value]] = field(default_factory=dict)
    """Arguments to set in the calls that the user's function makes within, by the id of the inner stage."""
    take: int | None = None
    """Only so many of its elements are wanted, for a small pipeline."""
    files: int | None = None
    """Of a stage that reads or lists files: how many are wanted."""
    per_file: int | None = None
    """Of a stage that reads files: how many elements of each are wanted."""
    passes: int | None = None
    """Of a repeat: the most passes that are wanted."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """The nodes whose datasets it takes, in the order of the arguments."""
        found: list[int] = []
        replaced((self.args, self.kwargs), Ref, lambda ref: found.append(ref.id))
        return tuple(found)

    @property
    def label(self) -> str:
        """How a message names it."""
        return self.method if self.recorded is None else self.recorded.label

    def setting(self, **values: Any) -> Node:
        """Return the node with arguments set by name.

        Raises:
            PipelineBenchError: it has no such argument.
        """
        if self.entry is None:
            raise PipelineBenchError("a dataset that was not made by a tf.data call cannot be changed")
        bound = self.entry.signature.bind_partial(*self.args, **self.kwargs)
        for name, value in values.items():
            parameter = self.entry.signature.parameters.get(name)
            if parameter is None or parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                raise PipelineBenchError(f"{self.method} has no argument {name!r}")
            bound.arguments[name] = value
        return replace(self, args=bound.args, kwargs=bound.kwargs, changed=True)

    def without(self, *names: str) -> Node:
        """Return the node without some arguments, which then have their defaults."""
        assert self.entry is not None
        bound = self.entry.signature.bind_partial(*self.args, **self.kwargs)
        for name in names:
            bound.arguments.pop(name, None)
        return replace(self, args=bound.args, kwargs=bound.kwargs, changed=True)

    def reading(self, old: int, new: int) -> Node:
        """Return the node with one input replaced by another."""
        args, kwargs = replaced((self.args, self.kwargs), Ref, lambda ref: Ref(new) if ref.id == old else ref)
        return replace(self, args=args, kwargs=kwargs, changed=True)


def larger_ahead(calls: Iterable[RecordedCall], elements: int) -> list[RecordedCall]:
    """Return the shuffles and skips among recorded calls that hold, or leave out, more elements than so many.

    Those whose number is not known are among them, and the shuffles that a user's function makes within a call.
    """
    found = []
    for call in calls:
        found += [each for each in larger_ahead(call.inner, elements) if each.method == "shuffle"]
        if call.method in ("shuffle", "skip"):
            size = composing.static(call.given().get("buffer_size" if call.method == "shuffle" else "count"))
            # A negative number is all of them: a shuffle waits for these, and behind a skip nothing comes.
            if size is None or size > elements or (size < 0 and call.method == "shuffle"):
                found.append(call)
    return found


class CallPlan:
    """What is to be called to make a pipeline, and what comes behind its sink at the end."""

    def __init__(self, recipe: Recipe) -> None:
        self.nodes = {call.id: _node(call) for call in recipe.calls.values()}
        self.sink = recipe.sink
        self.options: dict[str, Value] = {}
        self.device_buffer: int | None = None
        self.is_offloaded = False
        self.passes: int | None = None
        """The most passes of a repeat that has none of its own, for a small pipeline."""
        self._stands_for: dict[int, int] = {}
        self._behind: dict[int, int] = {}

    def node(self, number: int) -> Node:
        """Return the node of a stage, or the one that it became part of.

        Raises:
            PipelineBenchError: there is no such stage, or an earlier edit took it away.
        """
        while number in self._stands_for:
            number = self._stands_for[number]
        if number not in self.nodes:
            raise PipelineBenchError(f"there is no stage {number} in this pipeline any more")
        return self.nodes[number]

    def put(self, node: Node) -> None:
        """Replace the node that has the same id."""
        self.nodes[node.id] = node

    def consumers(self, number: int) -> list[Node]:
        """Return the nodes that take the dataset of this one."""
        return [node for node in self.nodes.values() if number in node.inputs]

    def single_input(self, node: Node) -> int:
        """Return the only input of a node.

        Raises:
            PipelineBenchError: it has none or several.
        """
        if len(node.inputs) != 1:
            raise PipelineBenchError(f"{node.label} has {len(node.inputs)} inputs, where one is needed")
        return node.inputs[0]

    def redirect(self, old: int, new: int) -> None:
        """Connect all that took one node's dataset, and the sink, to another's."""
        for node in self.consumers(old):
            if node.id != new:
                self.put(node.reading(old, new))
        if self.sink == old:
            self.sink = new

    def set_argument(self, number: int, argument: str, value: Value) -> None:
        """Give a call another value for an argument: a node's, or one that a user's function makes within it."""
        for node in self.nodes.values():
            call = _inner(node.recorded.inner, number) if node.recorded is not None else None
            if call is not None:
                if call.entry is None or argument not in call.entry.signature.parameters:
                    raise PipelineBenchError(f"{call.method} has no argument {argument!r}")
                arguments = {**node.inner.get(number, {}), argument: value}
                self.put(replace(node, inner={**node.inner, number: arguments}, changed=True))
                return
        self.put(self.node(number).setting(**{argument: value}))

    def insert_after(self, number: int, method: str, given: Mapping[str, Any]) -> None:
        """Put a call behind a node, and behind those that were inserted there before."""
        before = self.node(number).id
        while before in self._behind:
            before = self._behind[before]
        new = min((*self.nodes, 0)) - 1
        node = Node(new, entries()[method], (Ref(before),), changed=True).setting(**given)
        self.redirect(before, new)
        self.nodes[new] = node
        self._behind[before] = new

    def limit_ahead(self, elements: int | None) -> None:
        """Have shuffles hold, and skips leave out, so many elements at the most; None: as many as the user wrote.

        What a skip gives then has as many elements as before, where that is known.
        """
        if elements is None:
            return
        for call in larger_ahead((node.recorded for node in self.nodes.values() if node.recorded), elements):
            if call.method == "shuffle":
                self.set_argument(call.id, "buffer_size", elements)
                continue
            count = int(call.result.cardinality())
            self.put(replace(self.node(call.id).setting(count=elements), take=count if count >= 0 else None))

    def take_out(self, number: int) -> Node:
        """Leave a node out: what took its dataset takes its input's."""
        node = self.node(number)
        self.redirect(node.id, self.single_input(node))
        del self.nodes[node.id]
        if node.id in self._behind:  # what was inserted behind it now stands behind its input
            self._behind[node.inputs[0]] = self._behind.pop(node.id)
        return node

    def fuse(self, stages: Sequence[int]) -> None:
        """Make one map of consecutive ones with the same arguments, upstream first."""
        nodes = [self.node(number) for number in stages]
        if not nodes[1:] or any(node.method != "map" for node in nodes):
            raise PipelineBenchError("only maps, two at least, can be made one")
        for before, after in itertools.pairwise(nodes):
            if after.inputs != (before.id,) or len(self.consumers(before.id)) != 1 or self.sink == before.id:
                raise PipelineBenchError(f"{after.label} does not stand right behind {before.label}")
        functions = [node.function for node in nodes if node.function]
        fused = nodes[-1].setting(map_func=composing.composed(functions))
        self._become(tuple(node.id for node in nodes), fused.reading(nodes[-2].id, nodes[0].inputs[0]))

    def parse_batch(self, number: int) -> None:
        """Parse a batch of serialized examples in a map's function, in place of one."""
        self._change_map(number, composing.parsing_batches)

    def vectorize(self, number: int) -> None:
        """Run a map's function, which takes a sample, on a whole batch."""
        self._change_map(number, composing.vectorized)

    def _change_map(self, number: int, change: Callable[[Any], Any]) -> None:
        """Give a map another function, made of its own."""
        node = self.node(number)
        if node.method != "map" or node.function is None:
            raise PipelineBenchError(f"{node.label} is no map")
        self.put(node.setting(map_func=change(node.function)))

    def divide(self, number: int, after: int, statements: int, within: str) -> None:
        """Divide a map: one behind an earlier node runs its function's first statements, and it the others."""
        fixed, random = splitting.halves(self.node(number).function, statements, within)
        self._change_map(number, lambda _: random)
        self.insert_after(after, "map", {"map_func": fixed, "num_parallel_calls": AUTOTUNE})

    def batch_in_generator(self, generator_id: int, batch_id: int) -> None:
        """Gather batches in a `from_generator`, in place of the `batch` right behind it."""
        generator, batch = self.node(generator_id), self.node(batch_id)
        if generator.method != "from_generator" or batch.method != "batch":
            raise PipelineBenchError("only a from_generator with a batch behind it can gather batches")
        if batch.inputs != (generator.id,) or len(self.consumers(generator.id)) != 1:
            raise PipelineBenchError("the batch does not stand right behind the generator")
        given, of_batch = generator.given(), batch.given()
        signature = composing.signature_of(given)
        size, drop_remainder = composing.static(of_batch["batch_size"]), of_batch.get("drop_remainder", False)
        if size is None or not isinstance(drop_remainder, bool):
            raise PipelineBenchError("the size of the batches is only known when they are made")
        gathered = composing.gathered(given["generator"], signature, size, drop_remainder)
        batched = composing.batched_signature(signature, size if drop_remainder else None)
        node = generator.without("output_types", "output_shapes")
        self.redirect(batch.id, generator.id)
        self._become((batch.id, generator.id), node.setting(generator=gathered, output_signature=batched))

    def gather_batches(self, source_id: int, batch_id: int) -> None:
        """Replace a `from_tensor_slices` by numbers of rows, which a map behind the `batch` gathers batch by batch."""
        source, batch = self.node(source_id), self.node(batch_id)
        if source.method != "from_tensor_slices" or batch.method != "batch":
            raise PipelineBenchError("only the slices of tensors with a batch behind them can be gathered")
        at = batch
        while at.id != source.id:
            at = self.nodes[self.single_input(at)]
            if len(self.consumers(at.id)) != 1 or (at.id != source.id and at.method not in TAKE_ANY):
                raise PipelineBenchError(f"{at.label} stands between the slices and the batch")
        rows, gather = composing.gathering(source.given()["tensors"])
        self.put(replace(source, entry=entries()["range"], args=(rows,), kwargs={}, changed=True))
        self.insert_after(batch.id, "map", {"map_func": gather})

    def gather_windows(self, source_id: int, window_id: int, flat_map_id: int) -> None:
        """Replace a `from_tensor_slices` by numbers of first rows, and gather the windows that begin there in a map."""
        source, window, flat = (self.node(number) for number in (source_id, window_id, flat_map_id))
        if (source.method, window.method, flat.method) != ("from_tensor_slices", "window", "flat_map"):
            raise PipelineBenchError("only windows of slices that a flat_map makes rows of can be gathered")
        given = {name: composing.static(value) for name, value in window.given().items()}
        size, stride = given["size"], given.get("stride", 1)
        shift = size if window.given().get("shift") is None else given["shift"]
        if not size or not shift or not stride:
            raise PipelineBenchError("the size of the windows is only known when they are made")
        rows, gather = composing.windows(source.given()["tensors"], size, stride)
        self.take_out(window.id)
        taken = rows if source.take is None else min(rows, source.take)  # of a small part, rows and not windows
        starts = (0, max(0, taken - (size - 1) * stride), shift)
        self.put(replace(source, entry=entries()["range"], args=starts, kwargs={}, take=None, changed=True))
        flat = self.node(flat_map_id)
        changed = replace(flat, entry=entries()["map"], args=(Ref(self.single_input(flat)),), kwargs={}, changed=True)
        self.put(changed.setting(map_func=gather))

    def distribute(self, number: int, dispatcher: str, processing_mode: str) -> None:
        """Move a node and what is in front of it to a tf.data service."""
        crossing = service_cluster.crossing(dispatcher, processing_mode)
        self.insert_after(number, "apply", {"transformation_func": crossing})

    def interleave(self, number: int, **values: Value) -> None:
        """Make an `interleave` of a `flat_map` with the same function."""
        node = self.node(number)
        if node.method != "flat_map":
            raise PipelineBenchError(f"{node.label} is no flat_map")
        changed = replace(node, entry=entries()["interleave"], args=(Ref(self.single_input(node)),), kwargs={})
        self.put(changed.setting(**node.given(), **values))

    def _become(self, numbers: tuple[int, ...], node: Node) -> None:
        """Put one node instead of several of a chain, whose ids name it from now on; it has the last one's id."""
        for number in numbers:
            if number != node.id:
                del self.nodes[number]
                self._stands_for[number] = node.id
        self.put(node)


def _inner(calls: tuple[RecordedCall, ...], number: int) -> RecordedCall | None:
    """Return the call with that id among these, and among those that their functions make."""
    for call in calls:
        found = call if call.id == number else _inner(call.inner, number)
        if found is not None:
            return found
    return None


def _node(call: RecordedCall) -> Node:
    import tensorflow as tf

    numbers = iter(call.inputs)
    args, kwargs = replaced((call.args, call.kwargs), tf.data.Dataset, lambda _: Ref(next(numbers)))
    return Node(call.id, call.entry, args, kwargs, call, changed=call.needs_own_files())
