"""The session along one time axis: phases of the trials, utilization, step time, input wait, queue depths.

Lanes share the axis. Each line is thinned out to bins of one width, so that a run of an hour, or of a million steps,
takes no more room than a short one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline_bench.analysis import measured, stats
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report.html import elements, lanes
from pipeline_bench.report.html.elements import Json, Plot, Table
from pipeline_bench.report.html.lanes import ChartSteps, Clock, Curve, Curves, Floats, Lane
from pipeline_bench.text import units

POINTS = 1500
"""Of each line over the whole session; a screen has about as many columns."""
_FEWEST_POINTS = 6
"""Of each trial, however short it is, where there are no more trials than this leaves room for."""
_MOST_TRIALS = 4000
"""A session of an hour has fewer; of a longer one the first are drawn."""
_SHADED_TRIALS = 80
_LANE_PX, _STRIP_PX, _GAP_PX, _ABOVE_PX, _BELOW_PX = 118, 46, 34, 34, 44
_UNDER_ZERO = 0.03
"""Of a lane, so that a line at 0 does not lie on its edge."""


def timeline(session: Session, clock: Clock, steps: Mapping[int, ChartSteps], table: Table) -> Plot | None:
    """Return the session's course; None where no trial has begun.

    Args:
        session: whose trials are drawn.
        clock: the axis.
        steps: by the trial's place in the session.
        table: what says the same in words and numbers.
    """
    records = session.trials[:_MOST_TRIALS]
    if not records:
        return None
    order = {variant.name: index for index, variant in enumerate(session.scenario.variants)}
    drawn = [lane for lane in _lanes(session, records, clock, steps) if lane.lines]
    height = _STRIP_PX + len(drawn) * (_LANE_PX + _GAP_PX) + _ABOVE_PX + _BELOW_PX
    plot = _layout(drawn, height, clock)
    plot["annotations"] += lanes.repeats(records, clock)
    if len(records) <= _SHADED_TRIALS:
        plot["shapes"] = [lanes.shade(record, clock) for record in records]
    data = [*lanes.boxes(records, clock, order), *lanes.marks(records, session.disturbances, clock)]
    for place, lane in enumerate(drawn, 2):
        data += [trace for key, line in lane.lines.items() for trace in _traces(key, line, place, order)]
    narrow = "" if len(records) <= lanes.PHASED_TRIALS else "; of so many, the top row shows only whose turn it was"
    shaded = "; the shaded part of a trial is its training" if "shapes" in plot else ""
    said = ", ".join(lane.title for lane in drawn) or "nothing but its phases"
    method = (
        f"All trials on one clock, in the order they ran{narrow}{shaded}. Lines are thinned out to about a point per "
        f"{clock.span_s / POINTS:.2g} s.{lanes.said_of_limit(drawn)} Drag across the plot or use its buttons to zoom; "
        "a double-click leads back."
    )
    alt = (
        f"The session over {units.seconds(clock.span_s)}, {units.count(len(session.trials), 'trial')}: {said}. "
        "The table gives each trial's figures."
    )
    return Plot(
        "timeline",
        "Over time",
        alt,
        method,
        data,
        plot,
        table,
        lanes.legend(records, order, bool(drawn), bool(session.disturbances)),
        zoomable=True,
    )


def _lanes(
    session: Session, records: Sequence[TrialRecord], clock: Clock, steps: Mapping[int, ChartSteps]
) -> list[Lane]:
    device: Curves = defaultdict(Curve)
    machine: Curves = defaultdict(Curve)
    step_ms: Curves = defaultdict(Curve)
    wait: Curves = defaultdict(Curve)
    depth: Curves = defaultdict(Curve)
    least = max(1, min(_FEWEST_POINTS, 2 * POINTS // len(records)))
    for index, record in enumerate(records):
        span_s = max(record.took_s, 1e-9)
        points = max(least, round(POINTS * span_s / clock.span_s))
        key = record.variant
        _add(device, (key, "device"), _device(session, record, clock, steps.get(index)), points)
        _add(machine, (key, "machine"), _track(record, "machine_cpu_percent", clock), points)
        for queue in record.queue_depths:
            read = lanes.finite(queue.at_ns.unpack(), queue.size.unpack(), clock)
            share = read and (read[0], 100 * read[1] / max(queue.capacity, 1))
            _add(depth, (key, queue.name), share, points)
        if index in steps:
            _add_steps(step_ms, wait, key, steps[index], points)
    return [
        Lane(f"{_kinds(session, records)} utilization, %", {**device, **machine}, 105.0),
        Lane(lanes.STEP_TIME, step_ms, lanes.step_limit(records, steps)),
        Lane("input wait, % of the step", wait, lanes.wait_limit(wait)),
        Lane("queue depth, % of its capacity", depth, 105.0),
    ]


def _add(lines: Curves, key: tuple[str, str], read: tuple[Floats, Floats] | None, points: int) -> None:
    """Add to a line the mean of each bin, at the mean time of what is in it."""
    if read is None or not len(read[0]):
        return
    at_s, values = lanes.ascending(*read)
    starts = lanes.bins(at_s, points)
    lines[key].add(lanes.means(at_s, starts), lanes.means(values, starts))


def _add_steps(step_ms: Curves, wait: Curves, key: str, steps: ChartSteps, points: int) -> None:
    waits_ms = [] if steps.wait_ms is None else [steps.wait_ms]
    at_s, took, *waited = lanes.ascending(steps.at_s, steps.step_ms, *waits_ms)
    starts = lanes.bins(at_s, points)
    middle = lanes.means(at_s, starts)
    step_ms[key, "median"].add(middle, lanes.quantiles(took, starts, 0.5))
    step_ms[key, "95th percentile"].add(middle, lanes.quantiles(took, starts, 0.95))
    if waited:
        mean = lanes.means(took, starts)
        wait[key, "share"].add(middle, np.clip(100 * lanes.means(waited[0], starts) / np.maximum(mean, 1e-9), 0, 100))


def _kind(session: Session, record: TrialRecord) -> str:
    return record.device.kind if record.device is not None else session.environment.accelerator_kind


def _kinds(session: Session, records: Sequence[TrialRecord]) -> str:
    names = {"cpu": "CPU", "gpu": "GPU", "emulated": "emulated device's"}
    return " and ".join(sorted({names[_kind(session, record)] for record in records}))


def _device(
    session: Session, record: TrialRecord, clock: Clock, steps: ChartSteps | None
) -> tuple[Floats, Floats] | None:
    """Return the device's own figure on a GPU; on a CPU the CPU time over wall time × cores between two samples.

    Of an emulated device the share of each step that it was busy, and nothing that was sampled.
    """
    if _kind(session, record) == "emulated":
        if steps is None or steps.busy_ms is None:
            return None
        return steps.at_s, np.clip(100 * steps.busy_ms / np.maximum(steps.step_ms, 1e-9), 0, 100)
    if _kind(session, record) == "gpu":
        return _track(record, "device_utilization_percent", clock)
    sampled = measured.columns(record, "cpu_seconds")
    if sampled is None:
        return None
    at_ns, wall_ns, percent = stats.cpu_percents(*sampled, session.environment.cores)
    return lanes.finite(at_ns + wall_ns / 2, percent, clock)


def _track(record: TrialRecord, metric: str, clock: Clock) -> tuple[Floats, Floats] | None:
    sampled = measured.columns(record, metric)
    return sampled and lanes.finite(*sampled, clock)


def _layout(drawn: Sequence[Lane], height: int, clock: Clock) -> Json:
    plot = elements.layout(height, dragmode="zoom", hovermode="closest")
    plot["margin"] = {"l": 38, "r": 8, "t": _ABOVE_PX, "b": _BELOW_PX}
    span_s, anchor = clock.span_s, f"y{len(drawn) + 1}" if drawn else "y"
    ends = {"minallowed": -0.02 * span_s, "maxallowed": 1.02 * span_s}
    plot["xaxis"] = elements.axis("seconds since the session began", span_s, zeroline=False, anchor=anchor, **ends)
    inner = height - _ABOVE_PX - _BELOW_PX
    strip_ends = {"domain": [1 - _STRIP_PX / inner, 1], "range": [lanes.BELOW, 1]}
    plot["yaxis"] = {**strip_ends, "fixedrange": True, "visible": False}
    plot["annotations"] = []
    top = inner - _STRIP_PX
    for place, lane in enumerate(drawn, 2):
        top -= _GAP_PX
        domain = [max(0.0, (top - _LANE_PX) / inner), top / inner]
        upper = lane.upper or 1.0
        lower = -_UNDER_ZERO * upper
        plot[f"yaxis{place}"] = {"domain": domain, "range": [lower, upper], "minallowed": lower, "nticks": 5}
        style = {"yref": "paper", "yshift": 12, "xanchor": "left", "font": {"size": 12}}
        plot["annotations"].append(elements.note(f"<b>{elements.label(lane.title, 60)}</b>", 0, domain[1], **style))
        top -= _LANE_PX
    return plot


def _traces(key: tuple[str, str], line: Curve, place: int, order: Mapping[str, int]) -> list[Json]:
    """Return the line, and a marker for each of its points that has no neighbour to draw a line to."""
    variant, what = key
    colour, dash = lanes.colour_of(variant, order)
    faint = what in ("machine", "95th percentile")
    said = {"device": "", "machine": ", whole machine's CPU"}.get(what, f", {elements.label(what)}")
    colour = elements.NEUTRAL if what == "machine" else colour
    common = {
        "yaxis": f"y{place}",
        "opacity": 0.75 if faint else 1,
        "name": f"{elements.label(variant)}{said}",
        "hovertemplate": "%{fullData.name}<br>%{x:.4~r} s: %{y:.3~r}<extra></extra>",
    }
    drawn = {"color": colour, "width": 1 if faint else 1.8, "dash": "dot" if faint else dash}
    made = [elements.scatter("lines", line.x, line.y, line=drawn, **common)]
    alone = line.alone()
    if alone.x:
        marker = {"color": colour, "size": 4 if faint else 6}
        made.append(elements.scatter("markers", alone.x, alone.y, marker=marker, **common))
    return made
