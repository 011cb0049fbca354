"""The terminal's list of what disturbed the trials."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from pipeline_bench.model.result import Disturbance
from pipeline_bench.report.terminal import render
from tests.unit import sessions


def shown(*found: Disturbance, width: int = 160) -> list[str]:
    session = sessions.normal().model_copy(update={"disturbances": found})
    console = Console(record=True, width=width, file=io.StringIO(), _environ={})
    console.print(render(session, None, width))
    return [line.rstrip() for line in console.export_text().splitlines()]


def disturbance(variant: str, repeat: int = 0, text: str = "its steps were slow") -> Disturbance:
    return Disturbance(kind="burst", variant=variant, repeat=repeat, cost_share=0.1, text=text)


def test_it_is_told_with_its_trial_kind_and_words_and_the_smaller_ones_are_counted() -> None:
    """Which come first and which share a line: test_disturbed."""
    lines = shown(*(disturbance(f"variant {i}", repeat=1) for i in range(10)))
    assert "variant 0, repeat 2: burst: its steps were slow" in lines
    assert "besides: 2 smaller disturbances in the session file" in lines


def test_without_disturbances_nothing_is_said() -> None:
    assert not any("disturb" in line for line in shown())


@pytest.mark.parametrize("width", [60, 100])
def test_hostile_words_stay_within_the_terminal(width: int) -> None:
    lines = shown(*(disturbance(name, text=f"{name} [red]x\x1b[2J") for name in sessions.HOSTILE), width=width)
    assert max(map(cell_len, lines)) <= width
    assert all(line.isprintable() for line in lines)
