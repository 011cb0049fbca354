from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.cells import cell_len

from pipeline_bench.model.result import BUSY_TIME, CPU_TIME, Precision
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial, plan
from pipeline_bench.run.observer import Progress
from pipeline_bench.scenario import Component, Run
from pipeline_bench.text import units
from tests.unit import sessions
from tests.unit.ui.screens import Terminal


class Screen(Terminal):
    """A live view on a terminal of the given size, with what it shows as plain lines."""

    def __init__(self, session: Session, width: int = 80, height: int = 24) -> None:
        super().__init__(width, height)
        self.session = session
        self.trials = plan(session.scenario)

    @classmethod
    def begun(cls, session: Session | None = None, width: int = 80) -> Screen:
        """Of a session as it begins, with nothing measured; what it will come to is the one given."""
        session = session or sessions.normal()
        screen = cls(session, width)
        pending = sessions.pending().model_copy(update={"precision": session.precision})
        screen.view.session_started(pending, screen.trials)
        return screen

    def start(self, trial: Trial, *at_steps: int) -> None:
        self.view.trial_started(trial)
        for step in at_steps:
            self.view.progress(trial, at(step))

    def row(self, name: str) -> str:
        return next(line for line in self.lines() if line[2:].startswith(name))

    def finish(self, trial: Trial) -> None:
        self.view.trial_finished(trial, self.session.trials[trial.index], self.session)


def at(step: int, *, phase: str = "train", percent: float | None = 50.0, training_s: float = 1.0) -> Progress:
    return Progress(
        phase=phase,
        steps=step,
        elapsed_s=training_s + 1,
        training_s=training_s,
        step_ms=None if step == 0 else 10 ** (step / 100),
        input_wait_share=None if step == 0 else step / 300,
        device_utilization_percent=percent,
        device_utilization_source=sessions.CPU_SOURCE,
    )


@pytest.mark.parametrize(("height", "whole"), [(10, False), (24, True)])
def test_a_note_is_whole_where_rows_are_free(height: int, whole: bool) -> None:
    screen = Screen(sessions.normal(), 80, height)
    screen.view.session_started(sessions.pending(), screen.trials)
    screen.view.note("A warning of more than one line, " * 4 + "and its end.")
    assert ("and its end." in "\n".join(screen.lines())) is whole


@pytest.mark.parametrize("width", [60, 160])
@pytest.mark.parametrize("build", [sessions.normal, sessions.troubled, sessions.hostile])
def test_nothing_jumps(width: int, build: Callable[[], Session]) -> None:
    session = build()
    screen = Screen(session, width)
    screen.view.session_started(sessions.pending() if "two_layer" in session.scenario.name else session, screen.trials)
    heights, heads = {len(screen.lines())}, {screen.lines()[1]}
    for trial in screen.trials[: len(session.trials)]:
        screen.view.trial_started(trial)
        for step in (0, 300):
            screen.view.progress(trial, at(step, percent=step / 3))
            lines = screen.lines()
            heights.add(len(lines))
            heads.add(lines[1])
            assert max(map(cell_len, lines)) <= width
        screen.finish(trial)
        screen.view.note(f"note {trial.index} " * 30)
        heights.add(len(screen.lines()))
    assert len(heights) == 1
    assert len(heads) == 1


def test_columns_stay_where_they_are_while_values_grow() -> None:
    screen = Screen.begun()
    screen.view.trial_started(screen.trials[0])
    ends = set()
    for step in (1, 150, 300):
        screen.view.progress(screen.trials[0], at(step))
        ends.add(screen.row("feed_dict").index("%"))
    assert len(ends) == 1


def test_the_running_trial() -> None:
    screen = Screen.begun()
    trial = screen.trials[0]

    screen.view.trial_started(trial)
    assert "feed_dict, repeat 1: starting" in screen.lines()
    screen.view.progress(trial, at(0, phase="build", percent=None))
    assert "feed_dict, repeat 1: building" in screen.lines()
    assert screen.row("feed_dict").count("–") == 3, "nothing was measured yet, and nothing is 0"
    screen.view.progress(trial, at(100, percent=100.0))

    row = screen.row("feed_dict")
    assert row.startswith("● feed_dict")
    for figure in ("1/3", "10.0", "33 %", "100 %", "█"):
        assert figure in row
    assert "feed_dict, repeat 1: step 100/300" in screen.lines()
    assert "CPU: CPU time ÷ (wall time × cores)" in screen.lines()


def test_a_finished_variant_has_its_verdict_and_a_failed_one_its_mark() -> None:
    screen = Screen.begun(sessions.troubled())
    for trial in screen.trials:
        screen.start(trial)
        screen.finish(trial)

    assert screen.row("feed_dict").startswith("✓ feed_dict")
    assert screen.row("feed_dict").rstrip().endswith("input-bound")
    assert screen.row("fifo_queue").startswith("✗ fifo_queue")
    assert screen.row("fifo_queue").count("–") == 3
    assert "all trials have ended" in screen.lines()


