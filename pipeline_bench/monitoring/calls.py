"""Watches a loop by those calls in it that train on a batch: what hands them the batch makes it between two of them.

Such calls are `Session.run` (`session_runs`), Keras' `train_on_batch`, and those of a `tf.function` that trains. A step
in eager code is no call: it goes from a `GradientTape` to the last gradient, or variable, that changes for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pipeline_bench.model.events import Device
from pipeline_bench.monitoring.loop import LoopMonitor
from pipeline_bench.monitoring.record import SavedJob
from pipeline_bench.monitoring.sampling import device_of
from pipeline_bench.monitoring.wait_lines import WaitLines
from pipeline_bench.system import interrupts
from pipeline_bench.text import units

_WORTH = 0.2
"""Of a loop's time, from which on what it did beside its steps is reported."""
_RECENT = 4
"""Iterations of a loop: what trains nothing and came in none of the last ones, as a validation, is not of its step."""
_WORTH_OF_PREDICT = 0.1
"""Of its steps' time, from which on the calls of `predict` in them are worth a word."""
_PREDICT = "predict"
EVALUATION = "evaluate"
"""What a call that goes over several batches, and trains on none, is called: it is a validation by itself."""
_FED = (
    "input wait is the time between two {name}, less what a model computes: the loop makes its next batch then, and "
    "whatever else it does counts too; tf.data, or a PyDataset with workers, makes the batch during the step "
    "(pipeline-bench compare)"
)


class _Token(threading.local):
    """What distinguishes a thread from a later one, to which the system may give the number of one that has ended."""

    def __init__(self) -> None:
        self.of_thread = object()


_token = _Token()


class CallMonitor(LoopMonitor):
    """Watches the calls of one line that train; several threads may make them at once."""

    by_calls = True

    def __init__(self, name: str, out: Path | None, device: Device, fed: str) -> None:
        """Begin.

        Args:
            name: of the loop, for a reader.
            out: the folder in which the session's own folder is made; None keeps no file.
            device: that it trains on.
            fed: what the input wait is where a call is handed its batch, for a reader.
        """
        super().__init__(name, device, out, waits_for_device=True)
        self.record.course = None  # its batches are of no data that is passed over
        self.how_fed = fed
        self._under_way: dict[int, tuple[int, int, object]] = {}
        """Of each thread: when its step began, how long that has waited so far, in ns, and the thread's token."""
        self._ended_ns: dict[int, int] = {}
        self._feeds = False
        self._wait_lines = WaitLines()
        self.beside_ns = 0
        """How long it did something else between two steps, as a validation."""
        self.predictions = self.predicted_ns = 0
        """How many calls of `predict` it made, and how long these took."""

    def begin(self, at_ns: int, feeds: bool) -> None:
        """Begin a step of this thread; the one before ends by that, and an ended thread's where its last call did."""
        thread = threading.get_ident()
        if thread in self._under_way and self._under_way[thread][2] is not _token.of_thread:
            self.leave()
        self._wait_lines.end(thread, counts=True)
        self._receive(at_ns, thread)
        self._under_way[thread] = at_ns, 0, _token.of_thread
        self._feeds |= feeds

    def ran(self, wait_ns: int) -> None:
        """Take in that a call of this thread's step has ended, and for how long that waited for its input."""
        thread = threading.get_ident()
        if thread in self._under_way:
            at_ns, before_ns, token = self._under_way[thread]
            self._under_way[thread] = at_ns, before_ns + wait_ns, token
            self._ended_ns[thread] = time.monotonic_ns()
            self._wait_lines.begin(thread)

    def poll(self) -> None:
        """See `LoopMonitor`; also note where the threads are that make a batch."""
        self._wait_lines.sample()
        super().poll()

    def computing(self) -> AbstractContextManager[None]:
        """Return a context in which this thread makes no batch: a model computes, and where it stands is no cause."""
        return self._wait_lines.paused(threading.get_ident())

    def leave(self, whole: bool = True) -> None:
        """End this thread's step where its last call ended; one that is not `whole` does not count."""
        thread = threading.get_ident()
        self._wait_lines.end(thread, counts=False)
        if whole:
            self._receive(self._ended_ns.get(thread, 0), thread)
        self._under_way.pop(thread, None)

    def close(self, reason: str | None = None) -> SavedJob:
        """End, and keep the session; see `LoopMonitor`."""
        for thread in list(self._under_way):
            self._receive(self._ended_ns.get(thread, 0), thread)
        self.read(settled=True)
        if self._feeds:
            self.record.remarks += (self.how_fed, *self._wait_lines.remarks())
        steps_ns = self.record.log.totals.time_ns
        self.record.remarks += _besides(self.beside_ns, steps_ns)
        if 2 * self.predictions >= self._steps.begun:  # in the steps, and not in a validation now and then
            self.record.remarks += _of_predict(self.predictions, self.predicted_ns, steps_ns)
        return super().close(reason)

    def _receive(self, end_ns: int, thread: int) -> None:
        """Bring a thread's step, which ended then, into the record."""
        if (step := self._under_way.get(thread)) is not None:
            at_ns, wait_ns, _ = step
            self._steps.took(at_ns, end_ns, wait_ns, thread)


