"""A difference in a terminal: everything is said at every width, and no name steers the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pipeline_bench.difference import Difference
from pipeline_bench.report import diff_terminal
from tests.unit.report import differences

WIDTHS = (60, 80, 100, 120, 136, 160)


def shown(difference: Difference, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(diff_terminal.render(difference, width))
    return capture.get()


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, shown(differences.full(), width).splitlines())) <= width


@pytest.mark.parametrize("width", [80, 100, 120, 136, 160])
def test_every_figure_is_whole_at_every_width(width: int) -> None:
    text = shown(differences.full(), width)
    table = text[text.index("variant") : text.index("was input-bound")]
    for figure in ("12.3", "13.8", "+12 %", "(+8.0 to +16)", "-10 %", "0.62", "0.58", "38 %", "host-bound"):
        assert figure in table, figure
    assert "…" not in table


def test_what_makes_it_unfair_comes_first() -> None:
    text = shown(differences.full(), 80)
    assert text.index("2.20.0 → 2.21.0") < text.index("burst number 0") < text.index("ms/")


@pytest.mark.parametrize("width", [80, 160])
def test_gates_the_machine_and_lone_variants_are_told(width: int) -> None:
    difference = differences.full()
    text = words(shown(difference, width))
    for gate in difference.gates:
        assert f"{gate.text}" in text
    assert "the machine itself, by ceiling: no difference found" in text
    assert "only before: old" in text
    assert "only after: new" in text
    assert text.endswith("1 without an interval, 1 not measured in both.")


def test_the_ceiling_comes_last_in_the_table() -> None:
    text = shown(differences.full(), 120)
    assert text.index("\nbroken") < text.index("\nceiling")


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("name", differences.HOSTILE)
def test_a_name_is_text_on_its_line(name: str, width: int) -> None:
    text = shown(differences.hostile(name), width)
    assert all(line.isprintable() for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= width
    assert len(text) < 20_000
