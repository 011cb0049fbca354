"""What stands in the place of a Keras model's training function while `fit` runs, and times its steps and their input.

Keras looks its training function up for each step, so a function in its place can hand on an iterator that is timed
(`probed`), and see when each step begins. Nothing else of the model is touched, nothing is added to the calls that
Keras makes a step, and the model's own function is back at the end.
"""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.model.session import Session
from pipeline_bench.monitoring.figures import JobSummary
from pipeline_bench.monitoring.monitor import this_device
from pipeline_bench.monitoring.record import JobRecord
from pipeline_bench.monitoring.ring import Ring
from pipeline_bench.monitoring.steps import NO_WAIT_NS, Totals

_BLOCK = 4096
"""Steps whose waits are read at once; the ring holds four times as many."""
_NOT_TENSORFLOW = "Keras runs on {backend}: the wait is measured of TensorFlow's training function only"
_DISTRIBUTED = "{strategy} distributes the input, and its iterator cannot be timed"
_NOT_TIMED = "the model's training function takes its batches in a way that is not known here"


class Timing:
    """What times a model's iterators. Kept from one `fit` to the next: a new one would have the model traced anew."""

    def __init__(self) -> None:
        from pipeline_bench.monitoring.probed import Probe, ProbedIterator

        self.ring = Ring()
        self.probe = Probe(self, self.ring, a_row_a_call=True)
        self._class = ProbedIterator
        self._iterator: Any = None
        self._timed: Any = None
        self.eager_wait_ns = NO_WAIT_NS
        """Of the batches that were taken in eager mode since it was set to `NO_WAIT_NS`."""
        self.ring.take()

    def asked(self, at_ns: int, wait_ns: int) -> None:
        """See `probed.Told`."""
        self.eager_wait_ns = max(0, self.eager_wait_ns) + wait_ns

    def ended(self, at_ns: int) -> None:
        """See `probed.Told`."""

    def left(self) -> None:
        """See `probed.Told`."""

    def timed(self, iterator: Any) -> Any:
        """The iterator, timed; as it is where it cannot be."""
        if iterator is self._iterator:
            return self._timed
        timed = iterator
        if type(iterator) is self._class.__base__:
            timed = self._class(
                components=(iterator._iterator_resource,),
                element_spec=iterator.element_spec,
                number=self.probe.number,
            )
        self._iterator, self._timed = iterator, timed
        return timed

    def forget(self) -> None:
        """Let go of the last iterator, and of its buffers."""
        self._iterator = self._timed = None


