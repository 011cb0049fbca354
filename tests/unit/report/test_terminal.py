from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from pipeline_bench.model.result import Disturbance, Precision, WorkCheck
from pipeline_bench.model.session import Session
from pipeline_bench.report.terminal import render
from tests.unit import sessions

WIDTHS = (60, 80, 100, 160)
FOLDER = Path("reports/20240501T120000-two_layer")


def shown(session: Session, width: int, folder: Path | None = FOLDER) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), _environ={})
    console.print(render(session, folder, width))
    return console.export_text()


def joined(session: Session, width: int) -> str:
    return " ".join(shown(session, width).split())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["normal", "troubled", "pending", "hostile"])
def test_no_line_is_wider_than_the_terminal(width: int, name: str) -> None:
    text = shown(getattr(sessions, name)(), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_is_cut(width: int) -> None:
    assert "…" not in shown(sessions.normal(), width)


def test_the_ceiling_comes_last() -> None:
    session = sessions.normal()
    turned = session.model_copy(update={"results": session.results[::-1]})
    lines = shown(turned, 80).splitlines()
    names = [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in {"tf_data", "ceiling"}]
    assert names == ["tf_data", "ceiling", "tf_data", "ceiling"], "in the table of steps and in that of losses"


def test_a_single_trial_has_no_interval_and_says_so() -> None:
    session = sessions.normal()
    step = session.results[0].step_ms.model_copy(update={"ci95": None, "reason": "one trial has no interval"})
    alone = session.results[0].model_copy(update={"step_ms": step})
    text = shown(session.model_copy(update={"results": (alone,)}), 80)
    assert "no ±: one trial has no interval" in text
    assert "±0.4" not in text


def test_hostile_names_are_text() -> None:
    text = shown(sessions.hostile(), 160)
    for part in ("[red]not red[/red]", "[/]", "two lines", "[link=http://example.org]click[/link]", "[bold]evil"):
        assert part in text
    assert "x" * 39 + "…" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_the_folder_is_whole_and_on_lines_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(sessions.normal(), 80, tmp_path / "reports" / "x").endswith("Session saved in\nreports/x\n")
    folder = Path("/") / ("long" * 30) / "x"
    text = shown(sessions.normal(), 60, folder)
    assert str(folder) in text.rpartition("Session saved in")[2].replace("\n", "")
    assert "saved" not in shown(sessions.normal(), 80, None)


def test_the_steps_left_out_as_warmup_are_told() -> None:
    session = sessions.normal()
    slow = session.results[0].model_copy(update={"warmup_steps": (5, 40, 5)})
    even = session.results[1].model_copy(update={"warmup_steps": (1, 1, 1)})
    shown = joined(session.model_copy(update={"results": (slow, even, *session.results[2:])}), 160)
    assert f"{slow.variant}: 5 to 40; " in shown
    assert f"{even.variant}: 1" in shown


def test_a_difference_that_could_not_be_told_is_named_with_what_could_have_been() -> None:
    session = sessions.normal()
    queue = session.result("fifo_queue")
    speedup = queue.speedup.model_copy(update={"value": 1.01, "difference": "none", "smallest": 0.021})
    results = tuple(r if r is not queue else r.model_copy(update={"speedup": speedup}) for r in session.results)
    text = joined(session.model_copy(update={"results": results}), 100)
    assert "No difference from feed_dict found (smallest this run could have seen: 2.1 %)." in text
    assert "No difference" not in joined(session, 100)


def test_the_work_of_every_variant_is_named_with_its_proof() -> None:
    session = sessions.normal()
    proof = WorkCheck(status="equal", text="38,400 samples in 3 trials: none lost, repeated or invented")
    open_question = WorkCheck(text="the source dice says nothing of its samples")
    results = [r.model_copy(update={"work": proof}) for r in session.results]
    results[2] = results[2].model_copy(update={"work": open_question})
    text = joined(session.model_copy(update={"results": tuple(results)}), 160)
    assert "equal work: feed_dict; fifo_queue; feed_dict: 38,400 samples in 3 trials: none lost" in text
    assert "work not checked: tf_data; the source dice says nothing of its samples" in text
    assert "equal work" not in joined(session, 160), "of a session from before it was checked"


def test_what_ended_the_adding_of_repeats_is_said_once() -> None:
    text = "the budget of 60 s was spent after 5 repeats: fifo_queue's speed-up is known to ±3.4 %"
    ended = Precision(goal=0.02, budget_s=60, repeats=5, ended_by="budget", text=text)
    shown_text = joined(sessions.normal().model_copy(update={"precision": ended}), 100)
    assert shown_text.count("The budget of 60 s was spent after 5 repeats: fifo_queue's speed-up is known") == 1
    assert "budget" not in joined(sessions.normal(), 100)


@pytest.mark.parametrize("width", [40, 50, 58, 70])
def test_on_a_narrow_terminal_no_figure_of_a_table_is_cut(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(render(sessions.normal(), None, width))
    assert not re.findall(r"\d+\.?…|…×", capture.get())
    assert "12.3" in capture.get()


def disturbed(*found: Disturbance, width: int = 160) -> list[str]:
    session = sessions.normal().model_copy(update={"disturbances": found})
    return [line.rstrip() for line in shown(session, width, None).splitlines()]


def disturbance(variant: str, repeat: int = 0, text: str = "its steps were slow") -> Disturbance:
    return Disturbance(kind="burst", variant=variant, repeat=repeat, cost_share=0.1, text=text)


def test_a_disturbance_is_told_with_its_trial_kind_and_words_and_the_smaller_ones_are_counted() -> None:
    """Which come first and which share a line: test_facts."""
    lines = disturbed(*(disturbance(f"variant {i}", repeat=1) for i in range(10)))
    assert "variant 0, repeat 2: burst: its steps were slow" in lines
    assert "besides: 2 smaller disturbances in the session file" in lines


@pytest.mark.parametrize("width", [60, 100])
def test_hostile_words_stay_within_the_terminal(width: int) -> None:
    lines = disturbed(*(disturbance(name, text=f"{name} [red]x\x1b[2J") for name in sessions.HOSTILE), width=width)
    assert max(map(cell_len, lines)) <= width
    assert all(line.isprintable() for line in lines)
