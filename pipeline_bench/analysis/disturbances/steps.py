"""Disturbances that show in the step times alone: bursts of slow steps, a drift, a start that took much longer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis.disturbances.measured import Floats, MeasuredTrial, stands_out, without
from pipeline_bench.model.result import Disturbance
from pipeline_bench.text import units

# A smaller share of a trial's time moves no figure that is read in whole per cent.
BURST_COST_SHARE = 0.01
# A block is slow beyond its kin from this many robust standard deviations on. Of normal noise one in 10**9 would be;
# of the few blocks of a short trial, whose deviation is not known well, it takes this much to be no accident.
_BURST_DEVIATIONS = 6.0
# … and from this much on, however even the rest is.
_BURST_EXCESS = 0.05

# Half of the share from which a verdict names a cause (verdicts.BOUND_SHARE): no drift below it decides one.
DRIFT_CHANGE = 0.05
# Mann-Kendall's statistic in standard deviations (Mann, "Nonparametric tests against trend", 1945), far above 1.96:
# neighbouring blocks are alike on a real machine, which the test takes for so much more evidence.
_DRIFT_DEVIATIONS = 3.5

# A warm-up this much of the trial, and this many times as long as in the other repeats, is no chance of its detection.
SLOW_START_SHARE = 0.10
_SLOW_START_FACTOR = 5.0
# … if it was really slower than what came after: by as much as a drift has to be, and by this many standard errors,
# more than usual because the detection has picked the slowest start that it could find.
_SLOW_START_EXCESS = 0.05
_SLOW_START_DEVIATIONS = 6.0
# The warm-up's detection looks at the first half of the steps only (stats.warmup_steps), in blocks of five.
_HALF_WAY_SHARE = 0.49

# A block is this long at least, so that it holds several steps and what disturbs outlasts it, and a trial has no more
# blocks than this, or their noise would hide a burst of a second.
_BLOCK_NS = 50e6
_BLOCK_STEPS = 10
_MOST_BLOCKS = 200
_MOST_DRIFT_BLOCKS = 40
_FEWEST_BLOCKS = 10

_MAD_TO_SIGMA = 1.4826
"""The standard deviation of normal noise over its median absolute deviation."""


def find(repeats: Sequence[MeasuredTrial]) -> Iterator[Disturbance]:
    """The disturbances of one variant's repeats."""
    courses = [_course(trial) for trial in repeats]
    costs, changes = [course.bursts.cost_share for course in courses], [course.drift.change for course in courses]
    for index, (trial, course) in enumerate(zip(repeats, courses, strict=True)):
        start = _start(trial, [other for other in repeats if other is not trial])
        if start is not None:
            yield start
        change = course.drift.change
        same_way = [float(np.sign(change)) * other for other in without(changes, index)]
        if (start is None or start.kind != "drift") and stands_out(abs(change), same_way, DRIFT_CHANGE):
            yield trial.disturbance("drift", course.drift.cost_share, course.drift.text)
        if stands_out(course.bursts.cost_share, without(costs, index), BURST_COST_SHARE):
            yield trial.disturbance("burst", course.bursts.cost_share, course.bursts.text)


@dataclass(frozen=True)
class _Bursts:
    """All bursts of a trial; `text` says where the worst was."""

    cost_share: float = 0.0
    text: str = ""


@dataclass(frozen=True)
class _Drift:
    """How much slower a trial became, relative; 0 where that may be chance."""

    change: float = 0.0
    cost_share: float = 0.0
    text: str = ""


@dataclass(frozen=True)
class _Course:
    """A trial's measured steps as bursts upon a drift."""

    bursts: _Bursts = _Bursts()
    drift: _Drift = _Drift()


