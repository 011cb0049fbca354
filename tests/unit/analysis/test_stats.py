"""Warm-up, intervals and ratios: pure functions on arrays."""

from __future__ import annotations

import math
from statistics import geometric_mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from pipeline_bench.analysis import stats
from pipeline_bench.analysis.thresholds import RATIO_SCATTER, SHARE_SCATTER

steps = st.lists(st.integers(min_value=1, max_value=10**12), min_size=0, max_size=400)
values = st.lists(st.floats(0.01, 1e6), min_size=2, max_size=6)
trials = st.lists(st.floats(min_value=0.01, max_value=1e4), min_size=2, max_size=20)


@given(steps)
def test_warmup_leaves_at_least_half_of_the_steps(step_ns: list[int]) -> None:
    assert 0 <= stats.warmup_steps(step_ns) <= max(1, len(step_ns) / 2)


@given(steps, st.integers(min_value=1, max_value=1000))
def test_warmup_does_not_depend_on_the_unit_of_time(step_ns: list[int], factor: int) -> None:
    scaled = [step * factor for step in step_ns]
    # Rounding of the logarithm may move a tie by a block; anything more would be a dependence on the unit.
    assert abs(stats.warmup_steps(scaled) - stats.warmup_steps(step_ns)) <= max(5, len(step_ns) // 4)


def test_warmup_of_a_slow_start_ends_where_the_steps_are_steady() -> None:
    generator = np.random.default_rng(1)
    slow = generator.normal(9e6, 3e5, 40)
    steady = generator.normal(3e6, 1e5, 260)
    assert stats.warmup_steps(np.concatenate([slow, steady])) == 40


def test_warmup_of_a_queue_that_starts_full_ends_where_it_runs_dry() -> None:
    generator = np.random.default_rng(2)
    fast = generator.normal(1e6, 3e4, 10)
    starved = generator.normal(10e6, 1e5, 190)
    assert stats.warmup_steps(np.concatenate([fast, starved])) == 10


def test_a_late_outlier_does_not_move_the_warmup() -> None:
    step_ns = np.random.default_rng(3).normal(3e6, 1e5, 300)
    before = stats.warmup_steps(step_ns)
    step_ns[120] = 900e6
    assert stats.warmup_steps(step_ns) == before


def test_the_first_step_is_always_warmup() -> None:
    assert stats.warmup_steps([5, 5, 5]) == 1
    assert stats.warmup_steps([5]) == 0
    assert stats.warmup_steps([]) == 0


def test_one_trial_has_no_interval() -> None:
    assert stats.mean_interval([3.0]) is None
    assert stats.ratio_interval([3.0]) is None


def test_three_trials_get_students_interval() -> None:
    # t with 2 degrees of freedom at 97.5 % is 4.3027 (any table of Student's t).
    low, high = stats.mean_interval([1.0, 2.0, 3.0]) or (0.0, 0.0)
    assert (low, high) == pytest.approx((2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3)), rel=1e-4)


@given(trials)
def test_an_interval_holds_the_mean_of_its_trials(values: list[float]) -> None:
    interval = stats.mean_interval(values)
    assert interval is not None
    tolerance = 1e-9 * max(values)
    assert interval[0] - tolerance <= np.mean(values) <= interval[1] + tolerance


@given(trials)
def test_a_ratio_and_its_inverse_have_inverse_intervals(values: list[float]) -> None:
    few = values[: stats.BOOTSTRAP_FROM_TRIALS - 1]
    inverse = [1 / value for value in few]
    low, high = stats.ratio_interval(few) or (0.0, 0.0)
    inverse_low, inverse_high = stats.ratio_interval(inverse) or (0.0, 0.0)
    if high < 1e100 and low > 1e-100:
        assert (inverse_low, inverse_high) == pytest.approx((1 / high, 1 / low), rel=1e-6)


