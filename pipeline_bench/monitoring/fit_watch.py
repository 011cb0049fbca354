"""Watches one call of Keras' `fit`, in the place of the model's training function (`pipeline_bench.keras`)."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench import user_code
from pipeline_bench.monitoring.fit import BatchTiming, Course, GraphTiming, PlainTiming, of_calls
from pipeline_bench.monitoring.record import JobRecord, SavedJob
from pipeline_bench.monitoring.sampling import device_of
from pipeline_bench.monitoring.steps import NO_WAIT_NS, StepLog, Totals
from pipeline_bench.monitoring.summary import JobSummary
from pipeline_bench.system import interrupts
from pipeline_bench.system.forks import ForkedLock
from pipeline_bench.user_code import legacy_keras

_ASYNCHRONOUS = (
    "Keras on JAX hands a step over and does not wait for it: while the next batch is waited for, the device may still "
    "be at work, so that it is idle for at most that long."
)
_Integers = npt.NDArray[np.int64]
_NOT_TIMED = "the model's training function takes its batches in a way that is not known here"
_BLOCK = 4096
"""Steps whose waits are read at once; the ring holds four times as many."""
_READ_EVERY_NS = 10**9
"""Where a call takes several steps, what is shown and kept of a training that runs is no older than that and a call."""
_TUNED_CALLS = 16
"""Calls whose waits are read at once where Keras changes how many steps each takes, of a thousand steps at most."""

_timings: weakref.WeakKeyDictionary[Any, GraphTiming] = weakref.WeakKeyDictionary()
"""Of each model one, for all who watch it: its training function is traced with that."""


def timing_of(model: Any) -> PlainTiming:
    """Return what times the batches of a model's steps, by the backend of its Keras."""
    backend = legacy_keras.backend_of(model)
    if backend != "tensorflow":
        return BatchTiming() if backend == "torch" else PlainTiming()
    if model not in _timings:
        _timings[model] = GraphTiming()
    return _timings[model]


