"""The figures over variants: time, utilization, and what a step is made of, with 95 % intervals.

Each variant has a row. An end of an interval beyond the axis becomes an arrow, not a silent cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipeline_bench import report
from pipeline_bench.model.result import BUSY_TIME, EMULATED_LABEL, Interval, Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import FRACTION, MS, PERCENT, SHARE, facts, step_parts
from pipeline_bench.report.html import elements
from pipeline_bench.report.html.elements import Json, Legend, Plot
from pipeline_bench.text import units

CUT_REMARK = " An interval that reaches beyond the axis ends in an arrow there; the table has its ends."
_AXIS_MARGIN = 1.06
_WIDEST_INTERVAL = 1.6
"""Beyond this many times the largest figure an interval does not widen the axis of step times."""
_WIDEST_PERCENT = 150.0
"""The same for the axis of utilization, where AU's interval over few trials may reach far beyond 100 %."""

Intervals = Sequence[Interval | None]


def step_time(results: Sequence[Result]) -> Plot | None:
    """Return the mean step of each variant, as the table of figures has it; None where no variant has one."""
    found = [(result, step) for result in results if (step := report.mean_step(result)).value is not None]
    if not found:
        return None
    shown, steps = [result for result, _ in found], [step for _, step in found]
    values, ci95s = [step.value or 0.0 for step in steps], [step.ci95 for step in steps]
    texts = [units.with_ends(units.milliseconds, step.value, step.ci95) for step in steps]
    names = [result.variant for result in shown]
    end = _upper(values, ci95s, _WIDEST_INTERVAL * max(values))
    what = facts.middle_step(results)
    plot = elements.rows_layout(len(shown), f"{what} step time, ms", end)
    plot["annotations"] = elements.row_labels(names, texts)
    data = [
        _points(values, ci95s, -0.08, elements.NEUTRAL, "circle", names, texts),
        *_arrows(ci95s, end, -0.08, elements.NEUTRAL),
    ]
    method = (
        f"The {what} of the trials' {what} steps, after warm-up, with its 95 % interval over trials. A step runs "
        f"from asking for the batch to having the loss.{CUT_REMARK if _are_cut(ci95s, end) else ''}"
    )
    table = elements.table(
        "Step time",
        results,
        ("variant", lambda result: elements.name(result.variant)),
        ("mean, ms", lambda result: elements.figure_cell(MS, _mean(result))),
        ("median, ms", lambda result: elements.figure_cell(MS, report.median_step(result))),
        ("5th percentile, ms", lambda result: units.plain_milliseconds(result.step_ms.p05)),
        ("95th percentile, ms", lambda result: units.plain_milliseconds(result.step_ms.p95)),
        ("steps", lambda result: str(result.steps)),
        ("trials", lambda result: str(result.trials)),
    )
    alt = f"{what.capitalize()} step time with its 95 % interval. " + _sentences(shown, texts)
    legend = (Legend(f"{what}, with its 95 % interval", elements.NEUTRAL, "circle"),)
    return Plot("step-time", "Time", alt, method, data, plot, table, legend)


def _mean(result: Result) -> report.Figure:
    """Return the mean step; no figure, and no median in its place, of a session without means."""
    step = result.step_ms
    return report.Figure(reason=step.reason) if step.mean is None else report.mean_step(result)


def utilization(session: Session, results: Sequence[Result]) -> Plot | None:
    """Return AU and the device's own utilization of each variant; None where no variant has either."""
    shown = [
        result
        for result in results
        if result.accelerator_utilization.value is not None or result.device_utilization.mean_percent is not None
    ]
    if not shown:
        return None
    kind = session.device_label
    names = [result.variant for result in shown]
    au = [_percent(result.accelerator_utilization.value) for result in shown]
    au_ci = [_percents(result.accelerator_utilization.ci95) for result in shown]
    device = [result.device_utilization.mean_percent for result in shown]
    device_ci = [result.device_utilization.ci95 for result in shown]
    # Its own device's, where the head says "mixed".
    computed = session.environment.accelerator_kind.upper()
    texts = [_utilizations(result, EMULATED_LABEL if result.emulated else computed) for result in shown]
    known = [value for value in (*au, *device) if value is not None]
    end = max(104.0, _upper(known, (*au_ci, *device_ci), _WIDEST_PERCENT))
    plot = elements.rows_layout(len(shown), "utilization, %", end, dtick=25)
    plot["annotations"] = elements.row_labels(names, texts)
    data = [
        _points(au, au_ci, 0.0, elements.UTILIZATION, "circle", names, texts),
        _points(device, device_ci, -0.2, elements.DEVICE, "diamond", names, texts),
        *_arrows(au_ci, end, 0.0, elements.UTILIZATION),
        *_arrows(device_ci, end, -0.2, elements.DEVICE),
    ]
    legend = (
        Legend("AU, accelerator utilization", elements.UTILIZATION, "circle"),
        Legend(f"{kind} utilization", elements.DEVICE, "diamond"),
    )
    table = elements.table(
        "Utilization",
        results,
        ("variant", lambda result: elements.name(result.variant)),
        ("AU", elements.estimate_cell(FRACTION, "accelerator_utilization")),
        (f"{kind} utilization and its source", lambda result: _with_source(session, result)),
        ("samples", lambda result: str(result.device_utilization.samples)),
    )
    method = "AU is the ceiling's mean step time over the variant's, trial by trial beside it. "
    if _are_cut(au_ci, 100.0):
        method += "Noise takes an interval below 0 or, as if faster than the ceiling, above 100 %. "
    method += _sources(session, results)
    method += CUT_REMARK if _are_cut((*au_ci, *device_ci), end) else ""
    alt = f"AU and {kind} utilization. " + _sentences(shown, texts)
    return Plot("utilization", "Utilization", alt, method, data, plot, table, legend)


