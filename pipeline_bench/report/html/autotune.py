"""What AUTOTUNE set over time, as a plot: one line a stage whose parallelism it chose."""

from __future__ import annotations

import numpy as np

from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.report import pipeline_tree
from pipeline_bench.report.html import colours, tables
from pipeline_bench.report.html.figure import Figure, Json, Legend, layout
from pipeline_bench.report.html.tables import Cell
from pipeline_bench.report.html.text import label
from pipeline_bench.text import one_line

_HEIGHT_PX = 220
_MOST_STAGES, _MOST_POINTS = 8, 400


def autotune(diagnosis: Diagnosis | None) -> Figure | None:
    """Parallelism over the seconds of the inspection; None where AUTOTUNE set none, or changed none."""
    inspection = diagnosis.inspection if diagnosis is not None else None
    if inspection is None:
        return None
    lines: list[Json] = []
    legend, rows = [], []
    upper, span_s = 1.0, 0.1
    for stage in inspection.stages:
        found = pipeline_tree.series(inspection, stage.id, "parallelism")
        if found is None or len(lines) == _MOST_STAGES:
            continue
        tuned, values = found
        try:
            at_s = np.asarray(tuned.at_ns.unpack(), dtype=float) / 1e9
        except ValueError:
            continue
        if at_s.size != values.size or values.min() == values.max():  # a constant is in the tree, and no plot
            continue
        at_s -= at_s[0]
        kept = np.unique(np.linspace(0, values.size - 1, min(values.size, _MOST_POINTS)).astype(int))
        colour, dash = colours.of_variant(len(lines))
        name = label(stage.label, 40)
        lines.append(_line(name, at_s[kept].tolist(), values[kept].tolist(), colour, dash))
        legend.append(Legend(one_line(stage.label, 40), colour, dash))
        rows.append((one_line(stage.label, 60), *_course(values)))
        upper, span_s = max(upper, float(values.max())), max(span_s, float(at_s[-1]))
    if not lines:
        return None
    return Figure(
        id="autotune",
        title="What AUTOTUNE set over time",
        alt="Parallelism of each tuned stage over the seconds of the inspection, as lines; the table says the same.",
        method="Parallelism that AUTOTUNE set while the whole pipeline ran as it is written.",
        data=lines,
        layout=_layout(upper, span_s),
        table=tables.table("Parallelism", ("stage", "first", "last", "most"), rows),
        legend=tuple(legend),
    )


def _course(values: np.ndarray) -> tuple[Cell | str, ...]:
    return f"{values[0]:g}", f"{values[-1]:g}", f"{values.max():g}"


def _line(name: str, x: list[float], y: list[float], colour: str, dash: str) -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "name": name,
        "line": {"color": colour, "dash": dash, "width": 2, "shape": "hv"},
        "hovertemplate": "%{fullData.name}<br>%{x:.3~g} s: %{y:.3~g}<extra></extra>",
    }


def _layout(upper: float, span_s: float) -> Json:
    plot = layout(_HEIGHT_PX)
    plot["margin"] = {"l": 34, "r": 10, "t": 8, "b": 40}
    plot["xaxis"] = {
        "title": {"text": "seconds since its first value", "font": {"size": 12}, "standoff": 6},
        "range": [0, span_s],
        "fixedrange": True,
        "zeroline": False,
    }
    plot["yaxis"] = {"range": [0, 1.1 * upper], "fixedrange": True, "rangemode": "tozero", "nticks": 5}
    return plot
