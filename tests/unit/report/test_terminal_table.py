"""The terminal's table: its footnotes and its names."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from pipeline_bench.report import mean_step
from pipeline_bench.report.terminal_table import Footnotes, variant_name, variants_table
from tests.unit import records, sessions
from tests.unit.console import words
from tests.unit.records import record, scenario


def test_a_reason_is_told_once_and_numbered_by_its_first_mark() -> None:
    notes = Footnotes()
    assert [notes.mark(reason) for reason in ("b", "a", "b", None, "")] == ["¹", "²", "¹", "", ""]
    assert [line.plain for line in notes.lines()] == ["¹ b", "² a"]


def test_a_long_name_is_cut_by_the_cells_it_takes() -> None:
    assert variant_name("x" * 49) == "x" * 47 + "…"
    assert cell_len(variant_name("名" * 41)) == 48


def test_the_step_that_is_shown_is_the_mean_which_the_wait_and_the_speed_up_are_of() -> None:
    """One step in ten waits 40 ms: beside the median of 4 ms a mean wait of 4 ms would be the whole step."""
    bursty = ([4.0] * 9 + [44.0]) * 10
    trials = [
        each
        for repeat in range(3)
        for each in (record("feed_dict", repeat, bursty, 4.0), record("ceiling", repeat, 4.0, None))
    ]
    (found, _) = records.session(scenario("feed_dict"), trials).results
    shown = mean_step(found)
    assert found.step_ms.median == pytest.approx(4.0)
    assert shown.value == pytest.approx(8.0, rel=0.05)
    assert shown.ci95 is not None
    assert shown.ci95 == pytest.approx((8.0, 8.0), rel=0.05)
    assert (found.input_wait_ms.value or 0.0) / (shown.value or 1.0) == pytest.approx(found.input_wait_share.value)


def test_a_session_of_the_first_version_has_medians_alone() -> None:
    (found, *_) = sessions.normal().results
    assert mean_step(found).value == found.step_ms.median


def test_a_rate_whose_interval_begins_at_none_leaves_the_step_without_an_interval() -> None:
    (found, *_) = records.session(scenario("feed_dict"), [record("feed_dict", 0, 4.0, 1.0)]).results
    assert mean_step(found.model_copy(update={"samples_per_second_ci95": (0.0, 5.0)})).ci95 is None


def test_where_an_interval_has_its_two_ends_is_explained() -> None:
    session = sessions.normal()
    lopsided = session.result("fifo_queue").speedup.model_copy(update={"value": 1.57, "ci95": (1.23, 3.14)})
    text = words(variants_table(sessions.with_result(session, "fifo_queue", speedup=lopsided), 100), 100)
    assert "1.23–3.14" in text
    assert "its two ends where that is as much as the figure itself, or a ratio's sides differ" in text
