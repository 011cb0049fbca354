"""A trial whose own processes are found while it trains, to be killed or stopped; a tf.data service beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from pipeline_bench.model.trial import Trial
from pipeline_bench.run import machine
from pipeline_bench.run.launcher import TrialServer
from pipeline_bench.run.observer import Observer, Progress
from pipeline_bench.scenario import Component, Variant
from tests.processes import wait_for


class WhenStepping(Observer):
    """Does something once, when the trial has taken its first steps, or so many."""

    def __init__(self, do: Callable[[], None], steps: int = 1) -> None:
        self._do: Callable[[], None] | None = do
        self._steps = steps

    def progress(self, trial: Trial, progress: Progress) -> None:
        if progress.steps >= self._steps and self._do is not None:
            do, self._do = self._do, None
            do()


class AtStep(Observer):
    """Does something once, when the trial has taken its first steps, with processes of its: by default its three."""

    def __init__(
        self, do: Callable[[list[psutil.Process]], None], find: Callable[[], list[psutil.Process]] | None = None
    ) -> None:
        self._do = do
        self._find = find or three_of_trial
        self.tasks: list[psutil.Process] = []

    def progress(self, trial: Trial, progress: Progress) -> None:
        if progress.steps and not self.tasks:
            self.tasks = self._find()
            self._do(self.tasks)


def three_of_trial() -> list[psutil.Process]:
    """The processes of the one that has three, oldest first."""
    by_parent = [each.children() for each in psutil.Process().children(recursive=True)]
    return sorted(next(found for found in by_parent if len(found) == 3), key=lambda task: task.pid)


class Cluster(NamedTuple):
    """A tf.data service: where it is asked, and its processes, the dispatcher first."""

    address: str
    pids: list[int]


@contextmanager
def service_cluster(server: TrialServer, folder: Path, workers: int) -> Iterator[Cluster]:
    """A tf.data service that is there already, in the network of the server's trials, and a fork of it as they are."""
    if reason := machine.refuse_servers():
        pytest.skip(reason)
    told = folder / "cluster"
    variant = Variant(
        name="cluster",
        backend="serving",
        options={"workers": workers, "told": str(told)},
        source=Component(kind="memory"),
        model=Component(kind="none"),
        loop=Component(kind="session"),
    )
    with closing(server.start(Trial(index=-1, repeat=0, variant=variant), folder / "cluster.stderr")):
        wait_for(told.exists)
        address, *pids = told.read_text(encoding="ascii").split()
        yield Cluster(address, [int(pid) for pid in pids])
