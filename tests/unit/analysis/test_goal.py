"""What a user asks of a session's length: a goal, a budget, or a plan."""

from __future__ import annotations

import pytest

from pipeline_bench.analysis import goal
from pipeline_bench.errors import UsageError
from pipeline_bench.model.result import Precision


@pytest.mark.parametrize("given", ["0", "0%", "0.05%", "51%", "100%", "0.6"])
def test_a_goal_that_makes_no_sense_is_refused_with_the_bounds(given: str) -> None:
    with pytest.raises(UsageError) as refused:
        goal.parse_goal(given, None)
    assert repr(given) in refused.value.message
    assert "from 0.1% to 50%" in refused.value.hint


def test_a_goal_is_a_share_and_without_a_budget_has_the_default() -> None:
    assert goal.parse_goal("2%", 60) == Precision(goal=0.02, budget_s=60)
    assert goal.parse_goal("0.02", None).budget_s == goal.DEFAULT_BUDGET_S


def test_a_default_budget_is_a_minute() -> None:
    assert goal.until_decided() == Precision(goal=None, budget_s=60.0)


@pytest.mark.parametrize(
    ("run_keys", "settings", "fixed"),
    [
        ({"steps": 5}, [], ["run.steps"]),
        ({}, ["run.repeats=3", "source.batch_size=3"], ["run.repeats"]),
        ({"seed": 1}, ["model.steps=3"], []),
    ],
)
def test_a_length_that_a_user_gives_fixes_the_plan(
    run_keys: dict[str, int], settings: list[str], fixed: list[str]
) -> None:
    assert goal.length_keys(run_keys, settings) == fixed
