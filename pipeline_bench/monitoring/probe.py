"""Measures how long whoever takes a batch from a dataset is blocked, in eager mode and inside a graph.

In eager mode `next()` is timed in Python. In a graph the ops that take a batch stand between two time stamps, whose
difference the graph writes into a resource on the CPU (`Ring`), which Python reads in blocks. The classes are
TensorFlow's own with one thing added, so that functions, AutoGraph and Keras take them as what they are; their type
specs carry the probe into the functions that are traced with them.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

# Whoever imports this module watches a job of TensorFlow's, in whose process TensorFlow is already.
import tensorflow as tf
from tensorflow.python.data.ops import dataset_autograph, dataset_ops, iterator_ops, optional_ops
from tensorflow.python.framework import ops

from pipeline_bench.graph_ops import between_stamps, clock_s
from pipeline_bench.monitoring.ring import Ring
from pipeline_bench.monitoring.steps import ENDED, LEFT

_ITERATORS = "_pipeline_bench_iterators"
"""The attribute of a graph that has those that it takes from."""
_EXAMPLES = 2
"""A `take` of so many batches, or samples, is one who looks."""


def stamped(fetch: Callable[[], Any], keep: Callable[[Any, Any, Any], None]) -> Any:
    """Build what `fetch` builds between two time stamps of the graph.

    Args:
        fetch: builds a structure of tensors.
        keep: builds what keeps its wait; given the structure, when the first stamp was taken, in s since 1970, and the
            seconds between the two.

    Returns:
        The structure, available only after what keeps the wait (`_after`).
    """
    structure, before, after = between_stamps(fetch)
    return _after(lambda: keep(structure, before, after - before), structure)


def _after(keep: Callable[[], None], structure: Any) -> Any:
    """Return the structure, each tensor of which is available only after what `keep` builds has run.

    So nothing that needs it begins before the wait has been kept. Beside the model, the few ops that keep it would wake
    a thread of their own, which costs a step ten times as much as they do.
    """
    graph = tf.compat.v1.get_default_graph()
    first = len(graph.get_operations())
    keep()
    with tf.control_dependencies(_last_ops(graph.get_operations()[first:])):
        return tf.nest.map_structure(
            lambda value: tf.identity(value) if tf.is_tensor(value) else value, structure, expand_composites=True
        )


def _last_ops(some: Sequence[Any]) -> list[Any]:
    """Return those of some ops that none of the others needs: when they have run, all have."""
    needed = {id(tensor.op) for op in some for tensor in op.inputs}
    needed |= {id(before) for op in some for before in op.control_inputs}
    return [op for op in some if id(op) not in needed]


def number_in_graph(iterator: Any) -> int:
    """Return which of the iterators that the graph being built takes from this one is, from 0 in their order there.

    Args:
        iterator: it, or its resource: one object in all of the graph.
    """
    graph = tf.compat.v1.get_default_graph()
    known = getattr(graph, _ITERATORS, ())
    if all(each is not iterator for each in known):
        known = (*known, iterator)
        setattr(graph, _ITERATORS, known)
    return next(number for number, each in enumerate(known) if each is iterator)


def is_short_take(dataset: Any) -> bool:
    """Return whether a dataset is made of a `take` of one or two, as one who looks at an example takes them."""
    waiting, seen = [dataset], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        takes = type(each).__name__ == "_TakeDataset" and hasattr(each._count, "numpy")
        if takes and 0 <= int(each._count) <= _EXAMPLES:
            return True
        waiting += each._inputs()
    return False


class Probe:
    """Where iterators that are watched together report their waits.

    Attributes:
        number: by which type specs name it: they hold plain values only.
        receive: called with when an eager batch was asked for, its wait in ns or a mark (`ENDED`, `LEFT`), and a number
            of its iterator, where that is known.
        ring: takes the waits of a graph's batches.
        ends: takes when each step of a loop in a graph ended that takes its next batch meanwhile; None: not wanted.
        asks_ahead: whether a `for` in a graph takes from a distributed dataset: it asks for its next batch during its
            step, and nothing there tells when that ended.
    """

    _all: ClassVar[weakref.WeakValueDictionary[int, Probe]] = weakref.WeakValueDictionary()
    _numbers = itertools.count()

    def __init__(self, receive: Callable[..., None], ring: Ring, ends: Ring | None = None) -> None:
        """Make one; the arguments are its attributes."""
        self.receive = receive
        self.ring = ring
        self.ends = ends
        self.asks_ahead = False
        self._made = 0
        self._held: weakref.WeakSet[Any] = weakref.WeakSet()
        """The iterators of eager code, while the program holds them."""
        self.number = next(self._numbers)
        self._all[self.number] = self

    @classmethod
    def of(cls, number: int) -> Probe | None:
        """Return the probe of that number; None when it is gone, and its functions have outlived it."""
        return cls._all.get(number)

    def see_made(self, iterator: Any) -> None:
        """Take in that an iterator was made in eager code."""
        self._made += 1
        self._held.add(iterator)

    @property
    def is_left(self) -> bool:
        """Whether the program holds no iterator any more of those that it made in eager code."""
        return self._made > 0 and not self._held

    def leave(self) -> None:
        """Record that the loop begins to read its dataset again; in a graph, build the ops that do."""
        if tf.executing_eagerly():
            self.receive(time.monotonic_ns(), LEFT)
            if not self.ring.traced:
                return
        self.ring.mark(LEFT)

    def step_ends(self) -> None:
        """Build the ops that keep when the step ended that was built before this, in the body of a loop.

        Keras trains on a batch there, and in a branch behind it takes the next one: nothing orders the two, so that the
        batch is taken while the step computes. The stamp stands in the body, and in a ring of its own: one that the
        branch needed too would have it wait for the step.
        """
        body: Any = getattr(tf.compat.v1.get_default_graph(), "outer_graph", None)
        if self.ends is None or type(body).__name__ != "WhileBodyFuncGraph":
            return
        with body.as_default(), tf.control_dependencies(_last_ops(body.get_operations())):
            with tf.device("/cpu:0"):
                at_s = clock_s()
            self.ends.write(at_s, tf.constant(0.0, tf.float64))


class _Given(threading.local):
    """The probe of the iterator that a function is being called with, in this thread."""

    number: int | None = None


_given = _Given()


@contextmanager
def signatures_timed(number: int) -> Iterator[None]:
    """Time the iterator of a function that is traced meanwhile, where its `input_signature` names it, by that probe.

    Such a signature has a plain `tf.data.IteratorSpec`, which knows no probe.
    """
    _time_signatures()
    before, _given.number = _given.number, number
    try:
        yield
    finally:
        _given.number = before


@functools.cache
def _time_signatures() -> None:
    make = iterator_ops.IteratorSpec._from_components

    def _from_components(self: Any, components: Any) -> Any:
        number = _given.number
        if number is None or tf.executing_eagerly():
            return make(self, components)
        return ProbedIterator(components=components, element_spec=self._element_spec, number=number)

    iterator_ops.IteratorSpec._from_components = _from_components


class ProbedIteratorSpec(iterator_ops.IteratorSpec):  # type: ignore[misc]
    """The type of a `ProbedIterator`; another probe is another type, for which functions are traced anew."""

    __slots__ = ["_number"]

    def __init__(self, element_spec: Any, number: int) -> None:
        super().__init__(element_spec)
        self._number = number

    @property
    def value_type(self) -> Any:
        return ProbedIterator

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Return whether the elements agree: a program that takes one timed iterator for another sees no difference."""
        other = spec_or_value if isinstance(spec_or_value, tf.TypeSpec) else tf.type_spec_from_value(spec_or_value)
        return bool(super().is_compatible_with(self._as_probed(other)))

    def most_specific_common_supertype(self, others: Any) -> Any:
        """Return the type that the branches of a condition give if each has another iterator: this one's."""
        return super().most_specific_common_supertype([self._as_probed(each) for each in others])

    def _as_probed(self, other: Any) -> Any:
        """Return the type of another iterator as if its waits went to this probe."""
        is_other = isinstance(other, ProbedIteratorSpec)
        return ProbedIteratorSpec(other._element_spec, self._number) if is_other else other

    def _serialize(self) -> tuple[Any, int]:
        return self._element_spec, self._number

    def _from_components(self, components: Any) -> Any:
        return ProbedIterator(components=components, element_spec=self._element_spec, number=self._number)