def _with_source(session: Session, result: Result) -> elements.Cell:
    used = replace(report.device_utilization(result), remark=_source(session, result) or "")
    return elements.figure_cell(PERCENT, used)


def _source(session: Session, result: Result) -> str | None:
    """Return which instrument the device utilization is from."""
    given = result.device_utilization.source
    if given == BUSY_TIME:
        return "busy time of the emulated device ÷ wall time"
    return None if given is None else facts.instrument(session, given)


def _sources(session: Session, results: Sequence[Result]) -> str:
    kind = session.environment.accelerator_kind.upper()
    measured = [result for result in results if result.device_utilization.mean_percent is not None]
    sources = dict.fromkeys(_source(session, r) for r in measured if r.device_utilization.source != BUSY_TIME)
    instruments = "; ".join(text for text in sources if text)
    busy = facts.busy_time(session)
    if not instruments:
        return f"{busy}." if busy else f"{kind} utilization was not measured."
    more = "It counts the input's work too." if kind == "CPU" else "100 % says that a kernel was running at all times."
    rest = f" {busy}." if busy else ""
    return f"{kind} utilization, as the device reports it over the measured steps: {instruments}. {more}{rest}"


def split(results: Sequence[Result]) -> Plot | None:
    """Return what each variant's mean step is made of; None where no variant has all of its parts."""
    measured = [(result, step_parts.measured(result)) for result in results]
    drawn_of = [(result, parts) for result, parts in measured if all(part.ms is not None for part in parts[:-1])]
    if not drawn_of:
        return None
    shown = [result for result, _ in drawn_of]
    drawn = step_parts.drawn(shown)
    parts = [[max(0.0, part.ms or 0.0) for part in own[: len(drawn)]] for _, own in drawn_of]
    names = [result.variant for result in shown]
    totals = [result.step_ms.mean or sum(part.ms or 0.0 for part in own) for result, own in drawn_of]
    plot = elements.rows_layout(len(shown), "ms of a mean step", (max(map(sum, parts)) or 1.0) * _AXIS_MARGIN)
    plot |= {"barmode": "stack", "uniformtext": {"mode": "hide", "minsize": 10}}
    plot["annotations"] = elements.row_labels(names, [f"mean {units.milliseconds(total)} a step" for total in totals])
    texts = [
        [f"{units.milliseconds(part.ms)} · {units.share(part.share)}" for part in own[: len(drawn)]]
        for _, own in drawn_of
    ]
    data = [
        _bar(part, [own[index] for own in parts], [text[index] for text in texts], names)
        for index, part in enumerate(drawn)
    ]
    legend = tuple(Legend(part.name, elements.SHADES[part.colour], part.mark) for part in drawn)
    alt = "What a mean step is made of. " + _sentences(
        shown, [", ".join(f"{part.name} {text}" for part, text in zip(drawn, own, strict=True)) for own in texts]
    )
    method = (
        "Input wait: blocked for the batch, timed in the step itself. Compute: the ceiling, the same model on a batch "
        "that already sits on the device. Host slowdown: the rest, which noise can take below nothing; it is then not "
        "drawn. Shares are of mean steps, so that bursts count."
    )
    if len(drawn) == len(step_parts.PARTS):
        method += (
            " Copy: that of the batch to the GPU, where the step makes it; the bar of the host slowdown is without it, "
            "and the table's figure with it."
        )
    table = elements.table(
        "The parts of a mean step, with 95 % intervals",
        results,
        ("variant", lambda result: elements.name(result.variant)),
        ("mean step, ms", lambda result: elements.figure_cell(MS, replace(_mean(result), ci95=None))),
        ("input wait, ms", elements.estimate_cell(MS, "input_wait_ms")),
        ("share", elements.estimate_cell(SHARE, "input_wait_share")),
        ("compute, ms", elements.estimate_cell(MS, "ceiling_ms")),
        ("share", elements.estimate_cell(SHARE, "accelerator_utilization")),
        ("host slowdown, ms", elements.estimate_cell(MS, "host_slowdown_ms")),
        ("share", elements.estimate_cell(SHARE, "host_slowdown_share")),
    )
    return Plot("split", "Where a step's time goes", alt, method, data, plot, table, legend)


