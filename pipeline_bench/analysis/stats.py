"""Pure functions on arrays: warm-up, intervals over trials and over rounds, changes between two groups of trials."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.model.result import Interval

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
NORMAL_REACH = 1.96
"""How many standard deviations an interval of that confidence reaches to each side, of a normal distribution."""

# With fewer trials than this a bootstrap's interval is much too narrow: of three trials it can only choose among
# values between the smallest and the largest, which hold the truth 3 times in 4 (Hesterberg, "What Teachers Should
# Know About the Bootstrap", 2015, section 4.1). Student's t is used instead.
BOOTSTRAP_FROM_TRIALS = 8

# Where one of that many ratios stands out, the outer fifths are trimmed: what another program does to some trials moves
# them by tens of per cent, and a mean follows the few. 20 % is Wilcox's usual choice ("Introduction to Robust
# Estimation", 2012, ch. 3). Where none does, a trimmed mean would only be less precise.
TRIMMED_SHARE = 0.2
_TRIMMED_FROM_ROUNDS = 5
_STANDS_OUT = 3.5
"""So many robust standard deviations from the median (Iglewicz and Hoaglin, "How to Detect and Handle Outliers",
1993)."""

MAD_TO_SIGMA = 1.4826
"""The standard deviation of normal noise over its median absolute deviation (Huber, "Robust Statistics", 1981)."""

PRIOR_FREEDOM = 2.0
"""The degrees of freedom with which the usual scatter between rounds counts beside that of the rounds themselves."""
SOME_ROUNDS, MANY_ROUNDS = 5, 8
"""Rounds from which on the usual scatter no longer counts: if they scatter more than it says, and in any case."""

_RESAMPLES = 4999
_FEWEST_TRIALS = 2
_LARGEST_LOGARITHM = 700.0

_WARMUP_BLOCK_STEPS = 5
_WARMUP_FEWEST_BLOCKS = 4
# Over a few dozen blocks of steady noise the score varies by about this factor: the earliest cut within it is taken.
_WARMUP_TOLERANCE = 1.25
# The least variance that is compared, of blocks that differ by 0.1 %: below it there is only rounding.
_WARMUP_STEADY = 1e-6
_STARTING_STEPS = 10
_STARTING_FACTOR = 4.0


def warmup_steps(step_ns: npt.ArrayLike) -> int:
    """Return how many steps at the start are warm-up: MSER-5 on the logarithm of the step times.

    The steps are cut into blocks of five; the warm-up ends where the squared standard error of the blocks that
    remain is smallest (White, "An effective truncation heuristic for bias reduction in simulation output", 1997), or
    at the first block where it is as good as the smallest but for noise.
    A block counts by its median and in logarithms, so that one late outlier does not move the cut. At most half of the
    steps are warm-up. The first step, which sets up kernels and memory, always is, and so are those of the next ones
    that are several times as long as a usual step.
    """
    steps = np.asarray(step_ns, dtype=np.float64)
    if steps.size <= 1:
        return 0
    blocks = steps[: steps.size - steps.size % _WARMUP_BLOCK_STEPS].reshape(-1, _WARMUP_BLOCK_STEPS)
    if len(blocks) < _WARMUP_FEWEST_BLOCKS:
        return _last_starting_step(steps)
    values = np.log(np.maximum(np.median(blocks, axis=1), 1.0))
    remaining = np.arange(len(values), 0, -1, dtype=np.float64)
    mean = np.cumsum(values[::-1])[::-1] / remaining
    variance = np.maximum(np.cumsum(values[::-1] ** 2)[::-1] / remaining - mean**2, _WARMUP_STEADY)
    candidates = (variance / remaining)[: len(values) // 2 + 1]
    cut = int(np.argmax(candidates <= float(np.min(candidates)) * _WARMUP_TOLERANCE))
    return max(_last_starting_step(steps), cut * _WARMUP_BLOCK_STEPS)


def _last_starting_step(steps: Floats) -> int:
    """Return the number of the last one of the first ten steps that is several times as long as usual; at least 1.

    A block's median does not see one or two slow steps, but the means that shares are taken from do.
    """
    early = steps[: min(_STARTING_STEPS, steps.size // 2)]
    slow = np.flatnonzero(early > _STARTING_FACTOR * float(np.median(steps[steps.size // 2 :])))
    return int(slow[-1]) + 1 if slow.size else 1


# --- rounds: Student's t with what is usual between rounds -----------------------------------------------------------


@dataclass(frozen=True)
class Belief:
    """An estimate of a figure, distributed as Student's t."""

    value: float
    scale: float
    """One standard error; 0 where every round gave the same."""
    freedom: float
    rounds: int

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return the interval that holds the true figure with this probability."""
        reach = self.scale * student_reach(self.freedom, confidence)
        return (self.value - reach, self.value + reach)

    def widened(self, systematic: float) -> Belief:
        """Return the belief with an error added that all rounds share, of the standard deviation `systematic`."""
        return replace(self, scale=math.hypot(self.scale, systematic))

    def times(self, factor: float) -> Belief:
        """Return the belief for the figure times a factor above 0."""
        return replace(self, value=self.value * factor, scale=self.scale * factor)


def believe(values: Sequence[float], scatter: float, *, trimmed: bool = False) -> Belief:
    """Return the mean of a figure over rounds, with its standard error and degrees of freedom.

    The variance between rounds is estimated from the rounds and from the usual scatter (a scaled inverse chi-squared
    prior with `PRIOR_FREEDOM`): two rounds that agree by chance do not make the interval vanish, and two that differ do
    not make it endless. A trimmed mean's standard error is that of Tukey and McLaughlin (1963).

    Args:
        values: one a round, at least one.
        scatter: the standard deviation that is usual between rounds.
        trimmed: leave out the outer fifths of 5 rounds or more if one of them stands out. Not for a share: what
            happens in one round of five may be a property of the input.
    """
    array = np.sort(np.asarray(values, dtype=np.float64))
    count = array.size
    cut = int(TRIMMED_SHARE * count) if trimmed and count >= _TRIMMED_FROM_ROUNDS and _has_outlier(array) else 0
    kept = array[cut : count - cut]
    freedom = kept.size - 1
    squares = float(np.clip(array, kept[0], kept[-1]).var(ddof=1)) * freedom if freedom else 0.0
    variance = (PRIOR_FREEDOM * scatter**2 + squares) / (PRIOR_FREEDOM + freedom)
    prior = PRIOR_FREEDOM
    if count >= MANY_ROUNDS or (count >= SOME_ROUNDS and squares / freedom > variance):
        variance, prior = squares / freedom, 0.0
    error = math.sqrt(variance / count) * count / kept.size
    return Belief(value=float(kept.mean()), scale=error, freedom=prior + freedom, rounds=count)


def _has_outlier(values: Floats) -> bool:
    """Return whether one of the values lies further from their median than noise explains."""
    deviations = np.abs(values - np.median(values))
    return bool(deviations.max() > _STANDS_OUT * MAD_TO_SIGMA * float(np.median(deviations)))


def usual_scatter(groups: Sequence[Sequence[float]], least: float) -> float:
    """Return the standard deviation between rounds that all figures of a session show together; at least `least`.

    A few rounds of one figure may agree by chance, and then seem to prove a difference; the scatter of the session's
    other figures corrects that. It is computed from the median absolute deviation of all values from their figure's
    mean, which one unusual figure does not change, and combined with `least`, which counts with `PRIOR_FREEDOM`.

    Args:
        groups: the values of each figure, one a round.
        least: the standard deviation that is usual on any machine.
    """
    several = [np.asarray(group, dtype=np.float64) for group in groups if len(group) > 1]
    if not several:
        return least
    deviations = [np.abs(group - group.mean()) * math.sqrt(group.size / (group.size - 1)) for group in several]
    freedom = sum(group.size - 1 for group in several)
    scatter = float(np.median(np.concatenate(deviations))) * MAD_TO_SIGMA
    return max(least, math.sqrt((PRIOR_FREEDOM * least**2 + freedom * scatter**2) / (PRIOR_FREEDOM + freedom)))


def usual_reach(scatter: float, rounds: int) -> float:
    """Return the usual half-width of a figure's 95 % interval after so many rounds, at least one."""
    return scatter / math.sqrt(rounds) * student_reach(PRIOR_FREEDOM + rounds - 1, CONFIDENCE)


