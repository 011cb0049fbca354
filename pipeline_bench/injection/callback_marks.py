"""What `run` puts around the callbacks of a `fit`: before them a mark, behind them another one, and the monitor."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from pipeline_bench.keras import AnyKerasCallback, holds_steps

if TYPE_CHECKING:
    from pipeline_bench.keras import StarvationMonitor


class Begin(AnyKerasCallback):
    """Before the program's own callbacks. Attributes: at_ns: when it was last called."""

    at_ns = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.at_ns = monotonic_ns()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.at_ns = monotonic_ns()

    def on_train_end(self, logs: Any = None) -> None:
        self.at_ns = monotonic_ns()


class BeginOfSteps(Begin):
    """The same where one of them holds up each step."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.at_ns = monotonic_ns()


class End(AnyKerasCallback):
    """Between the program's own callbacks and a monitor: reports how long these took. A step costs it nothing."""

    def __init__(self, monitor: StarvationMonitor, begin: Begin) -> None:
        """Make one.

        Args:
            monitor: measures.
            begin: stands before the program's callbacks.
        """
        super().__init__()
        self.monitor = monitor
        self._begin = begin

    def on_train_end(self, logs: Any = None) -> None:
        self._spent("callbacks_ns")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._spent("callbacks_ns")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._spent("callbacks_ns")

    def ends_fit(self) -> None:
        """End the watching where Keras has not, because a callback raised, and let go of the model."""
        self.monitor.close()
        for each in (self._begin, self, self.monitor):
            each.set_model(None)

    def _spent(self, part: str) -> None:
        course = self.monitor.course
        if course is not None and self._begin.at_ns:
            course.spend(part, monotonic_ns() - self._begin.at_ns)


class EndOfSteps(End):
    """The same where one of them holds up each step. What comes after the very first one is a part of that."""

    _is_first = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._is_first:
            self._spent("step_callbacks_ns")
        self._is_first = False


def around(callbacks: Sequence[Any], monitor: StarvationMonitor) -> list[Any]:
    """Return a program's callbacks with what measures around them.

    A step's callbacks are timed only where one of them holds up the training at a step's end: a method for that, added
    where there was none, would have Keras wait for the losses of each step on JAX, which it else leaves to a thread.
    """
    in_steps = any(map(holds_steps, callbacks))
    begin = BeginOfSteps() if in_steps else Begin()
    return [begin, *callbacks, (EndOfSteps if in_steps else End)(monitor, begin), monitor]
