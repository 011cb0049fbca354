"""A difference of sessions: its sentences, in a terminal of every width, and as Markdown without foreign markup.

What stands where is held by the golden texts, of pairs of sessions with gates and without.
"""

from __future__ import annotations

import re

import pytest

from pipeline_bench.model.difference import Difference, Gate, Noise, Ratio
from pipeline_bench.model.result import Disturbance
from pipeline_bench.report import difference as report
from pipeline_bench.text import one_line
from tests.unit import hostile
from tests.unit.console import printed
from tests.unit.report import commonmark, differences

WIDTHS = (60, 80, 100, 120, 136, 160)


def shown(difference: Difference, width: int) -> str:
    return printed(report.terminal(difference, width), width)


def of_different_jobs() -> Difference:
    full = differences.full()
    changes = tuple(c.model_copy(update={"ceilings_differ_in": ("source.batch_size",)}) for c in full.variants)
    return full.model_copy(update={"variants": changes})


def test_ceilings_of_different_jobs_say_nothing_of_the_machine() -> None:
    (line,) = report.machine(of_different_jobs())
    assert line == (
        "the machine itself: ceiling is of different jobs before and after (source.batch_size), so it tells nothing"
    )


def test_au_is_said_to_hold_on_a_slower_machine_only_beside_ceilings_of_the_same_job() -> None:
    assert "so they hold on a machine" in report.au_note(differences.full())
    assert "hold on a machine" not in report.au_note(of_different_jobs())
    assert "of different jobs" in report.au_note(of_different_jobs())


def test_the_count_tells_what_changed_beside_the_ceiling_alone() -> None:
    faster = Ratio(value=0.76, ci95=(0.64, 0.9), difference="faster", smallest=0.2)
    none = Ratio(value=1.0, ci95=(0.95, 1.05), difference="none", smallest=0.06)
    changes = [differences.change(name, none) for name in ("a", "b", "c")]
    changes[0] = changes[0].model_copy(update={"beside_ceiling": faster})
    difference = differences.full().model_copy(update={"variants": tuple(changes), "gates": ()})
    assert report.headline(difference).endswith(" 3 variants: 3 tie (1 faster beside the ceiling).")


def test_what_is_not_fair_is_said_before_who_is_slower_and_behind_the_gates() -> None:
    difference = differences.full().model_copy(update={"gates": ()})
    assert report.headline(difference).startswith("Not fair (TensorFlow, source.batch_size differ). 5 variants: ")
    assert report.headline(differences.full()).startswith("1 of 3 gates failed, 1 undecided. Not fair (")
    one = difference.conditions[:1]
    assert "Not fair (TensorFlow differs). " in report.headline(difference.model_copy(update={"conditions": one}))
    assert "TensorFlow, 2 more differ" in report.headline(difference.model_copy(update={"conditions": one * 5}))
    assert report.headline(difference.model_copy(update={"conditions": ()})).startswith("5 variants: ")


@pytest.mark.parametrize("width", [40, 50, 59])
def test_a_narrow_terminal_has_fewer_columns_and_each_of_them_whole(width: int) -> None:
    text = shown(differences.full(), width)
    table = text[text.index("variant ") : text.index("was input-bound")]
    for cell in ("feed_dict", "12.3", "13.8", "+12 %", "(+8.0 to +16)"):
        assert cell in table, cell
    assert ("host-bound" in table) == ("verdict" in table)
    assert "…" not in table


def test_gates_that_only_count_as_failed_are_told_from_those_that_did() -> None:
    difference = differences.full()
    forced = {"outcome": "failed", "only_undecided": True}
    gates = tuple(gate.model_copy(update=forced) for gate in difference.gates)

    def line(*gates: Gate) -> str:
        return report.gates_line(difference.model_copy(update={"gates": gates}))

    assert line(*gates) == "3 of 3 gates failed (undecided, counted as failed). "
    assert line(gates[0]) == "1 of 1 gate failed (undecided, counted as failed). "
    others = [gate for gate in difference.gates if gate.outcome != "undecided"]
    assert sorted(gate.outcome for gate in others) == ["failed", "passed"]
    assert line(gates[0], *others) == "2 of 3 gates failed (1 of them undecided, counted as failed). "
    assert line(*difference.gates) == "1 of 3 gates failed, 1 undecided. "
    assert report.outcome(gates[2]) == "undecided, counted as failed"