def equally_plausible(parts: int) -> Floats:
    """Return the medians of the parts of a standard normal distribution that is cut into equally probable ones."""
    from scipy import special

    return np.asarray(special.ndtri((np.arange(parts) + 0.5) / parts))


# --- trials: Student's t for few, an expanded bootstrap for many -----------------------------------------------------


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of the mean of independent values, one a trial; None for fewer than two.

    From `BOOTSTRAP_FROM_TRIALS` on it is the expanded percentile interval (Hesterberg, 2015), extended to Student's
    where that reaches further. A plain bootstrap of 8 to 15 values is too narrow, because it has neither Bessel's
    correction nor Student's t; the expanded one reads its percentiles at a higher level instead. Of 8 normal values it
    holds the mean 95 times in 100, of 8 heavy-tailed ones 96 times (BCa: 89 and 83 times).
    """
    if len(values) < _FEWEST_TRIALS:
        return None
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    half = student_reach(array.size - 1, CONFIDENCE) * float(array.std(ddof=1)) / math.sqrt(array.size)
    if array.size < BOOTSTRAP_FROM_TRIALS:
        return (mean - half, mean + half)
    low, high = _percentile_bootstrap((tuple(values),), np.mean, _expanded_confidence(array.size))
    return (min(low, mean - half), max(high, mean + half))


def percentiles(values: Floats, weights: npt.NDArray[Any] | None, percents: Sequence[float]) -> list[float]:
    """Return percentiles; of weighted values, the least one up to which the values have that share of all weight."""
    if weights is None:
        return [float(value) for value in np.percentile(values, percents)]
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    places = np.searchsorted(below, np.asarray(percents) / 100 * below[-1])
    return [float(value) for value in values[order][np.minimum(places, values.size - 1)]]


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of the median of positive values, one a trial; None for fewer than two.

    For fewer than `BOOTSTRAP_FROM_TRIALS` it is Student's on the logarithms, extended if it does not hold the median.
    """
    if len(values) >= BOOTSTRAP_FROM_TRIALS:
        return _percentile_bootstrap((tuple(values),), np.median, _expanded_confidence(len(values)))
    return ratio_interval(values, holding=float(np.median(values)))


