"""CSV for a spreadsheet: every number as measured, empty where there is none, no formulas."""

from __future__ import annotations

import csv
import io

import pytest

from pipeline_bench.report import csv as report
from pipeline_bench.session import Session
from tests.unit import sessions


def rows(session: Session) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report.render(session), newline="")))


def test_numbers_come_back_as_they_are() -> None:
    session = sessions.normal()
    for row, result in zip(rows(session), session.results, strict=True):
        assert row["variant"] == result.variant
        if result.step_ms.median is not None:
            assert float(row["step_ms_median"]) == result.step_ms.median
        if result.input_wait_share.ci95 is not None:
            assert float(row["input_wait_share_low"]) == result.input_wait_share.ci95[0]


def test_what_was_not_measured_is_empty_and_not_zero() -> None:
    for row, result in zip(rows(sessions.pending()), sessions.pending().results, strict=True):
        assert result.step_ms.median is None
        assert row["step_ms_median"] == ""
        assert row["input_wait_share"] == ""


@pytest.mark.parametrize("name", ["=1+1", "+cmd", "-2", "@SUM(A1)", 'a "quoted" name', "two\nlines", "a,b"])
def test_a_name_is_a_text_and_no_formula(name: str) -> None:
    session = sessions.normal()
    renamed = session.results[0].model_copy(update={"variant": name})
    (row, *_) = rows(session.model_copy(update={"results": (renamed,)}))
    assert row["variant"].removeprefix("'") == name
    assert not row["variant"].startswith(("=", "+", "-", "@"))
