"""The callback that `run` appends to those of a `fit`: has a monitor measure, and notes when epochs begin and end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

# Whoever imports this module is in a job of Keras, in whose process it is already.
import keras

from pipeline_bench.injection.wall_time import Epoch


class Marks(keras.callbacks.Callback):  # type: ignore[misc]
    """Behind the program's own callbacks, so that what these do at an epoch's end is in the epoch.

    A step costs it nothing, and nothing that the monitor raises reaches the program.

    Attributes:
        begin_ns: when the training began; 0 before.
        end_ns: when it ended; 0 before.
        epochs: those that ended.
    """

    def __init__(self, monitor: keras.callbacks.Callback, problem: Callable[[Exception], None]) -> None:
        """Make one.

        Args:
            monitor: the `StarvationMonitor` that measures.
            problem: takes what it raises.
        """
        super().__init__()
        self.begin_ns = self.end_ns = 0
        self.epochs: list[Epoch] = []
        self._epoch_ns = self._test_ns = self._validation_ns = 0
        self._monitor = monitor
        self._problem = problem

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self._guarded(self._monitor.set_model, model)

    def set_params(self, params: Any) -> None:
        super().set_params(params)
        self._guarded(self._monitor.set_params, params)

    def on_train_begin(self, logs: Any = None) -> None:
        self.begin_ns = monotonic_ns()
        self._guarded(self._monitor.on_train_begin, logs)

    def on_train_end(self, logs: Any = None) -> None:
        self.end_ns = monotonic_ns()
        self._guarded(self._monitor.on_train_end, logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch_ns, self._validation_ns = monotonic_ns(), 0
        self._guarded(self._monitor.on_epoch_begin, epoch, logs)

    def on_test_begin(self, logs: Any = None) -> None:
        self._test_ns = monotonic_ns()
        self._guarded(self._monitor.on_test_begin, logs)

    def on_test_end(self, logs: Any = None) -> None:
        self._validation_ns += monotonic_ns() - self._test_ns

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(
            Epoch(
                begin_ns=self._epoch_ns,
                end_ns=monotonic_ns(),
                validation_ns=self._validation_ns,
                memory_bytes=_memory_bytes(),
            )
        )
        self._guarded(self._monitor.on_epoch_end, epoch, logs)

    def _guarded(self, method: Callable[..., None], *arguments: Any) -> None:
        try:
            method(*arguments)
        except Exception as error:
            self._problem(error)


def _memory_bytes() -> int | None:
    """Return what this process holds in memory; None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
