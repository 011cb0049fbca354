"""Watches a loop that trains by `tf.compat.v1.Session.run`: what it feeds, or what its graph takes, makes it wait.

A loop that feeds its batches makes them between two runs, while the device has nothing to do. A queue or an iterator in
the graph makes the run itself wait: beside what the program fetches, two time stamps are fetched, of when the run began
and of when its batch was there. They are made at the loop's first run, so that the random numbers of the graph, whose
seeds count its ops, stay as they are.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_bench.model.events import Device
from pipeline_bench.monitoring.loop import LoopMonitor
from pipeline_bench.monitoring.record import SavedJob
from pipeline_bench.monitoring.steps import ENDED

_TAKES = ("IteratorGetNext", "QueueDequeue", "Unstage")
"""How the types of ops begin that take a batch and wait for it."""
_UPDATES = ("Assign", "Scatter", "ResourceScatter")
"""How the types of ops begin that change a variable, beside those of optimizers (``ResourceApplyAdam``)."""
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
        takes: whether the graph takes a batch.
        stamps: when the run began, and when each of its batches was there, in s since 1970; None where it takes none.
        given: the fetches and feeds, kept so that no others get their addresses.
    """

    trains: bool
    feeds: bool
    takes: bool
    stamps: tuple[Any, list[Any]] | None
    given: tuple[Any, ...]


class SessionRunMonitor(LoopMonitor):
    """Watches the runs of one line that trains; several threads may run it at once."""

    def __init__(self, name: str, out: Path | None, session: Any) -> None:
        """Begin.

        Args:
            name: of the loop, for a reader.
            out: the folder in which the session's own folder is made; None keeps no file.
            session: TensorFlow's, whose devices it trains on.
        """
        super().__init__(name, _device(session), out, waits_for_device=True)
        self._under_way: dict[int, tuple[int, int]] = {}
        """Of each thread: when its step began, and how long that has waited so far, in ns."""
        self._ended_ns: dict[int, int] = {}
        self._feeds = False

    def begin(self, at_ns: int, feeds: bool) -> None:
        """Begin a step of this thread; the one before ends by that."""
        self._receive(at_ns)
        self._under_way[threading.get_ident()] = at_ns, 0
        self._feeds |= feeds

    def ran(self, wait_ns: int) -> None:
        """Take in that a run of this thread's step has ended, and for how long that waited for its input."""
        thread = threading.get_ident()
        if thread in self._under_way:
            at_ns, before_ns = self._under_way[thread]
            self._under_way[thread] = at_ns, before_ns + wait_ns
            self._ended_ns[thread] = time.monotonic_ns()

    def leave(self, whole: bool = True) -> None:
        """End this thread's step where its last run ended; one that is not `whole` does not count."""
        thread = threading.get_ident()
        if whole:
            self._receive(self._ended_ns.get(thread, 0))
        self._under_way.pop(thread, None)

    def close(self, reason: str | None = None) -> SavedJob:
        """End, and keep the session; see `LoopMonitor`."""
        for thread, step in list(self._under_way.items()):
            self._steps.receive(*step, thread)
            self._steps.receive(self._ended_ns.get(thread, 0), ENDED, thread)
        if self._feeds:
            self.remarks = (_FED,)
            self.record.notes += self.remarks
        return super().close(reason)

    def _receive(self, end_ns: int) -> None:
        """Bring this thread's step, which ended then, into the record."""
        thread = threading.get_ident()
        if (step := self._under_way.get(thread)) is not None:
            self._steps.receive(*step, thread)
            self._steps.receive(end_ns, ENDED, thread)


class _Thread(threading.local):
    """Where a thread's loop is."""

    def __init__(self) -> None:
        self.free_ns: int | None = None
        """When its last run ended, and its device had nothing to do."""
        self.ran: set[str] = set()
        """Lines that trained since the loop's own did."""
        self.monitor: SessionRunMonitor | None = None
        self.line: str | None = None