class ProbedIterator(iterator_ops.OwnedIterator):  # type: ignore[misc]
    """TensorFlow's iterator of eager mode and of functions, timed."""

    def __init__(self, dataset: Any = None, components: Any = None, element_spec: Any = None, number: int = -1) -> None:
        self._number = number
        self._probe = Probe.of(number)
        super().__init__(dataset, components, element_spec)
        if self._probe is not None and tf.executing_eagerly():
            self._probe.see_made(self)

    @property
    def _type_spec(self) -> Any:
        return ProbedIteratorSpec(self.element_spec, self._number)

    def _next_internal(self) -> Any:
        probe = self._probe
        if probe is None:
            return super()._next_internal()
        if not tf.executing_eagerly():
            number = number_in_graph(self._iterator_resource)
            return stamped(super()._next_internal, lambda _, at_s, wait_s: probe.ring.write(at_s, wait_s, number))
        start_ns = time.monotonic_ns()
        try:
            element = super()._next_internal()
        except tf.errors.OutOfRangeError:
            probe.receive(start_ns, ENDED, id(self))
            raise
        probe.receive(start_ns, time.monotonic_ns() - start_ns, id(self))
        return element

    def get_next_as_optional(self) -> Any:
        """See `tf.data.Iterator`."""
        probe, fetch = self._probe, super().get_next_as_optional
        if probe is None:
            return fetch()
        if not tf.executing_eagerly():
            probe.step_ends()
            number = number_in_graph(self._iterator_resource)

            def keep(variant: Any, at_s: Any, wait_s: Any) -> None:
                optional = optional_ops._OptionalImpl(variant, self.element_spec)
                probe.ring.write(at_s, tf.where(optional.has_value(), wait_s, tf.constant(ENDED, tf.float64)), number)

            return optional_ops._OptionalImpl(stamped(lambda: fetch()._variant_tensor, keep), self.element_spec)
        start_ns = time.monotonic_ns()
        optional = fetch()
        wait_ns = time.monotonic_ns() - start_ns
        probe.receive(start_ns, wait_ns if bool(optional.has_value()) else ENDED, id(self))
        return optional


