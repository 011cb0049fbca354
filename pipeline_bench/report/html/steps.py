"""The columns of a session's trials, read once each and thinned out to what a plot can show, as lines of lanes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import thresholds
from pipeline_bench.model.series import Series
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.text import units

Floats = npt.NDArray[np.float64]

_NS_PER_MS = 1e6
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Steps:
    """The steps of one trial, warm-up included: shape [steps] each, times in seconds since the session began."""

    at_s: Floats
    """When each step began."""
    step_ms: Floats
    wait_ms: Floats | None
    warmup: int
    busy_ms: Floats | None = None
    """How long an emulated device was busy with each step."""

    @property
    def measured_ms(self) -> Floats:
        """The step times after warm-up."""
        return self.step_ms[self.warmup :]


@dataclass(frozen=True)
class Clock:
    """The one time axis of a session, from its first trial's start to its last one's end."""

    zero_ns: int
    end_ns: int

    @classmethod
    def of(cls, session: Session) -> Clock:
        """The axis that holds every trial; an empty one where there is none."""
        starts = [record.started_ns for record in session.trials]
        ends = [record.ended_ns for record in session.trials]
        return cls(min(starts, default=0), max([*starts, *ends], default=0))

    @property
    def span_s(self) -> float:
        """Its length in seconds, never 0."""
        return max(self.end_ns - self.zero_ns, 1) / _NS_PER_S

    def seconds(self, at_ns: Any) -> Any:
        """A time or an array of times on the axis; the difference is taken in whole nanoseconds."""
        return (at_ns - self.zero_ns) / _NS_PER_S


def read_steps(record: TrialRecord, clock: Clock) -> Steps | None:
    """The trial's steps; None where it has none."""
    if record.steps is None or not record.steps.count:
        return None
    start_ns, end_ns = record.steps.start_ns.unpack(), record.steps.end_ns.unpack()
    wait = record.steps.wait_ns.unpack() / _NS_PER_MS if record.steps.wait_ns is not None else None
    busy = record.steps.busy_ns.unpack() / _NS_PER_MS if record.steps.busy_ns is not None else None
    return Steps(clock.seconds(start_ns), (end_ns - start_ns) / _NS_PER_MS, wait, record.warmup_steps, busy)


def read_track(at_ns: Series | None, values: Series | None, clock: Clock) -> tuple[Floats, Floats] | None:
    """Times in seconds and finite values of a track; None where it has none."""
    if at_ns is None or values is None:
        return None
    at, read = at_ns.unpack(), np.asarray(values.unpack(), dtype=np.float64)
    finite = np.isfinite(read)
    return (clock.seconds(at[finite]), read[finite]) if finite.any() else None


def bins(at_s: Floats, count: int) -> npt.NDArray[np.intp]:
    """Where each of at most `count` bins of one width begins among ascending times; empty bins are left out."""
    width_s = max(float(at_s[-1] - at_s[0]), 1e-9) / count
    index = np.minimum((at_s - at_s[0]) / width_s, count - 1).astype(np.int64)
    return np.flatnonzero(np.diff(index, prepend=-1))


def means(values: Floats, starts: npt.NDArray[np.intp]) -> Floats:
    """The mean of each bin."""
    counts = np.diff(starts, append=len(values))
    return np.asarray(np.add.reduceat(values, starts) / counts, dtype=np.float64)


def quantiles(values: Floats, starts: npt.NDArray[np.intp], share: float) -> Floats:
    """That quantile of each bin."""
    return np.asarray([np.quantile(part, share) for part in np.split(values, starts[1:])], dtype=np.float64)


def ascending(at_s: Floats, *columns: Floats) -> tuple[Floats, ...]:
    """Times and their columns in the order of time, which a clock that was read by turns may not have kept."""
    if len(at_s) < 2 or bool(np.all(np.diff(at_s) >= 0)):  # noqa: PLR2004 - one time is in order
        return at_s, *columns
    order = np.argsort(at_s, kind="stable")
    return at_s[order], *(column[order] for column in columns)


STEP_TIME = "step time, ms"
"""The title of the lane whose height `step_limit` sets."""
_SLOW, _ABOVE_SLOW = 0.95, 1.5
"""The percentile of a variant's measured steps that sets the height of the step times, and how far it lies below."""


@dataclass
class Line:
    """Points of one variant in one lane; trials are kept apart by a gap."""

    x: list[float | None] = field(default_factory=list)
    y: list[float | None] = field(default_factory=list)

    def add(self, x: Floats, y: Floats) -> None:
        """One more trial's points."""
        self.x += [*x.tolist(), None]
        self.y += [*y.tolist(), None]

    def alone(self) -> Line:
        """The points without a neighbour, which a line does not show."""
        ends = [None, *self.x, None]
        lone = [i for i, x in enumerate(self.x) if x is not None and ends[i] is None and ends[i + 2] is None]
        return Line([self.x[i] for i in lone], [self.y[i] for i in lone])


Lines = dict[tuple[str, str], Line]
"""By variant, and by what is drawn of it."""


@dataclass(frozen=True)
class Lane:
    """Lines that share a height; `upper` is where their axis ends."""

    title: str
    lines: Lines
    upper: float | None = None


def full(lines: Lines) -> Lines:
    """Those that have a point."""
    return {key: line for key, line in lines.items() if line.x}


def step_limit(records: Sequence[TrialRecord], steps: Mapping[int, Steps]) -> float | None:
    """A height that neither first steps nor a few slow ones set, but the variant whose measured steps are longest."""
    parts: dict[str, list[Floats]] = defaultdict(list)
    for index, record in enumerate(records):
        if index in steps:
            # A trial that ended within its warm-up has no other steps to show.
            measured = steps[index].measured_ms
            parts[record.variant].append(measured if measured.size else steps[index].step_ms)
    slow = [float(np.quantile(np.concatenate(found), _SLOW)) for found in parts.values()]
    return _ABOVE_SLOW * max(slow) if slow else None


def said_of_limit(lanes: Sequence[Lane]) -> str:
    """What lies above the axis of the step times; nothing where all of them fit."""
    lane = next((lane for lane in lanes if lane.title == STEP_TIME), None)
    drawn = [y for line in lane.lines.values() for y in line.y if y is not None] if lane else []
    highest = max(drawn, default=0.0)
    if lane is None or lane.upper is None or highest <= lane.upper:
        return ""
    return (
        f" Step times are drawn to {units.milliseconds(lane.upper)}, {_ABOVE_SLOW} × the 95th percentile of the "
        f"slowest variant's steps after warm-up. Slower ones, up to {units.milliseconds(highest)} and first steps "
        "above all, run off the top; the autoscale button shows them."
    )


def wait_limit(lines: Lines) -> float:
    """Return the end of the axis in percent: above the highest share, and above that from which one is input-bound."""
    highest = max((value for line in lines.values() for value in line.y if value is not None), default=0.0)
    return min(105.0, 1.15 * highest + 100 * thresholds.BOUND_SHARE)
