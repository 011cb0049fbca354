"""The terminal's table: its footnotes and its names."""

from __future__ import annotations

from rich.cells import cell_len

from pipeline_bench.report.terminal_table import Footnotes, variant_name


def test_a_reason_is_told_once_and_numbered_by_its_first_mark() -> None:
    notes = Footnotes()
    assert [notes.mark(reason) for reason in ("b", "a", "b", None, "")] == ["¹", "²", "¹", "", ""]
    assert [line.plain for line in notes.lines()] == ["¹ b", "² a"]


def test_a_long_name_is_cut_by_the_cells_it_takes() -> None:
    assert variant_name("x" * 49) == "x" * 47 + "…"
    assert cell_len(variant_name("名" * 41)) == 48