def test_the_last_history_is_kept_until_the_next_trial() -> None:
    screen = Screen.begun()
    first, again, *_ = [trial for trial in screen.trials if trial.variant.name == "feed_dict"]
    screen.view.trial_started(first)
    screen.view.progress(first, at(1, percent=100.0))
    screen.finish(first)
    assert "█" in screen.row("feed_dict")
    screen.view.trial_started(again)
    assert "█" not in screen.row("feed_dict")


def test_time_left_is_unknown_before_anything_is_known_and_then_falls() -> None:
    screen = Screen.begun()

    def left() -> str:
        return next(line for line in screen.lines() if line.endswith("left")).split()[-2]

    assert left() == "–"
    screen.view.trial_started(screen.trials[0])
    assert left() == "–"
    screen.view.progress(screen.trials[0], at(0, phase="build"))
    assert left() == "–"
    # 100 of 300 steps in 1 s: 2 s are left of this trial, which will have taken 4; eleven more of 4 s follow
    screen.view.progress(screen.trials[0], at(100))
    assert left() == "0:46"
    for trial in screen.trials:
        screen.finish(trial)
    assert left() == "0:00"


def test_a_trial_by_time_shows_the_time() -> None:
    timed = sessions.variant("timed", run=Run(time_s=30, repeats=1))
    session = sessions.pending().model_copy(update={"scenario": sessions.scenario(timed), "results": ()})
    screen = Screen(session)
    screen.view.session_started(session, screen.trials)
    screen.view.trial_started(screen.trials[0])
    screen.view.progress(screen.trials[0], at(1200, training_s=10.0))
    assert "timed, repeat 1: 0:10 of 0:30, step 1200" in screen.lines()
    assert any(line.endswith("0:20 left") for line in screen.lines())


@pytest.mark.parametrize("height", [6, 9, 12, 16])
def test_a_low_terminal_shows_the_rows_around_the_running_one(height: int) -> None:
    variants = [sessions.variant(f"variant {i:02}", run=Run(steps=300, repeats=1)) for i in range(20)]
    session = sessions.normal().model_copy(update={"scenario": sessions.scenario(*variants), "results": ()})
    screen = Screen(session, 60, height)
    screen.view.session_started(session, screen.trials)
    heights = set()
    for trial in screen.trials:
        screen.view.trial_started(trial)
        lines = screen.lines()
        heights.add(len(lines))
        assert any(line.startswith(f"● {trial.variant.name}") for line in lines)
        assert any(line.startswith("… ") and line.endswith(" more") for line in lines)
        screen.view.trial_finished(trial, sessions.trial(trial.index, trial.variant.name, trial.repeat), session)
    assert len(heights) == 1
    assert heights.pop() < max(height, 9)


def test_draws_at_most_four_times_a_second() -> None:
    screen = Screen(sessions.normal())
    with screen.view:
        screen.view.session_started(sessions.pending(), screen.trials)
        screen.view.trial_started(screen.trials[0])
        drawn = []
        for tick in range(40):
            before = len(screen.stream.getvalue())
            screen.clock.now = 10 + tick * 0.05
            screen.view.progress(screen.trials[0], at(tick + 1))
            drawn.append(len(screen.stream.getvalue()) > before)
    assert 6 <= sum(drawn) <= 9, "two seconds of progress"


def test_leaves_nothing_behind() -> None:
    screen = Screen.begun()
    height = len(screen.lines())
    with screen.view:
        screen.view.note("drawn again")
    cleared = screen.stream.getvalue().rpartition("drawn again")[2]
    assert cleared.count("\x1b[2K") >= height
    assert screen.stream.getvalue().rstrip().endswith("\x1b[2K")


def test_hostile_names_are_text() -> None:
    screen = Screen(sessions.hostile())
    screen.view.session_started(screen.session, screen.trials)
    screen.view.trial_started(screen.trials[0])
    shown = "\n".join(screen.lines())
    assert "[bold]evil" in shown
    assert "[red]not red[/red]" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_before_the_first_trial_it_says_what_takes_so_long() -> None:
    screen = Screen(sessions.normal())
    screen.view.preparing("importing TensorFlow")
    assert screen.lines()[0].startswith("importing TensorFlow")


def test_it_says_how_much_of_the_data_is_made() -> None:
    screen = Screen(sessions.normal())
    screen.view.making("images for tfrecord", 340, 1024)
    assert screen.lines()[0].startswith("making data, images for tfrecord: 340 of 1,024")


def test_there_is_no_verdict_before_the_ceiling_was_measured() -> None:
    screen = Screen.begun()
    kinds = {result.verdict.kind for result in screen.session.results if result.backend != "ceiling"}
    shown = []
    for trial in screen.trials:
        screen.start(trial)
        screen.finish(trial)
        row = screen.row("feed_dict")
        shown.append(any(kind in row for kind in kinds))
        if trial.variant.backend == "ceiling":
            break
    assert shown == [False] * (len(shown) - 1) + [True]


def with_goal(session: Session, goal: Precision) -> Session:
    return session.model_copy(update={"precision": goal})


