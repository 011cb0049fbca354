"""Watches a loop that trains by `tf.compat.v1.Session.run`: what it feeds, or what its graph takes, makes it wait.

A loop that feeds its batches makes them between two runs, while the device has nothing to do. A queue or an iterator in
the graph makes the run itself wait: beside what the program fetches, two time stamps are fetched, of when the run began
and of when its batch was there. They are made at the loop's first run, so that the random numbers of the graph, whose
seeds count its ops, stay as they are.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class _Kind:
    """What the runs with the same fetches and feeds are.

    Attributes:
        trains: whether they change what is trained.
        feeds: whether they are fed batches, not only numbers such as a learning rate.
        stamps: when the run began, and when each of its batches was there, in s since 1970; None where it takes none.
        given: the fetches and feeds, kept so that no others get their addresses.
    """

    trains: bool
    feeds: bool
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
        thread, asked_ns = self._thread, time.monotonic_ns()
        kind: _Kind | None = None
        free_ns = asked_ns

        def begin(name: str) -> CallMonitor:
            return CallMonitor(name, self._out, _device(session), _FED)

        try:
            kind = self._kind(session.graph, fetches, feed)
            if kind is not None and kind.feeds and thread.free_ns is not None:
                free_ns = thread.free_ns
            if kind is not None and not (kind.trains and self._enter(free_ns, kind.feeds, begin)):
                kind = None
        except Exception as error:
            self._problem(error)
        if kind is None:
            return self._leave(fetches, plain)
        taken = kind
        return self._timed(asked_ns - free_ns, lambda: _run(taken, fetches, plain))

    def _leave(self, fetches: Any, plain: Callable[[Any], Any]) -> Any:
        """Run what trains nothing: the step before it has ended."""
        thread = self._thread
        if thread.monitor is not None:
            thread.monitor.leave()
        try:
            return plain(fetches)
        finally:
            thread.free_ns = time.monotonic_ns()

    def _kind(self, graph: Any, fetches: Any, feed: Mapping[Any, Any] | None) -> _Kind | None:
        """Return what runs with these fetches and feeds are; None where that is not known."""
        import tensorflow as tf

        feed = feed or {}
        flat = tf.nest.flatten(fetches, expand_composites=True)
        key = tuple(each if isinstance(each, str) else id(each) for each in (*flat, None, *feed))
        # Kept by the graph itself: they hold tensors of it, and it would live as long as they do.
        kinds: dict[Any, _Kind | None] | None = getattr(graph, _KINDS, None)
        if kinds is None:
            kinds = {}
            setattr(graph, _KINDS, kinds)
        if key not in kinds:
            if len(kinds) >= _MOST_KINDS:
                return None
            try:
                kinds[key] = _kind_of(graph, flat, feed)
            except (KeyError, TypeError, ValueError):  # as `run` will say
                kinds[key] = None
        return kinds[key]


def _run(kind: _Kind, fetches: Any, plain: Callable[[Any], Any]) -> tuple[Any, float]:
    """Run what is fetched; return what that gives, and how many seconds it took to take its batches."""
    if kind.stamps is None:
        return plain(fetches), 0.0
    given, (begun_s, there_s) = plain((fetches, kind.stamps))
    return given, max(0.0, max(there_s) - begun_s)


def _kind_of(graph: Any, flat: list[Any], feed: Mapping[Any, Any]) -> _Kind:
    """Return what runs are that fetch and feed these.

    Raises:
        KeyError: a fetch or a feed names nothing in the graph; TypeError and ValueError likewise.
    """
    import tensorflow as tf

    fed = [graph.as_graph_element(each, allow_operation=False) for each in feed]
    ops = list(_needed(graph, flat, {each.name for each in fed}))
    trained = {each.op for each in graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)}
    takes = [op for op in ops if op.type.startswith(_TAKES) and op._get_control_flow_context() is None]
    trains = any(
        "Apply" in op.type or (op.type.startswith(_UPDATES) and any(each.op in trained for each in op.inputs))
        for op in ops
    )
    stamps = _stamps(graph, takes) if trains and takes and not is_deterministic() else None
    feeds = any(each.shape.rank != 0 for each in fed)
    return _Kind(trains, feeds, stamps, (*flat, *feed))


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
