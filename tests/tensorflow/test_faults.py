"""Real trials that go wrong: each is recorded for what it was, and the ones beside it go on."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario.load import load
from tests.tensorflow.conftest import RunScenario
from tests.trials import alone, without_ceilings

SMALL: dict[str, Any] = {"source": {"batch_size": 16, "features": 32}, "model": {"hidden_widths": [16]}}
STALL_S = 2.0

DIES = {
    "raise": "planted: the reader met a record it cannot read",
    "exit": "SystemExit",
    "flood": "planted: after a flood",
}
"""Faults that end their trial, with words of its reason."""

HANGS = ("hang", "hold_gil", "deaf")


@pytest.fixture(scope="module")
def faulty(faulty_backends: None, run_scenario_once: RunScenario) -> dict[str, TrialRecord]:
    """A trial with each fault, by its name, and ``good``, the last one."""
    entries: list[dict[str, Any]] = [
        {"name": fault, "backend": "faulty", "options": {"fault": fault}} for fault in (*DIES, *HANGS)
    ]
    for entry in entries[len(DIES) :]:
        entry["run"] = {"stall_timeout_s": STALL_S}
    scenario = alone(*entries, {"name": "good", "backend": "feed_dict"}, run={"steps": 40}, **SMALL)
    return {record.variant: record for record in run_scenario_once(scenario).trials}


@pytest.mark.parametrize("fault", DIES)
def test_a_trial_that_dies_is_failed(faulty: dict[str, TrialRecord], fault: str) -> None:
    assert faulty[fault].status == "failed"
    assert DIES[fault] in (faulty[fault].reason or "")


def test_after_every_fault_the_others_go_on(faulty: dict[str, TrialRecord]) -> None:
    assert faulty["good"].status == "ok"


def test_a_traceback_is_kept_with_the_trial(faulty: dict[str, TrialRecord]) -> None:
    assert "in go_wrong" in faulty["raise"].stderr_tail


def test_a_hang_in_python_says_where_it_stood(faulty: dict[str, TrialRecord]) -> None:
    assert faulty["hang"].status == "stalled"
    assert "pipeline_bench_faults.py" in (faulty["hang"].reason or "")
    assert "in hang" in (faulty["hang"].reason or "")


def test_a_hang_whose_own_watch_is_patched_away_is_ended_though_signs_of_life_go_on(
    faulty: dict[str, TrialRecord],
) -> None:
    assert faulty["deaf"].status == "stalled"
    assert "the trial could not report it" in (faulty["deaf"].reason or "")
    assert len(faulty["deaf"].queue_depths) == 1


def test_a_hang_with_the_gil_held_is_ended_and_leaves_its_stacks(faulty: dict[str, TrialRecord]) -> None:
    assert faulty["hold_gil"].status == "stalled"
    assert "go_wrong" in faulty["hold_gil"].stderr_tail


def test_a_queue_that_nobody_fills_is_named_with_its_empty_size(run_scenario: RunScenario) -> None:
    scenario = load(
        "two_layer", ["source.latency_ms=1e6"], ["fifo_queue"], run={"repeats": 1, "stall_timeout_s": STALL_S}
    )
    record = run_scenario(without_ceilings(scenario)).trials[0]
    assert record.status == "stalled"
    assert "fifo_queue" in (record.reason or "")
    assert "input_queue held 0 of 5 elements" in (record.reason or "")
    assert any("QueueRunner" in stack.thread for stack in record.stacks)
