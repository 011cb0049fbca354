"""What steps take where malloc keeps the memory that is freed: some steps more, behind the measured ones of a trial.

Another trial takes the same steps without: later steps may be shorter by themselves. There is no way back within a
process: what malloc has kept serves all later steps, whatever it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import NamedTuple, Protocol

from pipeline_bench.model.events import KEEP, KeptMemory
from pipeline_bench.system import freed_memory
from pipeline_bench.system.freed_memory import Used
from pipeline_bench.worker.consumers import Alive, Record
from pipeline_bench.worker.recorder import Recorder

_STEPS, _LEAST_NS = 5, 5e8
"""Of each kind so many steps count, for so long, at least."""
_SETTLING = 2
"""The first steps behind have batches that were made before, and where memory is kept their own is made."""
_LOOK_NS = 5e7
"""What the process has used is asked no more often."""


class _Steps(Protocol):
    """What takes steps, and gives each to a `Record`."""

    def __call__(self, *, record: Record, alive: Alive) -> int | None:
        """Return after how many steps the input ended, if it ended before the record did; else None."""


def run(
    steps: _Steps, recorder: Recorder, tell: Callable[[KeptMemory], None], limit_s: float, *, keeps: bool
) -> int | None:
    """Take a trial's steps; return what `steps` returns of the measured ones.

    Args:
        steps: takes them.
        recorder: takes the measured ones.
        tell: called with what steps behind the measured ones take, if these have many page faults.
        limit_s: the most that those may take; 0: none are made.
        keeps: whether malloc keeps in them what is freed.

    Raises:
        UserCodeError: what is theirs failed in the measured steps.
    """
    alive, begins = recorder.heartbeat, lambda: recorder.phase(KEEP)
    # Also where no more are made: what it costs to record a short element is to fall on all trials alike.
    goes_on = GoesOn(recorder, begins, alive, limit_s if freed_memory.gives_back() else 0.0, keeps)
    ended = None
    try:
        ended = steps(record=goes_on, alive=alive)
    except Exception:  # whatever it is, the measured steps count: no memory may be left for more
        if not goes_on.measured:
            raise
    if goes_on.found is not None:
        tell(goes_on.found)
    return None if goes_on.measured else ended


class _Look(NamedTuple):
    """What some steps have come to."""

    steps: int
    took_ns: int
    used: Used


class GoesOn:
    """A `Record` that goes on when the measured steps have ended, if these had many page faults."""

    def __init__(self, record: Record, begins: Callable[[], None], alive: Alive, limit_s: float, keeps: bool) -> None:
        """Record a trial's steps.

        Args:
            record: takes the measured steps.
            begins: called when others begin behind them.
            alive: called for each of these, as a sign of life.
            limit_s: see `run`.
            keeps: likewise.
        """
        self._record, self._begins, self._alive, self._limit_s, self._is_keeping = record, begins, alive, limit_s, keeps
        self._steps = self._took_ns = 0
        """Since the trial began, or since the steps began that are compared."""
        self._looks: list[_Look] = []
        """At least `_LOOK_NS` apart."""
        self._before: tuple[_Look, _Look] | None = None
        """Before and after the last steps before those that are compared."""
        self._from_ns = 0
        """When these began."""
        self.measured = False
        """Whether the measured steps have ended."""
        self.found: KeptMemory | None = None

    def __call__(self, start_ns: int, end_ns: int, wait_ns: int, loss: float) -> bool:
        """Take a step; False where it was the last one."""
        if start_ns < self._from_ns:  # its element was taken before
            return True
        self._steps, self._took_ns = self._steps + 1, self._took_ns + end_ns - start_ns
        if self._before is not None:
            self._alive()
            return self._compares(self._before)
        if not self._looks or self._took_ns - self._looks[-1].took_ns >= _LOOK_NS:
            self._looks.append(self._look())
        if not self.measured:
            self.measured = not self._record(start_ns, end_ns, wait_ns, loss)
            return not self.measured or self._has_time()
        self._alive()
        return self._is_worth_it()

    def _look(self) -> _Look:
        return _Look(self._steps, self._took_ns, freed_memory.used())

    def _has_time(self) -> bool:
        """Return whether more steps come behind the measured ones: they take no longer than they may."""
        due = max(0, _STEPS + 1 - self._steps) + _SETTLING + _STEPS
        if due * self._took_ns / self._steps >= self._limit_s * 1e9:
            return False
        if goes_on := self._steps == 1 or self._is_worth_it():
            self._begins()
        return goes_on

    def _is_worth_it(self) -> bool:
        """Return whether more steps come, for the last ones had many page faults; begin to compare after so many."""
        now = self._look()
        long = (each for each in reversed(self._looks) if now.took_ns - each.took_ns >= _LEAST_NS)
        before = next((each for each in long if now.steps - each.steps >= _STEPS), self._looks[0])
        faults = now.used.page_faults - before.used.page_faults
        if faults * 1e9 < freed_memory.MANY_FAULTS_A_SECOND * (now.took_ns - before.took_ns):
            return False
        if now.steps - before.steps < _STEPS:
            return True
        self._before, self._from_ns = (before, now), monotonic_ns()
        self._steps, self._took_ns, self._looks = 0, 0, []
        return not self._is_keeping or freed_memory.keep()

    def _compares(self, before: tuple[_Look, _Look]) -> bool:
        if self._steps == _SETTLING:
            self._looks.append(self._look())
        if self._steps < _SETTLING + _STEPS or self._took_ns - self._looks[0].took_ns < _LEAST_NS:
            return True
        ms, kernel_ms, faults = _of_one(self._looks[0], now := self._look())
        self.found = KeptMemory(
            kept=self._is_keeping,
            ms=ms,
            before_ms=_of_one(*before)[0],
            kernel_ms=kernel_ms,
            page_faults=faults,
            more_bytes=now.used.peak_bytes - before[1].used.peak_bytes,
        )
        return False


def _of_one(before: _Look, after: _Look) -> tuple[float, float, float]:
    """Return what a step between two looks took, and its CPU time in the kernel, in ms, and its page faults."""
    steps = after.steps - before.steps
    kernel_s = after.used.kernel_s - before.used.kernel_s
    faults = after.used.page_faults - before.used.page_faults
    return (after.took_ns - before.took_ns) / steps / 1e6, 1e3 * kernel_s / steps, faults / steps
