"""A trial whose own processes are found while it trains, to be killed or stopped; a tf.data service beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from pipeline_bench.model.trial import Trial
from pipeline_bench.run.observer import Observer, Progress
from pipeline_bench.tfdata.service import ServiceProcesses


class WhenStepping(Observer):
    """Does something once, when the trial has taken its first steps."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do: Callable[[], None] | None = do

    def progress(self, trial: Trial, progress: Progress) -> None:
        if progress.steps and self._do is not None:
            do, self._do = self._do, None
            do()


class AtStep(Observer):
    """Does something once, when the trial has taken its first steps, with the trial's three processes."""

    def __init__(self, do: Callable[[list[psutil.Process]], None]) -> None:
        self._do = do
        self.tasks: list[psutil.Process] = []

    def progress(self, trial: Trial, progress: Progress) -> None:
        if progress.steps and not self.tasks:
            family = psutil.Process().children(recursive=True)
            by_parent = [each.children() for each in family]
            self.tasks = sorted(next(found for found in by_parent if len(found) == 3), key=lambda task: task.pid)
            self._do(self.tasks)


@contextmanager
def service_cluster(workers: int) -> Iterator[ServiceProcesses]:
    """A tf.data service that is there already; what a test has stopped of it goes on, and all of it ends."""
    found = ServiceProcesses(workers, can_fork=False)
    try:
        yield found
    finally:
        for pid in found.pids:
            psutil.Process(pid).resume()
        found.end()
