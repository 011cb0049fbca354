"""Disturbances that show in the step times alone: bursts of slow steps, a drift, a start that took much longer.

Here is also the view of a trial that every detector of disturbances has, and when a trial stands out from its siblings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import stats, thresholds
from pipeline_bench.analysis.measured import columns
from pipeline_bench.analysis.stats import MAD_TO_SIGMA, Floats
from pipeline_bench.model.result import Disturbance, DisturbanceKind
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.text import units

# The warm-up's detection looks at the first half of the steps only (stats.warmup_steps), in blocks of five.
_HALF_WAY_SHARE = 0.49

# A trial has no more blocks than this, or their noise would hide a burst of a second.
_BLOCK_STEPS = 10
_MOST_BLOCKS = 200
_MOST_DRIFT_BLOCKS = 40
_FEWEST_BLOCKS = 10

# What a quarter of the other repeats stay below is taken for what every repeat shows: with three repeats, about the
# less disturbed of the two others, and one odd repeat among many does not decide.
_COMMON_PERCENTILE = 25
# A disturbed repeat shows at least twice of it besides: repeats of a bursty input differ by less.
_STANDS_OUT_FACTOR = 2.0


@dataclass(frozen=True)
class Sampled:
    """Samples of one metric, each with the nanoseconds of the measured steps that it speaks of.

    A sample speaks of the time since the one before it, so that the first one of a trial has none.
    """

    at_ns: npt.NDArray[np.int64]
    values: Floats
    covers_ns: Floats

    def mean(self) -> float:
        """Return the mean over the time that is covered."""
        return float(np.average(self.values, weights=self.covers_ns))

    def share(self, where: npt.NDArray[np.bool_]) -> float:
        """Return the share, 0 to 1, of the covered time in which `where` holds."""
        return float(self.covers_ns[where].sum() / self.covers_ns.sum())


@dataclass(frozen=True)
class MeasuredTrial:
    """A trial that ended well; `step_ns` are the durations of all steps, warm-up included."""

    record: TrialRecord
    step_ns: Floats
    first_ns: int
    """When the first measured step began."""
    last_ns: int
    """When the last step ended."""

    @classmethod
    def of(cls, record: TrialRecord) -> MeasuredTrial | None:
        """Return the trial's view; None of one that did not end well, or has no step after its warm-up."""
        if not record.measured or record.steps is None:
            return None
        start_ns, end_ns = record.steps.start_ns.unpack(), record.steps.end_ns.unpack()
        step_ns = np.maximum(end_ns - start_ns, 1).astype(np.float64)
        return cls(record, step_ns, int(start_ns[record.warmup_steps]), int(end_ns[-1]))

    @property
    def variant(self) -> str:
        """The variant's name."""
        return self.record.variant

    @property
    def repeat(self) -> int:
        """Which repeat, from 0."""
        return self.record.repeat

    @property
    def measured_ns(self) -> Floats:
        """The durations of the steps after the warm-up."""
        return self.step_ns[self.record.warmup_steps :]

    @property
    def host_share(self) -> float:
        """The share of its measured time that the host has a part in, 0 to 1: all, but for an emulated device's.

        That device is busy for as long as it usually is, whatever becomes of the host; where it took longer, the host
        was late to notice.
        """
        busy_ns = self.record.after_warmup("busy_ns")
        if busy_ns is None:
            return 1.0
        return max(0.0, 1 - float(np.median(busy_ns)) * busy_ns.size / max(1, self.last_ns - self.first_ns))

    def sampled(self, metric: str) -> Sampled | None:
        """Return the samples of a metric that speak of the measured steps; None where there is none."""
        sampled = columns(self.record, metric)
        if sampled is None:
            return None
        at_ns, values = sampled
        since_ns = np.concatenate([at_ns[:1], at_ns[:-1]])
        covers_ns = np.minimum(at_ns, self.last_ns) - np.maximum(since_ns, self.first_ns)
        inside = (covers_ns > 0) & np.isfinite(values)
        if not inside.any():
            return None
        return Sampled(at_ns[inside], values[inside], covers_ns[inside].astype(np.float64))

    def grown(self, metric: str) -> float | None:
        """Return how much a cumulative metric grew a nanosecond of the measured steps; None where that is not known."""
        sampled = columns(self.record, metric)
        if sampled is None:
            return None
        grown = stats.growth(*sampled, self.first_ns, self.last_ns)
        return None if grown is None else max(0.0, grown[0]) / grown[1]

    def disturbance(self, kind: DisturbanceKind, cost_share: float | None, text: str) -> Disturbance:
        """Return a disturbance of this trial, its cost held between 0 and 1."""
        cost = None if cost_share is None else min(1.0, max(0.0, cost_share))
        return Disturbance(kind=kind, variant=self.variant, repeat=self.repeat, cost_share=cost, text=text)


