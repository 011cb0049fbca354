"""A trial of between_graph replication: a parameter server and N workers, each a process of its own on this machine.

The trial's process starts them, trains nothing itself, and makes one trial of what they tell; see `worker.groups` for
what a step is. Each worker has the variant's input with the N-th part of a batch, and a seed of its own.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from pipeline_bench import plugins, replication
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.events import Done, Evaluated, QueueState, Stack, Work
from pipeline_bench.model.trial import Trial
from pipeline_bench.scenario import Variant
from pipeline_bench.worker import cluster_task, evidence, placement, tasks
from pipeline_bench.worker.channel import Channel
from pipeline_bench.worker.groups import Groups
from pipeline_bench.worker.ledger import RandomLedger, Shown
from pipeline_bench.worker.recorder import Recorder
from pipeline_bench.worker.tasks import Accuracy, Assignment, Listening, Order, Ready, Task, Took, Trained

# A worker that runs Python at all tells of itself far more often.
_SILENT_S = 8 * cluster_task.TELL_EVERY_S
_MOST_TICKETS = 2**32 - 2
_NO_PLACEMENT = "the workers of between_graph replication do not tell their placement"
_REPEATS = "each worker reads the source from its first sample on, so that the samples of a step repeat"


def start(variant: Variant, recorder: Recorder) -> list[Task]:
    """Start the processes, the parameter server first; call it while this process has one thread."""
    recorder.phase("import")
    run, body = variant.run, cluster_task.run if tasks.can_fork() else None
    shares = run.steps is not None and not variant.runtime.synchronous
    tickets = -1
    if shares:
        steps = min((run.steps or 0) * variant.runtime.replicas, _MOST_TICKETS)
        tickets = os.eventfd(steps, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    started = [tasks.start("ps", 0, (), -1, body)]
    for index in range(variant.runtime.replicas):
        started.append(tasks.start("worker", index, started, tickets, body))
    for task in started:
        task.connection.send(Assignment(task.job, task.index, variant, tickets))
    return started


def run(trial: Trial, started: Sequence[Task], channel: Channel, recorder: Recorder) -> None:
    """Train with the processes that `start` gave, and tell the parent everything; none of them is left.

    Raises:
        PipelineBenchError: one failed or was killed.
    """
    try:
        _Coordinator(trial, started, channel, recorder).run()
    finally:
        for task in reversed(started):
            task.end()
    recorder.finish()
    channel.send(Done(at_ns=time.monotonic_ns()))


_Told = TypeVar("_Told", QueueState, Stack)


class _Coordinator:
    def __init__(self, trial: Trial, started: Sequence[Task], channel: Channel, recorder: Recorder) -> None:
        self._trial, self._variant = trial, trial.variant
        self._tasks = started
        self._workers = [task for task in started if task.job == "worker"]
        self._channel = channel
        self._recorder = recorder
        self._queues: dict[int, tuple[QueueState, ...]] = {}
        self._stacks: dict[Task, tuple[Stack, ...]] = {}
        self._heard_s: dict[Task, float] = {}
        """When each task that the trial waits for was last heard."""
        recorder.stacks = self._stands

    def run(self) -> None:
        ports = self._one_of(Listening, self._tasks)
        self._recorder.phase("build")
        addresses = {
            job: [f"{cluster_task.HOST}:{ports[task].port}" for task in self._tasks if task.job == job]
            for job in ("ps", "worker")
        }
        for task in self._tasks:
            task.connection.send(addresses)
        ready = self._one_of(Ready, self._workers)[self._workers[0]]
        self._channel.send(ready.device)
        self._evaluated("before", ready.accuracy)
        self._recorder.has_wait = ready.waits
        self._recorder.queue_sizes = lambda: [state for states in self._queues.values() for state in states]
        if ready.waits:
            self._open_account(ready)
        self._recorder.phase("train")
        self._order("go", self._workers)
        self._train()
        self._recorder.phase("evaluate")
        self._order("evaluate", self._workers[:1])
        self._workers[0].over = False
        placement.tell_unknown(self._trial, _NO_PLACEMENT, self._channel)
        accuracy = self._one_of(Accuracy, self._workers[:1])[self._workers[0]]
        self._evaluated("after", accuracy.value)

    def _order(self, order: Any, workers: Sequence[Task]) -> None:
        for task in workers:
            try:
                task.connection.send(Order(order))
            except (BrokenPipeError, ConnectionResetError):
                if not task.over:
                    raise PipelineBenchError(tasks.why_ended(self._tasks, task)) from None

    def _one_of(self, kind: Any, of: Sequence[Task]) -> dict[Task, Any]:
        """A message of that kind from each of the tasks."""
        found: dict[Task, Any] = {}
        while len(found) < len(of):
            self._heard_s = {task: -math.inf for task in of if task not in found}
            found |= {task: message for task, message in tasks.hear(self._tasks) if isinstance(message, kind)}
        return found

    def _train(self) -> None:
        """Record the groups until the trial has run its length and every worker has ended its input."""
        groups = Groups(len(self._workers), self._variant.runtime.synchronous)
        self._heard_s = dict.fromkeys(self._workers, time.monotonic())
        more = True
        while not all(task.over for task in self._workers):
            for task, message in tasks.hear(self._tasks):
                if isinstance(message, Trained):
                    task.over = True
                if not isinstance(message, Took):
                    continue
                self._heard_s[task] = time.monotonic()
                self._stacks[task] = _of_worker(task, message.stacks, "thread")
                self._queues[task.index] = _of_worker(task, message.queues, "name") or self._queues.get(task.index, ())
                for group in groups.take(task.index, message.steps, message.told_ns):
                    if not more:
                        break
                    more = self._recorder(*group[:4], evidence=group.evidence or None)
                    if not more:  # worker 0 last: when it stops, the others are to know already that they may
                        self._order("stop", self._workers[::-1])

    def _stands(self) -> tuple[Stack, ...]:
        """Where the tasks stand that the trial waits for; nowhere that is known of one that is silent."""
        stands: list[Stack] = []
        for task, heard_s in self._heard_s.copy().items():
            silent = time.monotonic() - heard_s > _SILENT_S
            stands += (Stack(thread=task.label, frames=()),) if silent else self._stacks.get(task, ())
        return tuple(stands)

    def _evaluated(self, when: Any, accuracy: float | None) -> None:
        if accuracy is not None:
            self._channel.send(Evaluated(when=when, accuracy=accuracy))

    def _open_account(self, ready: Ready) -> None:
        """Account for the samples of a source of random numbers; those of the others repeat in every worker."""
        variant = replication.part_of(self._variant)
        source: Any = plugins.find("sources", variant.source.kind)(variant.source.options)
        if source.moments is None or not ready.shows_samples:
            self._channel.send(Work(batch_size=source.batch_size, reason=_REPEATS))
            return
        cost_us = evidence.cost_us(source, ready.values_per_sample)
        self._recorder.account(_WorkersLedger(len(self._workers), source, ready.values_per_sample), cost_us)


class _WorkersLedger(RandomLedger):
    """The account of workers' steps, each with its part of a batch: none may be another worker's."""

    def __init__(self, workers: int, source: Any, values_per_sample: int) -> None:
        super().__init__(source.batch_size, values_per_sample, source.moments)
        self._workers = workers

    def take(self, shown: Sequence[Shown]) -> None:
        """Evidence of groups: samples, mean and mean square of each worker's step that was looked at."""
        super().take([(step, part) for step, evidence in shown for part in evidence.reshape(-1, 3)])

    def close(self, every: int, steps: int) -> Work:
        """The account as it stands, in steps of workers."""
        return super().close(every, steps * self._workers)


def _of_worker(task: Task, states: Sequence[_Told], named: str) -> tuple[_Told, ...]:
    """The same, with the worker in the name."""
    return tuple(state.model_copy(update={named: f"{getattr(state, named)} of {task.label}"}) for state in states)
