"""Changes between two independent groups of trials, with their intervals. Pure functions on arrays.

The trials of two sessions are not neighbours, so nothing pairs them, and a drift between the sessions does not cancel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis.stats import (
    BOOTSTRAP_FROM_TRIALS,
    CONFIDENCE,
    Interval,
    percentile_bootstrap,
    student_reach,
)

Floats = npt.NDArray[np.float64]

TOO_FEW_TRIALS = "an interval needs at least 2 trials in each session"

_FEWEST_TRIALS = 2
_LARGEST_LOGARITHM = 700.0


def ratio(before: Sequence[float], after: Sequence[float]) -> float:
    """The geometric mean of AFTER over that of BEFORE; values are positive, one a trial, at least one in each."""
    return math.exp(float(np.mean(np.log(after)) - np.mean(np.log(before))))


def ratio_interval(before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The interval, 95 % unless told, of `ratio`, taken on the logarithms; None for fewer than two trials in either."""
    interval = difference_interval(np.log(before).tolist(), np.log(after).tolist(), confidence)
    return None if interval is None else (_exp(interval[0]), _exp(interval[1]))


def difference_interval(
    before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE
) -> Interval | None:
    """The interval, 95 % unless told, of the mean of AFTER minus that of BEFORE; None for fewer than two in either.

    Welch's t (1947), which does not take the two spreads to be alike. From 8 trials in both on also a two-sample
    bootstrap, and of each end the one that reaches further: of so few values a bootstrap alone is too narrow (see
    `pipeline_bench.stats`), and Welch's alone is wrong where step times lean to one side.
    """
    one, other = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if min(one.size, other.size) < _FEWEST_TRIALS:
        return None
    low, high = _welch(one, other, confidence)
    if min(one.size, other.size) < BOOTSTRAP_FROM_TRIALS or low == high:
        return (low, high)
    resampled = _bootstrap(one, other, confidence)
    return (min(low, resampled[0]), max(high, resampled[1]))


def _welch(one: Floats, other: Floats, confidence: float) -> Interval:
    middle = float(other.mean() - one.mean())
    parts = [float(values.var(ddof=1)) / values.size for values in (one, other)]
    if sum(parts) == 0:  # no spread at all: there is nothing to be unsure of
        return (middle, middle)
    # The degrees of freedom of Welch and Satterthwaite, by shares, which cannot overflow.
    shares = [part / sum(parts) for part in parts]
    freedom = 1 / sum(share**2 / (values.size - 1) for share, values in zip(shares, (one, other), strict=True))
    half = student_reach(freedom, confidence) * math.sqrt(sum(parts))
    return (middle - half, middle + half)


def _bootstrap(one: Floats, other: Floats, confidence: float) -> Interval:
    def difference(first: Floats, second: Floats, axis: int = -1) -> Any:
        return np.mean(second, axis=axis) - np.mean(first, axis=axis)

    return percentile_bootstrap((one, other), difference, confidence)


def _exp(logarithm: float) -> float:
    """A ratio of its logarithm, at most about 1e304: of two trials an interval can be that wide."""
    return math.exp(min(logarithm, _LARGEST_LOGARITHM))
