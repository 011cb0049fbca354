"""What is believed of a figure after some rounds: a value, and how far it may be off."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis.stats import CONFIDENCE, TRIMMED_SHARE, Interval, student_reach

PRIOR_FREEDOM = 2.0
"""What was known of the scatter between rounds before the first one counts as so many degrees of freedom."""
SOME_ROUNDS, MANY_ROUNDS = 5, 8
"""From so many rounds on, what they show of their scatter counts alone: where it is more than is usual, and always."""
SHARE_SCATTER = 0.02
"""The usual standard deviation of a share of the step between rounds, as seen of known answers (docs/method.md)."""
RATIO_SCATTER = 0.05
"""The same of the logarithm of a ratio of step times."""

_TRIMMED_FROM = 5
"""Of so many rounds the `TRIMMED_SHARE` at each end is trimmed."""


@dataclass(frozen=True)
class Belief:
    """Student's t around a value: what the true figure may be."""

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
        """Return the same where all rounds may be off in one direction by that much, one standard deviation."""
        return dataclasses.replace(self, scale=math.hypot(self.scale, systematic))


def of(values: Sequence[float], scatter: float, *, trimmed: bool = False) -> Belief:
    """Return what is believed of the mean of a figure, of which every round gave one value.

    The scatter between rounds is estimated from them and from what is usual (a scaled inverse chi-squared prior with
    `PRIOR_FREEDOM`), so that two rounds that happen to agree prove little, and two that differ a little are not taken
    for noise without bound. From `_TRIMMED_FROM` rounds on a trimmed mean's standard error is that of Tukey and
    McLaughlin (1963).

    Args:
        values: one a round, at least one.
        scatter: the standard deviation that is usual between rounds.
        trimmed: leave out the outer fifths of many rounds; of a share, what comes in one round of five may be the
            input's own, and stays.
    """
    array = np.sort(np.asarray(values, dtype=np.float64))
    count = array.size
    cut = int(TRIMMED_SHARE * count) if trimmed and count >= _TRIMMED_FROM else 0
    kept = array[cut : count - cut]
    freedom = kept.size - 1
    squares = float(np.clip(array, kept[0], kept[-1]).var(ddof=1)) * freedom if freedom else 0.0
    variance = (PRIOR_FREEDOM * scatter**2 + squares) / (PRIOR_FREEDOM + freedom)
    prior = PRIOR_FREEDOM
    if count >= MANY_ROUNDS or (count >= SOME_ROUNDS and squares / freedom > variance):
        variance, prior = squares / freedom, 0.0
    error = math.sqrt(variance / count) * count / kept.size
    return Belief(value=float(kept.mean()), scale=error, freedom=prior + freedom, rounds=count)


def usual_reach(scatter: float, rounds: int) -> float:
    """Return how far the 95 % interval of a figure usually reaches to each side after so many rounds.

    Args:
        scatter: the standard deviation that is usual between rounds.
        rounds: at least one.
    """
    return scatter / math.sqrt(rounds) * student_reach(PRIOR_FREEDOM + rounds - 1, CONFIDENCE)


def equally_plausible(parts: int) -> npt.NDArray[np.float64]:
    """Return the middles of so many equal parts of the standard normal distribution."""
    from scipy import special

    return np.asarray(special.ndtri((np.arange(parts) + 0.5) / parts))
