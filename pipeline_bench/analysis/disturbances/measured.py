"""One trial as the detectors see it: its measured steps, and what was sampled during them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis.interference import columns
from pipeline_bench.model.result import Disturbance, DisturbanceKind
from pipeline_bench.model.trial import TrialRecord

Floats = npt.NDArray[np.float64]

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
        """The mean over the time that is covered."""
        return float(np.average(self.values, weights=self.covers_ns))

    def share(self, where: npt.NDArray[np.bool_]) -> float:
        """The share, 0 to 1, of the covered time in which `where` holds."""
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
        """The trial's view; None of one that did not end well, or has no step after its warm-up."""
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
        steps = self.record.steps
        if steps is None or steps.busy_ns is None:
            return 1.0
        busy_ns = steps.busy_ns.unpack()[self.record.warmup_steps :]
        return max(0.0, 1 - float(np.median(busy_ns)) * busy_ns.size / max(1, self.last_ns - self.first_ns))

    def sampled(self, metric: str) -> Sampled | None:
        """The samples of a metric that speak of the measured steps; None where there is none."""
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
        """How much a cumulative metric grew a nanosecond of the measured steps; None where that is not known."""
        sampled = columns(self.record, metric)
        if sampled is None:
            return None
        at_ns, values = sampled
        first_ns, last_ns = max(self.first_ns, int(at_ns[0])), min(self.last_ns, int(at_ns[-1]))
        if last_ns <= first_ns:
            return None
        before, after = np.interp([first_ns - at_ns[0], last_ns - at_ns[0]], at_ns - at_ns[0], values)
        return max(0.0, float(after - before)) / (last_ns - first_ns)

    def disturbance(self, kind: DisturbanceKind, cost_share: float | None, text: str) -> Disturbance:
        """A finding about this trial, its cost held between 0 and 1."""
        cost = None if cost_share is None else min(1.0, max(0.0, cost_share))
        return Disturbance(kind=kind, variant=self.variant, repeat=self.repeat, cost_share=cost, text=text)


def stands_out(value: float, of_siblings: Sequence[float], least: float) -> bool:
    """Whether a trial's figure is at least `least` above what is common among the variant's other repeats.

    Without another repeat nothing stands out: whether the variant always does that is then not known.
    """
    if not of_siblings:
        return False
    common = max(0.0, float(np.percentile(of_siblings, _COMMON_PERCENTILE)))
    return value >= least + _STANDS_OUT_FACTOR * common


def without(values: Sequence[float], index: int) -> list[float]:
    """The values of the other repeats."""
    return [value for other, value in enumerate(values) if other != index]
