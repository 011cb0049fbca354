"""What leaving Python is said to be worth, of sessions whose figures are known."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.analysis.advice import loop_remarks
from pipeline_bench.model.session import Session
from pipeline_bench.scenario.resolve import resolve
from tests.unit import records, sessions

LOOPS = {
    "session": {"kind": "session"},
    "callable": {"kind": "callable"},
    "while_loop": {"kind": "while_loop", "steps_per_call": 100},
}


def session(repeats: int = 3, noise: float = 1e-4, changes: dict[str, Any] | None = None, **step_ms: float) -> Session:
    """A session that compares loops, with a mean step time for each."""
    entries = [
        {"name": name, "backend": "tf_data", "loop": LOOPS[name], **(changes or {}).get(name, {})} for name in LOOPS
    ]
    scenario = resolve({"name": "loops", "run": {"repeats": repeats}, "variants": entries})
    timed = {name: (mean, 0.0) for name, mean in step_ms.items()}
    return records.session(scenario, records.rounds(timed, repeats, noise))


def said(of: Session) -> str:
    ((head, text),) = loop_remarks(of)
    assert head == "leaving Python"
    return text


def test_a_short_step_is_mostly_python_and_the_fastest_loop_says_how_much() -> None:
    text = said(session(session=1.0, callable=0.8, while_loop=0.4))
    assert "a step of 1.00 ms under session" in text
    assert "while_loop saves 600 µs (60 %)" in text
    assert "worth it for steps this short" in text
    assert "in a step of 10.0 ms the same time is 6 %" in text


def test_a_long_step_is_not_worth_it_even_where_the_gain_is_proven() -> None:
    text = said(session(repeats=12, session=10.0, callable=9.9, while_loop=9.5))
    assert "while_loop saves 500 µs (5 %)" in text
    assert text.endswith("leaving Python is not worth it here.")


def test_where_no_loop_is_faster_nothing_is_gained() -> None:
    text = said(session(session=5.0, callable=5.0, while_loop=5.1, noise=0.01))
    assert "no other loop is certainly faster: leaving Python is not worth it here." in text


def test_one_repeat_proves_nothing() -> None:
    assert "in one trial each, which may be chance" in said(session(repeats=1, session=1.0, callable=0.9))


def test_one_repeat_in_which_no_loop_was_faster_is_told_without_a_saving() -> None:
    text = said(session(repeats=1, session=3.0, callable=3.5, while_loop=3.6))
    assert text == "a step of 3.00 ms under session: no other loop was faster, in one trial each."


def test_a_loop_that_trains_another_model_is_no_measure() -> None:
    other = {"while_loop": {"model": {"hidden_widths": [8]}}}
    assert "callable saves 200 µs" in said(session(changes=other, session=1.0, callable=0.8, while_loop=0.1))


@pytest.mark.parametrize("measured", [{}, {"session": 1.0}, {"callable": 1.0}])
def test_what_was_not_measured_is_not_spoken_of(measured: Any) -> None:
    assert loop_remarks(session(**measured)) == []


def test_a_scenario_of_one_loop_has_no_remark() -> None:
    assert loop_remarks(sessions.normal()) == []
