"""The lanes of the time line: their lines, and how high each of them is drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report.html.steps import Floats, Steps
from pipeline_bench.text import units

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
    """The highest share, and at least the 10 % from which a variant is input-bound."""
    return min(
        105.0, 1.15 * max((value for line in lines.values() for value in line.y if value is not None), default=0.0) + 10
    )
