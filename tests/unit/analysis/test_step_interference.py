"""Bursts, drifts and slow starts: planted ones are found with their size, and noise is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.analysis.interference import find
from pipeline_bench.model.result import Disturbance
from tests.unit.analysis.planted import Floats, steady, trial


def found(*step_ms: Floats) -> list[Disturbance]:
    return list(find([trial(repeat, steps) for repeat, steps in enumerate(step_ms)], cores=2))


def slowed(step_ms: Floats, first: int, count: int, factor: float) -> Floats:
    changed = step_ms.copy()
    changed[first : first + count] *= factor
    return changed


def drifting(step_ms: Floats, change: float) -> Floats:
    return step_ms * np.linspace(1 - change / 2, 1 + change / 2, len(step_ms))


# --- noise alone -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "step_ms", "spread", "count"),
    [
        *((100, 10.0, 0.2, 40), (500, 3.0, 0.6, 40)),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((500, 3.0, 0.1, 100), (3000, 3.0, 0.3, 100))),
    ],
)
def test_stationary_noise_is_hardly_ever_taken_for_a_disturbance(
    steps: int, step_ms: float, spread: float, count: int
) -> None:
    sessions = [[steady(3 * seed + repeat, steps, step_ms, spread) for repeat in range(3)] for seed in range(count)]
    assert sum(bool(found(*repeats)) for repeats in sessions) <= count // 40


@given(seed=st.integers(0, 10_000), level=st.floats(0.5, 2.0))
def test_a_repeat_that_is_slower_as_a_whole_is_no_burst_and_no_drift(seed: int, level: float) -> None:
    repeats = [steady(seed), steady(seed + 1) * level, steady(seed + 2)]
    assert not {each.kind for each in found(*repeats)} & {"burst", "drift"}


@pytest.mark.parametrize(
    "repeats",
    [
        [slowed(slowed(steady(seed), 200 + 30 * seed, 50, 3.0), 700, 50, 3.0) for seed in range(3)],
        [drifting(steady(seed), 0.2) for seed in range(3)],
        [slowed(steady(seed), 0, 200, 2.0) for seed in range(3)],
        [slowed(steady(1), 600, 100, 3.0)],
        [steady(1), slowed(steady(2), 600, 10, 1.8), steady(3)],
        [steady(1, spread=0.02), drifting(steady(2, spread=0.02), 0.02), steady(3, spread=0.02)],
    ],
    ids=[
        *("bursts of every repeat", "a drift of every repeat", "a warm-up of every repeat", "one repeat alone"),
        *("a burst below a hundredth of the time", "a drift of a fiftieth"),
    ],
)
def test_what_may_be_the_variants_own_or_is_too_little_is_not_told(repeats: list[Floats]) -> None:
    assert found(*repeats) == []


# --- bursts ----------------------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    first=st.integers(550, 800),
    count=st.integers(60, 200),
    factor=st.floats(1.6, 6.0),
    hit=st.integers(0, 2),
)
def test_a_burst_in_one_repeat_is_found_with_what_it_cost(
    seed: int, first: int, count: int, factor: float, hit: int
) -> None:
    repeats = [steady(3 * seed + repeat) for repeat in range(3)]
    lost = float((repeats[hit][first : first + count] * (factor - 1)).sum())
    repeats[hit] = slowed(repeats[hit], first, count, factor)
    bursts = [each for each in found(*repeats) if each.kind == "burst"]
    assert [each.repeat for each in bursts] == [hit]
    assert bursts[0].cost_share == pytest.approx(lost / repeats[hit].sum(), rel=0.35)


def test_a_burst_says_when_how_long_and_how_much() -> None:
    (burst,) = found(steady(1), slowed(steady(2), 600, 100, 2.0), steady(3))
    assert burst.kind == "burst"
    assert "slower for" in burst.text
    step = int(burst.text.split("from step ")[1].split(" ")[0])
    assert abs(step - 601) <= 10
    assert f"{(burst.cost_share or 0) * 100:.0f} % of its time" in burst.text


def test_several_bursts_are_counted_and_the_worst_is_described() -> None:
    twice = slowed(slowed(steady(2), 300, 50, 2.0), 700, 100, 3.0)
    (burst,) = found(steady(1), twice, steady(3))
    assert "in 2 bursts" in burst.text
    assert abs(int(burst.text.split("from step ")[1].split(" ")[0]) - 701) <= 10


def test_one_long_stall_is_a_burst() -> None:
    (burst,) = found(steady(1), slowed(steady(2), 600, 1, 200.0), steady(3))
    assert burst.cost_share == pytest.approx(1000 / 6000, rel=0.1)


def test_a_repeat_far_burstier_than_its_siblings_is_disturbed() -> None:
    bursty = [slowed(steady(seed), 700, 30, 2.0) for seed in range(3)]
    bursty[1] = slowed(bursty[1], 550, 100, 3.0)
    assert [(each.kind, each.repeat) for each in found(*bursty)] == [("burst", 1)]


# --- drift -----------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000), change=st.floats(0.12, 1.0), falls=st.booleans(), hit=st.integers(0, 2))
def test_a_drift_in_one_repeat_is_found_in_either_direction(seed: int, change: float, falls: bool, hit: int) -> None:
    repeats = [steady(3 * seed + repeat) for repeat in range(3)]
    repeats[hit] = drifting(repeats[hit], -change if falls else change)
    drifts = [each for each in found(*repeats) if each.kind == "drift"]
    assert [each.repeat for each in drifts] == [hit]
    cost = drifts[0].cost_share
    assert cost is not None
    assert 0 < cost <= change


def told(drift: Disturbance) -> tuple[float, ...]:
    """The two times in its words."""
    return tuple(float(word) for word in drift.text.split() if word.replace(".", "").isdigit())


def test_a_drift_says_from_where_to_where() -> None:
    (drift,) = [each for each in found(steady(1), drifting(steady(2), 0.25), steady(3)) if each.kind == "drift"]
    # The medians of the first and last quarters of 4.4 to 5.6 ms.
    assert told(drift) == pytest.approx((4.55, 5.45), rel=0.05)
    assert drift.cost_share == pytest.approx(1 - 4.55 / 5.0, rel=0.3)


def test_a_jump_to_a_level_that_most_steps_have_is_a_drift_between_the_times_on_both_sides() -> None:
    jumped = trial(1, slowed(steady(2), 350, 650, 1.2)).model_copy(update={"warmup_steps": 1})
    (drift,) = find([trial(0, steady(1)), jumped, trial(2, steady(3))], cores=2)
    assert told(drift) == pytest.approx((5.0, 6.0), rel=0.03)
    assert drift.cost_share == pytest.approx(0.65 / 5.65, rel=0.25)


def test_a_jump_late_in_the_trial_is_a_burst_that_lasts_to_the_end() -> None:
    (burst,) = found(steady(1), slowed(steady(2), 700, 300, 1.3), steady(3))
    assert burst.kind == "burst"
    assert burst.cost_share == pytest.approx(0.3 * 0.3 / 1.09, rel=0.2)


def test_a_trial_whose_faster_start_was_cut_off_has_drifted() -> None:
    """What is left of it is steady, and slower than it need be."""
    jumped = trial(1, slowed(steady(2), 450, 550, 1.4))
    assert 400 < jumped.warmup_steps <= 500, "the detection of the warm-up takes the faster start for the odd one"
    (drift,) = find([trial(0, steady(1)), jumped, trial(2, steady(3))], cores=2)
    assert drift.kind == "drift"
    assert f"its first {jumped.warmup_steps} steps of 1000 were" in drift.text
    assert "faster" in drift.text
    assert drift.cost_share == pytest.approx(1 - 1 / 1.4, rel=0.1)


@given(seed=st.integers(0, 10_000), at=st.integers(150, 900), hit=st.integers(0, 2), factor=st.floats(1.35, 3.0))
def test_a_lasting_change_is_found_wherever_it_comes(seed: int, at: int, hit: int, factor: float) -> None:
    """As a slow start, a drift or a burst, by where it comes."""
    repeats = [steady(3 * seed + repeat) for repeat in range(3)]
    repeats[hit] = slowed(repeats[hit], at, 1000 - at, factor)
    assert {each.repeat for each in found(*repeats)} == {hit}


def test_an_opposite_drift_is_not_the_same_one() -> None:
    repeats = [drifting(steady(seed), change) for seed, change in enumerate((0.3, -0.3, 0.0))]
    assert [each.repeat for each in found(*repeats) if each.kind == "drift"] == [0, 1]


# --- slow start ------------------------------------------------------------------------------------------------------


def test_a_warm_up_far_longer_than_in_the_other_repeats_is_a_slow_start_that_costs_nothing() -> None:
    (start,) = found(slowed(steady(1), 0, 270, 1.4), steady(2), steady(3))
    assert (start.kind, start.repeat, start.cost_share) == ("slow-start", 0, 0.0)
    assert "steps of 1000 were" in start.text
    assert int(start.text.split()[2]) == pytest.approx(270, abs=10)
    assert "its other repeats needed 1" in start.text


def test_a_slow_start_up_to_the_limit_may_have_gone_on_at_a_cost_that_is_not_known() -> None:
    starts = found(slowed(steady(1), 0, 505, 2.0), steady(2), steady(3))
    (start,) = [each for each in starts if each.kind == "slow-start"]
    assert start.cost_share is None
    assert "half" in start.text
