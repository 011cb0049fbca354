"""The figures over variants: time, utilization, and what a step is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline_bench.model.result import BUSY_TIME, CPU_TIME, EMULATED_LABEL, Interval, Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import words
from pipeline_bench.report.html import colours, intervals, tables
from pipeline_bench.report.html.figure import Figure, Json, Legend, row_labels, rows_layout
from pipeline_bench.report.html.text import label, name
from pipeline_bench.text import units

_WIDEST_INTERVAL = 1.6
"""Beyond this many times the largest figure an interval does not widen the axis of step times."""
_WIDEST_PERCENT = 150.0
"""The same for the axis of utilization, where AU's interval over few trials may reach far beyond 100 %."""
_AXIS_MARGIN = 1.06


def step_time(session: Session, results: Sequence[Result]) -> Figure | None:
    """The median step of each variant with its 95 % interval; None where no variant has one."""
    shown = [result for result in results if result.step_ms.median is not None]
    if not shown:
        return None
    medians = [result.step_ms.median or 0.0 for result in shown]
    ci95s = [result.step_ms.ci95 for result in shown]
    texts = [_with_range(units.milliseconds(result.step_ms.median), result.step_ms.ci95) for result in shown]
    names = [result.variant for result in shown]
    end = intervals.upper(medians, ci95s, _WIDEST_INTERVAL * max(medians))
    plot = rows_layout(len(shown), "median step time, ms", end)
    plot["annotations"] = row_labels(names, texts)
    data = [
        intervals.points(medians, ci95s, -0.08, colours.NEUTRAL, "circle", names, texts),
        *intervals.arrows(ci95s, end, -0.08, colours.NEUTRAL),
    ]
    alt = "Median step time with its 95 % interval. " + _sentences(shown, texts)
    method = (
        "The median of the trials' median steps, after warm-up; the line is its 95 % interval over trials. A step runs "
        "from asking for the batch to having the loss."
    )
    method += f" {intervals.CUT_REMARK}" if intervals.are_cut(ci95s, end) else ""
    rows = [
        (
            name(result.variant),
            tables.milliseconds(result.step_ms.median, result.step_ms.ci95, result.step_ms.reason),
            tables.milliseconds(result.step_ms.mean, None, None),
            tables.milliseconds(result.step_ms.p05, None, None),
            tables.milliseconds(result.step_ms.p95, None, None),
            str(result.steps),
            str(result.trials),
        )
        for result in results
    ]
    heads = ("variant", "median, ms", "mean, ms", "5th percentile, ms", "95th percentile, ms", "steps", "trials")
    legend = (Legend("median, with its 95 % interval", colours.NEUTRAL, "circle"),)
    return Figure("step-time", "Time", alt, method, data, plot, tables.table("Step time", heads, rows), legend)


def utilization(session: Session, results: Sequence[Result]) -> Figure | None:
    """AU and the device's own utilization of each variant; None where no variant has either."""
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
    end = max(104.0, intervals.upper(known, (*au_ci, *device_ci), _WIDEST_PERCENT))
    plot = rows_layout(len(shown), "utilization, %", end, dtick=25)
    plot["annotations"] = row_labels(names, texts)
    data = [
        intervals.points(au, au_ci, 0.0, colours.UTILIZATION, "circle", names, texts),
        intervals.points(device, device_ci, -0.2, colours.DEVICE, "diamond", names, texts),
        *intervals.arrows(au_ci, end, 0.0, colours.UTILIZATION),
        *intervals.arrows(device_ci, end, -0.2, colours.DEVICE),
    ]
    legend = (
        Legend("AU, accelerator utilization", colours.UTILIZATION, "circle"),
        Legend(f"{kind} utilization", colours.DEVICE, "diamond"),
    )
    rows = [
        (
            name(result.variant),
            tables.fraction(result.accelerator_utilization),
            replace(tables.device(result.device_utilization), remark=source(session, result) or ""),
            str(result.device_utilization.samples),
        )
        for result in results
    ]
    heads = ("variant", "AU", f"{kind} utilization and its source", "samples")
    method = "AU is the ceiling's mean step time over the variant's, trial by trial beside it. "
    if intervals.are_cut(au_ci, 100.0):
        method += "Noise takes an interval below 0 or, as if faster than the ceiling, above 100 %. "
    method += _sources(session, results)
    method += f" {intervals.CUT_REMARK}" if intervals.are_cut((*au_ci, *device_ci), end) else ""
    alt = f"AU and {kind} utilization. " + _sentences(shown, texts)
    table = tables.table("Utilization", heads, rows)
    return Figure("utilization", "Utilization", alt, method, data, plot, table, legend)


def source(session: Session, result: Result) -> str | None:
    """Which instrument the device utilization is from; the CPU's is spelled out, because it is not what a GPU's is."""
    given = result.device_utilization.source
    if given == BUSY_TIME:
        return "busy time of the emulated device ÷ wall time"
    if given != CPU_TIME:
        return None if given is None else name(given)
    return f"the trial's CPU time ÷ (wall time × {units.count(session.environment.cores, 'core')})"


