"""Real trials with replicas: they train what one replica trains, and a task that is killed leaves no process."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from pipeline_bench.run.launcher import TrialServer, fresh_launcher
from pipeline_bench.scenario import Scenario
from tests.processes import runs
from tests.tensorflow.beside import AtStep
from tests.tensorflow.conftest import RunScenario
from tests.trials import alone, losses, run, see_length

BATCH = 16
STEPS = 20
BETWEEN: dict[str, Any] = {"replicas": 2, "replication": "between_graph"}


def variant(name: str, batch_size: int = BATCH, **runtime: Any) -> dict[str, Any]:
    source = {"kind": "memory", "batch_size": batch_size, "features": 32, "samples": 64}
    return {"name": name, "backend": "tf_data", "source": source, "runtime": {"device": "cpu", **runtime}}


def scenario(*variants: dict[str, Any], **settings: Any) -> Scenario:
    length = {} if "time_s" in settings else {"steps": STEPS}
    return alone(*variants, model={"hidden_widths": [16]}, run={**length, **settings})


def test_replicas_train_what_one_trains_but_for_rounding(run_scenario: RunScenario) -> None:
    one, *others = run_scenario(
        scenario(
            variant("one"),
            variant("towers", replicas=4),
            variant("mirrored", replicas=2, replication="mirrored"),
            variant("mirrored, one", replication="mirrored", log_placement=True),
        )
    ).trials
    assert len(losses(one)) == STEPS
    for other in others:
        np.testing.assert_allclose(losses(other), losses(one), rtol=1e-4, err_msg=other.variant)
        assert other.accuracy == one.accuracy
        assert other.work is not None
        assert other.work.reason is None
    alone = others[-1].placement
    assert alone is not None
    assert any(op.name.startswith("Adam/update_0/") for op in alone.ops)  # by the device's number, as the strategy does


def test_synchronous_workers_apply_the_mean_of_their_gradients_once(run_scenario: RunScenario) -> None:
    """Both workers read the same samples of a numbered source: the mean over both is that of one of half the batch."""
    half, workers = run_scenario(scenario(variant("half", BATCH // 2), variant("workers", **BETWEEN))).trials
    np.testing.assert_allclose(losses(workers), losses(half), rtol=1e-4)
    assert workers.accuracy.before is not None
    assert workers.accuracy.after is not None
    assert workers.work is not None
    assert "each worker reads the source from its first sample on" in (workers.work.reason or "")


@pytest.mark.slow
@pytest.mark.parametrize("synchronous", [True, False])
def test_workers_draw_samples_of_their_own_and_take_exactly_the_steps(
    run_scenario: RunScenario, synchronous: bool
) -> None:
    """The account of all workers' batches knows no batch twice; those of workers with one seed would all be."""
    random = variant("workers", **BETWEEN, synchronous=synchronous, log_placement=True)
    random |= {"source": {"kind": "synthetic", "batch_size": BATCH, "features": 32}, "backend": "fifo_queue"}
    (record,) = run_scenario(scenario(random)).trials
    assert len(losses(record)) == STEPS
    assert record.steps is not None
    start_ns, end_ns = record.steps.start_ns.unpack(), record.steps.end_ns.unpack()
    assert (start_ns[1:] == end_ns[:-1]).all()
    assert record.steps.wait_ns is not None
    assert (record.steps.wait_ns.unpack() <= end_ns - start_ns).all()
    assert record.work is not None
    assert record.work.random is not None
    assert record.work.steps == 2 * STEPS
    assert record.work.checked_steps > STEPS
    assert record.work.random.repeated_batches == 0
    assert record.placement is not None
    assert record.placement.reason == "the workers of between_graph replication do not tell their placement"


@pytest.mark.parametrize("synchronous", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_workers_train_for_the_time_that_was_asked(run_scenario: RunScenario, synchronous: bool) -> None:
    workers = variant("workers", **BETWEEN, synchronous=synchronous)
    (record,) = run_scenario(scenario(workers, time_s=0.3)).trials
    see_length(record, 0.3)


@pytest.mark.slow
def test_a_trial_in_a_fresh_interpreter_has_workers_as_well(tmp_path: Path) -> None:
    with closing(fresh_launcher(tmp_path / "server.stderr")) as launcher:
        (record,) = run(launcher, scenario(variant("workers", **BETWEEN), steps=3), tmp_path).trials
    assert len(losses(record)) == 3


@pytest.mark.parametrize(
    ("place", "synchronous", "words"),
    [
        (0, True, "the parameter server was killed by SIGKILL"),
        pytest.param(2, False, "worker 1 was killed by SIGKILL", marks=pytest.mark.slow),
    ],
)
def test_a_task_that_is_killed_fails_the_trial_at_once_and_leaves_no_process(
    fork_server: TrialServer, tmp_path: Path, place: int, synchronous: bool, words: str
) -> None:
    observer = AtStep(lambda tasks: tasks[place].kill())
    wanted = scenario(variant("workers", **BETWEEN, synchronous=synchronous), time_s=60, stall_timeout_s=20)
    (record,) = run(fork_server, wanted, tmp_path, observer).trials
    assert (record.status, record.reason) == ("failed", words)
    assert record.steps is not None
    assert not any(map(runs, observer.tasks))


def test_the_kernel_ends_the_tasks_of_a_trial_that_is_killed(fork_server: TrialServer, tmp_path: Path) -> None:
    observer = AtStep(lambda tasks: os.kill(tasks[0].ppid(), signal.SIGKILL))
    (record,) = run(fork_server, scenario(variant("workers", **BETWEEN), time_s=60), tmp_path, observer).trials
    assert record.status == "failed"
    _, alive = psutil.wait_procs(observer.tasks, timeout=5)
    assert not alive


@pytest.mark.slow
def test_an_input_that_gives_nothing_stalls_the_trial_and_names_each_workers_queue_and_place(
    run_scenario: RunScenario,
) -> None:
    stalled = variant("workers", **BETWEEN)
    stalled |= {"source": {"kind": "synthetic", "batch_size": 16, "latency_ms": 1e6}, "backend": "fifo_queue"}
    (record,) = run_scenario(scenario(stalled, stall_timeout_s=10)).trials
    assert record.status == "stalled"
    assert "input_queue of worker 0 held 0 of 5 elements" in (record.reason or "")
    assert "input_queue of worker 1 held 0 of 5 elements" in (record.reason or "")
    for worker in range(2):
        assert f"MainThread of worker {worker} was at pipeline_bench/loops/session.py" in (record.reason or "")


def test_what_a_worker_raises_is_the_trials_reason(run_scenario: RunScenario) -> None:
    gpu = variant("workers", **BETWEEN) | {"runtime": {**BETWEEN, "device": "gpu:63"}}
    (record,) = run_scenario(scenario(gpu)).trials
    assert record.status == "failed"
    assert "2 replicas need a GPU each" in (record.reason or "")
