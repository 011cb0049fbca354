"""How later sessions cite the last selftest of a machine."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from pipeline_bench.environment import Accelerator, describe
from pipeline_bench.model import selftest
from pipeline_bench.model.selftest import Checked, Selftest, Window
from pipeline_bench.report.selftest import facts, table, words
from tests.unit import records

CHECKED = Checked(
    at="2026-11-22T12:00:00+00:00",
    cpu="a CPU",
    driver="580.1",
    wait_error=0.018,
    utilization_error=0.02,
    cost_share=0.006,
    windows=(Window(source="NVML samples", error_points=2.6),),
)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_machine_that_was_never_checked_is_told_so() -> None:
    found = selftest.last_selftest("580.1", "a CPU")
    assert found.at is None
    assert "never checked" in words(found)


def test_the_last_selftest_is_cited_with_its_errors() -> None:
    selftest.keep_last(CHECKED)
    found = selftest.last_selftest("580.1", "a CPU")
    assert not found.other_driver
    assert words(found) == (
        "checked on 22 November 2026: waits within 1.8 points, AU within 2.0 points, "
        "utilization (NVML samples) within 2.6 points, cost 0.6 %"
    )


def test_another_driver_is_told_and_another_machine_was_never_checked() -> None:
    selftest.keep_last(CHECKED)
    assert "that was with driver 580.1" in words(selftest.last_selftest("590.2", "a CPU"))
    assert selftest.last_selftest("580.1", "another CPU").at is None


def test_parts_that_failed_are_named() -> None:
    assert "failed: ceiling" in words(CHECKED.model_copy(update={"failed": ("ceiling",)}))
    assert "not decided beside other work: loops" in words(CHECKED.model_copy(update={"disturbed": ("loops",)}))


def test_a_damaged_file_is_none() -> None:
    selftest.keep_last(CHECKED)
    selftest.last_file().write_text("{", encoding="utf-8")
    assert selftest.last_selftest("580.1", "a CPU").at is None


def test_a_selftest_says_what_the_figures_of_nvml_speak_of() -> None:
    known = Window(source="NVML samples", window_ms=200, latency_ms=60, period_ms=167, error_points=2.6, runs=14)
    unknown = Window(source="NVML utilization rates", reason="no permission")
    session = records.session(records.scenario(), [], describe(Accelerator()))
    found = facts(session.model_copy(update={"selftest": Selftest(windows=(known, unknown))}))
    assert found == [
        (
            "NVML samples",
            "a figure is of 200 ms, which end 60 ms before its stamp; a new one every 167 ms; "
            "14 runs, of which 95 % within 2.6 points",
        ),
        ("NVML utilization rates", "which time a figure is of is not known: no permission"),
    ]
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(table(Selftest(windows=(known, unknown))))
    shown = console.export_text()
    assert all(f"{name}: {text}" in shown for name, text in found)
