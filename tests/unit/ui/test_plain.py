from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.model.result import Precision
from pipeline_bench.model.trial import plan
from pipeline_bench.run.observer import Progress
from pipeline_bench.system import interrupts
from pipeline_bench.ui.plain import PlainView
from tests.unit import sessions
from tests.unit.console import full_pipe
from tests.unit.ui.screens import plain


def test_a_session_line_by_line() -> None:
    session = sessions.normal()
    view, stream = plain(session, Path("reports/x"))
    view.preparing("importing TensorFlow")
    trial = plan(session.scenario)[0]
    view.trial_started(trial)
    view.trial_finished(trial, session.trials[0], session)
    view.note("The machine is busy.")
    assert stream.getvalue().splitlines() == [
        "two_layer: 12 trials of 4 variants",
        "saved in reports/x",
        "importing TensorFlow ...",
        "[ 1/12] feed_dict, repeat 1/3: ok, 1.67 ms a step, 4 steps, 4.00 s",  # the mean of 1, 1 and 3 ms
        "note: The machine is busy.",
    ]


def test_a_long_trial_says_how_far_it_is_after_twenty_seconds_and_each_time_after_as_long_again() -> None:
    view, stream = plain(sessions.normal())
    first, second = plan(sessions.normal().scenario)[:2]
    for trial in (first, second):
        view.trial_started(trial)
        for elapsed_s in range(0, 100, 10):
            phase = "build" if elapsed_s < 30 else "train"
            view.progress(trial, Progress(phase, steps=elapsed_s, elapsed_s=elapsed_s, training_s=elapsed_s))
    lines = stream.getvalue().splitlines()[1:]
    assert lines[:3] == [
        "[ 1/12] feed_dict, repeat 1/3: building, 0:20 so far",
        "[ 1/12] feed_dict, repeat 1/3: step 40/300, 0:40 so far",
        "[ 1/12] feed_dict, repeat 1/3: step 80/300, 1:20 so far",
    ]
    assert [line.partition(": ")[2] for line in lines[3:]] == [line.partition(": ")[2] for line in lines[:3]]


def test_making_data_is_a_line_now_and_then() -> None:
    stream = io.StringIO()
    view = PlainView(stream)
    for made in range(0, 1025, 64):
        view.making("images for tfrecord", made, 1024)
    view.making("lines for csv", 0, 10)
    assert stream.getvalue().splitlines() == [
        *(f"making data, images for tfrecord: {made} of 1,024" for made in ("0", "256", "512", "768", "1,024")),
        "making data, lines for csv: 0 of 10",
    ]


def test_a_trial_without_steps_has_its_reason_and_no_step_time() -> None:
    session = sessions.troubled()
    view, stream = plain(session)
    view.trial_finished(plan(session.scenario)[2], session.trials[2], session)
    assert stream.getvalue().splitlines()[-1] == (
        "[ 3/12] tf_data, repeat 1/3: stalled: no step ended for 60 s in phase train, after 3 steps, 0 steps, 4.00 s"
    )


def test_hostile_names_stay_on_their_line_and_are_cut() -> None:
    session = sessions.hostile()
    view, stream = plain(session)
    for trial, record in zip(plan(session.scenario), session.trials, strict=False):
        view.trial_finished(trial, record, session)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1 + len(sessions.HOSTILE)
    assert all(line.isprintable() for line in lines)
    assert "[red]not red[/red]" in lines[1]
    assert "two lines" in lines[2]


def test_with_a_goal_every_round_says_how_it_stands() -> None:
    goal = Precision(goal=0.02, budget_s=60)
    session = sessions.normal().model_copy(update={"precision": goal})
    view, stream = plain(session)
    ended = {"repeats": 2, "ended_by": "budget", "text": "the budget of 60 s was spent"}
    updates: list[dict[str, Any]] = [{}, {"repeats": 1}, ended]
    # as if the second trial ended the first round
    for trial, update in zip(plan(session.scenario), updates, strict=False):
        told = session.model_copy(update={"precision": goal.model_copy(update=update)})
        view.trial_finished(trial, session.trials[trial.index], told)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "two_layer: 4 variants, repeated until ±2 % is reached, for 60 s at most"
    assert lines[1] == "[1] feed_dict, repeat 1: ok, 1.67 ms a step, 4 steps, 4.00 s"
    assert lines[2].startswith("[2] fifo_queue, repeat 1: ok")
    assert lines[3].startswith("after 1 repeat: goal ±2 %, widest ±")
    assert lines[3].endswith("of the budget left")
    assert lines[4].startswith("[3] tf_data, repeat 1: ok")
    assert lines[5] == "the budget of 60 s was spent"


def test_a_line_that_nobody_reads_is_left_out_once_an_interrupt_is_kept_back() -> None:
    with full_pipe(blocking=False) as stream, pytest.raises(KeyboardInterrupt):
        with_an_interrupt(lambda: PlainView(stream).note("a note"))


def with_an_interrupt(work: Callable[[], None]) -> None:
    with interrupts.deferred():
        os.kill(os.getpid(), signal.SIGINT)
        work()
