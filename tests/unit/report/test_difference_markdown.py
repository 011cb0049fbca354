"""A difference as Markdown: everything is said, and nothing of a session becomes markup."""

from __future__ import annotations

import re

import pytest

from pipeline_bench.model.difference import Difference
from pipeline_bench.report import difference as report
from pipeline_bench.text import one_line
from tests.unit.report import commonmark, differences


def cells(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row))


def test_what_makes_it_unfair_comes_before_the_figures() -> None:
    text = report.markdown(differences.full())
    assert text.index("2.20.0 → 2.21.0") < text.index("| variant |")
    assert "source.batch\\_size: 128 → 64 (tf_data)" in text.replace("batch_size", "batch\\_size")
    assert text.index("burst number 0") < text.index("| variant |")
    assert "after: besides: 1 smaller disturbance " in text


def test_every_figure_and_every_gate_is_there() -> None:
    difference = differences.full()
    text = report.markdown(difference)
    for shown in ("+12 % (+8.0 to +16)", "-10 %", "0.62 → 0.58 (-4.0 ±2)", "input-bound → host-bound"):
        assert shown in text
    assert "only before: old" in text
    assert "only after: new" in text
    for gate in difference.gates:
        assert gate.text in text
    assert "**failed**, not slower by more than 5 %: feed_dict" in text
    assert text.startswith(
        "### pipeline-bench diff: 1 of 3 gates failed, 1 undecided. 5 variants: 1 slower, 1 faster, "
    )


def test_what_was_not_measured_is_a_dash_with_its_reason() -> None:
    text = report.markdown(differences.full())
    (row,) = (line for line in text.splitlines() if line.startswith("| broken"))
    assert row.split(" | ")[2:5] == ["–", "–", "0.62 → –"]
    assert "not measured after: killed by signal 9" in text


def test_an_undecided_gate_that_counts_as_failed_is_told_from_one_that_failed() -> None:
    difference = differences.full()
    forced = difference.gates[2].model_copy(update={"outcome": "failed", "only_undecided": True})
    text = report.markdown(difference.model_copy(update={"gates": (*difference.gates[:2], forced)}))
    assert "1 of 3 gates failed, 1 undecided, counted as failed. " in text
    assert "**undecided, counted as failed**, AU not below 0.90: tf_data" in text


def test_a_fair_comparison_without_gates_says_nothing_of_either() -> None:
    fair = differences.full().model_copy(update={"conditions": (), "disturbances": (), "gates": ()})
    text = report.markdown(fair)
    assert "fair" not in text
    assert "gate" not in text.splitlines()[0]


@pytest.mark.parametrize("difference", [differences.full(), *map(differences.hostile, differences.HOSTILE)])
def test_every_row_has_the_cells_of_its_head(difference: Difference) -> None:
    rows = [line for line in report.markdown(difference).splitlines() if line.startswith("| ")]
    assert {cells(row) for row in rows} == {len(report._HEADS) + 1}


@pytest.mark.parametrize("name", [*differences.HOSTILE, "*a*", "[a](b)", "![a](b)", "> a", "---", "1. a"])
def test_a_reader_sees_the_name_and_no_markup_of_it(name: str) -> None:
    text = report.markdown(differences.hostile(name))
    assert "\u202e" not in text
    assert max(map(len, text.splitlines())) < 2500
    assert commonmark.unwanted(text) == []
    assert commonmark.shown(text).count(" ".join(one_line(name).split())[:60]) >= 8
