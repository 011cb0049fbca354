"""The steps of a job in bounded memory: exact totals, and rows that stand for several steps each. Pure."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_bench.monitoring.epochs import Passes
from pipeline_bench.monitoring.under_way import Asked, Partners

MAX_ROWS = 100_000
"""When there are more, each that is kept stands for twice as many that came in: 50,000 to 100,000 stay, about 4 MB."""
_BLOCK = 1024
_OTHERS_BETWEEN = 16
"""Steps of other loops between two of one, from which on these are not in a row: an example an epoch is shown so."""
NO_WAIT_NS = -1
"""The wait of a step that was not measured."""
ENDED = -2
"""In place of a wait: the loop asked for a batch, and there was none."""
LEFT = -3
"""In place of a wait: the loop left the dataset, or begins to read it again."""
AGAIN = -4
"""In place of a wait: the loop makes its next iterator, of each of which it takes one batch to train on."""

_Integers = npt.NDArray[np.int64]


class Totals(NamedTuple):
    """Sums over the steps so far, without the first; exact, however many there were.

    `wait_ns` is of the `waits` steps that have one, and `waited_ns` the time of those same steps, which the share of
    the wait is of.
    """

    steps: int = 0
    time_ns: int = 0
    waits: int = 0
    wait_ns: int = 0
    waited_ns: int = 0

    def since(self, before: Totals) -> Totals:
        """Return the sums over what came after `before`."""
        return Totals(*(now - then for now, then in zip(self, before, strict=True)))

    def plus(self, durations: _Integers, waits: _Integers, counts: _Integers) -> Totals:
        """Return the sums with these rows, of so many steps each."""
        known = waits >= 0
        more = (
            int(counts.sum()),
            int(durations.sum()),
            int(counts[known].sum()),
            int(waits[known].sum()),
            int(durations[known].sum()),
        )
        return Totals(*(now + new for now, new in zip(self, more, strict=True)))

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
class StepRows:
    """Steps as a session keeps them: of each row the mean step of the `count` steps that it stands for, in ns."""

    start_ns: _Integers
    end_ns: _Integers
    wait_ns: _Integers | None
    """None where some step's wait was not measured."""
    count: _Integers


