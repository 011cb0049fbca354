"""What has many values: step times a variant as a histogram, AUTOTUNE's choices over time, a watched training's epochs.

Histograms are computed here, so that no step itself is in the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from pipeline_bench.analysis import measured, wall_time
from pipeline_bench.analysis.measured import ByVariant, Rounds, Times
from pipeline_bench.analysis.stats import percentiles
from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.job import WallTime
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report import facts, pipeline_tree
from pipeline_bench.report.html import elements
from pipeline_bench.report.html.elements import Json, Legend, Plot
from pipeline_bench.report.html.lanes import Floats
from pipeline_bench.text import NAME, one_line, sentence, units

_BINS = 120
_TAIL = 0.5
"""Percent of a variant's steps at either end that do not widen the axis."""
_PERCENTS = (5, 25, 75, 95, 99)
"""Over all steps. Of medians a page shows one a variant, that of its trials' medians, which the result holds."""
_HEIGHT = 0.6
"""Of a histogram within its row, below the row's name."""
_LOGARITHMIC_FROM = 12.0
"""The largest over the smallest step time at which a linear axis would press one variant into a line."""
_MARGIN = 0.03
"""Of the axis, at either end."""
_FINE_DECADES = 3
"""Over more than these, labels at 1, 2 and 5 of each would touch on a phone."""
_HEIGHT_PX = 220
_MOST_STAGES, _MOST_POINTS = 8, 400
_Steps = tuple[Floats, Times | None]
"""Step times in ms, and how many steps each is the mean of; None: each is one."""


