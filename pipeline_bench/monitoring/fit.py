"""How a call of `fit` spends its time: its epochs, validations and callbacks, and the waits for its batches."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.model.job import Epoch, WallTime
from pipeline_bench.monitoring import collectives, strategies
from pipeline_bench.monitoring.epochs import KeptEpochs, memory_bytes
from pipeline_bench.monitoring.steps import NO_WAIT_NS, Totals

if TYPE_CHECKING:
    from pipeline_bench.monitoring.ring import RingRows


_Integers = npt.NDArray[np.int64]


class Course:
    """Begins with the training.

    Attributes:
        before_s: how long the process had run before; None where that is not reported.
        initial_epoch: the number of the first epoch, from 0; None before that is known.
        queue_of_keras_2: see `WallTime.queue_of_keras_2`.
    """

    def __init__(self, steps_a_call: int | None = None) -> None:
        """Begin; see `WallTime.steps_a_call`."""
        self.before_s: float | None = None
        self.initial_epoch: int | None = None
        self.queue_of_keras_2 = False
        self._steps_a_call = steps_a_call
        self._begin_ns = monotonic_ns()
        self._epochs = KeptEpochs()
        self._spent: dict[str, int] = {}
        self._epoch_ns = self._test_ns = self._end_ns = self._begun_by_ns = 0
        self._stepped = False

    def begin_epoch(self, iterator_end_ns: int = 0) -> None:
        """Take in that an epoch begins.

        Args:
            iterator_end_ns: for how long the iterator of the epoch before was waited for just before: this is a part
                of the epoch, as it is where Keras waits for it later. So are the callbacks that began it.
        """
        self._begun_by_ns = self._spent.get("callbacks_ns", 0)
        self._epoch_ns, self._spent = monotonic_ns() - iterator_end_ns - self._begun_by_ns, {}
        if self._begun_by_ns:
            self.spend("callbacks_ns", self._begun_by_ns)
        if iterator_end_ns:
            self.spend("iterator_end_ns", iterator_end_ns)

    def begin_validation(self) -> None:
        """Take in that an evaluation begins."""
        self._test_ns = monotonic_ns()

    def end_validation(self) -> None:
        """Take in that it has ended."""
        if self._test_ns:
            self.spend("validation_ns", monotonic_ns() - self._test_ns)
            self._test_ns = 0

    def spend(self, part: str, spent_ns: int) -> None:
        """Take in that a part of the epoch, by the name of its field, took so long."""
        self._spent[part] = self._spent.get(part, 0) + spent_ns

    def first_step(self, end_ns: int, wait_ns: int) -> None:
        """Take in the first step of an epoch, or the call of several, and how long its first batch was waited for.

        The wait is below 0 where it was not measured.
        """
        if wait_ns >= 0:
            self.spend("first_wait_ns", wait_ns)
        if not self._stepped:
            self._stepped = True
            self.spend("first_step_ns", end_ns - self._epoch_ns - self._begun_by_ns)

    def end_epoch(self, totals: Totals, iterator_end_ns: int = 0) -> None:
        """Take in that the epoch has ended, or the training within it.

        Args:
            totals: of its steps, the training's first one left out.
            iterator_end_ns: for how long iterators were waited for since its first step: also within its other parts,
                as in a callback that evaluates. Of those it stays a part.
        """
        if not self._epoch_ns:
            return
        self.end_validation()
        if not self._stepped and not totals.steps:  # ended within its first step, as by Ctrl-C while that waited
            self.spend("first_step_ns", monotonic_ns() - self._epoch_ns - sum(self._spent.values()))
        known = ("first_step_ns", "iterator_end_ns", "validation_ns", "callbacks_ns")
        known_ns = totals.time_ns + sum(self._spent.get(part, 0) for part in known)
        rest_ns = max(0, monotonic_ns() - self._epoch_ns - known_ns)
        self.spend("iterator_end_ns", min(iterator_end_ns, rest_ns))
        wait_ns = totals.wait_ns if totals.waits == totals.steps else None
        steps = {"steps": totals.steps, "steps_ns": totals.time_ns, "wait_ns": wait_ns}
        ended = {"end_ns": monotonic_ns(), "memory_bytes": memory_bytes()}
        self._epochs.add(Epoch.model_validate({"begin_ns": self._epoch_ns, **ended, **steps, **self._spent}))
        self._epoch_ns, self._spent = 0, {}

    def end(self, totals: Totals) -> None:
        """Take in that the training has ended, within an epoch that has these totals or after the last one."""
        self.end_epoch(totals)
        self._end_ns = monotonic_ns()

    def so_far(self, totals: Totals, first: tuple[int, int] | None) -> Course:
        """Return the course as if the training ended now; from another thread, while it goes on.

        Args:
            totals: of the steps of the epoch that runs.
            first: when the epoch's first step ended and how long it waited, if `first_step` was not called yet.
        """
        other = copy.copy(self)
        other._epochs, other._spent = self._epochs.copy(), dict(self._spent)
        if first is not None:
            other.first_step(*first)
        other.end(totals)
        return other

    def wall_time(self) -> WallTime:
        """Return what is known now."""
        return WallTime(
            before_s=self.before_s,
            initial_epoch=self.initial_epoch or 0,
            begin_ns=self._begin_ns,
            end_ns=self._end_ns or monotonic_ns(),
            epochs=self._epochs.all,
            last_callbacks_ns=self._spent.get("callbacks_ns", 0),
            steps_a_call=self._steps_a_call,
            queue_of_keras_2=self.queue_of_keras_2,
        )


class PlainTiming:
    """What times the Python iterators that Keras hands on where its backend is JAX."""

    ends_of_data: tuple[type[BaseException], ...] = (StopIteration,)

    def __init__(self) -> None:
        self._iterator: Any = None
        self._timed: Any = None
        self.eager_wait_ns = NO_WAIT_NS
        """Of the batches that Python took in the last call."""
        self.eager_batches = 0
        """How many these were; 0 where that is not known."""

    def asked(self, now_ns: int) -> int:
        """Return when the batch of the step that begins now was asked for: now, as the step itself takes it."""
        return now_ns

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a training function, whose last argument is an iterator; keep how long it waited."""
        self.eager_wait_ns, self.eager_batches = NO_WAIT_NS, 0
        return function(*arguments[:-1], *map(self.timed, arguments[-1:]), **named)

    def took(self, wait_ns: int) -> None:
        """Take in a batch that Python waited for."""
        self.eager_wait_ns = max(0, self.eager_wait_ns) + wait_ns
        self.eager_batches += 1

    def timed(self, iterator: Any) -> Any:
        """Return the iterator, timed; as it is where it is none."""
        if iterator is not self._iterator:
            self._iterator, self._timed = iterator, self._made(iterator)
        return self._timed

    def _made(self, iterator: Any) -> Any:
        return _TimedIterator(iterator, self) if hasattr(iterator, "__next__") else iterator

    def forget(self) -> None:
        """Release the last iterator and its buffers."""
        self._iterator = self._timed = None

    def ends_ns(self) -> int:
        """Return how long this thread has waited since the last call until iterators had ended, in ns."""
        return 0

    def read(self) -> RingRows | None:
        """Return None: every batch is taken in Python."""
        return None

    def read_ends(self) -> npt.NDArray[np.int64]:
        """Return nothing, for the same reason."""
        return np.empty(0, np.int64)

    def peek(self, count: int) -> npt.NDArray[np.int64] | None:
        """Return None, for the same reason."""
        return None


