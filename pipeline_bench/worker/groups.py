"""The steps of several workers as the steps of one trial. Pure.

A step of the trial is a group of N worker steps, each on its part of a batch, so that a group is a batch. Synchronous
workers give one step each to a group. Asynchronous ones wait for nobody: there a group is the next N steps in the order
in which they ended, whoever took them.

A group begins where the one before it ended, so that the trial's steps do not overlap and add up to its length. Its
loss and its input wait are the means of its steps'. Where a wait is longer than the group, because it began before it,
the rest counts for the groups that follow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class WorkerStep(NamedTuple):
    """A step of one worker; times in ns of ``time.monotonic_ns``. `evidence` as `worker.evidence` has it, if any."""

    start_ns: int
    end_ns: int
    wait_ns: int
    loss: float
    evidence: tuple[float, ...] = ()


class Group(NamedTuple):
    """A step of the trial; `evidence` is that of its steps, one after the other."""

    start_ns: int
    end_ns: int
    wait_ns: int
    loss: float
    evidence: tuple[float, ...]


class Groups:
    """Takes in the workers' steps as they are told, and gives the groups that are complete.

    Args:
        workers: how many there are.
        synchronous: whether a group has one step of each.
    """

    def __init__(self, workers: int, synchronous: bool) -> None:
        self._workers = workers
        self._synchronous = synchronous
        self._waiting: list[deque[WorkerStep]] = [deque() for _ in range(workers)]
        self._told_ns = [-math.inf] * workers
        self._end_ns: int | None = None
        self._owed_ns = 0.0

    def take(self, worker: int, steps: Sequence[WorkerStep], told_ns: float) -> Iterator[Group]:
        """Steps of one worker in their order, of which all that ended by `told_ns` have now been told."""
        self._waiting[worker].extend(steps)
        self._told_ns[worker] = told_ns
        while members := self._one_of_each() if self._synchronous else self._next():
            yield self._group(members)

    def _one_of_each(self) -> list[WorkerStep]:
        if not all(self._waiting):
            return []
        return [waiting.popleft() for waiting in self._waiting]

    def _next(self) -> list[WorkerStep]:
        """The first that ended, where it is known of every worker what it did until then."""
        known_ns = min(self._told_ns)
        members: list[WorkerStep] = []
        ends = sorted(
            (step.end_ns, worker)
            for worker, waiting in enumerate(self._waiting)
            for step in list(waiting)[: self._workers]
            if step.end_ns <= known_ns
        )
        if len(ends) >= self._workers:
            members = [self._waiting[worker].popleft() for _, worker in ends[: self._workers]]
        return members

    def _group(self, members: Sequence[WorkerStep]) -> Group:
        start_ns = min(step.start_ns for step in members) if self._end_ns is None else self._end_ns
        end_ns = max(start_ns + 1, *(step.end_ns for step in members))
        self._end_ns = end_ns
        self._owed_ns += sum(step.wait_ns for step in members) / len(members)
        wait_ns = min(int(self._owed_ns), end_ns - start_ns)
        self._owed_ns -= wait_ns
        loss = math.fsum(step.loss for step in members) / len(members)
        return Group(start_ns, end_ns, wait_ns, loss, tuple(value for step in members for value in step.evidence))