def _course(trial: MeasuredTrial) -> _Course:
    """The bursts above the trial's median, a drift of the other steps, and if there is one, the bursts above that."""
    steps = trial.measured_ns
    size = max(_BLOCK_STEPS, int(np.ceil(_BLOCK_NS / np.median(steps))), -(-steps.size // _MOST_BLOCKS))
    count = steps.size // size
    if count < _FEWEST_BLOCKS:
        return _Course()
    blocks = steps[: count * size].reshape(count, size)
    usual = np.full(count, np.median(blocks.mean(axis=1)))
    slow = _slow(blocks, usual)
    drift = _drift(blocks[~slow].ravel())
    if drift.change:
        usual = _drifting(blocks.mean(axis=1), slow)
        slow = _slow(blocks, usual)
    return _Course(_bursts(blocks, usual, slow, trial.record.warmup_steps), drift)


# --- bursts ----------------------------------------------------------------------------------------------------------


def _slow(blocks: Floats, usual: Floats) -> npt.NDArray[np.bool_]:
    """Which blocks' means lie too far above what is usual there to be noise."""
    # In logarithms, in which the right-skewed means of few steps are about normal.
    deviation = np.log(blocks.mean(axis=1) / usual)
    return np.asarray(deviation > max(_BURST_DEVIATIONS * _noise(blocks, deviation), np.log1p(_BURST_EXCESS)))


def _noise(blocks: Floats, deviation: Floats) -> float:
    """One robust standard deviation of the blocks' means, relative: as neighbours differ, or as their steps let expect.

    Neighbours, because half a trial at another level would widen the scatter of all. The second holds where a few
    blocks happen to be alike.
    """
    scatter = _MAD_TO_SIGMA * float(np.median(np.abs(np.diff(deviation)))) / np.sqrt(2)
    expected = float(np.median(blocks.std(axis=1) / blocks.mean(axis=1))) / np.sqrt(blocks.shape[1])
    return float(max(scatter, expected))


def _bursts(blocks: Floats, usual: Floats, slow: npt.NDArray[np.bool_], warmup_steps: int) -> _Bursts:
    if not slow.any():
        return _Bursts()
    block_ns, size = blocks.sum(axis=1), blocks.shape[1]
    excess_ns = np.where(slow, block_ns - usual * size, 0.0)
    cost_share = float(excess_ns.sum() / block_ns.sum())
    runs = _runs(slow)
    first, end = max(runs, key=lambda run: float(excess_ns[run[0] : run[1]].sum()))
    lasted_ns, lost_ns = float(block_ns[first:end].sum()), float(excess_ns[first:end].sum())
    slower = units.share(lost_ns / max(lasted_ns - lost_ns, 1.0))
    step = warmup_steps + first * size + 1
    where = f"{slower} slower for {units.seconds(lasted_ns / 1e9)} from step {step} on"
    if len(runs) == 1:
        return _Bursts(cost_share, f"its steps were {where}, {units.share(cost_share)} of its time")
    text = f"its steps came slower in {len(runs)} bursts, {units.share(cost_share)} of its time; in the worst {where}"
    return _Bursts(cost_share, text)


def _runs(slow: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where runs of slow blocks begin and end; one block in between that is not slow does not end a run."""
    found: list[tuple[int, int]] = []
    for index in np.flatnonzero(slow).tolist():
        if found and index <= found[-1][1] + 1:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found


# --- drift -----------------------------------------------------------------------------------------------------------


def _drift(steps: Floats) -> _Drift:
    """How much slower the last quarter of the steps was than the first, by Mann and Kendall's test on blocks' medians.

    The size is not that of a fitted line, because a drift is often a jump. The cost is what the medians of all four
    quarters lie above the faster of the first and the last.
    """
    size = max(_BLOCK_STEPS, -(-steps.size // _MOST_DRIFT_BLOCKS))
    count = steps.size // size
    if count < _FEWEST_BLOCKS:
        return _Drift()
    medians = np.median(steps[: count * size].reshape(count, size), axis=1)
    signs = np.sign(medians[None, :] - medians[:, None])
    variance = count * (count - 1) * (2 * count + 5) / 18
    if abs(float(np.triu(signs).sum())) < _DRIFT_DEVIATIONS * np.sqrt(variance):
        return _Drift()
    quarters_ns = [float(np.median(part)) for part in np.array_split(steps, 4)]
    before_ns, after_ns = quarters_ns[0], quarters_ns[-1]
    text = f"its steps drifted from {units.milliseconds(before_ns / 1e6)} to {units.milliseconds(after_ns / 1e6)}"
    cost_share = max(0.0, 1 - min(before_ns, after_ns) / float(np.mean(quarters_ns)))
    return _Drift(after_ns / before_ns - 1, cost_share, text)


def _drifting(means: Floats, slow: npt.NDArray[np.bool_]) -> Floats:
    """What is usual along a drift: from the median of each quarter's blocks to that of the next, bursts left out."""
    blocks = np.arange(len(means))
    quarters = [part[~slow[part]] for part in np.array_split(blocks, 4)]
    known = [part for part in quarters if part.size]
    centres, medians = [part.mean() for part in known], [np.median(means[part]) for part in known]
    return np.asarray(np.interp(blocks, centres, medians))


# --- the start -------------------------------------------------------------------------------------------------------


def _start(trial: MeasuredTrial, others: Sequence[MeasuredTrial]) -> Disturbance | None:
    """A warm-up that is far longer than in the other repeats, and was slower, or even faster, than what came after.

    A slow start's steps are in no figure, so that it costs nothing; where it reached half of the trial, it may have
    gone on beyond it, at a cost that cannot be told. Faster steps were cut off because the trial slowed down later,
    which is a drift of all that is in the figures.
    """
    warmup, total = trial.record.warmup_steps, trial.step_ns.size
    if not others or warmup < SLOW_START_SHARE * total:
        return None
    usual = float(np.median([other.record.warmup_steps for other in others]))
    if warmup < _SLOW_START_FACTOR * usual:
        return None
    early_ns, middle_ns = float(np.median(trial.step_ns[:warmup])), float(np.median(trial.measured_ns))
    noise = _MAD_TO_SIGMA * float(np.median(np.abs(trial.measured_ns / middle_ns - 1))) / np.sqrt(warmup)
    excess = early_ns / middle_ns - 1
    if abs(excess) < max(_SLOW_START_EXCESS, _SLOW_START_DEVIATIONS * noise):
        return None
    steps = f"its first {units.count(warmup, 'step')} of {total} were"
    if excess < 0:
        text = f"{steps} {units.share(-excess)} faster than the rest, and are left out as if they were warm-up"
        return trial.disturbance("drift", -excess, text)
    text = f"{steps} {units.share(excess)} slower and are left out as warm-up; its other repeats needed {usual:.0f}"
    if warmup >= _HALF_WAY_SHARE * total:
        return trial.disturbance("slow-start", None, f"{text}, and none is looked for beyond half of the steps")
    return trial.disturbance("slow-start", 0.0, text)
