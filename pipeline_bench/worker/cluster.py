"""The engine of between_graph replication: a parameter server and N workers, each a process of its own on this machine.

The trial's process starts them, trains nothing itself, and makes one trial of what they send. Each worker has the
variant's input with the N-th part of a batch, and a seed of its own.

A step of the trial is a group of N worker steps, each on its part of a batch, so that a group is a batch. Synchronous
workers give one step each to a group. Asynchronous ones wait for nobody: there a group is the next N steps in the order
in which they ended, whoever took them.

A group begins where the one before it ended, so that the trial's steps do not overlap and add up to its length. Its
loss and its input wait are the means of its steps'. Where a wait is longer than the group, because it began before it,
the rest counts for the groups that follow.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pipeline_bench import plugins, replication
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.events import Evaluated, Placement, QueueState, Stack, Work
from pipeline_bench.system import children
from pipeline_bench.system.children import Process
from pipeline_bench.worker import cluster_messages as messages
from pipeline_bench.worker import cluster_worker, runtime, sample_audit
from pipeline_bench.worker.cluster_messages import ClusterStep
from pipeline_bench.worker.engine import Engine, When, can_fork
from pipeline_bench.worker.sample_audit import RandomAudit, StepDigest

# A worker that runs Python at all reports far more often.
_SILENT_S = 8 * cluster_worker.REPORT_EVERY_S
_MOST_TICKETS = 2**32 - 2
_NO_PLACEMENT = "the workers of between_graph replication do not tell their placement"
_REPEATS = "each worker reads the source from its first sample on, so that the samples of a step repeat"

_State = TypeVar("_State", QueueState, Stack)


class ClusterEngine(Engine):
    """Starts the processes, and follows them."""

    _processes: Sequence[Process] = ()

    def start_processes(self) -> None:
        """Start the parameter server and the workers, in this order."""
        run, runtime = self.variant.run, self.variant.runtime
        body = cluster_worker.run if can_fork() else cluster_worker.__name__
        tickets = -1
        if run.steps is not None and not runtime.synchronous:
            steps = min(run.steps * runtime.replicas, _MOST_TICKETS)
            tickets = os.eventfd(steps, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        inherited = [tickets] if tickets >= 0 else []
        started: list[Process] = []
        self._processes = started
        started.append(children.start("ps", 0, (), body))
        for index in range(runtime.replicas):
            started.append(children.start("worker", index, started, body, inherited))
        for process in started:
            process.connection.send(messages.Assignment(process.job, process.index, self.variant, tickets))
        self._workers = started[1:]
        self._queues: dict[int, tuple[QueueState, ...]] = {}
        self._stacks: dict[Process, tuple[Stack, ...]] = {}
        self._last_message_s: dict[Process, float] = {}
        """When each process that the trial waits for was last heard."""
        queues = self._queues
        self.recorder.watch(lambda: [state for states in queues.values() for state in states], self._waited_for)

    def build(self) -> None:
        """Tell every process the addresses of all, and wait for the workers to be built."""
        ports = self._one_of(messages.Listening, self._processes)
        self.recorder.phase("build")
        addresses = {
            job: [f"{cluster_worker.HOST}:{ports[process].port}" for process in self._processes if process.job == job]
            for job in ("ps", "worker")
        }
        for process in self._processes:
            process.connection.send(addresses)
        self._ready: messages.Ready = self._one_of(messages.Ready, self._workers)[self._workers[0]]
        self.channel.send(self._ready.device)

    def evaluate(self, when: When) -> None:
        """Send the accuracy of the variables, which worker 0 computes."""
        accuracy = self._ready.accuracy
        if when == "after":
            self.recorder.phase("evaluate")
            self._order("evaluate", self._workers[:1])
            self._workers[0].over = False
            if runtime.wants_placement(self.trial):
                self.channel.send(Placement(reason=_NO_PLACEMENT))
            accuracy = self._one_of(messages.Accuracy, self._workers[:1])[self._workers[0]].value
        if accuracy is not None:
            self.channel.send(Evaluated(when=when, accuracy=accuracy))

    def train(self) -> None:
        """Record the groups until the trial has run its length and every worker has ended its input."""
        if not self.variant.is_ceiling:
            self._audit_samples()
        self.recorder.train(waits=self._ready.waits)
        self._order("go", self._workers)
        groups = Groups(len(self._workers), self.variant.runtime.synchronous)
        self._last_message_s = dict.fromkeys(self._workers, time.monotonic())
        more = True
        while not all(process.over for process in self._workers):
            for process, message in children.hear(self._processes):
                if isinstance(message, messages.Trained):
                    process.over = True
                if not isinstance(message, messages.StepsTaken):
                    continue
                self._last_message_s[process] = time.monotonic()
                self._stacks[process] = _of_worker(process, message.stacks, "thread")
                queues = _of_worker(process, message.queues, "name")
                self._queues[process.index] = queues or self._queues.get(process.index, ())
                for group in groups.take(process.index, message.steps, message.until_ns):
                    if not more:
                        break
                    more = self.recorder(*group[:4], digest=group.digest or None)
                    if not more:  # worker 0 last: when it stops, the others are to know already that they may
                        self._order("stop", self._workers[::-1])

    def stop(self) -> None:
        """End every process."""
        for process in reversed(self._processes):
            process.end()

    def _order(self, order: Any, workers: Sequence[Process]) -> None:
        for process in workers:
            try:
                process.connection.send(messages.Order(order))
            except (BrokenPipeError, ConnectionResetError):
                if not process.over:
                    raise PipelineBenchError(children.why_ended(self._processes, process)) from None

    def _one_of(self, kind: Any, of: Sequence[Process]) -> dict[Process, Any]:
        """Wait for a message of that kind from each of the processes."""
        found: dict[Process, Any] = {}
        while len(found) < len(of):
            self._last_message_s = {process: -math.inf for process in of if process not in found}
            heard = children.hear(self._processes)
            found |= {process: message for process, message in heard if isinstance(message, kind)}
        return found

    def _waited_for(self) -> tuple[Stack, ...]:
        """Return the stacks of the processes that the trial waits for; a silent one has none."""
        stacks: list[Stack] = []
        for process, heard_s in self._last_message_s.copy().items():
            silent = time.monotonic() - heard_s > _SILENT_S
            stacks += (Stack(thread=process.label, frames=()),) if silent else self._stacks.get(process, ())
        return tuple(stacks)

    def _audit_samples(self) -> None:
        """Audit the samples of a source of random numbers; those of the others repeat in every worker."""
        variant, ready = replication.part_of(self.variant), self._ready
        source = plugins.make("sources", variant.source.kind, variant.source.options)
        if source.moments is None or not ready.shows_samples:
            self.channel.send(Work(batch_size=source.batch_size, reason=_REPEATS))
            return
        cost_us = sample_audit.cost_us(source, ready.values_per_sample)
        self.recorder.audit_samples(_WorkersAudit(len(self._workers), source, ready.values_per_sample), cost_us)


class _WorkersAudit(RandomAudit):
    """The audit of workers' steps, each with its part of a batch: none may be another worker's."""

    def __init__(self, workers: int, source: Any, values_per_sample: int) -> None:
        super().__init__(source.batch_size, values_per_sample, source.moments)
        self._workers = workers

    def take(self, digests: Sequence[StepDigest]) -> None:
        """Take digests of groups: samples, mean and mean square of each worker's step that was sampled."""
        super().take([(step, part) for step, digest in digests for part in digest.reshape(-1, 3)])

    def close(self, every: int, steps: int) -> Work:
        """Return the audit, in steps of workers."""
        return super().close(every, steps * self._workers)


