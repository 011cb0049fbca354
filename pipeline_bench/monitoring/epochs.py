"""The epochs of a training, in bounded memory; of a loop of the program's own, its passes over the data."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime, monotonic_ns
from typing import ClassVar

from pipeline_bench.model.job import Epoch, WallTime

MAX_EPOCHS = 512
"""Of more epochs neighbours are kept as one, as often as it takes: a training may have a hundred thousand."""

_SUMS = sorted(set(Epoch.model_fields) - {"begin_ns", "end_ns", "memory_bytes"})


class KeptEpochs:
    """All epochs so far, each by itself until there are more than `MAX_EPOCHS`."""

    def __init__(self) -> None:
        self._epochs: list[Epoch] = []
        self._size = 1

    @property
    def all(self) -> tuple[Epoch, ...]:
        """Those that are kept, in their order."""
        return tuple(self._epochs)

    def add(self, epoch: Epoch) -> None:
        """Take in an epoch that has ended."""
        if self._epochs and self._epochs[-1].count < self._size:
            epoch = _together(self._epochs.pop(), epoch)
        self._epochs.append(epoch)
        if len(self._epochs) > MAX_EPOCHS:
            self._epochs = _in_pairs(self._epochs)
            self._size *= 2

    def copy(self) -> KeptEpochs:
        """Return the same epochs, to which others are added."""
        other = copy.copy(self)
        other._epochs = list(self._epochs)
        return other


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
    """Return how long this process has run, in seconds; None where the system does not say."""
    try:
        # Field 22 of proc_pid_stat(5), in clock ticks since the machine was started; the second one may hold spaces.
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        now_s = clock_gettime(CLOCK_BOOTTIME)
    except (OSError, ValueError, IndexError):
        return None
    return now_s - ticks / os.sysconf("SC_CLK_TCK")


def process_start_ns() -> int | None:
    """Return when this process started, on the monotonic clock; None where the system does not say."""
    lasted_s = age_s()
    return None if lasted_s is None else monotonic_ns() - int(lasted_s * 1e9)


def memory_bytes(folder: Path = Path("/proc/self")) -> int | None:
    """Return what a process, by its folder, holds in memory; None where the system does not say.

    The pages of files that it maps are left out, which the kernel takes back when memory runs short: see
    proc_pid_status(5). A system that does not tell them apart says what there is of both.
    """
    try:
        lines = (folder / "status").read_text(encoding="utf-8", errors="replace").splitlines()
        held_kib = [int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:"))]
        if held_kib:
            return sum(held_kib) * 1024
        return int((folder / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


_SOME_STEPS = 3
"""A loop of fewer looks at an example."""
_HELD_FOR_NS = 100_000_000


@dataclass
class _Pass:
    """A pass that goes on; its fields are those of an `Epoch`."""

    begin_ns: int
    first_wait_ns: int
    first_step_ns: int = 0
    steps: int = 0
    steps_ns: int = 0
    wait_ns: int = 0
    end_ns: int = 0
    """Of its last step that has ended; 0: none has."""


class Passes:
    """The passes of a loop over its data, of one thread; its calls come in the order of their time.

    Attributes:
        counts_start_up: whether what the process did before the first one is a part of the training's time, if no other
            loop was the first to go on for some steps.
        taken: how many batches it has had.
    """

    _counted: ClassVar[bool] = False
    """Whether the start-up of this process is a part of some loop's time."""

    def __init__(
        self,
        held_bytes: Callable[[], int | None] = memory_bytes,
        started_ns: Callable[[], int | None] = process_start_ns,
    ) -> None:
        """Begin; the functions give what the process holds, and when it started on the monotonic clock."""
        self.counts_start_up = False
        self.taken = 0
        self._held_bytes, self._started_ns = held_bytes, started_ns
        self._asked: tuple[int | None, int | None] = None, None
        """When it was asked last what the process holds, and what that was."""
        self._kept = KeptEpochs()
        self._before_s: float | None = None
        self._made_ns = 0
        """When the iterator of the next pass was made; 0: that is not known."""
        self._pass: _Pass | None = None
        self._steps = 0

    def begin(self, at_ns: int) -> None:
        """Take in that the loop makes an iterator; a pass before it that was left ends with its last step."""
        self.end(0)
        self._made_ns = at_ns

    def asked(self, at_ns: int, wait_ns: int) -> None:
        """Take in that it asked for a batch, and had it so much later."""
        self.taken += 1
        if self._pass is None:
            self._pass = _Pass(self._made_ns or at_ns, wait_ns)

    def stepped(self, start_ns: int, end_ns: int, wait_ns: int) -> None:
        """Take in a step that has ended."""
        now = self._pass
        if now is None or end_ns <= start_ns:
            return
        self._steps += 1
        if self._steps > 1:
            now.steps += 1
            now.steps_ns += end_ns - start_ns
            now.wait_ns += min(wait_ns, end_ns - start_ns)
        else:
            now.first_step_ns = end_ns - now.begin_ns
        now.end_ns = end_ns
        if self._steps == _SOME_STEPS and self.counts_start_up and not Passes._counted:
            Passes._counted = True
            begin_ns = min([now.begin_ns, *(epoch.begin_ns for epoch in self._kept.all)])
            started_ns = self._started_ns()
            self._before_s = None if started_ns is None else (begin_ns - started_ns) / 1e9

    def end(self, at_ns: int) -> None:
        """Take in that the data have ended then; 0: when the last step did."""
        now, self._pass, self._made_ns = self._pass, None, 0
        if now is not None and now.end_ns:
            end_ns = max(at_ns, now.end_ns)
            self._kept.add(_epoch(now, end_ns, self._held(end_ns)))

    def _held(self, at_ns: int) -> int | None:
        """Return what the process holds, at most so old: to ask takes 40 µs, and a pass may be of one step."""
        asked_ns, held_bytes = self._asked
        if asked_ns is None or at_ns - asked_ns >= _HELD_FOR_NS:
            held_bytes = self._held_bytes()
            self._asked = at_ns, held_bytes
        return held_bytes

    def wall_time(self) -> WallTime | None:
        """Return where the time went so far; None before the first step has ended. From any thread."""
        now = self._pass
        epochs = (*self._kept.all, *([_epoch(now, now.end_ns, None)] if now is not None and now.end_ns else []))
        if not epochs:
            return None
        return WallTime(before_s=self._before_s, begin_ns=epochs[0].begin_ns, end_ns=epochs[-1].end_ns, epochs=epochs)


def _epoch(ended: _Pass, end_ns: int, held_bytes: int | None) -> Epoch:
    return Epoch.model_validate({**vars(ended), "end_ns": end_ns, "memory_bytes": held_bytes})
