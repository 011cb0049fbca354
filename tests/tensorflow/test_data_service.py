"""Real trials through the tf.data service: equal work under each way of sharing, and who died when one is dead."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline_bench.analysis import validity
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.run.launcher import TrialServer
from pipeline_bench.scenario import Scenario
from tests.processes import runs
from tests.tensorflow import images
from tests.tensorflow.beside import AtStep, Cluster, WhenStepping, service_cluster
from tests.tensorflow.conftest import RunScenario
from tests.trials import alone, run

STEPS = 40
STALL_S = 8
"""Where a stall is what is looked for: a busy machine takes seconds for the first step."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"), size=8)


def service(name: str = "service", **options: Any) -> dict[str, Any]:
    return {"name": name, "backend": "tf_data_service", "options": options}


def scenario(folder: Path, *variants: dict[str, Any], **lengths: Any) -> Scenario:
    model = {"kind": "emulated", "step_ms": 2}
    return alone(*variants, source=images.files(folder), model=model, run={"stall_timeout_s": 60, **lengths})


def numbered(record: TrialRecord) -> tuple[int, int, int]:
    """How many samples were lost, repeated and invented."""
    assert record.status == "ok", record.reason
    assert record.work is not None
    assert record.work.numbered is not None, record.work.reason
    found = record.work.numbered
    return found.lost, found.repeated, found.invented


@pytest.mark.slow
def test_each_way_of_sharing_is_told_by_the_samples_that_arrive(run_scenario: RunScenario, folder: Path) -> None:
    """With `off` two workers read everything each, so that samples come that were there before."""
    session = run_scenario(
        scenario(
            folder,
            service("records", workers=2, cut="records", compression="none"),
            service("off", workers=2, sharding="off") | {"run": {"time_s": 2.0}},
            steps=STEPS,
        )
    )
    found = {record.variant: numbered(record) for record in session.trials}
    repeated = found.pop("off")[1]
    assert repeated > 0
    assert found == dict.fromkeys(found, (0, 0, 0))
    assert {result.variant for result in session.results if result.work.status == "unequal"} == {"off"}


@pytest.mark.slow
def test_however_the_rest_is_shared_each_sample_comes_once(run_scenario: RunScenario, folder: Path) -> None:
    session = run_scenario(
        scenario(
            folder,
            service("one"),
            service("dynamic", workers=2, interleave=2, parallel_calls=2),
            service("samples", workers=2, cut="samples", prefetch=0),
            service("auto", workers=2, sharding="auto"),
            service("data", workers=2, sharding="data"),
            steps=STEPS,
        )
    )
    assert [numbered(record) for record in session.trials] == [(0, 0, 0)] * 5


@pytest.mark.parametrize(
    ("place", "end", "words"),
    [
        (0, signal.SIGKILL, "the dispatcher of the tf.data service was killed by SIGKILL"),
        (2, signal.SIGKILL, "tf.data service worker 1 was killed by SIGKILL"),
        pytest.param(
            *(1, signal.SIGSTOP, f"tf.data service worker 0 has been stopped for {STALL_S} s"), marks=pytest.mark.slow
        ),
    ],
)
def test_a_process_that_dies_fails_its_trial_by_name_and_none_is_left(
    fork_server: TrialServer, folder: Path, tmp_path: Path, place: int, end: signal.Signals, words: str
) -> None:
    def die(tasks: list[psutil.Process]) -> None:
        tasks[place].send_signal(end)  # of two workers the other one goes on

    observer = AtStep(die)
    stall_s = STALL_S if end is signal.SIGSTOP else 60
    wanted = scenario(folder, service(workers=2), time_s=100, stall_timeout_s=stall_s)
    (record,) = run(fork_server, wanted, tmp_path, observer).trials
    assert (record.status, record.reason) == ("failed", words)
    assert record.work is not None
    assert record.work.samples > 0
    assert not any(map(runs, observer.tasks))


@pytest.fixture
def cluster(fork_server: TrialServer, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that is there already."""
    with service_cluster(fork_server, tmp_path, 1) as found:
        yield found


def named_silent(record: TrialRecord) -> bool:
    """Whether it failed by a worker's name; the steps and the answers end at almost the same time."""
    ends = (f"does not answer, and no step came for {STALL_S} s", f"has not answered for {STALL_S} s")
    said = "|".join(map(re.escape, ends))
    found = re.fullmatch(rf"the tf.data service worker localhost:\d+ ({said})", record.reason or "")
    return record.status == "failed" and found is not None


@pytest.mark.slow
def test_another_cluster_is_used_and_its_end_is_told(
    fork_server: TrialServer, cluster: Cluster, folder: Path, tmp_path: Path
) -> None:
    (record,) = run(fork_server, scenario(folder, service(dispatcher=cluster.address), steps=STEPS), tmp_path).trials
    assert numbered(record) == (0, 0, 0)

    def stop_workers() -> None:
        for pid in cluster.pids[1:]:
            psutil.Process(pid).suspend()

    wanted = scenario(folder, service(dispatcher=cluster.address), time_s=100, stall_timeout_s=STALL_S)
    (record,) = run(fork_server, wanted, tmp_path, WhenStepping(stop_workers)).trials
    assert named_silent(record)


@pytest.mark.slow
def test_a_killed_worker_of_another_cluster_is_named_while_the_others_go_on(
    fork_server: TrialServer, folder: Path, tmp_path: Path
) -> None:
    with service_cluster(fork_server, tmp_path, 2) as cluster:
        wanted = scenario(folder, service(dispatcher=cluster.address), time_s=100, stall_timeout_s=STALL_S)
        killing = WhenStepping(lambda: psutil.Process(cluster.pids[2]).kill(), steps=100)
        (record,) = run(fork_server, wanted, tmp_path, killing).trials
    assert named_silent(record)
    assert record.work is not None
    assert record.work.silent[0] == record.reason
    assert record.work.numbered is not None
    found = record.work.numbered
    told = validity.missing(record.work)
    # A worker that had no sample to give yet, as on a busy machine, takes none along.
    assert (told is not None) == (found.lost + found.in_flight + found.repeated > 0)
    assert told is None or told.startswith(record.work.silent[0])


def test_a_dispatcher_that_is_not_there_is_told_before_the_steps(
    fork_server: TrialServer, folder: Path, tmp_path: Path
) -> None:
    wanted = scenario(folder, service(dispatcher="grpc://127.0.0.1:1"), steps=3)
    (record,) = run(fork_server, wanted, tmp_path).trials
    assert record.status == "failed"
    assert record.reason == "No tf.data service answers at options.dispatcher = 'grpc://127.0.0.1:1'."