@pytest.mark.parametrize("sides", [("before",), ("after",), ("before", "after")])
@pytest.mark.parametrize("count", [1, 6, 40])
def test_disturbances_are_six_lines_at_most_and_none_is_lost(sides: tuple[str, ...], count: int) -> None:
    noises = tuple(
        Noise.model_validate(
            {"side": side, "disturbance": Disturbance(kind="burst", variant=f"v{i}", repeat=0, text="x.")}
        )
        for side in sides
        for i in range(count)
    )
    lines = list(report.noises(differences.full().model_copy(update={"disturbances": noises})))
    assert len(lines) <= 6
    told = [line for line in lines if "besides" not in line]
    left_out = sum(int(line.split("besides: ")[1].split()[0]) for line in lines if "besides" in line)
    assert len(told) + left_out == len(noises)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, shown(differences.full(), width).splitlines())) <= width


@pytest.mark.parametrize("width", [80, 100, 120, 136, 160])
def test_every_figure_is_whole_at_every_width(width: int) -> None:
    text = shown(differences.full(), width)
    table = text[text.index("variant") : text.index("was input-bound")]
    interval = "(+8.0 to +16 %)" if width >= 136 else "(+8.0 to +16)"
    for figure in ("12.3", "13.8", "+12 %", interval, "-10 %", "0.62", "0.58", "38 %", "host-bound"):
        assert figure in table, figure
    assert "…" not in table


@pytest.mark.parametrize("width", WIDTHS)
def test_changes_of_the_shares_are_shown_and_explained_where_there_is_room(width: int) -> None:
    text = shown(differences.full(), width)
    assert ("(-4.0 ±2)" in text) == (width >= 120)
    assert ("percentage points" in " ".join(text.split())) == (width >= 120)


def test_a_disturbance_that_takes_several_lines_keeps_its_indent() -> None:
    long = Disturbance(kind="burst", variant="v", repeat=0, text="another process took the processor " * 6)
    difference = differences.full().model_copy(update={"disturbances": (Noise(side="after", disturbance=long),)})
    lines = [line for line in shown(difference, 60).splitlines() if "process" in line and "burst" not in line]
    assert len(lines) > 2
    assert all(line.startswith("  ") for line in lines)


@pytest.mark.parametrize("name", hostile.NAMES)
def test_a_name_is_text_on_its_line(name: str) -> None:
    text = shown(differences.hostile(name), 60)
    assert all(line.isprintable() for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 60
    assert len(text) < 20_000


def cells(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row))


@pytest.mark.parametrize("difference", [differences.full(), *map(differences.hostile, hostile.NAMES)])
def test_every_row_has_the_cells_of_its_head(difference: Difference) -> None:
    rows = [line for line in report.markdown(difference).splitlines() if line.startswith("| ")]
    assert {cells(row) for row in rows} == {len(report._HEADS) + 1}


@pytest.mark.parametrize("name", [*hostile.NAMES, "*a*", "[a](b)", "![a](b)", "> a", "---", "1. a"])
def test_a_reader_sees_the_name_and_no_markup_of_it(name: str) -> None:
    text = report.markdown(differences.hostile(name))
    assert "\u202e" not in text
    assert max(map(len, text.splitlines())) < 2500
    assert commonmark.unwanted(text) == []
    assert commonmark.shown(text).count(" ".join(one_line(name).split())[:60]) >= 8


def test_names_with_commas_are_apart_where_they_are_listed() -> None:
    alone = differences.full().model_copy(update={"only_before": ("loop, 1 step", "loop, 9 steps"), "only_after": ()})
    assert list(report.alone(alone)) == ["only before: loop, 1 step; loop, 9 steps"]