def stands_out(value: float, of_siblings: Sequence[float], least: float) -> bool:
    """Return whether a trial's figure is at least `least` above what is common among the variant's other repeats.

    Without another repeat nothing stands out: whether the variant always does that is then not known.
    """
    if not of_siblings:
        return False
    common = max(0.0, float(np.percentile(of_siblings, _COMMON_PERCENTILE)))
    return value >= least + _STANDS_OUT_FACTOR * common


def without(values: Sequence[float], index: int) -> list[float]:
    """Return the values of the other repeats."""
    return [value for other, value in enumerate(values) if other != index]


# --- detection -------------------------------------------------------------------------------------------------------


def find(repeats: Sequence[MeasuredTrial]) -> Iterator[Disturbance]:
    """Yield the disturbances of one variant's repeats."""
    found = [_bursts_and_drift(trial) for trial in repeats]
    costs, changes = [bursts.cost_share for bursts, _ in found], [drift.change for _, drift in found]
    for index, (trial, (bursts, drift)) in enumerate(zip(repeats, found, strict=True)):
        start = _start(trial, [other for other in repeats if other is not trial])
        if start is not None:
            yield start
        same_way = [float(np.sign(drift.change)) * other for other in without(changes, index)]
        if (start is None or start.kind != "drift") and stands_out(
            abs(drift.change), same_way, thresholds.DRIFT_CHANGE
        ):
            yield trial.disturbance("drift", drift.cost_share, drift.text)
        if stands_out(bursts.cost_share, without(costs, index), thresholds.BURST_COST_SHARE):
            yield trial.disturbance("burst", bursts.cost_share, bursts.text)


@dataclass(frozen=True)
class _Finding:
    """What was found in a trial's step times: how much slower it became, relative, what that cost, and words for it."""

    change: float = 0.0
    cost_share: float = 0.0
    text: str = ""


