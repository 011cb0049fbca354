"""Where a watched training's wall time went, as a bar an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline_bench.analysis import wall_time
from pipeline_bench.model.session import Session
from pipeline_bench.model.wall_time import Epoch
from pipeline_bench.report.html import elements
from pipeline_bench.report.html.elements import Figure, Json, Legend, label
from pipeline_bench.text import units

_MOST_ROWS = 40
"""Of more epochs, neighbours share a bar, which is their mean."""
_ROW_PX = 22
_MARGIN = 1.02
_STYLES = {
    wall_time.FIRST_STEP: ("#8a8420", "square", ""),
    wall_time.INPUT_WAIT: (elements.INPUT_WAIT, "stripes", "/"),
    wall_time.COMPUTE: (elements.COMPUTE, "square", ""),
    wall_time.VALIDATION: (elements.DEVICE, "dots", "."),
    wall_time.CALLBACKS: ("#a65fb8", "stripes", "\\"),
    wall_time.REST: (elements.NEUTRAL, "square", ""),
}
"""Of each part of an epoch: colour, mark in the legend, plotly's pattern."""


def epochs(session: Session) -> Figure | None:
    """Return the figure; None where the session kept no epoch."""
    if session.wall_time is None or not session.wall_time.epochs:
        return None
    rows = _rows(session.wall_time.epochs)
    names = [name for name, _ in rows]
    there = [part for part in wall_time.OF_AN_EPOCH if any(parts[part] > 0 for _, parts in rows)]
    longest = max(sum(parts.values()) for _, parts in rows)
    plot = elements.layout(
        len(rows) * _ROW_PX + 56,
        barmode="stack",
        xaxis=elements.axis("seconds", (longest or 1.0) * _MARGIN, fixedrange=True),
        yaxis={"autorange": "reversed", "type": "category", "fixedrange": True, "automargin": True},
    )
    data = [_bar(part, [parts[part] for _, parts in rows], names) for part in there]
    summary = wall_time.summary(session.wall_time)
    method = (
        "The first step has the model built and traced, and waits for the first batch. Compute and host is what the "
        "other steps took beside their waits. Callbacks are timed where `pipeline-bench run` watches. The rest is what "
        "Keras does in an epoch besides: making iterators, its progress bar."
    )
    table = elements.table(
        "Each epoch's seconds",
        rows,
        ("epoch", lambda row: row[0]),
        *((part, partial(_seconds, part)) for part in there),
        ("all", lambda row: f"{sum(row[1].values()):.2f}"),
    )
    legend = tuple(Legend(part, _STYLES[part][0], _STYLES[part][1]) for part in there)
    return Figure("epochs", "Where the wall time went, by epoch", f"W{summary[1:]}.", method, data, plot, table, legend)


def _rows(kept: Sequence[Epoch]) -> list[tuple[str, dict[str, float]]]:
    """Return the name and the parts of an epoch for each bar."""
    size = -(-len(kept) // _MOST_ROWS)
    rows, first = [], 1
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
        customdata=[label(units.seconds(value)) for value in values],
        hovertemplate="%{y}<br>%{fullData.name}: %{customdata}<extra></extra>",
    )