def ratio_interval(ratios: Sequence[float], *, holding: float | None = None) -> Interval | None:
    """Return the 95 % interval of a ratio over trials, taken on its logarithm; None for fewer than two.

    Args:
        ratios: one a trial, above 0.
        holding: the figure that is shown, if it is not their geometric mean: the interval is extended to hold it.
    """
    interval = mean_interval([math.log(ratio) for ratio in ratios])
    if interval is None:
        return None
    ends = (math.exp(interval[0]), math.exp(interval[1]))
    return ends if holding is None else (min(ends[0], holding), max(ends[1], holding))


def believe_ratio(ratios: Sequence[float], scatter: float) -> tuple[float, Interval]:
    """Return the geometric mean of the rounds' ratios, as `believe` trims it, and its 95 % interval.

    Args:
        ratios: one a round, above 0, at least one.
        scatter: the usual standard deviation of the logarithm between rounds.
    """
    known = believe([math.log(ratio) for ratio in ratios], scatter, trimmed=True)
    low, high = known.interval()
    return math.exp(known.value), (math.exp(low), math.exp(high))


def half_width(interval: Interval) -> float:
    """Return the half-width of a ratio's interval, relative to its geometric middle: 0.02 for 2 %.

    It is also the smallest difference that such an interval could have distinguished from none.
    """
    return math.sqrt(min(interval[1] / interval[0], sys.float_info.max)) - 1


def student_reach(freedom: float, confidence: float) -> float:
    """Return how many standard errors Student's t with so many degrees of freedom reaches to each side."""
    from scipy import special

    return float(special.stdtrit(freedom, (1 + confidence) / 2))


