"""What the timeline draws: trials as boxes of their phases, and the columns of their steps, thinned out to lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import thresholds
from pipeline_bench.model.result import Disturbance
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report.html import elements
from pipeline_bench.report.html.elements import Json, Legend, label, name
from pipeline_bench.text import grouped, units
from pipeline_bench.text.units import NS_PER_MS, NS_PER_S

PHASED_TRIALS = 24
"""With more trials than these their phases are slivers: a trial is then one box, and the repeats are numbered."""
_MOST_LINES = 6
"""Of what one mark says of its trials."""
_WIDTH_PX, _LETTER_PX, _PAD_PX = 1040, 6.2, 6
"""Of the plot on a wide screen, of a letter of a box's name, and of what is free around a name."""
_MARKS = 60
"""Places along the axis that have room for a mark of their own on a wide screen."""
_MOST_REPEATS = 6
"""Numbered ones: more would touch on a phone."""
BELOW, _WITHIN = -0.6, 0.5
"""The strip's lower end, and the middle of its boxes, which are from 0 to 1: triangles stand below them."""


def shade(record: TrialRecord, clock: Clock) -> Json:
    """Return where the trial trained, behind all lanes; the whole trial, where its phases are not known."""
    trained = [(start, end) for phase, start, end in record.spans_ns if phase == "train"]
    start_ns, end_ns = (trained[0][0], trained[-1][1]) if trained else (record.started_ns, record.ended_ns)
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": float(clock.seconds(start_ns)),
        "x1": float(clock.seconds(end_ns)),
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"width": 0},
        "fillcolor": "rgba(128,137,148,0.09)",
    }


def boxes(records: Sequence[TrialRecord], clock: Clock, order: Mapping[str, int]) -> list[Json]:
    """Return a box a phase: the training in its variant's colour, the rest in the phase's."""
    corners: dict[tuple[str, str], Json] = defaultdict(lambda: {"x": [], "y": []})
    for record in records:
        spans = record.spans_ns if len(records) <= PHASED_TRIALS else []
        for phase, start_ns, end_ns in spans or [("train", record.started_ns, record.ended_ns)]:
            colour = elements.PHASES.get(phase, elements.NEUTRAL)
            said = label(phase)
            if phase == "train":
                colour, said = colour_of(record.variant, order)[0], f"{label(record.variant)}, training"
            start, end = float(clock.seconds(start_ns)), float(clock.seconds(end_ns))
            corners[said, colour]["x"] += [start, end, end, start, start, None]
            corners[said, colour]["y"] += [0, 0, 1, 1, 0, None]
    return [
        elements.filled(box["x"], box["y"], said, colour, width=0.5, color=colour) | {"yaxis": "y"}
        for (said, colour), box in corners.items()
    ]


def marks(records: Sequence[TrialRecord], disturbances: Sequence[Disturbance], clock: Clock) -> list[Json]:
    """Return a mark at each trial's middle, a cross where it did not end well, a triangle where it was disturbed."""
    texts = [f"{label(r.variant)}, repeat {r.repeat + 1}: {label(r.status)}" for r in records]
    middles = [_middle(record, clock) for record in records]
    made: list[Json] = [
        _points(middles, texts, "circle", 8, "rgba(0,0,0,0)", _WITHIN)
        | {
            "marker": {"size": 8, "color": "rgba(0,0,0,0)", "line": {"width": 0}},
            "mode": "markers+text",
            "text": [_fitting(record, clock) for record in records],
            "hovertext": texts,
            "textposition": "middle center",
            "textfont": {"size": 10, "color": elements.ON_COLOUR},
            "hovertemplate": "%{hovertext}<extra></extra>",
        }
    ]
    failed = [
        (
            float(clock.seconds(r.ended_ns)),
            f"{label(r.variant)}, repeat {r.repeat + 1}, {label(r.status)}: {label(r.reason or '', 160)}",
        )
        for r in records
        if r.status != "ok"
    ]
    where = {(record.variant, record.repeat): _middle(record, clock) for record in records}
    met = [
        (
            where[d.variant, d.repeat],
            f"{label(d.variant)}, repeat {d.repeat + 1}, {label(d.kind)}: {label(d.text, 120)}",
        )
        for d in disturbances
        if (d.variant, d.repeat) in where
    ]
    for found, symbol, y, colour in (
        (failed, "x", _WITHIN, elements.INPUT_WAIT),
        (met, "triangle-up", BELOW / 2, elements.HOST_SLOWDOWN),
    ):
        gathered = _gathered(found, clock)
        if gathered:
            at_s, said = [at for at, _ in gathered], [text for _, text in gathered]
            made.append(_points(at_s, said, symbol, 9, colour, y))
    return made


def _middle(record: TrialRecord, clock: Clock) -> float:
    return float(clock.seconds((record.started_ns + record.ended_ns) / 2))


