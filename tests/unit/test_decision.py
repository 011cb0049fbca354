"""Rounds until everything is decided: when they are looked at, what is open, and what ends them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.analysis import precision, stats
from pipeline_bench.analysis.precision import OpenQuestion
from pipeline_bench.analysis.thresholds import CERTAIN_CLAIM, RATIO_SCATTER, SAME_JOB_SCATTER, TIE
from pipeline_bench.model.result import Precision
from pipeline_bench.model.session import Session
from tests.unit.records import scenario
from tests.unit.test_precision import ended, new, run, spread


def undecided(budget_s: float = 600.0) -> Session:
    session = new(of=scenario("feed_dict", "tf_data", repeats=1))
    return session.model_copy(update={"precision": precision.until_decided(budget_s)})


def test_the_looks_are_few_and_ever_further_apart() -> None:
    looks = [rounds for rounds in range(1, 60) if precision.is_look(rounds, 1)]
    assert looks[:4] == [6, 9, 13, 19]
    gaps = np.diff(looks)
    assert list(gaps) == sorted(gaps)


@given(fewest=st.integers(1, 40))
def test_the_first_look_is_after_the_rounds_that_a_scenario_asks_for(fewest: int) -> None:
    assert precision.is_look(max(6, fewest), fewest)
    assert not any(precision.is_look(rounds, fewest) for rounds in range(max(6, fewest)))


def test_steady_variants_tie_at_the_first_look() -> None:
    found = run(undecided(), spread(0.001))
    assert (ended(found).ended_by, ended(found).repeats, ended(found).text) == ("decided", 6, "")
    assert not precision.open_questions(found)


def test_what_cannot_be_told_ends_with_the_budget_and_is_named() -> None:
    found = run(undecided(budget_s=30.0), spread(0.4))
    assert ended(found).ended_by == "budget"
    assert OpenQuestion("tf_data", "feed_dict") in precision.open_questions(found)
    assert "the budget of 30 s was spent" in ended(found).text
    assert "tf_data against feed_dict" in ended(found).text


def test_a_default_budget_is_a_minute() -> None:
    assert precision.until_decided() == Precision(goal=None, budget_s=60.0)


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
    assert precision.fixing(run_keys, settings) == fixed


@pytest.mark.parametrize("scatter", [0.03, 0.1, 0.3])
def test_equal_variants_are_seldom_said_to_differ_by_a_run_that_goes_on_until_it_is_decided(scatter: float) -> None:
    """The rule of `speedups` and the looks together, on rounds of which one in ten lies far out."""
    rng = np.random.default_rng(3)
    differ = 0
    for _ in range(300):
        logs = scatter * rng.standard_normal(28) * np.where(rng.random(28) < 0.1, 5.0, 1.0)
        for rounds in (rounds for rounds in range(1, 29) if precision.is_look(rounds, 1)):
            known = stats.believe(logs[:rounds].tolist(), RATIO_SCATTER, trimmed=True)
            found = known.widened(SAME_JOB_SCATTER)
            low, high = found.interval(CERTAIN_CLAIM)
            if not low <= 0 <= high:
                differ += 1
                break
            if max(map(abs, found.interval())) <= math.log(TIE):
                break
    assert differ / 300 <= 0.03
