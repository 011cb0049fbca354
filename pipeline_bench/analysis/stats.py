"""Pure functions on arrays: warm-up, intervals over trials, ratios of interleaved neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]

CONFIDENCE = 0.95
# That two variants differ is claimed of every pair that is shown: of equal ones it may be claimed 1 time in 50, not 20.
CLAIM_CONFIDENCE = 0.98

# With fewer trials than this a bootstrap's interval is much too narrow: of three trials it can only choose among
# values between the smallest and the largest, which hold the truth 3 times in 4 (Hesterberg, "What Teachers Should
# Know About the Bootstrap", 2015, section 4.1). Student's t is used instead.
BOOTSTRAP_FROM_TRIALS = 8

# Of that many ratios, the outer fifths are trimmed: what another program does to some trials moves them by tens of per
# cent, and a mean follows the few. 20 % is Wilcox's usual choice ("Introduction to Robust Estimation", 2012, ch. 3).
TRIMMED_SHARE = 0.2
_RESAMPLES = 4999
_FEWEST_TRIALS = 2
_FEWEST_SAMPLES = 2

_WARMUP_BLOCK_STEPS = 5
_WARMUP_FEWEST_BLOCKS = 4
# The score of steady noise wanders by about this much over a few dozen blocks; the earliest cut that good is taken.
_WARMUP_TOLERANCE = 1.25
# Blocks this alike, within 0.1 %, are steady; below it there is only rounding to compare.
_WARMUP_STEADY = 1e-6
_STARTING_STEPS = 10
_STARTING_FACTOR = 4.0


def warmup_steps(step_ns: npt.ArrayLike) -> int:
    """How many steps at the start are warm-up: MSER-5 on the logarithm of the step times.

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
    score = variance / remaining
    candidates = score[: len(values) // 2 + 1]
    cut = int(np.argmax(candidates <= float(np.min(candidates)) * _WARMUP_TOLERANCE))
    return max(_last_starting_step(steps), cut * _WARMUP_BLOCK_STEPS)


def _last_starting_step(steps: Floats) -> int:
    """How many steps it takes until none of the first ten is several times as long as a usual one, at least 1.

    A block's median does not see one or two slow steps, but the means that shares are taken from do.
    """
    early = steps[: min(_STARTING_STEPS, steps.size // 2)]
    slow = np.flatnonzero(early > _STARTING_FACTOR * float(np.median(steps[steps.size // 2 :])))
    return int(slow[-1]) + 1 if slow.size else 1


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The interval, 95 % unless told, of the mean of independent values, one a trial; None for fewer than two."""
    if len(values) < _FEWEST_TRIALS:
        return None
    array = np.asarray(values, dtype=np.float64)
    if len(values) < BOOTSTRAP_FROM_TRIALS:
        return _student_interval(array, confidence)
    return _mean_bootstrap_interval(array, confidence)


def median_interval(values: Sequence[float]) -> Interval | None:
    """The 95 % interval of the median of positive values, one a trial; None for fewer than two.

    Of few trials it is Student's on the logarithm, stretched where it must be to hold the median itself.
    """
    if len(values) >= BOOTSTRAP_FROM_TRIALS:
        return _bootstrap_interval(np.asarray(values, dtype=np.float64), np.median, CONFIDENCE)
    interval = ratio_interval(values)
    if interval is None:
        return None
    median = float(np.median(values))
    return (min(interval[0], median), max(interval[1], median))


def ratio_interval(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The interval, 95 % unless told, of a ratio over trials, taken on its logarithm; None for fewer than two."""
    interval = mean_interval([math.log(ratio) for ratio in ratios], confidence)
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def typical_ratio(ratios: Sequence[float]) -> float:
    """The geometric mean of ratios; from `BOOTSTRAP_FROM_TRIALS` on without the `TRIMMED_SHARE` at each end."""
    if len(ratios) < BOOTSTRAP_FROM_TRIALS:
        return geometric_mean(ratios)
    from scipy import stats

    return math.exp(float(stats.trim_mean(np.log(np.asarray(ratios, dtype=np.float64)), TRIMMED_SHARE)))


def typical_ratio_interval(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The interval, 95 % unless told, of the typical ratio, taken on the logarithms; None for fewer than two.

    From `BOOTSTRAP_FROM_TRIALS` on it is the expanded percentile bootstrap of the values with the trimmed ones moved to
    the nearest that are left, and Tukey and McLaughlin's (1963), Student's t of these, where that reaches further to a
    side. A bootstrap of the trimmed mean itself would draw more wild values than it trims, now and then.
    """
    if len(ratios) < BOOTSTRAP_FROM_TRIALS:
        return ratio_interval(ratios, confidence)
    values = np.sort(np.log(np.asarray(ratios, dtype=np.float64)))
    trimmed = int(TRIMMED_SHARE * values.size)
    kept = values[trimmed : values.size - trimmed]
    moved = np.clip(values, kept[0], kept[-1])
    if np.ptp(moved) == 0:
        return (math.exp(moved[0]), math.exp(moved[0]))
    low, high = _bootstrap_interval(moved, np.mean, _expanded_confidence(kept.size, confidence))
    half = student_reach(kept.size - 1, confidence) * float(moved.std(ddof=1)) / math.sqrt(values.size)
    middle, scale = float(kept.mean()), values.size / kept.size
    below, above = max(moved.mean() - low, half) * scale, max(high - moved.mean(), half) * scale
    return (math.exp(middle - below), math.exp(middle + above))


def half_width(interval: Interval) -> float:
    """How far a ratio's interval reaches to the wider side of its middle, relative: 0.02 for 2 %.

    It is also the smallest difference that such an interval could have told from none.
    """
    return math.sqrt(interval[1] / interval[0]) - 1


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios: the one for which a/b and b/a are each other's inverse."""
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


def cpu_utilization_percent(
    at_ns: npt.ArrayLike, cpu_seconds: npt.ArrayLike, start_ns: int, end_ns: int, cores: int
) -> float | None:
    """Give a process's CPU time over wall time × cores within a window, 0 to 100.

    At an edge that lies between two samples the CPU time is interpolated linearly; an edge beyond the samples is moved
    to the nearest one inside, so the figure covers only what was sampled.

    Args:
        at_ns: when each sample was taken, ascending, on the clock of `start_ns` and `end_ns`.
        cpu_seconds: cumulative CPU seconds at those times.
        start_ns: the window's start.
        end_ns: the window's end.
        cores: the cores that count as 100 percent.

    Returns:
        None for fewer than two samples, or when they share no time with the window.

    Raises:
        ValueError: `cores` is not positive.
    """
    if cores <= 0:
        raise ValueError(f"cores is {cores}, not a positive number")
    stamps = np.asarray(at_ns, dtype=np.int64)
    if stamps.size < _FEWEST_SAMPLES:
        return None
    zero_ns = int(stamps[0])
    first_ns, last_ns = max(start_ns, zero_ns), min(end_ns, int(stamps[-1]))
    if last_ns <= first_ns:
        return None
    since_ns = stamps - zero_ns  # small numbers: a float holds them to the nanosecond
    before_s, after_s = np.interp([first_ns - zero_ns, last_ns - zero_ns], since_ns, np.asarray(cpu_seconds))
    wall_s = (last_ns - first_ns) / 1e9
    return min(100.0, max(0.0, 100 * float(after_s - before_s) / (wall_s * cores)))


def student_reach(freedom: float, confidence: float) -> float:
    """How many standard errors Student's t with so many degrees of freedom reaches to each side."""
    from scipy import special

    return float(special.stdtrit(freedom, (1 + confidence) / 2))


def percentile_bootstrap(samples: Sequence[Floats], statistic: Callable[..., Any], confidence: float) -> Interval:
    """The percentiles of a statistic over resamples, the same ones at every call.

    Args:
        samples: independent groups, each resampled by itself; too few values make it too narrow.
        statistic: of the groups, along ``axis``.
        confidence: how much of the resamples lies between the two ends.
    """
    from scipy import stats

    low, high = stats.bootstrap(
        tuple(samples),
        statistic,
        confidence_level=confidence,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return (float(low), float(high))


def _student_interval(values: Floats, confidence: float) -> Interval:
    mean = float(values.mean())
    half = student_reach(values.size - 1, confidence) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return (mean - half, mean + half)


def _mean_bootstrap_interval(values: Floats, confidence: float) -> Interval:
    """The expanded percentile interval, and Student's where that reaches further to a side.

    A bootstrap of 8 to 15 values is too narrow: its spread is that of a sample without Bessel's correction, and it
    knows nothing of Student's t. Reading its percentiles at a level that makes up for both mends that (Hesterberg,
    2015, "expanded percentile interval"). Of 8 normal values BCa covers the mean 89 times in 100, of 8
    heavy-tailed ones 83 times; this 95 and 96 times.
    """
    low, high = _bootstrap_interval(values, np.mean, _expanded_confidence(values.size, confidence))
    student = _student_interval(values, confidence)
    return (min(low, student[0]), max(high, student[1]))


def _bootstrap_interval(values: Floats, statistic: Callable[..., Any], confidence: float) -> Interval:
    if np.ptp(values) == 0:
        return (float(values[0]), float(values[0]))
    return percentile_bootstrap((values,), statistic, confidence)


def _expanded_confidence(count: int, confidence: float) -> float:
    """The level whose percentiles of a bootstrap's means are the interval of the mean of `count` normal values."""
    from scipy import special

    reach = math.sqrt(count / (count - 1)) * student_reach(count - 1, confidence)
    return 1 - 2 * float(special.ndtr(-reach))
