from __future__ import annotations

import pytest
from rich.cells import cell_len

from pipeline_bench.report.terminal_table import Footnotes, variant_name
from pipeline_bench.text import units


def test_a_reason_is_told_once_and_numbered_by_its_first_mark() -> None:
    notes = Footnotes()
    assert [notes.mark(reason) for reason in ("b", "a", "b", None, "")] == ["¹", "²", "¹", "", ""]
    assert [line.plain for line in notes.lines()] == ["¹ b", "² a"]


def test_a_long_name_is_cut_by_the_cells_it_takes() -> None:
    assert variant_name("x" * 49) == "x" * 47 + "…"
    assert cell_len(variant_name("名" * 41)) == 48


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (12.3, (12.0, 12.7), "±0.4"),
        (123.0, (100.0, 130.0), "±23"),
        (0.57, (0.5, 0.6), "±0.07"),
        (12.3, (12.299, 12.301), "±<0.1"),
        (12.3, (12.3, 12.3), "±0.0"),
        (12.3, None, ""),
        (None, (1.0, 2.0), ""),
    ],
)
def test_margins_have_the_digits_of_their_figure(
    value: float | None, interval: tuple[float, float] | None, text: str
) -> None:
    assert units.margin(value, interval) == text


def test_margins_of_shares_are_in_percentage_points() -> None:
    assert units.share_margin(0.3, (0.2, 0.33)) == "±10"
    assert units.share_margin(0.3, (0.2996, 0.3001)) == "±<0.1"


@pytest.mark.parametrize(("value", "text"), [(0.69314, "0.6931"), (1.946e-05, "1.9e-05"), (0.0, "0"), (None, "–")])
def test_losses(value: float | None, text: str) -> None:
    assert units.loss(value) == text