def _fitting(record: TrialRecord, clock: Clock) -> str:
    """Return the trial's name, where its box has room for it on a wide screen."""
    text = label(record.variant, 11)
    width_px = _WIDTH_PX * record.took_s / clock.span_s
    return text if width_px >= _LETTER_PX * min(len(record.variant), 11) + _PAD_PX else ""


def _gathered(found: Sequence[tuple[float, str]], clock: Clock) -> list[tuple[float, str]]:
    """Return one mark for what lies near each other on the axis: its mean time, and the first texts."""
    places = grouped((int(_MARKS * at_s / clock.span_s), (at_s, text)) for at_s, text in found)
    made = []
    for near in places.values():
        texts = list(dict.fromkeys(text for _, text in near))
        more = [f"and {len(texts) - _MOST_LINES} more"] if len(texts) > _MOST_LINES else []
        made.append((sum(at_s for at_s, _ in near) / len(near), "<br>".join([*texts[:_MOST_LINES], *more])))
    return made


def repeats(records: Sequence[TrialRecord], clock: Clock) -> list[Json]:
    """Return the numbers of some repeats above their first trial, where the boxes are too narrow for names."""
    if len(records) <= PHASED_TRIALS:
        return []
    starts: dict[int, int] = {}
    for record in records:
        starts[record.repeat] = min(record.started_ns, starts.get(record.repeat, record.started_ns))
    apart = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if len(starts) <= step * _MOST_REPEATS)
    style = {"xref": "x", "xanchor": "left", "yref": "paper", "yshift": 8, "font": {"size": 11}}
    first = min(starts)
    return [
        elements.note(f"{'repeat ' * (repeat == first)}{repeat + 1}", float(clock.seconds(starts[repeat])), 1, **style)
        for repeat in sorted(starts)
        if (repeat - first) % apart == 0
    ]


def _points(x: list[float], texts: list[str], symbol: str, size: int, colour: str, y: float) -> Json:
    marker = {"symbol": symbol, "size": size, "color": colour, "line": {"width": 1, "color": elements.ON_COLOUR}}
    hover = "%{text}<extra></extra>"
    more = {"yaxis": "y", "text": texts, "hovertemplate": hover, "cliponaxis": False}
    return elements.scatter("markers", x, [y] * len(x), marker=marker, **more)


def legend(
    records: Sequence[TrialRecord], order: Mapping[str, int], has_lanes: bool, is_disturbed: bool
) -> tuple[Legend, ...]:
    """Return the legend of the colours that are drawn."""
    used = sorted({record.variant for record in records}, key=lambda variant: order.get(variant, len(order)))
    met = {phase for record in records for phase, _, _ in record.spans_ns} if len(records) <= PHASED_TRIALS else set()
    shown = [Legend(name(variant), colour_of(variant, order)[0], colour_of(variant, order)[1]) for variant in used]
    shown += [Legend(phase, colour) for phase, colour in elements.PHASES.items() if phase in met]
    if has_lanes:
        shown.append(Legend("whole machine's CPU; 95th percentile of the steps", elements.NEUTRAL, "dot"))
    if any(record.status != "ok" for record in records):
        shown.append(Legend("trial that did not end well", elements.INPUT_WAIT, "cross"))
    if is_disturbed:
        shown.append(Legend("disturbed trial", elements.HOST_SLOWDOWN, "triangle"))
    return tuple(shown)


def colour_of(variant: str, order: Mapping[str, int]) -> tuple[str, str]:
    """Return colour and dash of a variant by its place in the scenario; grey for one that it does not know."""
    return elements.of_variant(order[variant]) if variant in order else (elements.NEUTRAL, "solid")


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ChartSteps:
    """The steps of one trial, warm-up included: shape [rows] each, times in seconds since the session began."""

    at_s: Floats
    """When each step began."""
    step_ms: Floats
    wait_ms: Floats | None
    warmup: int
    busy_ms: Floats | None = None
    """How long an emulated device was busy with each step."""
    weights: npt.NDArray[np.int64] | None = None
    """How many steps each row is the mean of; None: each is one."""

    @property
    def count(self) -> int:
        return len(self.step_ms) if self.weights is None else int(self.weights.sum())

    @property
    def measured_ms(self) -> Floats:
        """The step times after warm-up."""
        return self.step_ms[self.warmup :]

    @property
    def measured_weights(self) -> npt.NDArray[np.int64] | None:
        """The weights after warm-up."""
        return None if self.weights is None else self.weights[self.warmup :]


@dataclass(frozen=True)
class Clock:
    """The one time axis of a session, from its first trial's start to its last one's end."""

    zero_ns: int
    end_ns: int

    @classmethod
    def of(cls, session: Session) -> Clock:
        """Return the axis that holds every trial; an empty one where there is none."""
        starts = [record.started_ns for record in session.trials]
        ends = [record.ended_ns for record in session.trials]
        return cls(min(starts, default=0), max([*starts, *ends], default=0))

    @property
    def span_s(self) -> float:
        """Its length in seconds, never 0."""
        return max(self.end_ns - self.zero_ns, 1) / NS_PER_S

    def seconds(self, at_ns: Any) -> Any:
        """Return a time or an array of times on the axis; the difference is taken in whole nanoseconds."""
        return (at_ns - self.zero_ns) / NS_PER_S