def distribution(session: Session, results: Sequence[Result]) -> Plot | None:
    """Return a histogram a variant of the steps of its figures, in the order of the results; None without a step."""
    counted = measured.of(session.scenario, session.trials, session.environment.cores)
    shown = [result for result in results if counted.get(result.variant)]
    if not shown:
        return None
    all_steps = [_pooled(counted[result.variant]) for result in shown]
    medians = [result.step_ms.median for result in shown]
    lower, upper = _range(all_steps, medians)
    logarithmic = _is_logarithmic(lower, upper)
    edges = np.geomspace(lower, upper, _BINS + 1) if logarithmic else np.linspace(lower, upper, _BINS + 1)
    names = [result.variant for result in shown]
    texts = [_said(median, steps) for median, steps in zip(medians, all_steps, strict=True)]
    plot = elements.rows_layout(len(shown), "step time, ms", upper)
    limits = [float(np.log10(lower)), float(np.log10(upper))] if logarithmic else [lower, upper]
    plot["xaxis"] |= {"type": "log" if logarithmic else "linear", "range": limits, "zeroline": False}
    if logarithmic:
        ticks = _ticks(lower, upper)
        plot["xaxis"] |= {"tickmode": "array", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    # Beside a long name a phone has room for the median alone; the text is where a histogram is pointed at.
    shown_medians = [f"median {units.milliseconds(median)}" if median is not None else "" for median in medians]
    plot["annotations"] = elements.row_labels(names, shown_medians)
    data = [_histogram(row, steps, edges, names[row], texts[row]) for row, steps in enumerate(all_steps)]
    data += [_marks(row, steps, medians[row]) for row, steps in enumerate(all_steps)]
    disturbed = _left_out(session.trials, counted)
    besides = f" and {units.count(disturbed, 'step')} beside other work" if disturbed else ""
    method = (
        f"Every step that counts, warm-up{besides} left out; each histogram has its own height. The marks are "
        "the 5th percentile, the median of the trials' medians and the 95th percentile. The fastest and the slowest "
        f"0.5 % do not widen the axis{', which is logarithmic' if logarithmic else ''}; the table has the slowest step."
    )
    alt = "Distribution of step times. " + " ".join(
        f"{elements.name(variant)}: {text}." for variant, text in zip(names, texts, strict=True)
    )
    return Plot("distribution", "Step times", alt, method, data, plot, _table(shown, all_steps))


def _left_out(trials: Sequence[TrialRecord], counted: ByVariant) -> int:
    """Return how many steps of good trials are behind warm-up, and yet in no figure."""
    good = [trial for trial in trials if trial.measured and trial.variant in counted]
    rows = [(trial.step_ns, trial.after_warmup("steps")) for trial in good]
    every = sum(step_ns.size if steps is None else int(steps.sum()) for step_ns, steps in rows)
    return every - sum(run.steps for rounds in counted.values() for run in rounds.values())


def _pooled(rounds: Rounds) -> _Steps:
    times_ms = np.concatenate([run.step_ms for run in rounds.values()])
    if all(run.weights is None for run in rounds.values()):
        return times_ms, None
    weights = [np.ones_like(run.start_ns) if run.weights is None else run.weights for run in rounds.values()]
    return times_ms, np.concatenate(weights)


def _said(median_ms: float | None, steps: _Steps) -> str:
    high = f"95 % below {units.milliseconds(percentiles(*steps, [95])[0])}"
    return high if median_ms is None else f"median {units.milliseconds(median_ms)}, {high}"


def _range(all_steps: Sequence[_Steps], medians: Sequence[float | None]) -> tuple[float, float]:
    """Return the ends of the axis in ms, positive and apart; every median lies between them."""
    ends = [percentiles(*steps, [_TAIL, 100 - _TAIL]) for steps in all_steps]
    known = [median for median in medians if median is not None]
    lower = max(min([*(end[0] for end in ends), *known]), 1e-6)
    upper = max([*(end[1] for end in ends), *known, lower])
    if _is_logarithmic(lower, upper):
        factor = (upper / lower) ** _MARGIN
        return lower / factor, upper * factor
    margin = max((upper - lower) * _MARGIN, upper * 1e-3)
    return max(lower - margin, lower / 2), upper + margin


def _is_logarithmic(lower: float, upper: float) -> bool:
    return upper / lower > _LOGARITHMIC_FROM


def _ticks(lower: float, upper: float) -> list[float]:
    """Return 1, 2 and 5 of each decade between the ends of a logarithmic axis; 1 alone of many decades."""
    first, last = math.floor(math.log10(lower)), math.ceil(math.log10(upper))
    leading = (1, 2, 5) if math.log10(upper / lower) <= _FINE_DECADES else (1,)
    ticks = [float(f"{digit}e{decade}") for decade in range(first, last + 1) for digit in leading]
    return [tick for tick in ticks if lower <= tick <= upper]


def _histogram(row: int, steps: _Steps, edges: Floats, variant: str, text: str) -> Json:
    times_ms, weights = steps
    counts = np.histogram(times_ms, edges, weights=weights)[0].astype(np.float64)
    heights = -row - 0.4 + _HEIGHT * counts / max(float(np.max(counts)), 1.0)
    base = -row - 0.4
    x = np.concatenate([[edges[0]], np.repeat(edges[1:-1], 2), [edges[-1]], [edges[-1], edges[0]]])
    y = np.concatenate([np.repeat(heights, 2), [base, base]])
    said = f"{elements.label(variant)}<br>{text}"
    return elements.filled(x.tolist(), y.tolist(), said, "rgba(63,127,208,0.45)", color=elements.DEVICE, width=1)


def _marks(row: int, steps: _Steps, median_ms: float | None) -> Json:
    low, high = percentiles(*steps, [5, 95])
    marks = [(low, "line-ns", 13, 2), (high, "line-ns", 13, 2)]
    marks += [(median_ms, "diamond", 9, 0)] if median_ms is not None else []
    at, symbols, sizes, widths = (list(column) for column in zip(*marks, strict=True))
    colour = elements.VERDICTS["inconclusive"]
    marker = {"symbol": symbols, "size": sizes, "color": colour, "line": {"width": widths, "color": colour}}
    return elements.scatter("markers", at, [-row - 0.4] * len(marks), marker=marker, hoverinfo="skip", cliponaxis=False)


def _table(shown: Sequence[Result], all_steps: Sequence[_Steps]) -> elements.Table:
    counts = [times_ms.size if weights is None else int(weights.sum()) for times_ms, weights in all_steps]
    slowest = [float(np.max(times_ms)) for times_ms, _ in all_steps]
    found = [percentiles(*steps, _PERCENTS) for steps in all_steps]
    return elements.table(
        "Step times in ms: the median of the trials' medians, and percentiles over all steps",
        list(zip(shown, counts, found, slowest, strict=True)),
        ("variant", lambda row: elements.name(row[0].variant)),
        ("steps", lambda row: str(row[1])),
        ("median", lambda row: units.plain_milliseconds(row[0].step_ms.median)),
        *(
            (f"{percent} %", lambda row, i=i: units.plain_milliseconds(row[2][i]))
            for i, percent in enumerate(_PERCENTS)
        ),
        ("slowest", lambda row: units.plain_milliseconds(row[3])),
        ("warm-up steps a trial", lambda row: facts.span(row[0].warmup_steps)),
    )


def autotune(diagnosis: Diagnosis | None) -> Plot | None:
    """Return parallelism over the seconds of the inspection; None where AUTOTUNE set none, or changed none."""
    inspection = diagnosis.inspection if diagnosis is not None else None
    if inspection is None:
        return None
    lines: list[Json] = []
    legend: list[Legend] = []
    rows: list[tuple[str, Floats]] = []
    upper, span_s = 1.0, 0.1
    for stage in inspection.stages:
        found = pipeline_tree.series(inspection, stage.id, "parallelism")
        if found is None or len(lines) == _MOST_STAGES:
            continue
        tuned, values = found
        if values.min() == values.max():  # a constant is in the tree, and no plot
            continue
        at_s = np.asarray(tuned.at_ns.unpack(), dtype=float) / 1e9
        at_s -= at_s[0]
        kept = np.unique(np.linspace(0, values.size - 1, min(values.size, _MOST_POINTS)).astype(int))
        colour, dash = elements.of_variant(len(lines))
        lines.append(
            elements.scatter(
                "lines",
                at_s[kept].tolist(),
                values[kept].tolist(),
                name=elements.label(stage.label, 40),
                line={"color": colour, "dash": dash, "width": 2, "shape": "hv"},
                hovertemplate="%{fullData.name}<br>%{x:.3~r} s: %{y:.3~r}<extra></extra>",
            )
        )
        legend.append(Legend(one_line(stage.label, NAME), colour, dash))
        rows.append((one_line(stage.label, NAME), values))
        upper, span_s = max(upper, float(values.max())), max(span_s, float(at_s[-1]))
    if not lines:
        return None
    return Plot(
        id="autotune",
        title="What AUTOTUNE set over time",
        alt="Parallelism of each tuned stage over the seconds of the inspection, as lines; the table says the same.",
        method="Parallelism that AUTOTUNE set while the whole pipeline ran as it is written.",
        data=lines,
        layout=_autotune_layout(upper, span_s),
        table=elements.table(
            "Parallelism",
            rows,
            ("stage", lambda row: row[0]),
            ("first", lambda row: f"{row[1][0]:g}"),
            ("last", lambda row: f"{row[1][-1]:g}"),
            ("most", lambda row: f"{np.max(row[1]):g}"),
        ),
        legend=tuple(legend),
    )


def _autotune_layout(upper: float, span_s: float) -> Json:
    plot = elements.layout(_HEIGHT_PX)
    plot["margin"] = {"l": 34, "r": 10, "t": 8, "b": 40}
    plot["xaxis"] = elements.axis("seconds since its first value", span_s, fixedrange=True, zeroline=False)
    plot["yaxis"] = {"range": [0, 1.1 * upper], "fixedrange": True, "rangemode": "tozero", "nticks": 5}
    return plot


_MOST_ROWS = 40
"""Of more epochs, neighbours share a bar, which is their mean."""
_ROW_PX = 22
_OVER_LONGEST = 1.02
_STYLES = {
    wall_time.FIRST_STEP: ("#8a8420", "square", ""),
    wall_time.INPUT_WAIT: (elements.INPUT_WAIT, "stripes", "/"),
    wall_time.COMPUTE: (elements.COMPUTE, "square", ""),
    wall_time.ITERATOR_END: ("#3d5a80", "stripes", "x"),
    wall_time.VALIDATION: (elements.DEVICE, "dots", "."),
    wall_time.CALLBACKS: ("#a65fb8", "stripes", "\\"),
    wall_time.REST: (elements.NEUTRAL, "square", ""),
}
"""Of each part of an epoch: colour, mark in the legend, plotly's pattern."""


def epochs(session: Session) -> Plot | None:
    """Return the figure; None where the session kept no epoch."""
    if session.wall_time is None or not session.wall_time.epochs:
        return None
    rows = _rows(session.wall_time)
    names = [name for name, _ in rows]
    there = [part for part in wall_time.OF_AN_EPOCH if any(parts[part] > 0 for _, parts in rows)]
    longest = max(sum(parts.values()) for _, parts in rows)
    plot = elements.layout(
        len(rows) * _ROW_PX + 56,
        barmode="stack",
        xaxis=elements.axis("seconds", (longest or 1.0) * _OVER_LONGEST, fixedrange=True),
        yaxis={"autorange": "reversed", "type": "category", "fixedrange": True, "automargin": True},
    )
    data = [_bar(part, [parts[part] for _, parts in rows], names) for part in there]
    alt = sentence(": ".join(wall_time.summary(session.wall_time)))
    method = (
        "The first step has the model built and traced, and waits for the first batch. Compute and host is what the "
        "other steps took beside their waits. Before an epoch's first step TensorFlow ends the iterator of the epoch "
        "before. Callbacks are timed where `pipeline-bench run` watches. The rest is what else is done in an epoch: "
        "making iterators, Keras' progress bar. Of a loop of the program's own an epoch is a pass over its data."
    )
    table = elements.table(
        "Each epoch's seconds",
        rows,
        ("epoch", lambda row: row[0]),
        *((part, partial(_seconds, part)) for part in there),
        ("all", lambda row: f"{sum(row[1].values()):.2f}"),
    )
    legend = tuple(Legend(part, _STYLES[part][0], _STYLES[part][1]) for part in there)
    return Plot("epochs", "Where the wall time went, by epoch", f"{alt}.", method, data, plot, table, legend)


def _rows(time: WallTime) -> list[tuple[str, dict[str, float]]]:
    """Return the name and the parts of an epoch for each bar."""
    kept = time.epochs
    size = -(-len(kept) // _MOST_ROWS)
    rows, first = [], time.initial_epoch + 1
    for start in range(0, len(kept), size):
        group = kept[start : start + size]
        count = sum(epoch.count for epoch in group)
        parts = [wall_time.of_epoch(epoch) for epoch in group]
        name = str(first) if count == 1 else f"{first}-{first + count - 1}, mean"
        rows.append((name, {part: sum(each[part] for each in parts) / count for part in wall_time.OF_AN_EPOCH}))
        first += count
    return rows


def _seconds(part: str, row: tuple[str, dict[str, float]]) -> str:
    return f"{row[1][part]:.2f}"


def _bar(part: str, values: Sequence[float], names: Sequence[str]) -> Json:
    colour, _, shape = _STYLES[part]
    return elements.bars(
        part,
        (colour, shape),
        values,
        [f"epoch {name}" for name in names],
        customdata=[elements.label(units.seconds(value)) for value in values],
        hovertemplate="%{y}<br>%{fullData.name}: %{customdata}<extra></extra>",
    )
