"""A difference in a terminal: everything is said at every width, and no name steers the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pipeline_bench.model.difference import Difference, Noise
from pipeline_bench.model.result import Disturbance
from pipeline_bench.report import difference as report
from tests.unit.report import differences

WIDTHS = (60, 80, 100, 120, 136, 160)


def shown(difference: Difference, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(report.terminal(difference, width))
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


@pytest.mark.parametrize("width", WIDTHS)
def test_a_gate_that_only_counts_as_failed_is_told_from_one_that_failed(width: int) -> None:
    full = differences.full()
    forced = {"outcome": "failed", "only_undecided": True}
    gates = tuple(gate.model_copy(update=forced) for gate in full.gates[2:])
    text = shown(full.model_copy(update={"gates": (*full.gates[:2], *gates)}), width)
    assert "undecided, counted as failed AU" in words(text)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_changes_of_the_shares_are_shown_and_explained_where_there_is_room(width: int) -> None:
    text = shown(differences.full(), width)
    assert ("(-4.0 ±2)" in text) == (width >= 120)
    assert ("percentage points" in words(text)) == (width >= 120)


def test_a_disturbance_that_takes_several_lines_keeps_its_indent() -> None:
    long = Disturbance(kind="burst", variant="v", repeat=0, text="another process took the processor " * 6)
    difference = differences.full().model_copy(update={"disturbances": (Noise(side="after", disturbance=long),)})
    lines = [line for line in shown(difference, 60).splitlines() if "process" in line and "burst" not in line]
    assert len(lines) > 2
    assert all(line.startswith("  ") for line in lines)


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
    assert text.startswith("1 of 3 gates failed, 1 undecided. 5 variants: 1 slower")


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