class _TimedIterator:
    """Hands on an iterator's batches, and how long each was waited for."""

    def __init__(self, iterator: Any, timing: PlainTiming) -> None:
        self._iterator = iterator
        self._timing = timing

    def __iter__(self) -> _TimedIterator:
        return self

    def __next__(self) -> Any:
        start_ns = monotonic_ns()
        batch = next(self._iterator)
        self._timing.took(monotonic_ns() - start_ns)
        return batch


class BatchTiming(PlainTiming):
    """What times the batches that Keras takes before each step, where its backend is PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        _time_epochs()

    def asked(self, now_ns: int) -> int:
        """Return when the batch of the step that begins now was asked for."""
        return now_ns if _taken.wait_ns < 0 else _taken.asked_ns

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a training function, which is given its batch."""
        self.eager_wait_ns, _taken.wait_ns = _taken.wait_ns, NO_WAIT_NS
        return function(*arguments, **named)


class _Taken(threading.local):
    """The batch that this thread has taken last: when it was asked for, and how long it was waited for."""

    asked_ns = 0
    wait_ns = NO_WAIT_NS


_taken = _Taken()


@functools.cache
def _time_epochs() -> None:
    """Time the batches of Keras' epochs, whoever asks for them, from now on."""
    from keras.src.trainers.epoch_iterator import EpochIterator

    plain = EpochIterator.__next__

    @functools.wraps(plain)
    def __next__(self: Any) -> Any:  # noqa: N807 - it stands in the place of that method
        asked_ns = monotonic_ns()
        batch = plain(self)
        _taken.asked_ns, _taken.wait_ns = asked_ns, monotonic_ns() - asked_ns
        return batch

    EpochIterator.__next__ = __next__