def read_steps(record: TrialRecord, clock: Clock) -> ChartSteps | None:
    """Return the trial's steps; None where it has none."""
    if record.steps is None or not record.steps.count:
        return None
    start_ns, end_ns = record.steps.start_ns.unpack(), record.steps.end_ns.unpack()
    wait = record.steps.wait_ns.unpack() / NS_PER_MS if record.steps.wait_ns is not None else None
    busy = record.steps.busy_ns.unpack() / NS_PER_MS if record.steps.busy_ns is not None else None
    weights = record.steps.steps.unpack() if record.steps.steps is not None else None
    step_ms = (end_ns - start_ns) / NS_PER_MS
    return ChartSteps(clock.seconds(start_ns), step_ms, wait, record.warmup_steps, busy, weights)


def finite(at_ns: npt.NDArray[Any], values: npt.NDArray[Any], clock: Clock) -> tuple[Floats, Floats] | None:
    """Return the times in seconds and the values that are finite; None where none is."""
    kept = np.isfinite(values)
    return (clock.seconds(at_ns[kept]), values[kept].astype(np.float64)) if kept.any() else None


def bins(at_s: Floats, count: int) -> npt.NDArray[np.intp]:
    """Return where each of at most `count` bins of one width begins among ascending times; empty bins are left out."""
    width_s = max(float(at_s[-1] - at_s[0]), 1e-9) / count
    index = np.minimum((at_s - at_s[0]) / width_s, count - 1).astype(np.int64)
    return np.flatnonzero(np.diff(index, prepend=-1))


def means(values: Floats, starts: npt.NDArray[np.intp]) -> Floats:
    """Return the mean of each bin."""
    counts = np.diff(starts, append=len(values))
    return np.asarray(np.add.reduceat(values, starts) / counts, dtype=np.float64)


def quantiles(values: Floats, starts: npt.NDArray[np.intp], share: float) -> Floats:
    """Return the quantile of each bin."""
    return np.asarray([np.quantile(part, share) for part in np.split(values, starts[1:])], dtype=np.float64)


def ascending(at_s: Floats, *columns: Floats) -> tuple[Floats, ...]:
    """Return times and their columns in the order of time; threads that read a clock by turns may not keep it."""
    order = np.argsort(at_s, kind="stable")
    return at_s[order], *(column[order] for column in columns)


STEP_TIME = "step time, ms"
"""The title of the lane whose height `step_limit` sets."""
_SLOW, _ABOVE_SLOW = 0.95, 1.5
"""The percentile of a variant's measured steps that sets the height of the step times, and how far it lies below."""


@dataclass
class Curve:
    """Points of one variant in one lane; trials are kept apart by a gap."""

    x: list[float | None] = field(default_factory=list)
    y: list[float | None] = field(default_factory=list)

    def add(self, x: Floats, y: Floats) -> None:
        self.x += [*x.tolist(), None]
        self.y += [*y.tolist(), None]

    def alone(self) -> Curve:
        """Return the points without a neighbour, which a line does not show."""
        ends = [None, *self.x, None]
        lone = [i for i, x in enumerate(self.x) if x is not None and ends[i] is None and ends[i + 2] is None]
        return Curve([self.x[i] for i in lone], [self.y[i] for i in lone])


Curves = dict[tuple[str, str], Curve]
"""By variant, and by what is drawn of it."""


@dataclass(frozen=True)
class Lane:
    """Lines that share a height; `upper` is where their axis ends."""

    title: str
    lines: Curves
    upper: float | None = None


def step_limit(records: Sequence[TrialRecord], steps: Mapping[int, ChartSteps]) -> float | None:
    """Return a height for the lane that a few slow steps do not set, but the slowest variant's usual steps do."""
    parts: dict[str, list[Floats]] = defaultdict(list)
    for index, record in enumerate(records):
        if index in steps:
            # A trial that ended within its warm-up has no other steps to show.
            measured = steps[index].measured_ms
            parts[record.variant].append(measured if measured.size else steps[index].step_ms)
    slow = [float(np.quantile(np.concatenate(found), _SLOW)) for found in parts.values()]
    return _ABOVE_SLOW * max(slow) if slow else None


def said_of_limit(lanes: Sequence[Lane]) -> str:
    """Return what lies above the axis of the step times; nothing where all of them fit."""
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


def wait_limit(lines: Curves) -> float:
    """Return the end of the axis in percent: above the highest share, and above that from which one is input-bound."""
    highest = max((value for line in lines.values() for value in line.y if value is not None), default=0.0)
    return min(105.0, 1.15 * highest + 100 * thresholds.BOUND_SHARE)
