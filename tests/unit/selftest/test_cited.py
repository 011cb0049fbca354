"""How later sessions cite the last selftest of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_bench.environment import Accelerator, describe
from pipeline_bench.model import selftest
from pipeline_bench.model.selftest import Checked, Selftest, Window
from pipeline_bench.report.selftest import facts, table, words
from tests.unit import records
from tests.unit.console import printed

CHECKED = Checked(
    at="2026-11-22T12:00:00+00:00",
    cpu="a CPU",
    gpu="a GPU",
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
    found = selftest.last_selftest("580.1", "a CPU", "a GPU")
    assert found.at is None
    assert "never checked" in words(found)


def test_a_user_without_a_home_folder_has_no_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watched job asks for it as it ends, also in a container whose user the system does not know."""
    monkeypatch.setenv("XDG_STATE_HOME", "~no-such-user/state")
    selftest.keep_last(CHECKED)
    assert selftest.last_selftest("580.1", "a CPU", "a GPU").at is None


def test_the_last_selftest_is_cited_with_its_errors() -> None:
    selftest.keep_last(CHECKED)
    found = selftest.last_selftest("580.1", "a CPU", "a GPU")
    assert not found.other_driver
    assert words(found) == (
        "checked on 22 November 2026: waits within 1.8 points, AU within 2.0 points, "
        "utilization (NVML samples) within 2.6 points, cost 0.6 %"
    )


def test_another_driver_is_told_and_another_machine_was_never_checked() -> None:
    selftest.keep_last(CHECKED)
    assert "that was with driver 580.1" in words(selftest.last_selftest("590.2", "a CPU", "a GPU"))
    assert selftest.last_selftest("580.1", "another CPU", "a GPU").at is None
    assert selftest.last_selftest("580.1", "a CPU", "another GPU").at is None
    assert selftest.last_selftest("580.1", "a CPU", None).at is None


def test_machines_that_share_a_home_folder_keep_theirs() -> None:
    other = CHECKED.model_copy(update={"cpu": "another CPU", "gpu": None, "wait_error": 0.5})
    selftest.keep_last(CHECKED)
    selftest.keep_last(other)
    assert selftest.last_selftest("580.1", "a CPU", "a GPU") == CHECKED
    assert selftest.last_selftest("580.1", "another CPU", None) == other


LATER = CHECKED.model_copy(update={"at": "2026-11-24T12:00:00+00:00", "wait_error": 0.01, "windows": ()})
BETTER = (Window(source="NVML samples", window_ms=167, error_points=1.0),)


def test_a_quick_selftest_replaces_a_full_one_only_where_it_failed() -> None:
    quick = LATER.model_copy(update={"quick": True, "windows": BETTER})
    assert quick.after(CHECKED, ended=True) == CHECKED
    failed = quick.model_copy(update={"failed": ("ceiling",)}).after(CHECKED, ended=True)
    assert (failed.failed, failed.windows, failed.windows_at) == (("ceiling",), CHECKED.windows, CHECKED.at)
    assert quick.after(CHECKED.model_copy(update={"package": "another"}), ended=True).at == quick.at
    assert quick.after(CHECKED.model_copy(update={"quick": True}), ended=True) == quick


def test_a_selftest_that_found_no_window_leaves_those_that_were_known() -> None:
    none = LATER.model_copy(update={"windows": (Window(source="NVML samples", reason="no GPU"),)})
    kept = none.after(CHECKED, ended=True)
    assert (kept.at, kept.wait_error, kept.windows, kept.windows_at) == (none.at, 0.01, CHECKED.windows, CHECKED.at)
    assert "within 2.6 points on 22 November 2026" in words(kept)
    other_driver = CHECKED.model_copy(update={"other_driver": True})
    assert none.after(other_driver, ended=True) == none


def test_a_selftest_that_was_interrupted_behind_its_windows_leaves_them() -> None:
    begun = LATER.model_copy(update={"wait_error": None, "windows": BETTER})
    selftest.keep_last(begun, ended=False)
    assert selftest.last_selftest("580.1", "a CPU", "a GPU").usable_windows == BETTER
    kept = begun.after(CHECKED, ended=False)
    assert (kept.at, kept.wait_error, kept.windows, kept.windows_at) == (CHECKED.at, 0.018, BETTER, begun.at)
    assert LATER.model_copy(update={"windows": BETTER}).after(kept, ended=True).windows_at is None


def test_windows_of_another_driver_are_not_used() -> None:
    selftest.keep_last(CHECKED)
    assert selftest.last_selftest("590.2", "a CPU", "a GPU").usable_windows == ()


def test_parts_that_failed_are_named() -> None:
    assert "failed: ceiling" in words(CHECKED.model_copy(update={"failed": ("ceiling",)}))
    assert "not decided beside other work: loops" in words(CHECKED.model_copy(update={"disturbed": ("loops",)}))


def test_a_damaged_file_is_none() -> None:
    selftest.keep_last(CHECKED)
    selftest.last_file("a CPU", "a GPU").write_text("{", encoding="utf-8")
    assert selftest.last_selftest("580.1", "a CPU", "a GPU").at is None


def test_a_selftest_says_what_the_figures_of_nvml_speak_of() -> None:
    known = Window(source="NVML samples", window_ms=200, latency_ms=60, period_ms=167, error_points=2.6, runs=14)
    unknown = Window(source="NVML utilization rates", reason="no permission")
    session = records.session(records.scenario("feed_dict"), [], describe(Accelerator()))
    found = facts(session.model_copy(update={"selftest": Selftest(windows=(known, unknown))}))
    assert found == [
        (
            "NVML samples",
            "a figure is of 200 ms, which end 60 ms before its stamp; a new one every 167 ms; "
            "14 runs, of which 95 % within 2.6 points",
        ),
        ("NVML utilization rates", "which time a figure is of is not known: no permission"),
    ]
    shown = printed(table(Selftest(windows=(known, unknown)), 200), 200)
    assert all(f"{name}: {text}" in shown for name, text in found)