class StepLog:
    """Takes in steps, and keeps what a session and a summary need of them.

    The first row is kept, and is no part of the totals: its step traces and compiles, for as long as a hundred others.

    Attributes:
        left_out: how many steps were left out, since the process was stopped while they were under way.
    """

    def __init__(self, max_rows: int = MAX_ROWS, stops: Sequence[tuple[int, int]] = ()) -> None:
        """Make an empty log.

        Args:
            max_rows: how many rows are kept.
            stops: from when to when the process was stopped, in ns; may grow.
        """
        self._max_rows = max_rows
        self._stops = stops
        self.left_out = 0
        # Blocks of start, duration, wait or NO_WAIT_NS, steps, rows that came in. Who takes steps in appends or puts
        # another list in its place, so that another thread can look at any time.
        self._blocks: list[_Integers] = []
        self._rows, self._width, self._begun = 0, 1, False
        self.totals = Totals()

    def extend(
        self, start_ns: npt.ArrayLike, end_ns: npt.ArrayLike, wait_ns: npt.ArrayLike, count: npt.ArrayLike = 1
    ) -> None:
        """Take in rows in the order of their time.

        Args:
            start_ns: when each began, shape [n], ``time.monotonic_ns``.
            end_ns: when each ended, shape [n].
            wait_ns: how long each waited for input, shape [n] or a scalar; `NO_WAIT_NS` where it was not measured.
            count: how many steps a row stands for, shape [n] or a scalar.
        """
        starts = np.asarray(start_ns, dtype=np.int64)
        durations = np.asarray(end_ns, dtype=np.int64) - starts
        waits, counts = (np.broadcast_to(np.asarray(each, dtype=np.int64), starts.shape) for each in (wait_ns, count))
        if self._stops:
            whole = self._whole(starts, starts + durations)
            self.left_out += int(counts[~whole].sum())
            starts, durations, waits, counts = (each[whole] for each in (starts, durations, waits, counts))
        if not starts.size:
            return
        first, self._begun = 0 if self._begun else 1, True
        self.totals = self.totals.plus(durations[first:], waits[first:], counts[first:])
        self._blocks.append(np.stack([starts, durations, waits, counts, np.ones_like(starts)], axis=1))
        self._rows += starts.size
        if self._rows > self._max_rows:
            columns, self._width = self._columns(self._blocks)
            self._blocks, self._rows = [columns], len(columns)

    def _whole(self, starts: _Integers, ends: _Integers) -> npt.NDArray[np.bool_]:
        """Return which steps have no stop of the process within them: no more than half of one."""
        from_ns, to_ns = np.array(self._stops, dtype=np.int64).T[:, :, None]
        within_ns = np.minimum(ends, to_ns) - np.maximum(starts, from_ns)
        return np.asarray((2 * within_ns <= to_ns - from_ns).all(axis=0))

    def rows(self, since_ns: int | None = None, *, first: bool = True) -> StepRows:
        """Return the steps as they are kept; means over their blocks where they were too many to be kept singly.

        Each row but the last then stands for as many as the others do, so that the mean of the rows is that of the
        steps.

        Args:
            since_ns: only those of the blocks that came in from the first on in which a step ended later; None: all.
            first: whether the log's first row is one of them, whose step traces and compiles.
        """
        blocks = self._blocks
        begin = 0 if since_ns is None else len(blocks)
        while begin and blocks[begin - 1][-1, :2].sum() > since_ns:
            begin -= 1
        columns, _ = self._columns(blocks[begin:])
        columns = columns if begin or first else columns[1:]
        start, duration, wait, count, _ = columns[np.argsort(columns[:, 0], kind="stable")].T
        return StepRows(start, start + duration // count, None if (wait < 0).any() else wait // count, count)

    def copy(self) -> StepLog:
        """Return a log with the same steps, which takes in others from now on."""
        other = copy.copy(self)
        other._blocks = list(self._blocks)
        return other

    def _columns(self, blocks: Sequence[_Integers]) -> tuple[_Integers, int]:
        """Return the rows to keep of some blocks, and of how many that came in each is made, but the last."""
        width = self._width
        columns = _grouped(np.concatenate([np.empty((0, 5), dtype=np.int64), *blocks]), width)
        while len(columns) > self._max_rows:
            width *= 2
            columns = _grouped(columns, width)
        return columns, width


def _grouped(columns: _Integers, width: int) -> _Integers:
    """Return rows of `width` of those that came in each, in order; the last one of what is left."""
    if width == 1:
        return columns
    begins = np.cumsum(columns[:, 4]) - columns[:, 4]
    firsts = np.flatnonzero(np.diff(begins // width, prepend=-1))
    grouped: _Integers = np.add.reduceat(columns, firsts, axis=0)
    grouped[:, 0] = columns[firsts, 0]
    grouped[np.minimum.reduceat(columns[:, 2], firsts) < 0, 2] = NO_WAIT_NS
    return grouped


class LoopSteps:
    """Turns the times at which a loop asked for its batches into steps: one begins as the next batch is asked for.

    A step is over when the loop asks for the next batch, or finds that there is none. The last one of a pass that the
    loop left before that has no end, and does not count. Of a loop that makes an iterator for each batch, it ends as
    the next one is made, for which that one waits too. Loops may receive at once, and others flush meanwhile.
    Where a validation comes behind some of the steps, such a step ends before it; one before its training is its part.
    Where nearly each step takes one batch of another loop of its thread, it waits for that too.

    Attributes:
        passes: what the steps and the data's ends make of the loop, of the first one of several.
        begun: how many steps began.
        ends: how many times the data that it took of came to its end.
        last: the number of the last of them among those of all loops of the process; 0 before.
        single: how many of them were the only one that an iterator gave.
        takers: the loops that took a batch.
        asked: the steps under way, by their loops.
        partners: the other loops of which a step takes a batch too.
        most_in_a_row: of how many the data did not end meanwhile, nor was left, nor did other loops go on for long.
    """

    _begun_in_all: ClassVar[int] = 0
    """Steps that began in any loop of the process."""
    _under_way: ClassVar[dict[int, dict[int, Asked]]] = {}
    """The last step of each loop in eager code, by its thread."""

    def __init__(self, log: StepLog) -> None:
        self._log = log
        self.passes, self.partners = Passes(), Partners()
        self._first_loop: int | None = None
        self.begun = self.ends = self.last = self.single = 0
        self.most_in_a_row = self._in_a_row = self._others_before = 0
        self.takers: set[int] = set()
        self.asked: dict[int, Asked] = {}
        self._had_others = False
        """Whether other loops went on in the last step that ended."""
        self._made_ns: dict[int, int] = {}
        """When a loop began to make the iterator of its next batch."""
        self._new: deque[tuple[int, int, int]] = deque()
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether the data ended of all that took of them."""
        return not self.asked

    @property
    def is_latest(self) -> bool:
        """Whether no other loop of the process has begun a step since its last one."""
        return LoopSteps._begun_in_all == self.last

    def is_partner(self, other: LoopSteps) -> bool:
        """Return whether nearly every step of either takes one batch of both."""
        return id(other) in self.partners and id(self) in other.partners

    def receive(self, at_ns: int, wait_ns: int, loop: int = 0, iterator: int = 0, ending_ns: int = 0) -> None:
        """Take in that a loop asked for a batch.

        A loop may take a batch from each of several iterators, as by `zip`: its step begins with the first of them, and
        waits for all. One that is asked twice in a step has taken the first one's place.

        Args:
            at_ns: when it asked.
            wait_ns: how much later it had the batch, or `ENDED`, or `LEFT`, or `AGAIN`.
            loop: which of the loops of one line did, by any number: each has steps of its own.
            iterator: which of the loop's iterators it asked, by any number.
            ending_ns: how long that took to say `ENDED`, as it ends its workers: a part of the pass, and of no step.
        """
        asked = self.asked.get(loop)
        is_other = asked is not None and iterator not in asked.iterators
        if asked is not None and is_other and wait_ns >= 0:
            longer_ns = asked.take_also(iterator, at_ns, wait_ns)
            if loop:
                self._tell_others(loop, at_ns, longer_ns, batches=0)
            return
        self._count(begins=wait_ns >= 0)
        self.asked.pop(loop, None)
        self.ends += wait_ns == ENDED and self.begun > 0
        has_ended = asked is not None and wait_ns != LEFT and (wait_ns == AGAIN or not is_other)
        end_ns = at_ns if asked is None else self._end_ns(asked, at_ns)
        if asked is not None and has_ended:
            asked.wait_ns += self.partners.end_step(asked, end_ns)
            self._add(asked.at_ns, end_ns, asked.wait_ns)
        self._tell_passes(at_ns, wait_ns, loop, asked if has_ended else None, end_ns, ending_ns)
        if wait_ns == AGAIN and asked is not None:
            self.single += 1
            self._made_ns[loop] = at_ns
        if wait_ns >= 0:
            self.takers.add(loop)
            made_ns = self._made_ns.pop(loop, at_ns)
            until_ns = at_ns + wait_ns
            self.asked[loop] = Asked(made_ns, until_ns - made_ns, [iterator], until_ns=until_ns)
            if loop:  # else a graph's, which is read later
                self._tell_others(loop, made_ns, until_ns - made_ns, batches=1)

    def _tell_others(self, loop: int, at_ns: int, wait_ns: int, batches: int) -> None:
        """Tell the thread's other loops of a batch, or of a part of one."""
        under_way = self._under_way.setdefault(loop, {})
        for number, asked in under_way.items():
            if number != id(self):
                asked.see_wait(id(self), at_ns, wait_ns, batches)
                if batches:
                    asked.see_others(id(self), at_ns, batches)
        under_way[id(self)] = self.asked[loop]

    @classmethod
    def see_others(cls, loop: int, at_ns: int) -> None:
        """Take in that a thread evaluates: its loops go on only behind that."""
        for asked in cls._under_way.get(loop, {}).values():
            asked.see_others(0, at_ns)

    @classmethod
    def see_training(cls, loop: int) -> None:
        """Take in that a thread trains: where a step had not trained before, what was done in it so far is its part."""
        for asked in cls._under_way.get(loop, {}).values():
            if not asked.trained:
                asked.trained = True
                asked.others.clear()

    def _end_ns(self, asked: Asked, at_ns: int) -> int:
        """Return when a step ended: before what other loops did, which is a part of it where each step has that."""
        before, others_ns = self._had_others, asked.others_ns
        self._had_others = others_ns is not None
        return at_ns if before or others_ns is None else others_ns

    def took(self, start_ns: int, end_ns: int, wait_ns: int, loop: int = 0) -> None:
        """Take in a whole step, as of a call that trains on what it is given: all of them are one pass.

        Args:
            start_ns: when it began.
            end_ns: when it ended.
            wait_ns: for how long of that it waited.
            loop: as for `receive`.
        """
        self._count(begins=True)
        self.takers.add(loop)
        if self._is_first(loop):
            self.passes.asked(start_ns, wait_ns)
            self.passes.stepped(start_ns, end_ns, wait_ns)
        self._add(start_ns, end_ns, wait_ns)

    def _add(self, start_ns: int, end_ns: int, wait_ns: int) -> None:
        self._new.append((start_ns, end_ns, wait_ns))
        if len(self._new) >= _BLOCK:
            self.flush()

    def _tell_passes(
        self, at_ns: int, wait_ns: int, loop: int, ended: Asked | None, end_ns: int, ending_ns: int
    ) -> None:
        # An iterator may be made elsewhere than it is asked.
        if not (self._is_first(loop) if wait_ns >= 0 else self._first_loop in (None, loop)):
            return
        if ended is not None:
            self.passes.stepped(ended.at_ns, end_ns, ended.wait_ns)
        if wait_ns == ENDED:
            self.passes.end(at_ns + ending_ns)
        elif wait_ns == LEFT:
            self.passes.begin(at_ns)
        elif wait_ns >= 0:
            self.passes.asked(at_ns, wait_ns)

    def _is_first(self, loop: int) -> bool:
        """Take in that a loop takes batches; return whether it is the first one to do so."""
        if self._first_loop is None:
            self._first_loop = loop
        return self._first_loop == loop

    def interrupt(self) -> None:
        """Take in that the next step is not in a row with those before."""
        self._in_a_row = 0

    def _count(self, begins: bool) -> None:
        if not begins:
            self.interrupt()
            return
        others = LoopSteps._begun_in_all - self.begun
        if others - self._others_before > _OTHERS_BETWEEN:
            self.interrupt()
        self._others_before = others
        LoopSteps._begun_in_all += 1
        self.begun, self.last = self.begun + 1, LoopSteps._begun_in_all
        self._in_a_row += 1
        self.most_in_a_row = max(self.most_in_a_row, self._in_a_row)

    def flush(self) -> None:
        """Bring the steps so far into the log: in blocks, because one at a time costs 20 µs."""
        # Who finds another at it leaves the steps to that one, or to the next time: a loop never waits here, nor does a
        # fork of the job that was made while a thread of its parent held the lock.
        if not self._lock.acquire(blocking=False):
            return
        try:
            new = [self._new.popleft() for _ in range(len(self._new))]
            if new:
                steps = np.array(new, dtype=np.int64)
                steps = steps[steps[:, 1] > steps[:, 0]]  # a graph's clock is the wall clock, which may be set back
                waits = np.minimum(steps[:, 2], steps[:, 1] - steps[:, 0])
                self._log.extend(steps[:, 0], steps[:, 1], waits)
        finally:
            self._lock.release()
