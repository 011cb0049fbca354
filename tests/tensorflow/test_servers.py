"""TensorFlow's servers that a trial starts: other machines do not reach them, unless that was asked for."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pipeline_bench.model.pipeline import Target
from pipeline_bench.model.service_edits import OffloadToService
from pipeline_bench.model.task import KIND, Task
from pipeline_bench.model.trial import Trial
from pipeline_bench.run import machine
from pipeline_bench.run.launcher import TrialServer
from pipeline_bench.run.observer import Observer, Progress
from pipeline_bench.run.runner import Runner
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Component, Run, Scenario, Variant
from tests.tensorflow import test_replication
from tests.tensorflow.beside import WhenStepping
from tests.trials import new_session, run

SCRIPT = """
import tensorflow as tf


def make_dataset():
    return tf.data.Dataset.range(64).repeat().map(lambda number: number + 1).batch(8)
"""

pytestmark = pytest.mark.skipif(machine.refuse_servers() is not None, reason=f"{machine.refuse_servers()}")


class Listener(Observer):
    """At the first steps of a trial: how many listening sockets its processes hold, by the network they are in.

    Then it ends the trial, which would go on for a minute: however slow the machine, it trains while this is looked at.
    """

    def __init__(self) -> None:
        self.sockets: Counter[str] = Counter()

    def progress(self, trial: Trial, progress: Progress) -> None:
        if progress.steps and not self.sockets:
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(OSError):  # it has ended by now
                    self.sockets[network_of(process.pid)] += listening(process.pid)
            raise KeyboardInterrupt


def network_of(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def listening(pid: int) -> int:
    """How many listening sockets a process holds."""
    tables = [Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    return sum(str(entry.readlink()) in sockets for entry in Path(f"/proc/{pid}/fd").iterdir())


def workers(_: Path) -> Scenario:
    return test_replication.scenario(test_replication.variant("workers", **test_replication.BETWEEN), time_s=60)


def service(folder: Path) -> Scenario:
    script = folder / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    target = Target(file=str(script), name="make_dataset")
    task = Task(target=target, activity="drain", edits=(OffloadToService(workers=1),), warmup_s=0.1)
    variant = Variant(
        name="service",
        backend="tf_data",
        source=Component(kind=KIND, options=task.model_dump(mode="json")),
        model=Component(kind="none"),
        loop=Component(kind="drain"),
        run=Run(time_s=60, repeats=1),
    )
    return Scenario(name="service", variants=(variant,))


@pytest.mark.parametrize("wanted", [workers, service])
def test_what_a_trial_serves_is_in_a_network_of_its_own(
    fork_server: TrialServer, tmp_path: Path, wanted: Callable[[Path], Scenario]
) -> None:
    seen = Listener()
    (record,) = run(fork_server, wanted(tmp_path), tmp_path, seen).trials
    assert record.status == "interrupted", record.reason
    assert seen.sockets.pop(network_of(fork_server.pid)) == 0
    assert seen.sockets.total() > 0, "the servers listen somewhere"


def test_servers_are_exposed_where_that_was_asked_for(fork_server: TrialServer, tmp_path: Path) -> None:
    seen = Listener()
    runner = Runner(tmp_path, fork_server, NvmlSampler(), seen, expose_servers=True)
    (record,) = runner.run(new_session(workers(tmp_path))).session.trials
    assert record.status == "interrupted", record.reason
    assert list(+seen.sockets) == [network_of(fork_server.pid)]


def test_a_pipelines_worker_is_a_fork_with_tensorflow_in_it_and_its_death_ends_the_trial(
    fork_server: TrialServer, tmp_path: Path
) -> None:
    """A fresh interpreter imports TensorFlow first, for longer than a trial of a short budget may stall."""
    commands: list[list[str]] = []

    def kill_worker() -> None:
        (running,) = psutil.Process(fork_server.pid).children()
        (worker,) = running.children()
        commands.extend([running.cmdline(), worker.cmdline()])
        worker.kill()

    (record,) = run(fork_server, service(tmp_path), tmp_path, WhenStepping(kill_worker)).trials
    own, of_worker = commands
    assert of_worker == own
    assert (record.status, record.reason) == ("failed", "tf.data service worker 0 was killed by SIGKILL")
