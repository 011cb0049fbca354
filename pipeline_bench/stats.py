"""Pure functions on arrays: warm-up, intervals over trials, ratios of interleaved neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]

CONFIDENCE = 0.95

# With fewer trials than this a bootstrap's interval is much too narrow: of three trials it can only choose among
# values between the smallest and the largest, which hold the truth 3 times in 4 (Hesterberg, "What Teachers Should
# Know About the Bootstrap", 2015, section 4.1). Student's t is used instead.
BOOTSTRAP_FROM_TRIALS = 8
_RESAMPLES = 4999

_WARMUP_BLOCK_STEPS = 5


def warmup_steps(step_ns: npt.ArrayLike) -> int:
    """How many steps at the start are warm-up: MSER-5 on the logarithm of the step times.

    The steps are cut into blocks of five; the warm-up ends where the squared standard error of the blocks that
    remain is smallest (White, "An effective truncation heuristic for bias reduction in simulation output", 1997).
    A block counts by its median and in logarithms, so that one late outlier does not move the cut. At most half of the
    steps are warm-up. The first step, which sets up kernels and memory, always is.
    """
    steps = np.asarray(step_ns, dtype=np.float64)
    if steps.size <= 1:
        return 0
    blocks = steps[: steps.size - steps.size % _WARMUP_BLOCK_STEPS].reshape(-1, _WARMUP_BLOCK_STEPS)
    if len(blocks) < 4:
        return 1
    values = np.log(np.maximum(np.median(blocks, axis=1), 1.0))
    remaining = np.arange(len(values), 0, -1, dtype=np.float64)
    mean = np.cumsum(values[::-1])[::-1] / remaining
    variance = np.maximum(np.cumsum(values[::-1] ** 2)[::-1] / remaining - mean**2, 0.0)
    score = variance / remaining
    cut = int(np.argmin(score[: len(values) // 2 + 1]))
    return max(1, cut * _WARMUP_BLOCK_STEPS)


def mean_interval(values: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean of independent values, one a trial; None for fewer than two."""
    if len(values) < 2:
        return None
    if len(values) < BOOTSTRAP_FROM_TRIALS:
        return _student_interval(np.asarray(values, dtype=np.float64))
    return _bootstrap_interval(np.asarray(values, dtype=np.float64))


def ratio_interval(ratios: Sequence[float]) -> Interval | None:
    """The 95 % interval of a ratio over trials, taken on its logarithm; None for fewer than two."""
    interval = mean_interval([math.log(ratio) for ratio in ratios])
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios: the one for which a/b and b/a are each other's inverse."""
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


def _student_interval(values: Floats) -> Interval:
    from scipy import special

    mean = float(values.mean())
    standard_error = float(values.std(ddof=1)) / math.sqrt(values.size)
    half = float(special.stdtrit(values.size - 1, (1 + CONFIDENCE) / 2)) * standard_error
    return (mean - half, mean + half)


def _bootstrap_interval(values: Floats) -> Interval:
    if np.ptp(values) == 0:
        return (float(values[0]), float(values[0]))
    from scipy import stats

    low, high = stats.bootstrap(
        (values,), np.mean, confidence_level=CONFIDENCE, n_resamples=_RESAMPLES, method="BCa", rng=np.random.default_rng(0)
    ).confidence_interval
    return (float(low), float(high))