def _besides(beside_ns: int, steps_ns: int) -> tuple[str, ...]:
    """Return how long the loop did something else, where that is worth a word."""
    share = beside_ns / (beside_ns + steps_ns) if beside_ns else 0.0
    if share < _WORTH:
        return ()
    took = f"{units.seconds(beside_ns / 1e9)} between its steps, {units.share(share)} of the loop,"
    return (f"{took} went to calls that train nothing, of a validation or of a policy that acts, and are in no figure",)


def _of_predict(calls: int, took_ns: int, steps_ns: int) -> tuple[str, ...]:
    """Return what else does what the calls of `predict` in a loop's steps do, where these take much of its time."""
    if not took_ns or took_ns < _WORTH_OF_PREDICT * steps_ns:
        return ()
    took = f"{units.milliseconds(took_ns / calls / 1e6)} each, {units.seconds(took_ns / 1e9)} in all"
    return (
        f"{calls} calls of predict took {took}: each sets up an input pipeline of its own; for what fits in one batch, "
        "predict_on_batch, or a call of the model in a tf.function, does not",
    )


def _learns(model: Any) -> bool:
    """Return whether a model has weights to train; Keras 2 refuses to say of one that was not called yet."""
    try:
        return bool(model.trainable_weights)
    except Exception as error:
        if interrupts.raised_by_handler(error):
            raise
        return False


class _Thread(threading.local):
    """Where a thread's loop is."""

    def __init__(self) -> None:
        self.free_ns: int | None = None
        """When its last call ended, and its device had nothing to do."""
        self.computed_ns = 0
        """For how long since then a model computed, and trained nothing."""
        self.left_ns: int | None = None
        """When a step had ended before `Session.run` did what is no part of one, until it trains again."""
        self.ran: set[Hashable] = set()
        """Lines that trained since the loop's own did."""
        self.monitor: CallMonitor | None = None
        self.line: Hashable | None = None
        self.between: set[Any] = set()
        """What trains nothing and was called since the last call that trains."""
        self.others: set[Any] = set()
        """The same, since the loop's own line trained."""
        self.recent: deque[set[Any]] = deque(maxlen=_RECENT)
        """The same, of each of the iterations before."""
        self.other: Any = None
        """The last of these."""
        self.repeats = self.repeats_here = self.repeated = False
        """Whether such a call came again since then; whether one did in this iteration of the loop, and in the last."""
        self.tapes = 0
        """How many GradientTapes of eager code it is in."""
        self.by_tape = False
        """Whether a GradientTape of eager code began its last call."""
        self.taped: set[Hashable] = set()
        """Lines whose GradientTape a gradient, or a variable that changes, has followed."""
        self.tape: tuple[Hashable, int, int] | None = None
        """Of a tape that none has followed yet, of no such line: its line, when it began, `computed_ns` by then."""


