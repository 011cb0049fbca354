"""CSV for a spreadsheet: every number as measured, empty where there is none, no formulas."""

from __future__ import annotations

import csv
import io

import pytest

from pipeline_bench.model.result import Speedup, WorkCheck
from pipeline_bench.model.session import Session
from pipeline_bench.report import csv as report
from tests.unit import sessions


def rows(session: Session) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report.render(session), newline="")))


NAMES = [
    "=1+1",
    "+cmd",
    "-2",
    "@SUM(A1)",
    "＝cmd()",
    "\n=cmd()",
    'a "quoted" name',
    "two\nlines",
    "a,b",
    "<script>alert(1)</script>",
    "\"quotes'",
    "x" * 10_000,
    "a\u202eb",
    "|",
    "`",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_text_and_no_formula(name: str) -> None:
    session = sessions.normal()
    renamed = session.results[0].model_copy(update={"variant": name})
    (row, *_) = rows(session.model_copy(update={"results": (renamed,)}))
    assert row["variant"].removeprefix("'") == name
    assert not row["variant"].startswith(("=", "+", "-", "@", "＝", "\n"))


def test_what_schema_version_2_added_has_columns_of_its_own() -> None:
    session = sessions.normal()
    result = session.results[1]
    speedup = Speedup(over="feed_dict", value=1.01, ci95=(0.98, 1.04), difference="none", smallest=0.031)
    changes = {
        "samples_per_second_ci95": (100.0, 120.0),
        "device_utilization": result.device_utilization.model_copy(update={"ci95": (88.0, 92.0)}),
        "speedup": speedup,
        "work": WorkCheck(status="unequal", text="128 samples came twice."),
    }
    (row,) = rows(session.model_copy(update={"results": (result.model_copy(update=changes),)}))
    expected = {
        "samples_per_second_low": "100.0",
        "samples_per_second_high": "120.0",
        "device_utilization_percent_low": "88.0",
        "device_utilization_percent_high": "92.0",
        "speedup_low": "0.98",
        "speedup_high": "1.04",
        "speedup_difference": "none",
        "speedup_smallest": "0.031",
        "work_status": "unequal",
        "work_text": "128 samples came twice.",
    }
    assert {name: row[name] for name in expected} == expected


def test_the_columns_of_the_first_version_keep_their_names() -> None:
    """A spreadsheet refers to them."""
    (row, *_) = rows(sessions.normal())
    names = """
        variant backend status trials steps step_ms_median step_ms_median_low step_ms_median_high
        step_ms_mean step_ms_p05 step_ms_p95 samples_per_second input_wait_share input_wait_share_low
        input_wait_share_high host_slowdown_share accelerator_utilization device_utilization_percent
        device_utilization_source speedup speedup_over loss accuracy_before accuracy_after verdict
        verdict_text
    """
    assert set(row) >= set(names.split())
