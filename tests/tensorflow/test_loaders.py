"""Real trials through grain and PyTorch's DataLoader: equal work, who died when a worker is dead, and none is left."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline_bench.run.launcher import TrialServer
from pipeline_bench.scenario import Scenario
from pipeline_bench.system.processes import removes_shared_memory
from tests.processes import runs
from tests.tensorflow import images
from tests.tensorflow.beside import AtStep
from tests.tensorflow.conftest import RunScenario
from tests.trials import alone, run

STEPS = 40
NEEDS_GRAIN = pytest.mark.skipif(find_spec("grain") is None, reason="grain is not installed")
NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"), size=8)


def variant(name: str, backend: str, **rest: Any) -> dict[str, Any]:
    return {"name": name, "backend": backend, **rest}


def scenario(folder: Path, *variants: dict[str, Any], **lengths: Any) -> Scenario:
    source, model = images.files(folder, batch_size=7), {"kind": "emulated", "step_ms": 2}
    return alone(*variants, source=source, model=model, run={"stall_timeout_s": 60, **lengths})


GRAIN = {"worker_count": 2, "num_threads": 2}
TORCH = {"num_workers": 2}
MEMORY = {"source": {"kind": "memory", "samples": 50, "features": 4, "batch_size": 8}, "model": {"kind": "mlp"}}


OF_GRAIN = [
    variant("grain", "grain"),
    variant("grain, workers", "grain", options=GRAIN),
    variant("grain, memory", "grain", **MEMORY),
]
OF_TORCH = [
    variant("torch", "data_loader", **MEMORY, loop={"kind": "function"}),
    variant("torch, workers", "data_loader", options=TORCH),
    variant("torch, anew", "data_loader", options={"num_workers": 1, "persistent_workers": False})
    | {"run": {"steps": 10}},
    variant("torch, keras", "data_loader", options=TORCH, **MEMORY, loop={"kind": "keras_fit"}),
]


@pytest.mark.parametrize(
    "variants",
    [pytest.param(OF_GRAIN, marks=NEEDS_GRAIN, id="grain"), pytest.param(OF_TORCH, marks=NEEDS_TORCH, id="torch")],
)
def test_the_same_samples_reach_the_model_from_files_and_memory_in_graphs_and_eager(
    run_scenario: RunScenario, folder: Path, variants: list[dict[str, Any]]
) -> None:
    session = run_scenario(scenario(folder, *variants, steps=STEPS))
    for record in session.trials:
        assert record.status == "ok", (record.variant, record.reason)
        assert record.work is not None
        assert record.work.numbered is not None, record.work.reason
        found = record.work.numbered
        assert (found.lost, found.repeated, found.invented) == (0, 0, 0), record.variant
        assert record.work.samples > 0
    assert {result.work.status for result in session.results} == {"equal"}


def workers_of_trial() -> list[psutil.Process]:
    """The processes that the trial's library started, oldest first."""
    family = psutil.Process().children(recursive=True)
    return sorted((each for each in family if is_worker(each)), key=lambda each: each.pid)


def is_worker(process: psutil.Process) -> bool:
    """Forked or fresh, it has a parent, a trial, that was forked from the server that this process started."""
    return len(process.parents()) - len(psutil.Process().parents()) == 3 and not removes_shared_memory(process.pid)


def to_workers(place: int | None, number: signal.Signals) -> AtStep:
    """Sends a signal to a worker, or to all, when the trial has taken its first steps."""

    def send(workers: list[psutil.Process]) -> None:
        for worker in workers if place is None else [workers[place]]:
            worker.send_signal(number)

    return AtStep(send, find=workers_of_trial)


@pytest.mark.parametrize(
    ("backend", "options", "named"),
    [
        pytest.param("grain", GRAIN, "grain worker 1", marks=NEEDS_GRAIN),
        pytest.param("data_loader", TORCH, "DataLoader worker 1", marks=NEEDS_TORCH),
    ],
)
def test_a_worker_that_dies_fails_its_trial_by_name_and_nothing_is_left(
    fork_server: TrialServer, folder: Path, tmp_path: Path, backend: str, options: dict[str, Any], named: str
) -> None:
    shared = set(Path("/dev/shm").iterdir())
    observer = to_workers(1, signal.SIGKILL)
    wanted = scenario(folder, variant("killed", backend, options=options), time_s=100)
    (record,) = run(fork_server, wanted, tmp_path, observer).trials
    assert (record.status, record.reason) == ("failed", f"{named} was killed by SIGKILL")
    assert len(observer.tasks) == 2
    assert not any(map(runs, observer.tasks))
    left = set(Path("/dev/shm").iterdir()) - shared
    for path in left:
        path.unlink()
    assert len(left) <= 1  # the one that a worker was just making when it was killed, of which nobody knew yet


@NEEDS_GRAIN
def test_workers_that_stand_still_are_a_stall(fork_server: TrialServer, folder: Path, tmp_path: Path) -> None:
    observer = to_workers(None, signal.SIGSTOP)
    wanted = scenario(folder, variant("stopped", "grain", options=GRAIN), time_s=100, stall_timeout_s=4)
    (record,) = run(fork_server, wanted, tmp_path, observer).trials
    assert record.status == "stalled"
    assert not any(map(runs, observer.tasks))


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        pytest.param("grain", GRAIN, marks=NEEDS_GRAIN),
        pytest.param("data_loader", TORCH, marks=NEEDS_TORCH),
        pytest.param("data_loader", {}, marks=NEEDS_TORCH),
    ],
)
def test_a_bad_record_is_named_from_a_worker(
    run_scenario: RunScenario, tmp_path: Path, backend: str, options: dict[str, Any]
) -> None:
    path = images.spoil(images.make(tmp_path, size=8))
    (record,) = run_scenario(scenario(tmp_path, variant("bad", backend, options=options), steps=STEPS)).trials
    assert record.status == "failed"
    assert (record.reason or "").startswith(f"{path} cannot be decoded: "), record.reason
    assert "\n" not in (record.reason or "")