def split(results: Sequence[Result]) -> Figure | None:
    """What each variant's mean step is made of; None where no variant has all three parts."""
    shown = [result for result in results if _parts(result) is not None]
    if not shown:
        return None
    parts = [_parts(result) or (0.0, 0.0, 0.0) for result in shown]
    names = [result.variant for result in shown]
    totals = [units.milliseconds(result.step_ms.mean or sum(part)) for result, part in zip(shown, parts, strict=True)]
    upper = max(sum(max(0.0, value) for value in part) for part in parts) or 1.0
    plot = rows_layout(len(shown), "ms of a mean step", upper * _AXIS_MARGIN)
    plot |= {"barmode": "stack", "uniformtext": {"mode": "hide", "minsize": 10}}
    plot["annotations"] = row_labels(names, [f"mean {total} a step" for total in totals])
    data = [_bar(index, [part[index] for part in parts], shown) for index in range(len(PARTS))]
    legend = tuple(Legend(part, colour, mark) for part, colour, mark, _ in PARTS)
    said = [", ".join(f"{PARTS[i][0]} {text}" for i, text in enumerate(_texts(result))) for result in shown]
    method = (
        "Input wait: blocked for the batch, timed in the step itself. Compute: the ceiling, the same model on a batch "
        "that already sits on the device. Host slowdown: the rest, which noise can take below nothing; it is then not "
        "drawn. Shares are of mean steps, so that bursts count."
    )
    alt = "What a mean step is made of. " + _sentences(shown, said)
    return Figure("split", "Where a step's time goes", alt, method, data, plot, _split_table(results), legend)


PARTS = (
    ("input wait", colours.INPUT_WAIT, "stripes", "/"),
    ("compute", colours.COMPUTE, "square", ""),
    ("host slowdown", colours.HOST_SLOWDOWN, "dots", "."),
)
"""The parts of a step in their order: name, colour, mark in the legend, plotly's pattern."""


def _split_table(results: Sequence[Result]) -> tables.Table:
    heads = (
        "variant",
        "mean step, ms",
        "input wait, ms",
        "share",
        "compute, ms",
        "share",
        "host slowdown, ms",
        "share",
    )
    rows = [
        (
            name(result.variant),
            tables.milliseconds(result.step_ms.mean, None, result.step_ms.reason),
            tables.of_estimate_ms(result.input_wait_ms),
            tables.share(result.input_wait_share),
            tables.of_estimate_ms(result.ceiling_ms),
            tables.share(result.accelerator_utilization),
            tables.of_estimate_ms(result.host_slowdown_ms),
            tables.share(result.host_slowdown_share),
        )
        for result in results
    ]
    return tables.table("The parts of a mean step, with 95 % intervals", heads, rows)


def _parts(result: Result) -> tuple[float, float, float] | None:
    """Input wait, compute and host slowdown in ms, as measured; None where one is missing."""
    values = (result.input_wait_ms.value, result.ceiling_ms.value, result.host_slowdown_ms.value)
    return None if None in values else tuple(value or 0.0 for value in values)  # type: ignore[return-value]


def _texts(result: Result) -> list[str]:
    pairs = (
        (result.input_wait_ms, result.input_wait_share),
        (result.ceiling_ms, result.accelerator_utilization),
        (result.host_slowdown_ms, result.host_slowdown_share),
    )
    return [f"{units.milliseconds(ms.value)} · {units.share(share.value)}" for ms, share in pairs]


def _bar(index: int, values: Sequence[float], shown: Sequence[Result]) -> Json:
    part, colour, _, pattern = PARTS[index]
    texts = [_texts(result)[index] for result in shown]
    return {
        "type": "bar",
        "orientation": "h",
        "name": part,
        "x": [max(0.0, value) for value in values],
        "y": [-row - 0.1 for row in range(len(shown))],
        "width": 0.46,
        "text": texts,
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": colours.ON_COLOUR, "size": 12},
        "customdata": [label(result.variant) for result in shown],
        "hovertemplate": "%{customdata}<br>%{fullData.name}: %{text}<extra></extra>",
        "marker": {
            "color": colour,
            "line": {"width": 0},
            "pattern": {
                "shape": pattern,
                "bgcolor": colour,
                "fgcolor": "rgba(255,255,255,0.4)",
                "size": 7,
                "solidity": 0.2,
            },
        },
    }


def _with_range(text: str, ci95: Interval | None) -> str:
    if ci95 is None:
        return text
    return f"{text} ({units.plain_milliseconds(ci95[0])} to {units.plain_milliseconds(ci95[1])})"


def _percent(value: float | None) -> float | None:
    return None if value is None else value * 100


def _percents(ci95: Interval | None) -> Interval | None:
    return ci95 and (ci95[0] * 100, ci95[1] * 100)


def _utilizations(result: Result, kind: str) -> str:
    au, device = result.accelerator_utilization.value, result.device_utilization.mean_percent
    said = [f"AU {units.fraction(au)}"] if au is not None else []
    return " · ".join([*said, *([f"{kind} {units.percent(device)}"] if device is not None else [])])


def _sources(session: Session, results: Sequence[Result]) -> str:
    kind = session.environment.accelerator_kind.upper()
    measured = [result for result in results if result.device_utilization.mean_percent is not None]
    sources = dict.fromkeys(source(session, r) for r in measured if r.device_utilization.source != BUSY_TIME)
    said = "; ".join(text for text in sources if text)
    busy = words.busy_time(session)
    if not said:
        return f"{busy}." if busy else f"{kind} utilization was not measured."
    more = (
        " It counts the input's work too." if kind == "CPU" else " 100 % says that a kernel was running at all times."
    )
    return f"{kind} utilization, as the device reports it over the measured steps: {said}.{more}" + (
        f" {busy}." if busy else ""
    )


def _sentences(results: Sequence[Result], texts: Sequence[str]) -> str:
    return " ".join(f"{name(result.variant)}: {text}." for result, text in zip(results, texts, strict=True))
