"""What stands in the place of the iterators that Keras hands to a training function, and times their batches."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.monitoring import strategies
from pipeline_bench.monitoring.steps import NO_WAIT_NS

if TYPE_CHECKING:
    from pipeline_bench.monitoring.ring import Rows


class PlainTiming:
    """What times the Python iterators that Keras hands on where its backend is JAX."""

    ends_of_data: tuple[type[BaseException], ...] = (StopIteration,)

    def __init__(self) -> None:
        self._iterator: Any = None
        self._timed: Any = None
        self.eager_wait_ns = NO_WAIT_NS
        """Of the batches that were taken since it was set to `NO_WAIT_NS`."""

    def asked(self, now_ns: int) -> int:
        """Return when the batch of the step that begins now was asked for: now, as the step itself takes it."""
        return now_ns

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a training function, whose last argument is an iterator; keep how long it waited."""
        self.eager_wait_ns = NO_WAIT_NS
        return function(*arguments[:-1], *map(self.timed, arguments[-1:]), **named)

    def timed(self, iterator: Any) -> Any:
        """Return the iterator, timed; as it is where it is none."""
        if iterator is not self._iterator:
            self._iterator = iterator
            self._timed = _TimedIterator(iterator, self) if hasattr(iterator, "__next__") else iterator
        return self._timed

    def forget(self) -> None:
        """Let go of the last iterator, and of its buffers."""
        self._iterator = self._timed = None

    def read(self) -> Rows | None:
        """Return nothing: every batch is taken in Python."""
        return None

    def peek(self, count: int) -> npt.NDArray[np.int64] | None:
        """Return nothing, likewise."""
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
        timing = self._timing
        timing.eager_wait_ns = max(0, timing.eager_wait_ns) + monotonic_ns() - start_ns
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
        from tensorflow.python.distribute import input_lib

        from pipeline_bench.monitoring.probe import Probe, ProbedIterator
        from pipeline_bench.monitoring.ring import Ring

        super().__init__()
        self._distributed = False
        self._of_strategies = input_lib.DistributedIteratorBase
        strategies.patch(input_lib)
        self.ends_of_data = (StopIteration, tf.errors.OutOfRangeError)
        self.ring = Ring()
        self._probe = Probe(self._receive, self.ring, a_row_a_call=True)
        self._class = ProbedIterator

    def _receive(self, at_ns: int, wait_ns: int) -> None:
        if wait_ns >= 0:
            self.eager_wait_ns = max(0, self.eager_wait_ns) + wait_ns

    def timed(self, iterator: Any) -> Any:
        """Return the iterator, timed; as it is where it cannot be."""
        if iterator is not self._iterator:
            timed = iterator
            self._distributed = isinstance(iterator, self._of_strategies)
            if type(iterator) is self._class.__base__:
                timed = self._class(
                    components=(iterator._iterator_resource,),
                    element_spec=iterator.element_spec,
                    number=self._probe.number,
                )
            self._iterator, self._timed = iterator, timed
        return self._timed

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a training function, whose last argument is an iterator; keep how long it waited."""
        self.eager_wait_ns = NO_WAIT_NS
        timed = [self.timed(iterator) for iterator in arguments[-1:]]
        if not self._distributed:
            return function(*arguments[:-1], *timed, **named)
        with strategies.stepping(self._probe):
            return function(*arguments[:-1], *timed, **named)

    def read(self) -> Rows | None:
        """Return what graphs have measured since the last call."""
        return self.ring.read()

    def peek(self, count: int) -> npt.NDArray[np.int64] | None:
        """Return the waits of the first `count` calls that `read` would return, in ns; None where there are fewer."""
        return self.ring.peek(count)