class GraphTiming(PlainTiming):
    """The same of TensorFlow's iterators, in graphs too.

    Kept from one `fit` to the next: a new one would have the model traced anew.
    """

    def __init__(self) -> None:
        import tensorflow as tf
        from tensorflow.python.distribute import cross_device_utils, input_lib

        from pipeline_bench.monitoring import iterator_ends, probe
        from pipeline_bench.monitoring.ring import Ring

        super().__init__()
        self._distributed = False
        self._of_strategies = input_lib.DistributedIteratorBase
        strategies.patch(input_lib)
        collectives.patch(cross_device_utils)
        self.ends_of_data = (StopIteration, tf.errors.OutOfRangeError)
        self.ring, self._ends = Ring(), Ring()
        self._probe = probe.Probe(self._receive, self.ring, self._ends)
        iterator_ends.time_ends()
        own = iterator_ends.UNTIMED, self._probe.number  # Keras', and the same one timed
        self.ends_ns = functools.partial(iterator_ends.ends_ns, *own)  # type: ignore[method-assign]
        self._class = probe.ProbedIterator

    def _receive(self, at_ns: int, wait_ns: int, iterator: int = 0) -> None:
        if wait_ns >= 0:
            self.took(wait_ns)

    def _made(self, iterator: Any) -> Any:
        self._distributed = isinstance(iterator, self._of_strategies)
        if type(iterator) is not self._class.__base__:
            return iterator
        resource, spec = iterator._iterator_resource, iterator.element_spec
        return self._class(components=(resource,), element_spec=spec, number=self._probe.number)

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a training function, whose last argument is an iterator; keep how long it waited."""
        for iterator in arguments[-1:]:
            self.timed(iterator)
        if not self._distributed:
            return super().call(function, arguments, named)
        with strategies.stepping(self._probe):
            return super().call(function, arguments, named)

    def read(self) -> RingRows | None:
        """Return what graphs have measured since the last call."""
        return self.ring.read()

    def read_ends(self) -> npt.NDArray[np.int64]:
        """Return when steps ended since the last call that take the next batch meanwhile, in ns, oldest first."""
        return self._ends.read().at_ns

    def peek(self, count: int) -> npt.NDArray[np.int64] | None:
        """Return the waits of the first `count` calls that `read` would return, in ns; None where there are fewer."""
        return self.ring.peek(count)


def of_calls(rows: RingRows, ends_ns: _Integers, starts: _Integers) -> tuple[_Integers, _Integers]:
    """Return how long each call was blocked for its batches, in ns, and how many it took: two arrays of int64, [calls].

    Keras takes the next batch of a call while the step before it computes: blocked is what is left of that when the
    step has ended. A call without a row, as where the wall clock was set, has `NO_WAIT_NS` and 0.

    Args:
        rows: of the batches, and of asking where there was none.
        ends_ns: when steps ended that the next batch was taken beside, in their order.
        starts: when each call began.
    """
    calls, of_ends = (np.maximum(np.searchsorted(starts, at, side="right") - 1, 0) for at in (rows.at_ns, ends_ns))
    place = np.arange(len(calls)) - np.searchsorted(calls, calls)
    step = np.searchsorted(of_ends, calls) + place - 1  # the one before, in the same call
    beside = np.flatnonzero((place > 0) & (step < np.searchsorted(of_ends, calls, side="right")))
    asked_ns = rows.at_ns.copy()
    asked_ns[beside] = np.maximum(asked_ns[beside], ends_ns[step[beside]])
    blocked_ns = np.maximum(rows.at_ns + rows.wait_ns - asked_ns, 0)
    there = rows.wait_ns >= 0
    taken = np.bincount(calls[there], minlength=len(starts))
    waits = np.bincount(calls[there], blocked_ns[there], len(starts)).astype(np.int64)
    return np.where(taken > 0, waits, NO_WAIT_NS), taken
