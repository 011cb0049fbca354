"""Real trials that go wrong: each is recorded for what it was, and the ones beside it go on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline_bench.model import session as sessions
from pipeline_bench.model.session import Session
from pipeline_bench.scenario.load import load
from pipeline_bench.scenario.resolve import resolve
from tests.tensorflow.conftest import RunScenario

SMALL: dict[str, Any] = {"source": {"batch_size": 16, "features": 32}, "model": {"hidden_widths": [16]}}


@pytest.fixture(autouse=True)
def faulty_backend(faults_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline_bench import plugins

    monkeypatch.setenv("PYTHONPATH", faults_path)
    for folder in faults_path.split(os.pathsep)[:2]:
        monkeypatch.syspath_prepend(folder)
    plugins._classes.cache_clear()


def faulty(fault: str, stall_timeout_s: float = 60) -> Any:
    return resolve(
        {
            **SMALL,
            "name": "faults",
            "run": {"steps": 40, "repeats": 1, "stall_timeout_s": stall_timeout_s},
            "variants": [
                {"name": "faulty", "backend": "faulty", "options": {"fault": fault}},
                {"name": "good", "backend": "feed_dict"},
            ],
        }
    )


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise", "planted: the reader met a record it cannot read"),
        ("segfault", "SIGSEGV"),
        ("killed", "SIGKILL"),
        ("exit", "SystemExit"),
        ("memory", "out of memory"),
        ("flood", "planted: after a flood"),
    ],
)
def test_a_trial_that_dies_is_failed_and_the_others_go_on(run_scenario: RunScenario, fault: str, words: str) -> None:
    session = run_scenario(faulty(fault))
    statuses = {record.variant: record.status for record in session.trials}
    assert statuses == {"faulty": "failed", "good": "ok", "ceiling": "ok"}
    assert words in (session.trials[0].reason or "")


def test_a_traceback_is_kept_with_the_trial(run_scenario: RunScenario) -> None:
    assert "in go_wrong" in run_scenario(faulty("raise")).trials[0].stderr_tail


def test_a_hang_in_python_says_where_it_stood(run_scenario: RunScenario) -> None:
    record = run_scenario(faulty("hang", stall_timeout_s=3)).trials[0]
    assert record.status == "stalled"
    assert "pipeline_bench_faults.py" in (record.reason or "")
    assert "in go_wrong" in (record.reason or "")


def test_a_hang_with_the_gil_held_is_ended_and_leaves_its_stacks(run_scenario: RunScenario) -> None:
    record = run_scenario(faulty("hold_gil", stall_timeout_s=3)).trials[0]
    assert record.status == "stalled"
    assert "go_wrong" in record.stderr_tail


def test_a_queue_that_nobody_fills_is_named_with_its_empty_size(run_scenario: RunScenario) -> None:
    scenario = load("two_layer", ["source.latency_ms=1e6"], ["fifo_queue"], run={"repeats": 1, "stall_timeout_s": 3})
    record = run_scenario(scenario).trials[0]
    assert record.status == "stalled"
    assert "fifo_queue" in (record.reason or "")
    assert "input_queue held 0 of 5 elements" in (record.reason or "")
    assert any("QueueRunner" in stack.thread for stack in record.stacks)


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    """The program itself, in a process group of its own, with a scenario that takes its time."""
    command = [
        sys.executable,
        "-m",
        "pipeline_bench",
        "compare",
        "--time",
        "60",
        "--no-live",
        "--out",
        str(folder),
        *options,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_training(program: subprocess.Popen[str]) -> list[psutil.Process]:
    """Wait until a trial is at work; return every process that the program started, the fork server first."""
    for _ in range(600):
        server = psutil.Process(program.pid).children()
        with contextlib.suppress(psutil.NoSuchProcess):
            trials = [trial for process in server for trial in process.children(recursive=True)]
            if sum(trial.cpu_times().user for trial in trials) > 0.5:
                return [*server, *trials]
        time.sleep(0.1)
    raise AssertionError("no trial began")


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], alive


def only_session(folder: Path) -> Session:
    (inside,) = folder.iterdir()
    return sessions.load(inside)


def test_an_interrupt_saves_the_session_and_leaves_no_process(tmp_path: Path) -> None:
    """With TensorFlow's threads at work; tests/integration/test_program.py has the other signals and moments."""
    program = start(tmp_path)
    family = wait_for_training(program)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "Traceback" not in errors
    assert_gone(family)
    assert only_session(tmp_path).trials[-1].status == "interrupted"
