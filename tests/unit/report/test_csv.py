"""CSV for a spreadsheet: every number as measured, empty where there is none, no formulas."""

from __future__ import annotations

import csv
import io

import pytest

from pipeline_bench.model.session import Session
from pipeline_bench.report import csv as report
from tests.unit import hostile, sessions


def rows(session: Session) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report.render(session), newline="")))


NAMES = ["=1+1", "+cmd", "-2", "@SUM(A1)", "＝cmd()", "\n=cmd()", 'a "quoted" name', "a,b", *hostile.NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_text_and_no_formula(name: str) -> None:
    session = sessions.normal()
    renamed = session.results[0].model_copy(update={"variant": name})
    (row, *_) = rows(session.model_copy(update={"results": (renamed,)}))
    assert row["variant"].removeprefix("'") == name
    assert not row["variant"].startswith(("=", "+", "-", "@", "＝", "\n"))


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