class TimedCalls:
    """Finds which calls train, and in which loop."""

    def __init__(
        self,
        line: Callable[[], Hashable | None],
        watch: Callable[[Any, Callable[[str], CallMonitor]], Any],
        problem: Callable[[Exception], None],
        out: Path | None,
    ) -> None:
        """Make one.

        Args:
            line: gives the line of the program that is being run; None where it is not known.
            watch: given what `line` gave and what begins a monitor, returns the line's monitor; None where the line is
                to be left alone.
            problem: called with what goes wrong in here; the program goes on as without it.
            out: the folder in which each session's own folder is made; None keeps no file.
        """
        self._line = line
        self._watch = watch
        self._problem = problem
        self._out = out
        self._thread = _Thread()

    def leave(self) -> None:
        """End this thread's step: what comes now is no part of its loop."""
        if self._thread.monitor is not None:
            self._thread.monitor.leave()
        self._thread.free_ns = None

    def _enter(self, at_ns: int, feeds: bool, monitor: Callable[[str], CallMonitor]) -> bool:
        """Begin a step of the loop where its own line trains: the first of an iteration's that comes again.

        Args:
            at_ns: when the step began.
            feeds: whether the call is handed a batch.
            monitor: begins what watches a line.

        Returns:
            Whether it is known which line of the program trains.
        """
        thread = self._thread
        where = self._line() if thread.tape is None else thread.tape[0]
        if where is None:
            return False
        if where != thread.line:
            if where not in thread.ran:  # of the same iteration, or the first one of another loop
                thread.ran.add(where)
                return True
            if thread.monitor is not None:
                thread.monitor.leave(whole=False)
            thread.line = where
            thread.monitor = self._watch(where, monitor)
        thread.ran.clear()
        thread.repeated, thread.repeats_here = thread.repeats_here, False
        thread.recent.append(thread.others)
        thread.others = set()
        if thread.monitor is not None:
            thread.monitor.begin(at_ns, feeds)
        return True

    def computes(self, call: Callable[[], Any]) -> Any:
        """Make a call in which a model computes and trains nothing: that is no wait for a batch."""
        thread = self._thread
        if thread.monitor is None:
            return call()
        began_ns = time.monotonic_ns()
        try:
            with thread.monitor.computing():
                return call()
        finally:
            thread.computed_ns += time.monotonic_ns() - began_ns

    def _timed(self, before_ns: int, call: Callable[[], tuple[Any, float]]) -> Any:
        """Make a call that trains, and return what it gives.

        Args:
            before_ns: how long its batch was waited for before it.
            call: makes it; returns what it gives, and for how many seconds it waited for its batch.
        """
        thread = self._thread
        try:
            given, waited_s = call()
        except BaseException:
            thread.free_ns = None
            if thread.monitor is not None:
                thread.monitor.leave(whole=False)
            raise
        self._ran(before_ns + int(waited_s * 1e9))
        return given

    def _ran(self, wait_ns: int) -> None:
        """Take in that what trains has ended, or a part of it, and how long it waited for its batch."""
        self._thread.free_ns, self._thread.computed_ns = time.monotonic_ns(), 0
        if self._thread.monitor is not None:
            self._thread.monitor.ran(wait_ns)


