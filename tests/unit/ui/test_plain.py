from __future__ import annotations

import io
from pathlib import Path

from pipeline_bench.model.result import Precision
from pipeline_bench.model.trial import plan
from pipeline_bench.ui.plain import PlainView
from tests.unit import sessions


def test_a_session_line_by_line() -> None:
    stream = io.StringIO()
    session = sessions.normal()
    trials = plan(session.scenario)
    view = PlainView(stream, Path("reports/x"))

    view.preparing("importing TensorFlow")
    view.session_started(session, trials)
    view.trial_started(trials[0])
    view.trial_finished(trials[0], session.trials[0], session)
    view.note("The machine is busy.")
    view.session_finished(session)

    assert stream.getvalue().splitlines() == [
        "importing TensorFlow ...",
        "two_layer: 12 trials of 4 variants",
        "saved in reports/x",
        "[ 1/12] feed_dict, repeat 1/3: ok, 1.00 ms a step, 4 steps, 4.00 s",
        "note: The machine is busy.",
    ]


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
    stream = io.StringIO()
    session = sessions.troubled()
    trials = plan(session.scenario)
    view = PlainView(stream)

    view.session_started(session, trials)
    view.trial_finished(trials[2], session.trials[2], session)

    last = stream.getvalue().splitlines()[-1]
    assert last == (
        "[ 3/12] tf_data, repeat 1/3: stalled: no step ended for 60 s in phase train, after 3 steps, 0 steps, 4.00 s"
    )


def test_hostile_names_stay_on_their_line_and_are_cut() -> None:
    stream = io.StringIO()
    session = sessions.hostile()
    trials = plan(session.scenario)
    view = PlainView(stream)

    view.session_started(session, trials)
    for trial, record in zip(trials, session.trials, strict=False):
        view.trial_finished(trial, record, session)

    lines = stream.getvalue().splitlines()
    assert len(lines) == 1 + len(sessions.HOSTILE)
    assert all(line.isprintable() for line in lines)
    assert "[red]not red[/red]" in lines[1]
    assert "two lines" in lines[2]


def test_with_a_goal_every_round_says_how_it_stands() -> None:
    stream = io.StringIO()
    goal = Precision(goal=0.02, budget_s=60)
    session = sessions.normal().model_copy(update={"precision": goal})
    trials = plan(session.scenario)
    view = PlainView(stream)

    view.session_started(session, trials)
    for trial in trials[:2]:
        rounds = goal.model_copy(update={"repeats": trial.index})  # as if the second trial ended the first round
        view.trial_finished(trial, session.trials[trial.index], session.model_copy(update={"precision": rounds}))
    ended = goal.model_copy(update={"repeats": 2, "ended_by": "budget", "text": "the budget of 60 s was spent"})
    view.trial_finished(trials[2], session.trials[2], session.model_copy(update={"precision": ended}))

    lines = stream.getvalue().splitlines()
    assert lines[0] == "two_layer: 4 variants, repeated until ±2 % is reached, for 60 s at most"
    assert lines[1] == "[1] feed_dict, repeat 1: ok, 1.00 ms a step, 4 steps, 4.00 s"
    assert lines[2].startswith("[2] fifo_queue, repeat 1: ok")
    assert lines[3].startswith("after 1 repeat: goal ±2 %, widest ±")
    assert lines[3].endswith("of the budget left")
    assert lines[4].startswith("[3] tf_data, repeat 1: ok")
    assert lines[5] == "the budget of 60 s was spent"