@pytest.mark.parametrize("width", [60, 160])
def test_nothing_jumps_while_rounds_are_added(width: int) -> None:
    goal = Precision(goal=0.02, budget_s=600)
    session = with_goal(sessions.normal(), goal)
    screen = Screen.begun(session, width)
    heights = {len(screen.lines())}
    for number, trial in enumerate(screen.trials * 2):
        screen.clock.now = number * 12.0
        screen.view.trial_started(trial)
        screen.view.progress(trial, at(150))
        lines = screen.lines()
        heights.add(len(lines))
        assert max(map(cell_len, lines)) <= width
        screen.finish(trial)
    assert len(heights) == 1


def test_with_a_goal_the_screen_shows_it_beside_the_widest_interval_and_the_budget_left() -> None:
    goal = Precision(goal=0.02, budget_s=60)
    screen = Screen.begun(with_goal(sessions.normal(), goal))
    assert "goal ±2 %; no interval yet" in screen.lines()
    screen.view.trial_started(screen.trials[0])
    assert "1/3" not in screen.row("feed_dict"), "how many repeats there will be is not known"
    screen.finish(screen.trials[0])
    screen.clock.now = 20.0
    # 1.26× ± 0.05 and 1.12× ± 0.05: the second is the wider one, relative to itself
    worst = max(
        ((result.speedup.ci95[1] / result.speedup.ci95[0]) ** 0.5 - 1, result.variant)
        for result in screen.session.results
        if result.speedup.ci95 and result.backend != "ceiling"
    )
    assert f"goal ±2 %; widest ±{units.precision(worst[0])}, {worst[1]}'s speed-up" in screen.lines()
    assert any(line.endswith("0:40 of the budget left") for line in screen.lines())


def test_with_a_goal_a_variant_is_done_only_when_the_adding_has_ended() -> None:
    goal = Precision(goal=0.02, budget_s=60)
    screen = Screen.begun(with_goal(sessions.normal(), goal))
    for trial in screen.trials:
        screen.start(trial)
        screen.finish(trial)
    assert screen.row("feed_dict").startswith("· feed_dict")
    assert "all trials have ended" not in screen.lines()
    screen.session = with_goal(screen.session, goal.model_copy(update={"ended_by": "budget", "repeats": 4}))
    screen.finish(screen.trials[-1])
    assert screen.row("feed_dict").startswith("✓ feed_dict")
    assert "all trials have ended" in screen.lines()


def test_while_an_emulated_device_is_built_the_cpus_figure_is_none_of_its() -> None:
    session = sessions.pending()
    emulated = session.scenario.variants[0].model_copy(
        update={"model": Component(kind="emulated", options={"step_ms": 2.0})}
    )
    variants = (emulated, *session.scenario.variants[1:])
    session = session.model_copy(
        update={
            "scenario": session.scenario.model_copy(update={"variants": variants}),
            "environment": session.environment.model_copy(update={"accelerator_kind": "emulated"}),
        }
    )
    screen = Screen(session, width=100)
    screen.view.session_started(session, screen.trials)
    screen.view.trial_started(screen.trials[0])
    screen.view.progress(
        screen.trials[0], replace(at(0, phase="build", percent=97.0), device_utilization_source=CPU_TIME)
    )
    shown = "\n".join(screen.lines())
    assert "97" not in shown
    assert "CPU time" not in shown
    assert f"emul.: {BUSY_TIME} ÷ wall time" in shown


def test_an_emulated_device_is_called_that_from_its_first_figure_on() -> None:
    screen = Screen.begun(width=100)
    screen.view.trial_started(screen.trials[0])
    screen.view.progress(screen.trials[0], replace(at(150), device_utilization_source=BUSY_TIME))
    shown = "\n".join(screen.lines())
    assert "emul." in screen.lines()[1] + screen.lines()[2]
    assert f"emul.: {BUSY_TIME} ÷ wall time" in shown


@pytest.mark.parametrize("width", range(24, 80, 4))
def test_on_a_narrow_terminal_columns_are_left_out_and_no_figure_is_cut(width: int) -> None:
    screen = Screen.begun(width=width)
    screen.finish(screen.trials[0])
    table = screen.lines()[1:6]
    cells = set(" ".join(table).split())
    assert "12.3" in cells
    assert {"38", "%"} <= cells or "wait" not in cells
    assert not [cell for cell in cells if cell in ("12.", "1/", "ms/", "ms/st", "wa", "tri", "C")]
    assert all(line[0] in "✓●·✗ " for line in table)


def test_a_finished_variant_has_the_mean_step_that_the_reports_have() -> None:
    """Of an input that comes in bursts the median is another figure, beside which the share of the wait is wrong."""
    session = sessions.normal()
    results = tuple(
        result.model_copy(update={"step_ms": result.step_ms.model_copy(update={"mean": 61.5})})
        for result in session.results
    )
    screen = Screen.begun(session.model_copy(update={"results": results}))
    screen.start(screen.trials[0], 100)
    screen.finish(screen.trials[0])
    assert "61.5" in screen.row("feed_dict")
