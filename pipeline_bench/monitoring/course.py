"""The course of a call of `fit`, as its callbacks are called: when epochs, validations and others' callbacks ran."""

from __future__ import annotations

import os
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime, monotonic_ns

from pipeline_bench.model.wall_time import Epoch, WallTime
from pipeline_bench.monitoring.steps import Totals

MAX_EPOCHS = 512
"""Of more epochs neighbours are kept as one, as often as it takes: a training may have a hundred thousand."""

_SUMS = sorted(set(Epoch.model_fields) - {"begin_ns", "end_ns", "memory_bytes"})


class Course:
    """Begins with the training.

    Attributes:
        before_s: what the process had run before; None where that is not to be told.
    """

    def __init__(self) -> None:
        self.before_s: float | None = None
        self._begin_ns = monotonic_ns()
        self._epochs: list[Epoch] = []
        self._size = 1
        self._spent: dict[str, int] = {}
        self._epoch_ns = self._test_ns = self._end_ns = 0
        self._stepped = False

    def begin_epoch(self) -> None:
        """An epoch begins."""
        self._epoch_ns, self._spent = monotonic_ns(), {}

    def begin_validation(self) -> None:
        """An evaluation begins."""
        self._test_ns = monotonic_ns()

    def end_validation(self) -> None:
        """It has ended."""
        if self._test_ns:
            self.spend("validation_ns", monotonic_ns() - self._test_ns)
            self._test_ns = 0

    def spend(self, part: str, spent_ns: int) -> None:
        """Take in that a part of the epoch, by the name of its field, took so long."""
        self._spent[part] = self._spent.get(part, 0) + spent_ns

    def first_step(self, end_ns: int, wait_ns: int) -> None:
        """Take in the first step of an epoch; its wait is below 0 where it was not measured."""
        if wait_ns >= 0:
            self.spend("first_wait_ns", wait_ns)
        if not self._stepped:
            self._stepped = True
            self.spend("first_step_ns", end_ns - self._epoch_ns)

    def end_epoch(self, totals: Totals) -> None:
        """The epoch has ended, or the training within it.

        Args:
            totals: of its steps, the training's first one left out.
        """
        if not self._epoch_ns:
            return
        self.end_validation()
        steps = {"steps_ns": totals.time_ns, "wait_ns": totals.wait_ns if totals.waits == totals.steps else None}
        ended = {"end_ns": monotonic_ns(), "memory_bytes": _memory_bytes()}
        epoch = Epoch.model_validate({"begin_ns": self._epoch_ns, **ended, **steps, **self._spent})
        self._epoch_ns, self._spent = 0, {}
        if self._epochs and self._epochs[-1].count < self._size:
            epoch = _together(self._epochs.pop(), epoch)
        self._epochs.append(epoch)
        if len(self._epochs) > MAX_EPOCHS:
            self._epochs = _in_pairs(self._epochs)
            self._size *= 2

    def end(self, totals: Totals) -> None:
        """The training has ended, within an epoch that has these totals or after the last one."""
        self.end_epoch(totals)
        self._end_ns = monotonic_ns()

    def wall_time(self) -> WallTime:
        """Return what is known now."""
        return WallTime(
            before_s=self.before_s,
            begin_ns=self._begin_ns,
            end_ns=self._end_ns or monotonic_ns(),
            epochs=tuple(self._epochs),
            last_callbacks_ns=self._spent.get("callbacks_ns", 0),
        )


def _in_pairs(epochs: list[Epoch]) -> list[Epoch]:
    """Return epochs 0 and 1 as one, 2 and 3 as one …; the last one alone where their number is odd."""
    pairs = [epochs[place : place + 2] for place in range(0, len(epochs), 2)]
    return [_together(*pair) if len(pair) > 1 else pair[0] for pair in pairs]


def _together(first: Epoch, second: Epoch) -> Epoch:
    """Return two epochs in a row as one."""
    known = [(getattr(first, name), getattr(second, name)) for name in _SUMS]
    sums = {name: None if None in pair else sum(pair) for name, pair in zip(_SUMS, known, strict=True)}
    ends = {"begin_ns": first.begin_ns, "end_ns": second.end_ns, "memory_bytes": second.memory_bytes}
    return Epoch.model_validate(ends | sums)


def age_s() -> float | None:
    """Return how long this process has run, in seconds; None where the system does not tell."""
    try:
        # Field 22 of proc_pid_stat(5), in clock ticks since the machine was started; the second one may hold spaces.
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        now_s = clock_gettime(CLOCK_BOOTTIME)
    except (OSError, ValueError, IndexError):
        return None
    return now_s - ticks / os.sysconf("SC_CLK_TCK")


def _memory_bytes() -> int | None:
    """Return what this process holds in memory; None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