class _StandIn(functools.partial[Any]):
    """A training function with a watch in its place; it has the function's attributes, as a graph that is written."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.args[0], name)


def _watches(function: Any) -> Iterator[FitWatch]:
    """Yield the watches that stand in the place of a training function, the outermost first."""
    while isinstance(watch := getattr(getattr(function, "func", None), "__self__", None), FitWatch):
        yield watch
        function = function.args[0]


class FitWatch:
    """One call of `fit`: stands in the place of the model's training function, and keeps what it sees.

    Attributes:
        record: of the training.
        course: of the training.
        finalizer: ends the watching where nobody else does; it holds the watch, and so the model, until it is over.
    """

    def __init__(self, model: Any, params: dict[str, Any], name: str, out: Path | None, timing: PlainTiming) -> None:
        # On TensorFlow, Keras 3 reads each step's losses for its callbacks, and so waits for the step. Keras 2 leaves
        # them on the device unless a callback asks.
        backend = legacy_keras.backend_of(model)
        self._pid = os.getpid()
        self._in_epochs = self._paused = False
        # A callback of a training may train the same model: these steps are this training's alone.
        self._around = [each for each in _watches(model.train_function) if each._in_epochs]
        for watch in self._around:
            watch.pause()
        self._see_size(model)
        timing.read()  # what is left of a training before
        # Of several steps a call, it waits for the last one.
        waits = None if legacy_keras.is_model(model) else {"tensorflow": True, "jax": False}.get(backend)
        if backend == "tensorflow" and self._takes_several:
            waits = None
        self.record = JobRecord(name, device_of(backend), out, waits_for_device=waits)
        if backend == "jax":
            self.record.notes.append(_ASYNCHRONOUS)
        elif backend == "tensorflow":
            self.record.eager = user_code.runs_eagerly(model)
        self._timing = timing
        self._model = weakref.ref(model)
        self._original: Any = None
        self.finalizer: weakref.finalize[..., Any] | None = None
        self._finished: SavedJob | None = None
        self._over = self._in_step = False
        self._lock = ForkedLock()
        self._steps_an_epoch: int | None = params.get("steps")
        self._calls = 0
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._waits: list[int] = []
        self._batches: list[int] = []
        """Of each call, as far as Python has taken them; 0 where it has not."""
        self._before = Totals()
        self._first = False
        """Whether the next step is the first one of its epoch."""
        self._queues = legacy_keras.queues()
        """That Keras 2 had begun before this `fit`."""
        self._epoch_ended = False
        """Whether an epoch of this `fit` has ended."""
        self.course = self.record.course = Course(legacy_keras.steps_a_graph_call(model))
        self._epoch_ns = self._read_ns = monotonic_ns()
        self._ends_of_data = timing.ends_of_data
        self.record.so_far = self.so_far
        self._stand_in()
        if self._original is None:
            self.record.reason = "the model has no training function"

    def _stand_in(self) -> None:
        """Stand in the place of the model's training function, also of one that a callback has made anew."""
        model = self._model()
        function = None if model is None else model.train_function
        if model is None or function is None or self in _watches(function):
            return
        self._original = function
        self._see_size(model)
        model.train_function = _StandIn(self._step, function)

    def _see_size(self, model: Any) -> None:
        """Take in how many steps each call takes, as the model is compiled."""
        is_tuned = legacy_keras.is_tuned(model)
        self._steps_a_call = legacy_keras.steps_a_call(model)
        self._takes_several = is_tuned or self._steps_a_call > 1
        self._most_calls = _TUNED_CALLS if is_tuned else -(-_BLOCK // self._steps_a_call)

    def pause(self) -> None:
        """Take in that another training of the model begins, within a callback of this one."""
        self.flush()
        self._paused = True

    def begin_epoch(self, number: int) -> None:
        """Take in that an epoch begins, and which one it is, from 0, as Keras has it."""
        if self.course.initial_epoch is None:
            self.course.initial_epoch = number
        self._in_epochs, self._paused = True, False
        self.flush()
        self._stand_in()
        self._calls, self._first = 0, True
        # Keras 2 makes the iterator of the next epoch before that begins, and lets go of the one before; Keras 3 after.
        ended_ns = self._timing.ends_ns()
        self.course.begin_epoch(ended_ns if self._epoch_ended else 0)
        self._before, self._epoch_ns = self.record.log.totals, monotonic_ns()

    def end_epoch(self) -> None:
        """Take in that an epoch has ended."""
        self.flush()
        self._timing.forget()  # Keras lets go of its iterator now, where it makes another one for the next epoch
        self.course.queue_of_keras_2 = legacy_keras.queues() > self._queues
        # Keras 2 lets go of a validation's iterator after that has ended.
        self.course.end_epoch(self.record.log.totals.since(self._before), self._timing.ends_ns())
        self._epoch_ended = True

    def epoch_summary(self) -> JobSummary:
        """Return the figures of the epoch that has ended."""
        return self.record.summary(self._before, self._epoch_ns)

    def _step(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """Take a step, or several at once: what Keras calls in place of a training function of the model."""
        # Within a step: the program has put a function around this one, which is watched instead.
        if self._over or self._paused or self._in_step:
            return function(*arguments, **named)
        self._in_step = True
        try:
            return self._watched_step(function, arguments, named)
        finally:
            self._in_step = False

    def _watched_step(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        is_old = self._takes_several and monotonic_ns() - self._read_ns >= _READ_EVERY_NS
        if is_old or len(self._starts) >= self._most_calls:
            self.flush(more=True)
        timing = self._timing
        if not self._calls:
            ended_ns = timing.ends_ns()  # before the training's very first step it is of that
            self.course.spend("iterator_end_ns", ended_ns if self._epoch_ended else 0)
        start_ns = timing.asked(monotonic_ns())
        try:
            result = timing.call(function, arguments, named)
        except self._ends_of_data:  # the step before this one ended as this one began
            if self._ends:
                self._ends[-1] = start_ns
            self.flush()
            raise
        except BaseException as error:
            self.finish_quietly(f"the training was ended by {type(error).__name__}")
            raise
        self._starts.append(start_ns)
        self._ends.append(monotonic_ns())
        self._batches.append(timing.eager_batches)
        self._waits.append(timing.eager_wait_ns)
        self._calls += 1
        return result

    def so_far(self) -> tuple[StepLog, Course]:
        """Return the steps so far, with those that wait for the log, and the course; from another thread."""
        log, first = self.record.log.copy(), None
        if not self._takes_several and self._lock.acquire(blocking=False):  # else they are on their way there
            try:
                log = self.record.log.copy()
                count = len(self._waits)  # what a step appends last
                if count:
                    starts = np.array(self._starts[:count], dtype=np.int64)
                    ends = np.append(starts[1:], self._ends[count - 1])
                    waits = np.minimum(self._waits_so_far(count), ends - starts)
                    log.extend(starts, ends, waits)
                    first = (int(ends[0]), int(waits[0])) if self._first else None
            finally:
                self._lock.release()
        return log, self.course.so_far(log.totals.since(self._before), first)

    def _waits_so_far(self, count: int) -> npt.NDArray[np.int64]:
        """Return the waits of the first `count` calls in ns, without taking them; none is known where some is not."""
        eager = np.array(self._waits[:count], dtype=np.int64)
        if (eager >= 0).all():
            return eager
        rows = self._timing.peek(count)
        return eager if rows is None else rows

    def flush(self, more: bool = False) -> None:
        """Bring the steps so far into the log.

        Args:
            more: whether another step follows at once, so that the last one ends as that begins.
        """
        with self._lock:
            count = len(self._starts)
            starts = np.array(self._starts, dtype=np.int64)
            waits, batches, first_ns = self._read(starts)
            self._read_ns = monotonic_ns()
            if not count:
                return
            ends = np.append(starts[1:], monotonic_ns() if more else self._ends[-1])
            sizes = self._usual_sizes(count, more)
            if self._takes_several:  # else a step may take several batches
                sizes = np.where(batches > 0, batches, sizes)
            self._starts, self._ends, self._waits, self._batches = [], [], [], []
            # Waits are of another clock, and a microsecond too long beside a step that is nothing but waiting.
            waits = np.where(waits < 0, waits, np.minimum(waits, ends - starts))
            if self._first:
                self._first = False
                self.course.first_step(int(ends[0]), min(first_ns, int(ends[0] - starts[0])))
            self.record.log.extend(starts, ends, waits, sizes)

    def _usual_sizes(self, count: int, more: bool) -> _Integers:
        """Return how many steps each call should take: the last one of an epoch fewer where that is no multiple."""
        size = self._steps_a_call
        sizes = np.full(count, size, dtype=np.int64)
        if not more and self._steps_an_epoch and self._calls * size > self._steps_an_epoch:
            sizes[-1] = max(1, self._steps_an_epoch - (self._calls - 1) * size)
        return sizes

    def _read(self, starts: _Integers) -> tuple[_Integers, _Integers, int]:
        """Return of the calls that began then how long each waited, how many batches it took, and the very first wait.

        Waits are in ns, the last one is of the first batch of the first call. None is known where they cannot be
        distinguished, and no number (0) where no batch was seen.
        """
        count = len(starts)
        waits, batches = np.array(self._waits, dtype=np.int64), np.array(self._batches, dtype=np.int64)
        try:
            rows, ends_ns = self._timing.read(), self._timing.read_ends()
        except Exception as error:  # TensorFlow may be gone: the program ends
            self.record.reason = f"what was measured could not be read: {type(error).__name__}"
            return waits, batches, NO_WAIT_NS
        if not count:
            return waits, batches, NO_WAIT_NS
        if (waits >= 0).all():  # of all that a call took, Python keeps the sum
            return waits, batches, int(waits[0]) // max(1, int(batches[0]))
        found = 0 if rows is None or rows.lost else len(rows.wait_ns)
        if rows is None or found < count:
            self.record.reason = _NOT_TIMED
            return np.full(count, NO_WAIT_NS, dtype=np.int64), batches, NO_WAIT_NS
        # A call that found no data, or that raised, may have left one more.
        if not self._takes_several and found <= count + 1:
            waits = np.maximum(rows.wait_ns[:count], 0)
            return waits, batches, int(waits[0])
        waits, taken = of_calls(rows, ends_ns, starts)
        return waits, taken, int(rows.wait_ns[rows.wait_ns >= 0][0]) if taken[0] else NO_WAIT_NS

    def finish(self, reason: str | None) -> SavedJob:
        """Restore the model's own function, and keep the session; a second call returns the first one's."""
        with self._lock:
            if self._finished is not None:
                return self._finished
            self._let_go()
            self.flush()
            self.course.end(self.record.log.totals.since(self._before))
            self._finished = self.record.finish(reason)
            self._forget()
            return self._finished

    def finish_quietly(self, reason: str | None) -> None:
        """Do the same where nobody is to hear of what goes wrong; nothing in a fork of the job."""
        if self._pid != os.getpid():
            return
        try:
            with interrupts.to_the_end():
                self.finish(reason)
        except Exception:
            self.record.drop()

    def abandon(self) -> None:
        """Restore the model's own function, and keep nothing."""
        self._let_go()
        self._forget()
        self.record.drop()

    def _forget(self) -> None:
        """Remove all references to this: what keeps the record for longer would keep the model with it."""
        so_far = self.record.log, self.course
        self.record.so_far = lambda: so_far
        if self.finalizer is not None:
            self.finalizer.detach()

    def _let_go(self) -> None:
        self._over = True
        for watch in self._around:
            watch._paused = False
        model = self._model()
        if model is not None and next(_watches(model.train_function), None) is self:
            model.train_function = self._original
        self._timing.forget()