def _bursts_and_drift(trial: MeasuredTrial) -> tuple[_Finding, _Finding]:
    """Return the bursts above the trial's median and the drift of the other steps; with a drift, bursts above it."""
    steps = trial.measured_ns
    size = max(_BLOCK_STEPS, int(np.ceil(thresholds.BLOCK_NS / np.median(steps))), -(-steps.size // _MOST_BLOCKS))
    count = steps.size // size
    if count < _FEWEST_BLOCKS:
        return _Finding(), _Finding()
    blocks = steps[: count * size].reshape(count, size)
    usual = np.full(count, np.median(blocks.mean(axis=1)))
    slow = _slow(blocks, usual)
    drift = _drift(blocks[~slow].ravel())
    if drift.change:
        usual = _drifting(blocks.mean(axis=1), slow)
        slow = _slow(blocks, usual)
    return _bursts(blocks, usual, slow, trial.record.warmup_steps), drift


# --- bursts ----------------------------------------------------------------------------------------------------------


def _slow(blocks: Floats, usual: Floats) -> npt.NDArray[np.bool_]:
    """Return which blocks' means lie too far above what is usual there to be noise."""
    # In logarithms, in which the right-skewed means of few steps are about normal.
    deviation = np.log(blocks.mean(axis=1) / usual)
    return np.asarray(
        deviation > max(thresholds.BURST_DEVIATIONS * _noise(blocks, deviation), np.log1p(thresholds.BURST_EXCESS))
    )


def _noise(blocks: Floats, deviation: Floats) -> float:
    """Return one robust standard deviation of the blocks' means, relative, by their neighbours or by their steps.

    Neighbours, because half a trial at another level would widen the scatter of all. The second holds where a few
    blocks happen to be alike.
    """
    scatter = MAD_TO_SIGMA * float(np.median(np.abs(np.diff(deviation)))) / np.sqrt(2)
    expected = float(np.median(blocks.std(axis=1) / blocks.mean(axis=1))) / np.sqrt(blocks.shape[1])
    return float(max(scatter, expected))


def _bursts(blocks: Floats, usual: Floats, slow: npt.NDArray[np.bool_], warmup_steps: int) -> _Finding:
    if not slow.any():
        return _Finding()
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
        return _Finding(0.0, cost_share, f"its steps were {where}, {units.share(cost_share)} of its time")
    text = f"its steps came slower in {len(runs)} bursts, {units.share(cost_share)} of its time; in the worst {where}"
    return _Finding(0.0, cost_share, text)


def _runs(slow: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where runs of slow blocks begin and end; one block in between that is not slow does not end a run."""
    found: list[tuple[int, int]] = []
    for index in np.flatnonzero(slow).tolist():
        if found and index <= found[-1][1] + 1:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found


# --- drift -----------------------------------------------------------------------------------------------------------


def _drift(steps: Floats) -> _Finding:
    """Return how much slower the last quarter of the steps was than the first, by Mann and Kendall's test on blocks.

    The size is not that of a fitted line, because a drift is often a jump. The cost is what the medians of all four
    quarters lie above the faster of the first and the last.
    """
    size = max(_BLOCK_STEPS, -(-steps.size // _MOST_DRIFT_BLOCKS))
    count = steps.size // size
    if count < _FEWEST_BLOCKS:
        return _Finding()
    medians = np.median(steps[: count * size].reshape(count, size), axis=1)
    signs = np.sign(medians[None, :] - medians[:, None])
    variance = count * (count - 1) * (2 * count + 5) / 18
    if abs(float(np.triu(signs).sum())) < thresholds.DRIFT_DEVIATIONS * np.sqrt(variance):
        return _Finding()
    quarters_ns = [float(np.median(part)) for part in np.array_split(steps, 4)]
    before_ns, after_ns = quarters_ns[0], quarters_ns[-1]
    text = f"its steps drifted from {units.milliseconds(before_ns / 1e6)} to {units.milliseconds(after_ns / 1e6)}"
    cost_share = max(0.0, 1 - min(before_ns, after_ns) / float(np.mean(quarters_ns)))
    return _Finding(after_ns / before_ns - 1, cost_share, text)


def _drifting(means: Floats, slow: npt.NDArray[np.bool_]) -> Floats:
    """Return what is usual along a drift: from each quarter's median block to that of the next, without bursts."""
    blocks = np.arange(len(means))
    quarters = [part[~slow[part]] for part in np.array_split(blocks, 4)]
    known = [part for part in quarters if part.size]
    centres, medians = [part.mean() for part in known], [np.median(means[part]) for part in known]
    return np.asarray(np.interp(blocks, centres, medians))


# --- the start -------------------------------------------------------------------------------------------------------


def _start(trial: MeasuredTrial, others: Sequence[MeasuredTrial]) -> Disturbance | None:
    """Return a warm-up that is far longer than in the other repeats, and was slower or faster than what came after.

    A slow start's steps are in no figure, so that it costs nothing; where it reached half of the trial, it may have
    gone on beyond it, at an unknown cost. Faster steps were cut off because the trial slowed down later,
    which is a drift of all that is in the figures.
    """
    warmup, total = trial.record.warmup_steps, trial.step_ns.size
    if not others or warmup < thresholds.SLOW_START_SHARE * total:
        return None
    usual = float(np.median([other.record.warmup_steps for other in others]))
    if warmup < thresholds.SLOW_START_FACTOR * usual:
        return None
    early_ns, middle_ns = float(np.median(trial.step_ns[:warmup])), float(np.median(trial.measured_ns))
    noise = MAD_TO_SIGMA * float(np.median(np.abs(trial.measured_ns / middle_ns - 1))) / np.sqrt(warmup)
    excess = early_ns / middle_ns - 1
    if abs(excess) < max(thresholds.SLOW_START_EXCESS, thresholds.SLOW_START_DEVIATIONS * noise):
        return None
    steps = f"its first {units.count(warmup, 'step')} of {total} were"
    if excess < 0:
        text = f"{steps} {units.share(-excess)} faster than the rest, and are left out like warm-up"
        return trial.disturbance("drift", -excess, text)
    text = f"{steps} {units.share(excess)} slower and are left out as warm-up; its other repeats needed {usual:.0f}"
    if warmup >= _HALF_WAY_SHARE * total:
        return trial.disturbance("slow-start", None, f"{text}, and the search for its end stops at half of the steps")
    return trial.disturbance("slow-start", 0.0, text)