def _of_worker(process: Process, states: Sequence[_State], named: str) -> tuple[_State, ...]:
    """Return the states with the worker's name before each queue's."""
    return tuple(state.model_copy(update={named: f"{getattr(state, named)} of {process.label}"}) for state in states)


class Groups:
    """Takes the workers' steps as they come, and gives the groups that are complete.

    Args:
        workers: how many there are.
        synchronous: whether a group has one step of each.
    """

    def __init__(self, workers: int, synchronous: bool) -> None:
        self._workers = workers
        self._synchronous = synchronous
        self._waiting: list[deque[ClusterStep]] = [deque() for _ in range(workers)]
        self._known_ns = [-math.inf] * workers
        self._end_ns: int | None = None
        self._owed_ns = 0.0

    def take(self, worker: int, steps: Sequence[ClusterStep], until_ns: float) -> Iterator[ClusterStep]:
        """Take steps of one worker, in order, of which all that ended by `until_ns` are known; yield the groups."""
        self._waiting[worker].extend(steps)
        self._known_ns[worker] = until_ns
        while members := self._one_of_each() if self._synchronous else self._next():
            yield self._group(members)

    def _one_of_each(self) -> list[ClusterStep]:
        if not all(self._waiting):
            return []
        return [waiting.popleft() for waiting in self._waiting]

    def _next(self) -> list[ClusterStep]:
        """Return the first that ended, where it is known of every worker what it did until then."""
        known_ns = min(self._known_ns)
        ends = sorted(
            (step.end_ns, worker)
            for worker, waiting in enumerate(self._waiting)
            for step in list(waiting)[: self._workers]
            if step.end_ns <= known_ns
        )
        if len(ends) < self._workers:
            return []
        return [self._waiting[worker].popleft() for _, worker in ends[: self._workers]]

    def _group(self, members: Sequence[ClusterStep]) -> ClusterStep:
        start_ns = min(step.start_ns for step in members) if self._end_ns is None else self._end_ns
        end_ns = max(start_ns + 1, *(step.end_ns for step in members))
        self._end_ns = end_ns
        self._owed_ns += sum(step.wait_ns for step in members) / len(members)
        wait_ns = min(int(self._owed_ns), end_ns - start_ns)
        self._owed_ns -= wait_ns
        loss = math.fsum(step.loss for step in members) / len(members)
        digest = tuple(value for step in members for value in step.digest)
        return ClusterStep(start_ns, end_ns, wait_ns, loss, digest)