def _bar(part: step_parts.PartStyle, values: Sequence[float], texts: Sequence[str], names: Sequence[str]) -> Json:
    return elements.bars(
        part.name,
        (elements.SHADES[part.colour], part.pattern),
        values,
        [-row - 0.1 for row in range(len(values))],
        width=0.46,
        text=texts,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": elements.ON_COLOUR, "size": 12},
        customdata=[elements.label(name) for name in names],
        hovertemplate="%{customdata}<br>%{fullData.name}: %{text}<extra></extra>",
    )


def _percent(value: float | None) -> float | None:
    return None if value is None else value * 100


def _percents(ci95: Interval | None) -> Interval | None:
    return ci95 and (ci95[0] * 100, ci95[1] * 100)


def _utilizations(result: Result, kind: str) -> str:
    au, device = result.accelerator_utilization.value, result.device_utilization.mean_percent
    shown = [f"AU {units.fraction(au)}"] if au is not None else []
    return " · ".join([*shown, *([f"{kind} {units.percent(device)}"] if device is not None else [])])


def _sentences(results: Sequence[Result], texts: Sequence[str]) -> str:
    return " ".join(f"{elements.name(result.variant)}: {text}." for result, text in zip(results, texts, strict=True))


def _upper(values: Iterable[float], intervals: Iterable[Interval | None], most: float) -> float:
    """Return where the axis ends: beyond every value, and beyond every interval's end as far as `most`."""
    top = max(values, default=0.0)
    ends = [interval[1] for interval in intervals if interval is not None and math.isfinite(interval[1])]
    return (max(top, min(max(ends, default=top), most)) or 1.0) * _AXIS_MARGIN


def _are_cut(intervals: Iterable[Interval | None], end: float) -> bool:
    """Return whether an interval reaches beyond the axis from 0 to `end`."""
    return any(interval is not None and (interval[0] < 0 or interval[1] > end) for interval in intervals)


def _points(
    values: Sequence[float | None],
    intervals: Intervals,
    offset: float,
    colour: str,
    symbol: str,
    names: Sequence[str],
    texts: Sequence[str],
) -> Json:
    """Return a mark a row with its interval as a line; rows are at y = 0, -1, -2 …, moved by `offset`."""
    pairs = list(zip(values, intervals, strict=True))
    error = {
        "type": "data",
        "symmetric": False,
        "array": [_reach(value, ci and ci[1], 1) for value, ci in pairs],
        "arrayminus": [_reach(value, ci and ci[0], -1) for value, ci in pairs],
        "color": colour,
        "thickness": 2,
        "width": 5,
    }
    return elements.scatter(
        "markers",
        values,
        [-row + offset for row in range(len(pairs))],
        error_x=error,
        marker={"color": colour, "size": 11, "symbol": symbol},
        text=[f"{elements.label(name)}<br>{elements.label(text, 60)}" for name, text in zip(names, texts, strict=True)],
        hovertemplate="%{text}<extra></extra>",
    )


def _arrows(intervals: Intervals, end: float, offset: float, colour: str) -> list[Json]:
    """Return an arrow at the edge of the axis from 0 to `end` for each interval that goes on behind it."""
    cut = [(row, "triangle-right", end) for row, ci in enumerate(intervals) if ci is not None and ci[1] > end]
    cut += [(row, "triangle-left", 0.0) for row, ci in enumerate(intervals) if ci is not None and ci[0] < 0]
    if not cut:
        return []
    rows, symbols, ends = (list(column) for column in zip(*cut, strict=True))
    marker = {"symbol": symbols, "size": 11, "color": colour}
    more = {"hoverinfo": "skip", "name": "beyond the axis", "cliponaxis": False}
    return [elements.scatter("markers", ends, [-row + offset for row in rows], marker=marker, **more)]


def _reach(value: float | None, end: float | None, side: int) -> float:
    """Return how far the interval goes from its figure to that side; nothing where either is not known."""
    if value is None or end is None or not math.isfinite(end):
        return 0.0
    return max(0.0, side * (end - value))