class SessionRuns:
    """Stands between a program and `Session.run`: tells which runs train, and in which loop."""

    def __init__(
        self,
        line: Callable[[], str | None],
        watch: Callable[[str, Callable[[str], SessionRunMonitor]], Any],
        problem: Callable[[Exception], None],
        out: Path | None,
    ) -> None:
        """Make one.

        Args:
            line: gives the line of the program that is being run; None where it is not known.
            watch: given a line of the program and what begins a monitor, returns the line's monitor; None where the
                line is to be left alone.
            problem: told of what goes wrong in here; the program's run goes on as without it.
            out: the folder in which each session's own folder is made; None keeps no file.
        """
        self._line = line
        self._watch = watch
        self._problem = problem
        self._out = out
        self._kinds: weakref.WeakKeyDictionary[Any, dict[Any, _Kind | None]] = weakref.WeakKeyDictionary()
        self._thread = _Thread()

    def run(self, session: Any, fetches: Any, feed: Any, plain: Callable[[Any], Any]) -> Any:
        """Run what the program runs, and return what that gives.

        Args:
            session: TensorFlow's.
            fetches: what it fetches.
            feed: what it feeds.
            plain: runs the fetches that it is given as the program would.
        """
        thread, asked_ns = self._thread, time.monotonic_ns()
        kind, free_ns = None, asked_ns
        try:
            kind = self._kind(session.graph, fetches, feed)
            if kind is not None and kind.feeds and thread.free_ns is not None:
                free_ns = thread.free_ns
            if kind is not None and not (kind.trains and self._enter(session, free_ns, kind.feeds)):
                kind = None
        except Exception as error:
            self._problem(error)
        if kind is None:
            return self._leave(fetches, plain)
        try:
            given, waited_s = _run(kind, fetches, plain)
        except BaseException:
            thread.free_ns = None
            if thread.monitor is not None:
                thread.monitor.leave(whole=False)
            raise
        thread.free_ns = time.monotonic_ns()
        if thread.monitor is not None:
            thread.monitor.ran(asked_ns - free_ns + int(waited_s * 1e9))
        return given

    def _leave(self, fetches: Any, plain: Callable[[Any], Any]) -> Any:
        """Run what trains nothing: the step before it has ended."""
        thread = self._thread
        if thread.monitor is not None:
            thread.monitor.leave()
        try:
            return plain(fetches)
        finally:
            thread.free_ns = time.monotonic_ns()

    def _enter(self, session: Any, at_ns: int, feeds: bool) -> bool:
        """Begin a step of the loop where its own line trains: the first of an iteration's that comes again.

        Returns:
            Whether it is known which line of the program trains.
        """
        thread, where = self._thread, self._line()
        if where is None:
            return False
        if where != thread.line:
            if where not in thread.ran:  # of the same iteration, or the first one of another loop
                thread.ran.add(where)
                return True
            if thread.monitor is not None:
                thread.monitor.leave(whole=False)
            thread.line = where
            thread.monitor = self._watch(where, lambda name: SessionRunMonitor(name, self._out, session))
        thread.ran.clear()
        if thread.monitor is not None:
            thread.monitor.begin(at_ns, feeds)
        return True

    def _kind(self, graph: Any, fetches: Any, feed: Mapping[Any, Any] | None) -> _Kind | None:
        """Return what runs with these fetches and feeds are; None where that is not known."""
        import tensorflow as tf

        feed = feed or {}
        flat = tf.nest.flatten(fetches, expand_composites=True)
        key = tuple(each if isinstance(each, str) else id(each) for each in (*flat, None, *feed))
        kinds = self._kinds.setdefault(graph, {})
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
    stamps = _stamps(graph, takes) if trains and takes else None
    feeds = any(each.shape.rank != 0 for each in fed)
    return _Kind(trains, feeds, bool(takes), stamps, (*flat, *feed))


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
    import tensorflow as tf

    (first, *_) = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(first)
    return Device(kind="gpu", name=str(details.get("device_name", "GPU")))
