"""What steps take where malloc keeps the memory that is freed: some steps more, behind the measured ones of a trial.

They go on in the same process with the same input, so that nothing else differs, and no other trial is needed. There
is no way back within a process: what malloc has kept serves all later steps, whatever it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Protocol

from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.events import KeptMemory
from pipeline_bench.system import freed_memory
from pipeline_bench.worker.consumers import Alive, Record

_FAULTS_A_MS = 20
"""Fewer page faults cost little. On a virtual machine of two cores, where 117 a millisecond were measured, keeping the
memory made a step 1.4 times as fast; 56, 1.1 times."""
_SETTLING, _STEPS, _LEAST_NS = 2, 3, 5e8
"""The first steps have batches that were made before, and their own memory made; then come so many, for so long, at
least."""
_LONGEST_NS = 3e9
"""Longer steps are not made for it."""


class _Steps(Protocol):
    """What takes steps, and gives each to a `Record`."""

    def __call__(self, *, record: Record, alive: Alive) -> int | None:
        """Return after how many steps the input ended, if it ended before the record did; else None."""


def run(steps: _Steps, record: Record, alive: Alive, tell: Callable[[KeptMemory], None] | None) -> int | None:
    """Take a trial's steps; return what `steps` returns of the measured ones.

    Args:
        steps: takes them.
        record: takes the measured ones.
        alive: called as a sign of life.
        tell: called with what steps with kept memory take, if the measured ones have many page faults; None: none come.

    Raises:
        UserCodeError: what is theirs failed in the measured steps.
    """
    if tell is None:
        return steps(record=record, alive=alive)
    goes_on, ended = GoesOn(record, alive), None
    try:
        ended = steps(record=goes_on, alive=alive)
    except UserCodeError:  # no memory may be left for more
        if not goes_on.measured:
            raise
    if goes_on.found is not None:
        tell(goes_on.found)
    return None if goes_on.measured else ended


class GoesOn:
    """A `Record` that goes on with kept memory when the measured steps have ended, if these had many page faults."""

    def __init__(self, record: Record, alive: Alive) -> None:
        """Record a trial's steps; see `run`."""
        self._record, self._alive = record, alive
        self._faults_before: int | None = None
        """Page faults of this process until the first measured step had ended."""
        self._more, self._more_ns = 0, 0
        """The measured steps behind that, and what they took."""
        self._faults = 0.0
        """Of one of these."""
        self._most_before = 0
        self._kept_ns: list[int] = []
        """What each step with the memory kept took."""
        self.measured = False
        """Whether the measured steps have ended."""
        self.found: KeptMemory | None = None

    def __call__(self, start_ns: int, end_ns: int, wait_ns: int, loss: float) -> bool:
        """Take a step; False where it was the last one."""
        if not self.measured:
            if self._faults_before is None:
                self._faults_before = freed_memory.page_faults()
            else:
                self._more, self._more_ns = self._more + 1, self._more_ns + end_ns - start_ns
            self.measured = not self._record(start_ns, end_ns, wait_ns, loss)
            return not self.measured or self._goes_on()
        self._alive()
        self._kept_ns.append(end_ns - start_ns)
        counted_ns = self._kept_ns[_SETTLING:]
        if len(counted_ns) < _STEPS or sum(counted_ns) < _LEAST_NS:
            return True
        self.found = KeptMemory(
            ms=fmean(counted_ns) / 1e6,
            freeing_ms=self._more_ns / self._more / 1e6,
            page_faults=self._faults,
            more_bytes=freed_memory.peak_bytes() - self._most_before,
        )
        return False

    def _goes_on(self) -> bool:
        """Return whether steps with kept memory are worth their time, and have it kept from now on."""
        if self._faults_before is None or not self._more:
            return False
        step_ns = self._more_ns / self._more
        self._faults = (freed_memory.page_faults() - self._faults_before) / self._more
        if step_ns > _LONGEST_NS or self._faults * 1e6 < _FAULTS_A_MS * step_ns:
            return False
        self._most_before = freed_memory.peak_bytes()
        return freed_memory.keep()