@pytest.mark.parametrize(
    ("count", "tail"),
    [
        *((8, "normal"), (12, "heavy")),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((12, "normal"), (8, "heavy"))),
    ],
)
def test_an_interval_of_a_few_trials_is_as_wide_as_it_must_be(
    count: int, tail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BCa covers the mean of 8 normal trials 89 times in 100, and that of 8 heavy-tailed ones 83 times."""
    monkeypatch.setattr(stats, "_RESAMPLES", 999)
    generator = np.random.default_rng(8)
    rounds, hits = 300, 0
    for _ in range(rounds):
        first, second = generator.lognormal(0, 0.8, (2, count))
        values = generator.standard_normal(count) if tail == "normal" else first - second
        low, high = stats.mean_interval(values.tolist()) or (0.0, 0.0)
        hits += low <= 0 <= high
    assert hits / rounds >= 0.925


@given(st.lists(st.floats(min_value=0.01, max_value=1e4), min_size=8, max_size=12))
def test_a_bootstraps_interval_is_never_narrower_than_students(values: list[float]) -> None:
    array = np.asarray(values)
    low, high = stats.mean_interval(values) or (0.0, 0.0)
    half = 2.2 * float(array.std(ddof=1)) / math.sqrt(len(values))  # t with 11 degrees of freedom at 97.5 %
    slack = 1e-9 * max(values)
    assert low <= array.mean() - half + slack
    assert high >= array.mean() + half - slack


def test_trials_without_any_spread_have_an_interval_of_no_width() -> None:
    assert stats.mean_interval([2.0] * 10) == (2.0, 2.0)
    assert stats.mean_interval([2.0] * 3) == (2.0, 2.0)


def test_a_slow_second_step_is_warmup_although_no_median_of_five_sees_it() -> None:
    step_ns = np.full(60, 5e6)
    step_ns[0], step_ns[1] = 279e6, 560e6
    assert stats.warmup_steps(step_ns) == 2


def test_a_few_steps_keep_half_of_themselves_however_slow_they_start() -> None:
    assert stats.warmup_steps([9e9, 9e9, 1, 1]) == 2


@pytest.mark.parametrize("values", [[3.0] * 6 + [9.0] * 3, [3.0, 3.0, 9.0], [1.0, 1.0, 1.0, 1.0, 50.0]])
def test_the_interval_of_a_median_holds_it(values: list[float]) -> None:
    low, high = stats.median_interval(values) or (0.0, 0.0)
    assert low <= np.median(values) <= high


def test_of_many_ratios_a_few_wild_ones_move_the_typical_one_little() -> None:
    generator = np.random.default_rng(3)
    ratios = np.exp(generator.normal(np.log(1.03), 0.02, 30))
    ratios[[4, 9, 17]] *= 1.6
    value, (low, high) = stats.believe_ratio(ratios.tolist(), RATIO_SCATTER)
    assert low < value < high
    assert 1.01 < low < 1.03 < high < 1.05
    assert geometric_mean(ratios.tolist()) > 1.06


def test_two_ratios_have_an_interval_that_is_of_use() -> None:
    value, (low, high) = stats.believe_ratio([0.75, 1.03], RATIO_SCATTER)
    assert value == pytest.approx(geometric_mean([0.75, 1.03]))
    assert 0.5 < low < 0.75
    assert 1.03 < high < 1.5, "and not 6.6, as by these two alone"


# --- changes between two groups of trials


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
def test_a_change_lies_in_its_interval(before: list[float], after: list[float]) -> None:
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


def test_the_interval_of_a_change_holds_the_truth_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of log-normal step times, the second session's spread twice the first's; at least 93 in 100 of 400 draws."""
    monkeypatch.setattr(stats, "_RESAMPLES", 999)
    generator = np.random.default_rng(12)
    held = 0
    for _ in range(400):
        before, after = generator.lognormal(0, 0.05, 12), generator.lognormal(math.log(1.2), 0.1, 12)
        low, high = stats.change_ratio_interval(before.tolist(), after.tolist()) or (0, 0)
        held += low <= 1.2 <= high
    assert held >= 0.93 * 400


# --- the growth of a cumulative metric within a window

S = 1_000_000_000
AT_NS = [10 * S, 11 * S, 12 * S, 14 * S]
CPU_SECONDS = [5.0, 5.5, 7.5, 8.5]


@pytest.mark.parametrize(
    ("start_s", "end_s", "grown", "sampled_s"),
    [
        (10, 11, 0.5, 1),
        (11, 12, 2, 1),
        (10, 14, 3.5, 4),
        (10.5, 11.5, 1.25, 1),  # both edges interpolated: 5.25 s to 6.5 s
        (11.25, 11.5, 0.5, 0.25),  # between two samples
        (0, 11, 0.5, 1),  # an edge before the first sample moves to it
        (12, 99, 1, 2),  # and one after the last
    ],
)
def test_growth_is_that_of_the_part_of_a_window_that_was_sampled(
    start_s: float, end_s: float, grown: float, sampled_s: float
) -> None:
    found = stats.growth(AT_NS, CPU_SECONDS, round(start_s * S), round(end_s * S))
    assert found is not None
    assert found[0] == pytest.approx(grown)
    assert found[1] == round(sampled_s * S)


@pytest.mark.parametrize(("start_s", "end_s"), [(0, 10), (14, 20), (12, 12), (13, 11)])
def test_growth_in_a_window_without_samples_is_none(start_s: int, end_s: int) -> None:
    assert stats.growth(AT_NS, CPU_SECONDS, start_s * S, end_s * S) is None


@pytest.mark.parametrize("count", [0, 1])
def test_growth_of_fewer_than_two_samples_is_none(count: int) -> None:
    assert stats.growth(AT_NS[:count], CPU_SECONDS[:count], 0, 99 * S) is None


def test_growth_keeps_nanoseconds_on_a_clock_that_runs_for_years() -> None:
    years_ns = 10**17 + 1  # a double near here counts in steps of 16 ns
    found = stats.growth([years_ns, years_ns + 9], [0.0, 9e-9], years_ns, years_ns + 3)
    assert found is not None
    assert found[0] == pytest.approx(3e-9)
    assert found[1] == 3


groups_of_rounds = st.lists(st.lists(st.floats(-5, 5), max_size=8), max_size=8)


@given(groups=groups_of_rounds, least=st.floats(0.01, 0.2), shift=st.floats(-3, 3))
def test_the_usual_scatter_is_never_less_than_usual_and_is_of_scatter_alone(
    groups: list[list[float]], least: float, shift: float
) -> None:
    found = stats.usual_scatter(groups, least)
    assert found >= least
    moved = [[value + shift * number for value in group] for number, group in enumerate(groups)]
    assert stats.usual_scatter(moved, least) == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("wild", [[], [[-3.0, 2.0]]])
def test_the_usual_scatter_of_many_figures_is_theirs_whatever_one_of_them_does(wild: list[list[float]]) -> None:
    rng = np.random.default_rng(5)
    groups = [rng.normal(number, 0.2, 3).tolist() for number in range(40)]
    assert stats.usual_scatter(groups + wild, 0.05) == pytest.approx(0.2, rel=0.15)


def test_figures_of_one_round_say_nothing_of_scatter() -> None:
    assert stats.usual_scatter([[1.0], [], [-4.0]], 0.05) == 0.05


@pytest.mark.parametrize(
    ("scatter", "of_few", "of_five"),
    [(1.0, 0.95, 0.95), (2.5, 0.85, 0.93), (5.0, 0.74, 0.93)],
)
def test_a_belief_holds_the_truth_where_rounds_scatter_as_is_usual_and_less_often_where_they_scatter_more(
    scatter: float, of_few: float, of_five: float
) -> None:
    """docs/method.md, "Statistics", says how often: shares that scatter by 1, 2.5 and 5 times what is usual."""
    rng = np.random.default_rng(20)
    for rounds, least in ((2, of_few), (4, of_few), (5, of_five)):
        drawn = rng.normal(0.0, scatter * SHARE_SCATTER, (1000, rounds))
        intervals = [stats.believe(values, SHARE_SCATTER).interval() for values in drawn]
        assert np.mean([low <= 0 <= high for low, high in intervals]) >= least


def test_with_the_scatter_of_three_variants_few_rounds_hold_the_truth_of_each() -> None:
    """docs/method.md, "Statistics", says how often: shares that scatter by 4 times what is usual."""
    rng = np.random.default_rng(21)
    for rounds, least in ((2, 0.91), (3, 0.94), (4, 0.94)):
        held = []
        for drawn in rng.normal(0.0, 4 * SHARE_SCATTER, (700, 3, rounds)):
            scatter = stats.usual_scatter(drawn.tolist(), SHARE_SCATTER)
            held += [low <= 0 <= high for low, high in (stats.believe(one, scatter).interval() for one in drawn)]
        assert np.mean(held) >= least, (rounds, np.mean(held))


def test_a_ratio_that_stands_out_is_trimmed_away() -> None:
    steady = [0.2, 0.21, 0.19, 0.2, 0.22, 0.18, 0.21, 0.19, 0.2]
    known = stats.believe([*steady, 1.5], 0.05, trimmed=True)
    assert known.value == pytest.approx(0.2, abs=0.005)
    assert known.interval(0.998)[0] > 0.15


def test_where_no_ratio_stands_out_all_of_them_count() -> None:
    """The fifths that a trimmed mean leaves out would cost 18 of 100 differences of this size."""
    rng = np.random.default_rng(8)
    found = [stats.believe(rng.normal(0.25, 0.2, 11).tolist(), 0.05, trimmed=True) for _ in range(500)]
    assert np.mean([known.interval(0.99)[0] > 0 for known in found]) > 0.75


def test_a_width_beyond_every_number_is_one() -> None:
    assert 1e150 < stats.half_width((1e-320, 1e308)) < math.inf


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 9)), min_size=1, max_size=9), st.floats(1, 99))
def test_a_weighted_percentile_is_one_of_the_values_that_each_stand_for_so_many(
    some: list[tuple[float, int]], percent: float
) -> None:
    values, weights = np.array([value for value, _ in some]), np.array([weight for _, weight in some])
    (found,) = stats.percentiles(values, weights, [percent])
    expected = np.percentile(np.repeat(values, weights), percent, method="inverted_cdf")
    assert found == expected
    assert stats.percentiles(values, None, [percent]) == [float(np.percentile(values, percent))]