@functools.lru_cache(maxsize=64)  # after each trial the results are made anew, and most variants have the same trials
def _percentile_bootstrap(
    groups: tuple[tuple[float, ...], ...], statistic: Callable[..., Any], confidence: float
) -> Interval:
    """Return the percentiles of a statistic over resamples of each group by itself, the same ones at every call."""
    from scipy import stats

    if len(groups) == 1 and min(groups[0]) == max(groups[0]):
        return (float(groups[0][0]), float(groups[0][0]))
    low, high = stats.bootstrap(
        groups,
        statistic,
        confidence_level=confidence,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return (float(low), float(high))


def _expanded_confidence(count: int) -> float:
    """Return the level at which bootstrap percentiles are the 95 % interval of the mean of `count` normal values."""
    from scipy import special

    reach = math.sqrt(count / (count - 1)) * student_reach(count - 1, CONFIDENCE)
    return 1 - 2 * float(special.ndtr(-reach))


# --- two groups: trials of two sessions, which nothing pairs ---------------------------------------------------------


def change_ratio(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the geometric mean of AFTER over that of BEFORE; one positive value a trial, at least one."""
    return math.exp(float(np.mean(np.log(after)) - np.mean(np.log(before))))


def change_ratio_interval(
    before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE, systematic: float = 0.0
) -> Interval | None:
    """Return the interval of `change_ratio`, taken on the logarithms; None for fewer than two trials in either.

    Args:
        before: one positive value a trial.
        after: the same of the later session.
        confidence: of the interval.
        systematic: a further error that all trials of a session share: one standard deviation of the logarithm.
    """
    interval = change_interval(np.log(before).tolist(), np.log(after).tolist(), confidence)
    if interval is None:
        return None
    middle = math.log(change_ratio(before, after))
    reach = systematic * student_reach(math.inf, confidence)
    low, high = middle - math.hypot(middle - interval[0], reach), middle + math.hypot(interval[1] - middle, reach)
    # Of two trials an interval can be so wide that its end is no float.
    return math.exp(min(low, _LARGEST_LOGARITHM)), math.exp(min(high, _LARGEST_LOGARITHM))


def change_interval(before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Return the interval of the mean of AFTER minus that of BEFORE; None for fewer than two trials in either.

    Welch's t (1947), which does not take the two spreads to be alike. From 8 trials in both on also a two-sample
    bootstrap, and of each end the one that reaches further: of so few values a bootstrap alone is too narrow (see
    `mean_interval`), and Welch's alone is wrong where step times lean to one side.
    """
    groups = [np.asarray(values, dtype=np.float64) for values in (before, after)]
    fewest = min(group.size for group in groups)
    if fewest < _FEWEST_TRIALS:
        return None
    middle = float(groups[1].mean() - groups[0].mean())
    parts = [float(group.var(ddof=1)) / group.size for group in groups]
    if sum(parts) == 0:  # no spread at all: there is nothing to be unsure of
        return (middle, middle)
    # The degrees of freedom of Welch and Satterthwaite, by shares, which cannot overflow.
    weights = [part / sum(parts) for part in parts]
    freedom = 1 / sum(weight**2 / (group.size - 1) for weight, group in zip(weights, groups, strict=True))
    half = student_reach(freedom, confidence) * math.sqrt(sum(parts))
    if fewest < BOOTSTRAP_FROM_TRIALS:
        return (middle - half, middle + half)
    low, high = _percentile_bootstrap((tuple(before), tuple(after)), _mean_change, confidence)
    return (min(middle - half, low), max(middle + half, high))


def _mean_change(before: Floats, after: Floats, axis: int = -1) -> Any:
    return np.mean(after, axis=axis) - np.mean(before, axis=axis)


def cpu_percents(
    at_ns: npt.NDArray[Any], cpu_seconds: npt.NDArray[Any], cores: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Floats]:
    """Return the CPU time over wall time × cores from each sample to the next, 0 to 100, where time passed.

    Args:
        at_ns: when each sample was taken, ascending.
        cpu_seconds: cumulative CPU seconds at those times.
        cores: the cores that count as 100 percent.

    Returns:
        When each interval began, how long it was, both in ns, and its percentage.
    """
    wall_ns = np.diff(at_ns)
    passed = wall_ns > 0
    percent = 100e9 * np.diff(cpu_seconds)[passed] / (wall_ns[passed] * max(cores, 1))
    return at_ns[:-1][passed], wall_ns[passed], np.clip(percent, 0.0, 100.0)


def growth(at_ns: npt.ArrayLike, values: npt.ArrayLike, start_ns: int, end_ns: int) -> tuple[float, int] | None:
    """Return how much a cumulative metric grew within a window, and how many ns of it were sampled; None: none were.

    At an edge that lies between two samples the metric is interpolated linearly; an edge beyond the samples is moved to
    the nearest one inside, so the figure covers only what was sampled.

    Args:
        at_ns: when each sample was taken, ascending, on the clock of `start_ns` and `end_ns`.
        values: of the metric at those times.
        start_ns: the window's start.
        end_ns: the window's end.
    """
    stamps = np.asarray(at_ns, dtype=np.int64)
    if not stamps.size:
        return None
    zero_ns = int(stamps[0])
    first_ns, last_ns = max(start_ns, zero_ns), min(end_ns, int(stamps[-1]))
    if last_ns <= first_ns:
        return None
    since_ns = stamps - zero_ns  # small numbers: a float holds them to the nanosecond
    before, after = np.interp([first_ns - zero_ns, last_ns - zero_ns], since_ns, np.asarray(values))
    return float(after - before), last_ns - first_ns
