"""What a between_graph worker tells of its steps, and when it has taken its last one."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from pipeline_bench.loops import SamplingRule
from pipeline_bench.model.events import QueueState, Stack
from pipeline_bench.worker import evidence
from pipeline_bench.worker.groups import WorkerStep
from pipeline_bench.worker.recorder import thread_stacks
from pipeline_bench.worker.tasks import Assignment, Took

# A message takes some 20 µs of both processes' time: several steps travel in one.
_SEND_EVERY_NS = 50_000_000
# Of the stall timeout: a worker without a step for so long tells where it stands, before the trial's watch asks.
_STUCK_SHARE = 0.5


class Reporter:
    """A `loops.StepRecorder` whose steps go to the trial's process.

    Asynchronous workers share the steps that are to be taken: each takes a ticket for one. Synchronous ones take as
    many as each other. Of a trial whose length is a time, the trial's process says when it is over.

    Args:
        connection: to that process.
        assignment: of this worker.
        cost_us: about what a step takes longer when it is looked at; None: none can be.
    """

    def __init__(self, connection: Any, assignment: Assignment, cost_us: float | None) -> None:
        self._connection = connection
        self._tickets = assignment.tickets
        self._last = assignment.variant.run.steps
        runtime = assignment.variant.runtime
        self._synchronous = runtime.synchronous
        self._asks = self._last is None and (assignment.number == 0 or not runtime.synchronous)
        self._cost_us = cost_us
        self.should_sample = cost_us is not None
        self._every = 1
        self._shortest_ns = 2**62
        self._taken = 0
        self._untold: list[WorkerStep] = []
        self._told_ns = 0
        self._newest_ns = time.monotonic_ns()
        self._stuck_ns = assignment.variant.run.stall_timeout_s * 1e9 * _STUCK_SHARE
        self._lock = threading.Lock()

    def may_begin(self) -> bool:
        """Whether there is a step for this worker at all."""
        return self._may_go_on()

    def __call__(
        self,
        start_ns: int,
        end_ns: int,
        wait_ns: int,
        loss: float,
        evidence: Sequence[float] | None = None,
        busy_ns: int = 0,
    ) -> bool:
        """Take in a step; False when it was this worker's last one."""
        shown = () if evidence is None else tuple(float(value) for value in evidence)
        self._newest_ns = end_ns
        with self._lock:
            self._untold.append(WorkerStep(start_ns, end_ns, wait_ns, float(loss), shown))
        if end_ns - self._told_ns > _SEND_EVERY_NS:
            self.tell(end_ns)
        self._taken += 1
        if self._cost_us is not None:
            self._decide(end_ns - start_ns, self._cost_us)
        return self._may_go_on()

    def should_sample_any(self, steps: int) -> bool:
        """See `loops.StepRecorder`."""
        return self.should_sample

    @property
    def steps_left(self) -> int | None:
        """How many steps are still to be taken, of a synchronous trial that has a number of them."""
        return None if self._last is None or not self._synchronous else self._last - self._taken

    @property
    def length_ns(self) -> int | None:
        """None: it is not this worker that knows when the time is over."""
        return None

    @property
    def sampling_rule(self) -> SamplingRule | None:
        """None: the steps are driven from here."""
        return None

    def heartbeat(self) -> None:
        """The trial's own watch hears of this worker's steps."""

    def tell(self, until_ns: float, queues: tuple[QueueState, ...] = ()) -> None:
        """Send what was not sent yet.

        Args:
            until_ns: a time before which no further step has ended.
            queues: how full they are.
        """
        stacks: tuple[Stack, ...] = ()
        if time.monotonic_ns() - self._newest_ns > self._stuck_ns:
            stacks = thread_stacks()
        with self._lock:
            steps, self._untold = tuple(self._untold), []
            self._told_ns = steps[-1].end_ns if steps else self._told_ns
            with contextlib.suppress(BrokenPipeError):  # the trial is gone, and the kernel ends this process
                self._connection.send(Took(steps, until_ns, queues, stacks))

    def _may_go_on(self) -> bool:
        if self._asks:
            return not self._connection.poll()
        if self._last is None:
            return True
        if self._synchronous:
            return self._taken < self._last
        try:
            return bool(os.eventfd_read(self._tickets))
        except BlockingIOError:
            return False

    def _decide(self, took_ns: int, cost_us: float) -> None:
        """Whether the next step is looked at."""
        if 1 < self._taken <= evidence.FIRST_STEPS:
            self._shortest_ns = min(self._shortest_ns, took_ns)
        if self._taken == evidence.FIRST_STEPS:
            self._every = evidence.every(cost_us, self._shortest_ns / 1e3)
        self.should_sample = self._taken != evidence.FIRST_UNCHECKED and self._taken % self._every == 0
