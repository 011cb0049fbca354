"""Watches a loop that trains by `tf.compat.v1.Session.run`: what it feeds, or what its graph takes, makes it wait.

A loop that feeds its batches makes them between two runs, while the device has nothing to do; a run of its own may take
them from a queue or an iterator. What the model computes there, as a policy that acts, is no wait. A queue or an
iterator in the graph makes the run itself wait: beside what the program fetches, two time stamps are fetched, of when
the run began and of when its batch was there. They are made at the loop's first run, so that the random numbers of the
graph, whose seeds count its ops, stay as they are.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_bench.graph_ops import is_deterministic
from pipeline_bench.model.events import Device
from pipeline_bench.monitoring.calls import CallMonitor, TimedCalls
from pipeline_bench.monitoring.sampling import gpu_of_tensorflow

_TAKES = ("IteratorGetNext", "QueueDequeue", "Unstage")
"""How the types of ops begin that take a batch and wait for it."""
_UPDATES = ("Assign", "Scatter", "ResourceScatter")
"""How the types of ops begin that change a variable, beside those of optimizers (``ResourceApplyAdam``)."""
_KINDS = "_pipeline_bench_runs"
"""The attribute of a graph that has what its runs are."""
_MOST_KINDS = 64
"""Sets of fetches that are looked at in a graph: one that grows with each step has no end of them."""

_FED = (
    "input wait is the time between two calls of Session.run, in which what is fed is made; a queue that threads fill, "
    "or tf.data, makes it during the step (pipeline-bench compare)"
)
_TAKEN = (
    "input wait is the time between two calls of Session.run that train: a run of its own takes the batch there, from "
    "a queue or an iterator of tf.data, to be fed; a model built on their tensors takes it in the run that trains"
)


@dataclass(frozen=True, eq=False)
class _Kind:
    """What the runs with the same fetches and feeds are.

    Attributes:
        trains: whether they change what is trained.
        feeds: whether they are fed batches, not only numbers such as a learning rate.
        takes: whether they take a batch from a queue or an iterator.
        computes: whether they read variables, as a policy that acts, and not only make a batch.
        stamps: when the run began, and when each of its batches was there, in s since 1970; None where it takes none.
        given: the fetches and feeds, kept so that no others get their addresses.
    """

    trains: bool
    feeds: bool
    takes: bool
    computes: bool
    stamps: tuple[Any, list[Any]] | None
    given: tuple[Any, ...]


class SessionRuns(TimedCalls):
    """Stands between a program and `Session.run`: finds which runs train, and in which loop."""

    def run(self, session: Any, fetches: Any, feed: Any, plain: Callable[[Any], Any]) -> Any:
        """Run what the program runs, and return what that gives.

        Args:
            session: TensorFlow's.
            fetches: what it fetches.
            feed: what it feeds.
            plain: runs the fetches that it is given as the program would.
        """
        asked_ns = time.monotonic_ns()
        kind: _Kind | None = None
        wait_ns: int | None = None
        failed: Exception | None = None
        try:
            kind = self._kind(session.graph, fetches, feed)
            if kind is not None and kind.trains:
                wait_ns = self._begin(session, kind, asked_ns)
        except Exception as error:
            failed = error
        if kind is not None and wait_ns is not None:
            taken = kind
            return self._timed(wait_ns, lambda: _run(taken, fetches, plain))
        if kind is not None and not kind.trains and self._is_part(kind):
            return self.computes(lambda: plain(fetches)) if kind.computes else plain(fetches)
        given = self._leave(fetches, plain)
        if failed is not None:  # and not in the program too, as where it feeds what its graph has not
            self._problem(failed)
        return given

    def _begin(self, session: Any, kind: _Kind, asked_ns: int) -> int | None:
        """Begin to train; return for how long what is fed was waited for, None where the line is not known."""
        thread = self._thread
        left_ns, thread.left_ns = thread.left_ns, None
        # The device was busy while a policy acted: the step before ends later by that.
        free_ns = asked_ns
        if kind.feeds and thread.free_ns is not None:
            free_ns = thread.free_ns + thread.computed_ns

        def begin(name: str) -> CallMonitor:
            return CallMonitor(name, self._out, _device(session), _FED)

        known = self._enter(free_ns, kind.feeds, begin)
        if thread.monitor is not None and left_ns is not None and not thread.ran:
            thread.monitor.beside_ns += (thread.free_ns or left_ns) - left_ns
        return asked_ns - free_ns if known else None

    def _is_part(self, kind: _Kind) -> bool:
        """Return whether a run that trains nothing is a part of the step: it came in the iterations before as well."""
        thread = self._thread
        is_part = any(id(kind) in each for each in thread.recent)
        thread.others.add(id(kind))
        if is_part and kind.takes and thread.monitor is not None:
            thread.monitor.how_fed = _TAKEN
        return is_part

    def _leave(self, fetches: Any, plain: Callable[[Any], Any]) -> Any:
        """Run what is no part of a step: the one before it has ended."""
        thread = self._thread
        if thread.monitor is not None:
            thread.monitor.leave()
        thread.left_ns = thread.left_ns or thread.free_ns
        try:
            return plain(fetches)
        finally:
            thread.free_ns, thread.computed_ns = time.monotonic_ns(), 0

    def _kind(self, graph: Any, fetches: Any, feed: Mapping[Any, Any] | None) -> _Kind | None:
        """Return what runs with these fetches and feeds are; None where that is not known.

        Raises:
            KeyError: a fetch or a feed names nothing in the graph; TypeError and ValueError likewise.
        """
        feed = feed or {}
        flat = _flat((fetches, None, *feed))
        key = tuple([each if isinstance(each, str) else id(each) for each in flat])
        # Kept by the graph itself: they hold tensors of it, and it would live as long as they do.
        kinds: dict[Any, _Kind | None] | None = getattr(graph, _KINDS, None)
        if kinds is None:
            kinds = {}
            setattr(graph, _KINDS, kinds)
        if key not in kinds:
            if len(kinds) >= _MOST_KINDS:
                return None
            kinds[key] = None
            kinds[key] = _kind_of(graph, _flat(fetches), feed)
        return kinds[key]


def _run(kind: _Kind, fetches: Any, plain: Callable[[Any], Any]) -> tuple[Any, float]:
    """Run what is fetched; return what that gives, and how many seconds it took to take its batches."""
    if kind.stamps is None:
        return plain(fetches), 0.0
    given, (begun_s, there_s) = plain((fetches, kind.stamps))
    return given, max(0.0, max(there_s) - begun_s)


def _flat(given: Any) -> list[Any]:
    """Return what is fetched, or the keys of what is fed, without its structure, as tuples and SparseTensors have."""
    import tensorflow as tf

    return list(tf.nest.flatten(given, expand_composites=True))


def _is_batch(tensor: Any, value: Any) -> bool:
    """Return whether what is fed is more than a number; a tensor without a shape may be either."""
    rank = tensor.shape.rank
    if rank is None:
        rank = getattr(value, "ndim", 0 if np.isscalar(value) else None)  # a list is not converted
    return bool(rank != 0)


def _kind_of(graph: Any, flat: list[Any], feed: Mapping[Any, Any]) -> _Kind:
    """Return what runs are that fetch and feed these.

    Raises:
        KeyError: a fetch or a feed names nothing in the graph; TypeError and ValueError likewise.
    """
    import tensorflow as tf

    fed = [
        (graph.as_graph_element(each, allow_operation=False), value)
        for key, value in feed.items()
        for each in _flat(key)
    ]
    ops = list(_needed(graph, flat, {each.name for each, _ in fed}))
    trained = {each.op for each in graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)}
    takes = [op for op in ops if op.type.startswith(_TAKES) and op._get_control_flow_context() is None]
    trains = any(
        "Apply" in op.type or (op.type.startswith(_UPDATES) and any(each.op in trained for each in op.inputs))
        for op in ops
    )
    stamps = _stamps(graph, takes) if trains and takes and not is_deterministic() else None
    feeds = any(_is_batch(each, value) for each, value in fed)
    variables = {each.op for each in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)}
    computes = not takes and not variables.isdisjoint(ops)
    return _Kind(trains, feeds, bool(takes), computes, stamps, (*flat, *_flat(tuple(feed))))


def _needed(graph: Any, flat: list[Any], fed: set[str]) -> Iterator[Any]:
    """Yield the ops that a run of the fetches executes: nothing in front of a tensor whose name is in `fed`."""
    import tensorflow as tf

    elements = [graph.as_graph_element(each, allow_tensor=True, allow_operation=True) for each in flat]
    waiting = [each if isinstance(each, tf.Operation) else each.op for each in elements if each.name not in fed]
    seen = set(waiting)
    while waiting:
        op = waiting.pop()
        yield op
        before = [each.op for each in op.inputs if each.name not in fed] + list(op.control_inputs)
        waiting += [each for each in dict.fromkeys(before) if each not in seen]
        seen.update(before)


def _stamps(graph: Any, takes: list[Any]) -> tuple[Any, list[Any]]:
    """Add time stamps of a run's begin, and of when each op has taken its batch, and return them."""
    import tensorflow as tf

    with _changeable(graph), graph.as_default(), tf.control_dependencies(None), tf.device(None), tf.device("/cpu:0"):
        begun = tf.timestamp()
        there = []
        for op in takes:
            with tf.control_dependencies([op]):
                there.append(tf.timestamp())
    return begun, there


@contextlib.contextmanager
def _changeable(graph: Any) -> Iterator[None]:
    """Let ops be added to a graph that is finalized, as a `MonitoredTrainingSession` leaves it."""
    finalized = graph.finalized
    if finalized:
        graph._unsafe_unfinalize()
    try:
        yield
    finally:
        if finalized:
            graph.finalize()


def _device(session: Any) -> Device:
    """Return the device that a session of TensorFlow's trains on: its first GPU, if it has one."""
    if all(each.device_type != "GPU" for each in session.list_devices()):
        return Device(kind="cpu", name="CPU")
    return gpu_of_tensorflow()