class Watch:
    """One call of `fit`: stands in the place of the model's training function, and keeps what it sees."""

    def __init__(self, model: Any, params: dict[str, Any], name: str, out: Path | None, timing: Timing | None) -> None:
        # Keras reads each step's losses for its callbacks, and so waits for the step.
        self.record = JobRecord(name, this_device(), waits_for_device=True)
        self.figures = self.record.summary()
        self._timing = timing
        self._out = out
        self._model = weakref.ref(model)
        self._original = model.train_function
        self._finished: tuple[Session, Path | None] | None = None
        self._lock = threading.RLock()
        self._steps_a_call = int(getattr(model, "steps_per_execution", 1) or 1)
        self._steps_an_epoch: int | None = params.get("steps")
        self._calls = 0
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._waits: list[int] = []
        self._before = Totals()
        self._epoch_ns = monotonic_ns()
        self._ends_of_data: tuple[type[BaseException], ...] = (StopIteration,)
        if timing is not None:
            import tensorflow as tf

            self._ends_of_data = (StopIteration, tf.errors.OutOfRangeError)
            timing.ring.take()
        else:
            import keras

            self.record.reason = _NOT_TENSORFLOW.format(backend=keras.backend.backend())
        if self._original is None:
            self.record.reason = "the model has no training function"
        else:
            model.train_function = self._call

    def begin_epoch(self) -> None:
        """An epoch begins."""
        self.flush()
        self._calls = 0
        self._before, self._epoch_ns = self.record.log.totals, monotonic_ns()

    def end_epoch(self) -> JobSummary:
        """The figures of the epoch."""
        self.flush()
        return self.record.summary(self._before, self._epoch_ns)

    def summary(self) -> JobSummary:
        """The figures so far."""
        return self.record.summary()

    def _call(self, *arguments: Any, **named: Any) -> Any:
        """A step, or several at once: what Keras calls in place of the model's training function."""
        timing = self._timing
        if self._finished is not None or timing is None or len(arguments) != 1:
            return self._untimed(*arguments, **named)
        if len(self._starts) >= _BLOCK:
            self.flush(more=True)
        timing.eager_wait_ns = NO_WAIT_NS
        iterator = timing.timed(arguments[0])
        start_ns = monotonic_ns()
        try:
            result = self._original(iterator, **named)
        except self._ends_of_data:
            self._calls_end(start_ns)
            raise
        except BaseException as error:
            self.finish(f"the training was ended by {type(error).__name__}")
            raise
        self._starts.append(start_ns)
        self._ends.append(monotonic_ns())
        self._waits.append(timing.eager_wait_ns)
        self._calls += 1
        return result

    def _untimed(self, *arguments: Any, **named: Any) -> Any:
        start_ns = monotonic_ns()
        result = self._original(*arguments, **named)
        if self._finished is None:
            self._starts.append(start_ns)
            self._ends.append(monotonic_ns())
            self._waits.append(NO_WAIT_NS)
            self._calls += 1
            if self._timing is not None:
                self.record.reason = _NOT_TIMED
        return result

    def _calls_end(self, at_ns: int) -> None:
        """A call found no more data: the step before it ended as it began."""
        if self._ends:
            self._ends[-1] = at_ns
        self.flush()

    def flush(self, more: bool = False) -> None:
        """Bring the steps so far into the log.

        Args:
            more: whether another step follows at once, so that the last one ends as that begins.
        """
        with self._lock:
            count = len(self._starts)
            waits = self._taken(count)
            if not count:
                return
            starts = np.array(self._starts, dtype=np.int64)
            ends = np.append(starts[1:], monotonic_ns() if more else self._ends[-1])
            self._starts, self._ends, self._waits = [], [], []
            # Waits are of another clock, and a microsecond too long beside a step that is nothing but waiting.
            waits = np.where(waits < 0, waits, np.minimum(waits, ends - starts))
            size, last = self._steps_a_call, self._last_size(more)
            self.record.log.extend(starts[:-1], ends[:-1], waits[:-1], size)
            self.record.log.extend(starts[-1:], ends[-1:], waits[-1:], last)

    def _last_size(self, more: bool) -> int:
        """How many steps the last call took: fewer than the others where an epoch's steps are no multiple."""
        size = self._steps_a_call
        if more or not self._steps_an_epoch or self._calls * size <= self._steps_an_epoch:
            return size
        return max(1, self._steps_an_epoch - (self._calls - 1) * size)

    def _taken(self, count: int) -> npt.NDArray[np.int64]:
        """The waits of the last `count` calls in ns; none is known where they cannot be told apart."""
        eager = np.array(self._waits, dtype=np.int64)
        if self._timing is None:
            return eager
        try:
            rows = self._timing.ring.take()
        except Exception as error:  # TensorFlow may be gone: the program ends
            self.record.reason = f"what was measured could not be read: {type(error).__name__}"
            return eager
        if not count or (eager >= 0).all():
            return eager
        # A call that found no data, or that raised, may have left one more.
        if not rows.lost and len(rows.wait_ns) in (count, count + 1):
            return rows.wait_ns[:count]
        self.record.reason = self._why_none()
        return np.full(count, NO_WAIT_NS, dtype=np.int64)

    def _why_none(self) -> str:
        strategy = getattr(self._model(), "_distribute_strategy", None)
        return _NOT_TIMED if strategy is None else _DISTRIBUTED.format(strategy=type(strategy).__name__)

    def finish(self, reason: str | None) -> tuple[Session, Path | None]:
        """End: give the model its own function back, and keep the session; again, and it is the same one."""
        with self._lock:
            if self._finished is not None:
                return self._finished
            self.flush()
            self.figures = self.record.summary()
            model = self._model()
            if model is not None and getattr(model.train_function, "__self__", None) is self:
                model.train_function = self._original
            if self._timing is not None:
                self._timing.forget()
            self._finished = self.record.finish("ok", reason, self._out)
            return self._finished
