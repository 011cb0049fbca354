"""Intervals of changes between unpaired trials: against scipy's own Welch, and how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from pipeline_bench.analysis import stats

values = st.lists(st.floats(0.01, 1e6), min_size=2, max_size=6)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 3), (3, 7), (7, 2)])
@pytest.mark.parametrize("confidence", [0.95, 0.98])
def test_few_trials_have_welchs_interval(sizes: tuple[int, int], confidence: float) -> None:
    generator = np.random.default_rng(sum(sizes))
    before, after = (generator.normal(5, 1 + i, size) for i, size in enumerate(sizes))
    expected = ttest_ind(after, before, equal_var=False).confidence_interval(confidence)
    assert stats.change_interval(before.tolist(), after.tolist(), confidence) == pytest.approx(tuple(expected))


def test_a_ratio_is_taken_on_logarithms() -> None:
    before, after = [2.0, 2.2, 1.9], [3.0, 3.1, 3.3]
    logs = [[math.log(value) for value in group] for group in (before, after)]
    low, high = stats.change_interval(logs[0], logs[1]) or (0, 0)
    assert stats.change_ratio_interval(before, after) == pytest.approx((math.exp(low), math.exp(high)))


@pytest.mark.parametrize(("before", "after"), [([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0]), ([1.0], [2.0])])
def test_one_trial_in_either_session_has_no_interval(before: list[float], after: list[float]) -> None:
    assert stats.change_interval(before, after) is None
    assert stats.change_ratio_interval(before, after) is None


@given(values, values)
def test_swapping_the_sessions_inverts_the_ratio(before: list[float], after: list[float]) -> None:
    low, high = stats.change_ratio_interval(before, after) or (0, 0)
    back = stats.change_ratio_interval(after, before) or (0, 0)
    assert stats.change_ratio(before, after) == pytest.approx(1 / stats.change_ratio(after, before))
    if high < 1e300:
        assert (1 / high, 1 / low) == pytest.approx(back, rel=1e-6)


@given(values, values)
def test_the_figure_lies_in_its_interval(before: list[float], after: list[float]) -> None:
    low, high = stats.change_ratio_interval(before, after) or (0, 0)
    value = stats.change_ratio(before, after)
    assert low <= value * (1 + 1e-9)
    assert value * (1 - 1e-9) <= high
    assert math.isfinite(high)


@given(st.floats(0.01, 1e6), st.integers(2, 10))
def test_trials_without_any_spread_leave_nothing_to_be_unsure_of(value: float, count: int) -> None:
    interval = stats.change_interval([value] * count, [value] * count)
    assert interval == pytest.approx((0, 0), abs=value * 1e-12)


def test_a_higher_confidence_is_wider_from_8_trials_on_too() -> None:
    generator = np.random.default_rng(1)
    before, after = (generator.lognormal(0, 0.3, 12).tolist() for _ in range(2))
    usual, sure = (stats.change_ratio_interval(before, after, level) or (1, 1) for level in (0.95, 0.98))
    assert sure[0] < usual[0] < usual[1] < sure[1]


@pytest.mark.parametrize("count", [3, 8, 12])
def test_the_interval_holds_the_truth_as_often_as_it_says(count: int) -> None:
    """Of log-normal step times, the second session's spread twice the first's; at least 93 in 100 of 400 draws."""
    generator = np.random.default_rng(count)
    held = 0
    for _ in range(400):
        before, after = generator.lognormal(0, 0.05, count), generator.lognormal(math.log(1.2), 0.1, count)
        low, high = stats.change_ratio_interval(before.tolist(), after.tolist()) or (0, 0)
        held += low <= 1.2 <= high
    assert held >= 0.93 * 400
