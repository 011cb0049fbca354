"""The steps of a job in bounded memory: exact totals, and rows that come to stand for several steps each. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAX_ROWS = 100_000
"""When there are more, neighbours are merged in pairs: from 50,000 to 100,000 rows stay, about 3 MB, however long the
job is."""
_BLOCK = 1024
NO_WAIT_NS = -1
"""The wait of a step that was not measured."""

_Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Totals:
    """What the steps so far come to, without the first; exact, however many there were.

    `wait_ns` is of the `waits` steps that have one, and `waited_ns` the time of those same steps, which the share of
    the wait is of.
    """

    steps: int = 0
    time_ns: int = 0
    waits: int = 0
    wait_ns: int = 0
    waited_ns: int = 0

    def since(self, before: Totals) -> Totals:
        """What came after `before`."""
        return Totals(
            self.steps - before.steps,
            self.time_ns - before.time_ns,
            self.waits - before.waits,
            self.wait_ns - before.wait_ns,
            self.waited_ns - before.waited_ns,
        )

    @property
    def step_ms(self) -> float | None:
        """Milliseconds a step, on average."""
        return self.time_ns / self.steps / 1e6 if self.steps else None

    @property
    def wait_ms(self) -> float | None:
        """Milliseconds that a step waited for its input, on average; None where no wait was measured."""
        return self.wait_ns / self.waits / 1e6 if self.waits else None

    @property
    def wait_share(self) -> float | None:
        """How much of the steps' time was waiting, 0 to 1; None where no wait was measured."""
        return min(1.0, self.wait_ns / self.waited_ns) if self.waits and self.waited_ns > 0 else None


@dataclass(frozen=True)
class Rows:
    """Steps as a session keeps them: of each row the mean step of the `count` steps that it stands for, in ns."""

    start_ns: _Whole
    end_ns: _Whole
    wait_ns: _Whole | None
    """None where some step's wait was not measured."""
    count: _Whole


class StepLog:
    """Takes in steps, and keeps what a session and a summary need of them.

    The first row is kept, and is no part of the totals: its step traces and compiles, for as long as a hundred others.
    """

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._columns = np.empty((0, 4), dtype=np.int64)  # start, duration, wait or NO_WAIT_NS, steps
        self._new: list[_Whole] = []
        self._new_rows = 0
        self._begun = False
        self.totals = Totals()

    def extend(self, start_ns: npt.ArrayLike, end_ns: npt.ArrayLike, wait_ns: npt.ArrayLike, count: int = 1) -> None:
        """Take in rows in the order of their time.

        Args:
            start_ns: when each began, shape [n], ``time.monotonic_ns``.
            end_ns: when each ended, shape [n].
            wait_ns: how long each waited for input, shape [n] or a scalar; `NO_WAIT_NS` where it was not measured.
            count: how many steps a row stands for.
        """
        starts = np.asarray(start_ns, dtype=np.int64)
        durations = np.asarray(end_ns, dtype=np.int64) - starts
        waits = np.broadcast_to(np.asarray(wait_ns, dtype=np.int64), starts.shape)
        if not starts.size:
            return
        first, self._begun = 0 if self._begun else 1, True
        self.totals = _added(self.totals, durations[first:], waits[first:], count)
        self._new.append(np.stack([starts, durations, waits, np.full_like(starts, count)], axis=1))
        self._new_rows += starts.size
        if self._new_rows + len(self._columns) > self._max_rows:
            self._settle()

    def rows(self) -> Rows:
        """The steps as they are kept; means over their blocks where they were too many to be kept singly."""
        self._settle()
        start, duration, wait, count = self._columns.T
        return Rows(start, start + duration // count, None if (wait < 0).any() else wait // count, count)

    def _settle(self) -> None:
        columns = np.concatenate([self._columns, *self._new])
        while len(columns) > self._max_rows:
            columns = _in_pairs(columns)
        self._columns, self._new, self._new_rows = columns, [], 0


def _added(before: Totals, durations: _Whole, waits: _Whole, count: int) -> Totals:
    known = waits >= 0
    return Totals(
        before.steps + durations.size * count,
        before.time_ns + int(durations.sum()),
        before.waits + int(known.sum()) * count,
        before.wait_ns + int(waits[known].sum()),
        before.waited_ns + int(durations[known].sum()),
    )


def _in_pairs(columns: _Whole) -> _Whole:
    """Rows 0 and 1 as one, 2 and 3 as one …; the last one alone where their number is odd."""
    whole = len(columns) // 2 * 2
    first, second = columns[0:whole:2], columns[1:whole:2]
    merged = first + second
    merged[:, 0] = first[:, 0]
    merged[(first[:, 2] < 0) | (second[:, 2] < 0), 2] = NO_WAIT_NS
    return np.concatenate([merged, columns[whole:]])


class Passes:
    """Turns the times at which a loop asked for its batches into steps: one begins as the next batch is asked for.

    A step is over when the loop asks for the next batch, or finds that there is none. The last one of a pass that the
    loop left before that has no end, and does not count.
    """

    def __init__(self, log: StepLog) -> None:
        self._log = log
        self._asked_ns = NO_WAIT_NS
        self._wait_ns = 0
        self._new: list[tuple[int, int, int]] = []

    def asked(self, at_ns: int, wait_ns: int) -> None:
        """The loop asked for a batch at `at_ns`, and had it `wait_ns` later."""
        if self._asked_ns >= 0:
            self._new.append((self._asked_ns, at_ns, self._wait_ns))
            if len(self._new) >= _BLOCK:
                self.settle()
        self._asked_ns, self._wait_ns = at_ns, wait_ns

    def ended(self, at_ns: int) -> None:
        """The loop asked for a batch and there was none."""
        self.asked(at_ns, 0)
        self._asked_ns = NO_WAIT_NS

    def left(self) -> None:
        """The loop left the pass, or began another one."""
        self._asked_ns = NO_WAIT_NS

    def settle(self) -> None:
        """Bring the steps so far into the log: in blocks, because one at a time costs 20 µs."""
        new, self._new = self._new, []
        if new:
            steps = np.array(new, dtype=np.int64)
            steps = steps[steps[:, 1] > steps[:, 0]]  # a graph's clock is the wall clock, which may be set back
            waits = np.minimum(steps[:, 2], steps[:, 1] - steps[:, 0])
            self._log.extend(steps[:, 0], steps[:, 1], waits)
