"""Figures with their 95 % intervals as points on an axis; an end beyond the axis becomes an arrow, not a silent cut."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pipeline_bench.model.result import Interval
from pipeline_bench.report.html.figure import Json
from pipeline_bench.report.html.text import label

CUT_REMARK = "An interval that reaches beyond the axis ends in an arrow there; the table has its ends."
_AXIS_MARGIN = 1.06


def upper(values: Iterable[float], intervals: Iterable[Interval | None], most: float) -> float:
    """Where the axis ends: beyond every value, and beyond every interval's end as far as `most`."""
    top = max(values, default=0.0)
    ends = [interval[1] for interval in intervals if interval is not None and math.isfinite(interval[1])]
    return (max(top, min(max(ends, default=top), most)) or 1.0) * _AXIS_MARGIN


def are_cut(intervals: Iterable[Interval | None], end: float) -> bool:
    """Whether an interval reaches beyond the axis from 0 to `end`."""
    return any(interval is not None and (interval[0] < 0 or interval[1] > end) for interval in intervals)


def points(
    values: Sequence[float | None],
    intervals: Sequence[Interval | None],
    offset: float,
    colour: str,
    symbol: str,
    names: Sequence[str],
    texts: Sequence[str],
) -> Json:
    """A mark a row with its interval as a line; rows are at y = 0, -1, -2 …, moved by `offset`."""
    pairs = list(zip(values, intervals, strict=True))
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(values),
        "y": [-row + offset for row in range(len(pairs))],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [_reach(value, ci and ci[1], 1) for value, ci in pairs],
            "arrayminus": [_reach(value, ci and ci[0], -1) for value, ci in pairs],
            "color": colour,
            "thickness": 2,
            "width": 5,
        },
        "marker": {"color": colour, "size": 11, "symbol": symbol},
        "text": [f"{label(name)}<br>{label(text, 60)}" for name, text in zip(names, texts, strict=True)],
        "hovertemplate": "%{text}<extra></extra>",
    }


def arrows(intervals: Sequence[Interval | None], end: float, offset: float, colour: str) -> list[Json]:
    """An arrow at the edge of the axis from 0 to `end` for each interval that goes on behind it."""
    cut = [(row, 1, end) for row, ci in enumerate(intervals) if ci is not None and ci[1] > end]
    cut += [(row, -1, 0.0) for row, ci in enumerate(intervals) if ci is not None and ci[0] < 0]
    if not cut:
        return []
    symbols = ["triangle-right" if side > 0 else "triangle-left" for _, side, _ in cut]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "hoverinfo": "skip",
            "name": "beyond the axis",
            "x": [at for _, _, at in cut],
            "y": [-row + offset for row, _, _ in cut],
            "marker": {"symbol": symbols, "size": 11, "color": colour},
            "cliponaxis": False,
        }
    ]


def _reach(value: float | None, end: float | None, side: int) -> float:
    """How far the interval goes from its figure to that side; nothing where either is not known."""
    if value is None or end is None or not math.isfinite(end):
        return 0.0
    return max(0.0, side * (end - value))
