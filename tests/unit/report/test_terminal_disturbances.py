"""The terminal's list of what disturbed the trials."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from pipeline_bench.model.result import Disturbance, DisturbanceKind
from pipeline_bench.report.terminal import render
from tests.unit import sessions


def shown(*found: Disturbance, width: int = 160) -> list[str]:
    session = sessions.normal().model_copy(update={"disturbances": found})
    console = Console(record=True, width=width, file=io.StringIO(), _environ={})
    console.print(render(session, None, width))
    return [line.rstrip() for line in console.export_text().splitlines()]


def disturbance(
    variant: str = "feed_dict",
    repeat: int = 0,
    cost: float | None = 0.1,
    kind: DisturbanceKind = "burst",
    text: str = "its steps were slow",
) -> Disturbance:
    return Disturbance(kind=kind, variant=variant, repeat=repeat, cost_share=cost, text=text)


def test_a_disturbance_is_told_with_its_trial_kind_and_words() -> None:
    assert "feed_dict, repeat 2: burst: its steps were slow" in shown(disturbance(repeat=1))


def test_the_same_kind_in_several_repeats_is_one_line_with_the_words_of_the_worst() -> None:
    lines = shown(disturbance(), disturbance(repeat=1, cost=0.3, text="it was worst"), disturbance(repeat=2, cost=None))
    assert "feed_dict, repeats 1, 2 and 3: burst: in repeat 2 it was worst" in lines
    assert not any("its steps were slow" in line for line in lines)


def test_the_costliest_comes_first_and_the_unknown_last() -> None:
    lines = shown(
        disturbance("tf_data", cost=None, kind="gpu-contention"),
        disturbance(cost=0.02),
        disturbance("fifo_queue", cost=0.4, kind="steal"),
    )
    kinds = [line.split(": ")[1] for line in lines if ", repeat 1: " in line]
    assert kinds == ["steal", "burst", "gpu-contention"]


def test_a_long_list_is_cut_and_says_so() -> None:
    kinds: tuple[DisturbanceKind, ...] = ("burst", "drift", "steal", "cpu-contention", "cpu-throttling")
    lines = shown(*(disturbance(name, kind=kind) for name in ("feed_dict", "tf_data") for kind in kinds))
    assert sum(", repeat 1: " in line for line in lines) == 8
    assert "besides: 2 smaller disturbances in the session file" in lines


def test_without_disturbances_nothing_is_said() -> None:
    assert not any("disturb" in line for line in shown())


@pytest.mark.parametrize("width", [60, 100])
def test_hostile_words_stay_within_the_terminal(width: int) -> None:
    lines = shown(*(disturbance(name, text=f"{name} [red]x\x1b[2J") for name in sessions.HOSTILE), width=width)
    assert max(map(cell_len, lines)) <= width
    assert all(line.isprintable() for line in lines)