class ProbedDatasetSpec(dataset_ops.DatasetSpec):  # type: ignore[misc]
    """The type of a `ProbedDataset`, as an argument of a function."""

    __slots__ = ["_number"]

    def __init__(self, element_spec: Any, dataset_shape: Any = (), number: int = -1) -> None:
        super().__init__(element_spec, dataset_shape)
        self._number = number

    @property
    def value_type(self) -> Any:
        return ProbedDataset

    def __eq__(self, other: object) -> bool:
        # The base class compares what the elements are; a function that was traced without a probe, or with another
        # one, must not be taken for one of this dataset's.
        return isinstance(other, ProbedDatasetSpec) and self._number == other._number and bool(super().__eq__(other))

    def __hash__(self) -> int:
        return hash((super().__hash__(), self._number))

    def is_subtype_of(self, other: Any) -> bool:
        return isinstance(other, ProbedDatasetSpec) and self._number == other._number and super().is_subtype_of(other)

    def most_specific_common_supertype(self, others: Any) -> Any:
        return self if all(self == other for other in others) else None

    def _serialize(self) -> tuple[Any, Any, int]:
        return self._element_spec, self._dataset_shape, self._number

    def _from_components(self, components: Any) -> Any:
        return ProbedDataset(dataset_ops._VariantDataset(components, self._element_spec), self._number)


class ProbedDataset(dataset_ops.UnaryUnchangedStructureDataset):  # type: ignore[misc]
    """A dataset that is the given one to everything that is built upon it, and timed where a loop takes from it."""

    def __init__(self, dataset: Any, number: int) -> None:
        self._number = number
        super().__init__(dataset, dataset._variant_tensor)

    @property
    def _type_spec(self) -> Any:
        return ProbedDatasetSpec(self.element_spec, (), self._number)

    def __iter__(self) -> Any:
        if not tf.executing_eagerly() and not ops.inside_function():
            return super().__iter__()  # which says why this cannot be
        probe = Probe.of(self._number)
        if probe is not None:
            probe.leave()
        return ProbedIterator(self._input_dataset, number=self._number)


_patch_lock = threading.Lock()
_patches = 0
_plain_scan: Any = None


@contextmanager
def autograph_loops_timed() -> Iterator[None]:
    """Time a `for` over a `ProbedDataset` inside a function, in functions traced meanwhile.

    AutoGraph turns such a loop into a scan over the dataset, whose function is the loop's body: that is stamped where
    it begins and where it ends. Nothing else that is built upon the dataset is timed, which would be from a thread
    that runs ahead.
    """
    global _patches, _plain_scan  # noqa: PLW0603 - the module that is patched is global as well
    with _patch_lock:
        if not _patches:
            _plain_scan = dataset_autograph._general_purpose_scan
            dataset_autograph._general_purpose_scan = _timed_scan
        _patches += 1
    try:
        yield
    finally:
        with _patch_lock:
            _patches -= 1
            if not _patches:
                dataset_autograph._general_purpose_scan = _plain_scan


def _timed_scan(dataset: Any, state: Any, body: Any) -> Any:
    if not isinstance(dataset, ProbedDataset):
        return _plain_scan(dataset, state, body)
    probe = Probe.of(dataset._number)
    if probe is None:
        return _plain_scan(dataset._input_dataset, state, body)
    probe.leave()

    def timed_body(state_and_asked: tuple[Any, Any], element: Any) -> tuple[tuple[Any, Any], Any]:
        state, asked_s = state_and_asked
        arrived = _after(lambda: probe.ring.write(asked_s, clock_s() - asked_s), element)
        first = len(tf.compat.v1.get_default_graph().get_operations())
        state, outputs = body(state, arrived)
        # The scan asks for its next element as soon as its body has ended.
        with tf.control_dependencies(_last_ops(tf.compat.v1.get_default_graph().get_operations()[first:])):
            return (state, clock_s()), outputs

    return _plain_scan(dataset._input_dataset, (state, clock_s()), timed_body)
