"""The trials along the time axis: a box a phase, what went wrong where, and what the colours mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pipeline_bench.report.html import colours
from pipeline_bench.report.html.figure import Json, Legend
from pipeline_bench.report.html.steps import Clock
from pipeline_bench.report.html.text import label, name
from pipeline_bench.session import Disturbance, TrialRecord

_NAMED_TRIALS, _PHASED_TRIALS = 16, 500
"""With more trials than these a box has no room for its name, or a phase beside the training for its box."""
_MOST_LINES = 6
"""Of what one mark says of its trial."""


def phases(record: TrialRecord) -> list[tuple[str, int, int]]:
    """Name, start and end (ns) of each phase, in order; a trial that tells none has none."""
    marks = sorted(record.phases, key=lambda mark: mark.at_ns)
    ends = [*(mark.at_ns for mark in marks[1:]), record.ended_ns]
    return [(mark.name, mark.at_ns, max(mark.at_ns, end)) for mark, end in zip(marks, ends, strict=False)]


def shade(record: TrialRecord, clock: Clock) -> Json:
    """Where the trial trained, behind all lanes; the whole trial, where its phases are not known."""
    trained = [(start, end) for phase, start, end in phases(record) if phase == "train"]
    start_ns, end_ns = trained[0] if trained else (record.started_ns, record.ended_ns)
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
    """A box a phase: the training in its variant's colour, the rest in the phase's."""
    corners: dict[tuple[str, str], Json] = defaultdict(lambda: {"x": [], "y": []})
    for record in records:
        # Of so many trials the other phases would be narrower than a pixel.
        spans = phases(record) if len(records) <= _PHASED_TRIALS else []
        spans = spans or [("train", record.started_ns, record.ended_ns)]
        for phase, start_ns, end_ns in spans:
            is_training = phase == "train"
            colour = colour_of(record.variant, order)[0] if is_training else colours.PHASES.get(phase, colours.NEUTRAL)
            start, end = float(clock.seconds(start_ns)), float(clock.seconds(end_ns))
            said = f"{label(record.variant)}, training" if is_training else label(phase)
            corners[said, colour]["x"] += [start, end, end, start, start, None]
            corners[said, colour]["y"] += [0, 0, 1, 1, 0, None]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"width": 0.5, "color": colour},
            "fill": "toself",
            "fillcolor": colour,
            "hoveron": "fills",
            "hoverinfo": "text",
            "text": said,
            **box,
            "yaxis": "y",
        }
        for (said, colour), box in corners.items()
    ]


def marks(records: Sequence[TrialRecord], disturbances: Sequence[Disturbance], clock: Clock) -> list[Json]:
    """What each trial was, at its middle; a cross where one did not end well, a triangle where it was disturbed."""
    texts = [f"{label(r.variant)}, repeat {r.repeat + 1}: {label(r.status)}" for r in records]
    middles = [float(clock.seconds((r.started_ns + r.ended_ns) / 2)) for r in records]
    named = len(records) <= _NAMED_TRIALS
    made: list[Json] = [
        _points(middles, texts, "circle", 8, "rgba(0,0,0,0)")
        | {
            "marker": {"size": 8, "color": "rgba(0,0,0,0)", "line": {"width": 0}},
            "mode": "markers+text" if named else "markers",
            "text": [f"{label(r.variant, 11)}" for r in records] if named else texts,
            "hovertext": texts,
            "textposition": "middle center",
            "textfont": {"size": 10, "color": colours.ON_COLOUR},
            "hovertemplate": "%{hovertext}<extra></extra>",
        }
    ]
    failed = [record for record in records if record.status != "ok"]
    if failed:
        said = [f"{label(r.variant)}, repeat {r.repeat + 1}, {r.status}: {label(r.reason or '', 160)}" for r in failed]
        ends = [float(clock.seconds(record.ended_ns)) for record in failed]
        made.append(_points(ends, said, "x", 11, colours.INPUT_WAIT))
    where = {(record.variant, record.repeat): record for record in records}
    met: dict[int, list[str]] = defaultdict(list)
    for each in disturbances:
        if (each.variant, each.repeat) in where:
            met[where[each.variant, each.repeat].started_ns].append(f"{label(each.kind)}: {label(each.text, 120)}")
    if met:
        # A little after the trial's start, where it does not cover the trial's name.
        offsets = {record.started_ns: (record.ended_ns - record.started_ns) // 10 for record in records}
        starts = [float(clock.seconds(started_ns + offsets[started_ns])) for started_ns in met]
        said = ["<br>".join(lines[:_MOST_LINES]) for lines in met.values()]
        made.append(_points(starts, said, "triangle-up", 12, colours.HOST_SLOWDOWN))
    return made


def _points(x: list[float], texts: list[str], symbol: str, size: int, colour: str) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": [0.5] * len(x),
        "yaxis": "y",
        "text": texts,
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"symbol": symbol, "size": size, "color": colour, "line": {"width": 1, "color": colours.ON_COLOUR}},
        "cliponaxis": False,
    }


def legend(
    records: Sequence[TrialRecord], order: Mapping[str, int], has_lanes: bool, is_disturbed: bool
) -> tuple[Legend, ...]:
    """What the colours stand for, of those that are drawn."""
    used = sorted({record.variant for record in records}, key=lambda variant: order.get(variant, len(order)))
    met = {phase for record in records[:_PHASED_TRIALS] for phase, _, _ in phases(record)}
    shown = [Legend(name(variant), colour_of(variant, order)[0], colour_of(variant, order)[1]) for variant in used]
    shown += [Legend(phase, colour) for phase, colour in colours.PHASES.items() if phase in met]
    if has_lanes:
        shown.append(Legend("whole machine's CPU; 95th percentile of the steps", colours.NEUTRAL, "dot"))
    if any(record.status != "ok" for record in records):
        shown.append(Legend("trial that did not end well", colours.INPUT_WAIT, "cross"))
    if is_disturbed:
        shown.append(Legend("disturbed trial", colours.HOST_SLOWDOWN, "triangle"))
    return tuple(shown)


def colour_of(variant: str, order: Mapping[str, int]) -> tuple[str, str]:
    """Colour and dash of a variant by its place in the scenario; grey for one that it does not know."""
    return colours.of_variant(order[variant]) if variant in order else (colours.NEUTRAL, "solid")