class TrainingCalls(TimedCalls):
    """Stands between a program and Keras' `train_on_batch`, a `tf.function` that trains, and a tape in eager code."""

    def on_batch(self, name: str, framework: str, plain: Callable[[], Any]) -> Any:
        """Make a call that trains on a batch it is handed.

        Args:
            name: of what is called.
            framework: what it runs on, as `device_of` takes it.
            plain: makes the call.
        """
        if self._thread.tapes:  # a part of a step in eager code, such as a penalty with a gradient of its own
            given = plain()
            self.goes_on()
            return given
        self._thread.by_tape, self._thread.tape = False, None
        wait_ns = self._begin(f"calls of {name}", framework)
        return plain() if wait_ns is None else self._timed(wait_ns, lambda: (plain(), 0.0))

    def enter_tape(self) -> None:
        """Begin a step of eager code, or a part of it, by its outermost tape; of a new line once a gradient follows."""
        thread = self._thread
        if not thread.tapes:
            where = self._line()
            thread.by_tape, thread.tape = False, (where, time.monotonic_ns(), thread.computed_ns)
            if where in thread.taped:
                self.goes_on()
            elif where is not None:  # it may be a validation, which takes none
                self.other(where)
        thread.tapes += 1

    def leave_tape(self) -> None:
        """Take in that a GradientTape of eager code is left."""
        thread = self._thread
        if thread.tape is not None and thread.tapes == 1:
            thread.computed_ns += time.monotonic_ns() - thread.tape[1]
        elif not thread.tapes:  # it was not entered here
            thread.tape = None
        thread.tapes = max(0, thread.tapes - 1)
        self.goes_on(trains=False)

    def goes_on(self, trains: bool = True) -> None:
        """Take in that a part of a step of eager code has ended: what trains is a gradient, or a changed variable."""
        thread = self._thread
        if trains and thread.tape is not None:
            line, _, thread.computed_ns = thread.tape
            thread.taped.add(line)
            wait_ns = self._begin("steps, from the end of one to the GradientTape of the next", "tensorflow")
            thread.by_tape, thread.tape = wait_ns is not None, None
            if wait_ns is not None:
                self._ran(wait_ns)
                if thread.monitor is not None:
                    thread.monitor.see_eager_step(in_function=False)
        elif thread.by_tape and thread.free_ns is not None:
            self._ran(0)

    def _begin(self, name: str, framework: str) -> int | None:
        """Begin to train on a batch; return for how long that was waited for, None where its line is not known."""
        thread, known = self._thread, False
        free_ns = asked_ns = time.monotonic_ns() if thread.tape is None else thread.tape[1]
        try:
            if thread.repeats and not thread.repeated:
                if thread.monitor is not None and thread.free_ns is not None:
                    thread.monitor.beside_ns += asked_ns - thread.free_ns
                self.leave()
            thread.repeats, thread.repeats_here = False, thread.repeats_here or thread.repeats
            thread.between.clear()
            # The device was busy while a model computed, such as a GAN's pictures: the step before ends later by that.
            free_ns = asked_ns if thread.free_ns is None else thread.free_ns + thread.computed_ns
            fed = _FED.format(name=name)
            known = self._enter(free_ns, True, lambda at: CallMonitor(at, self._out, device_of(framework), fed))
        except Exception as error:
            self._problem(error)
        return asked_ns - free_ns if known else None

    def other(self, what: Any) -> None:
        """Take in a call that trains nothing.

        Where it comes again before the loop trains, the step has ended: called once a step it may be part of making the
        batch, and a validation calls it for each of its own, or is one call of `evaluate`. Where that is so in every
        step, a policy acts, and makes what the loop trains on, or each step is evaluated.
        """
        thread = self._thread
        if not thread.tapes:
            thread.repeats |= what in thread.between or what == EVALUATION
            thread.between.add(what)
        thread.other = what

    def computes(self, call: Callable[[], Any], model: Any = None) -> Any:
        """Make a call in which a model computes and trains nothing: that is no wait for a batch.

        Args:
            call: makes it.
            model: is called, where it may learn nothing, as one that augments a batch, which is a part of making that.
        """
        thread = self._thread
        if thread.monitor is None or thread.tapes or not (model is None or _learns(model)):
            return call()
        before_ns, monitor = thread.computed_ns, thread.monitor
        given = super().computes(call)
        if thread.other == _PREDICT and thread.monitor is monitor:
            monitor.predictions += 1
            monitor.predicted_ns += thread.computed_ns - before_ns
        return given
