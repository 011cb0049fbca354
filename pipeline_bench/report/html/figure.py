"""A figure of a page: what plotly draws, and what says the same without a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_bench.report.html.tables import Table
from pipeline_bench.report.html.text import label

Json = dict[str, Any]

ROW_PX = 58
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class Legend:
    """What a colour stands for, said beside the plot in plain HTML: ``mark`` names the shape of its sample."""

    text: str
    colour: str
    mark: str = "square"


@dataclass(frozen=True)
class Figure:
    """One plot with its alternative text, how it was measured, and its table."""

    id: str
    title: str
    alt: str
    method: str
    data: Sequence[Json]
    layout: Json
    table: Table
    legend: tuple[Legend, ...] = ()
    zoomable: bool = False

    @property
    def height(self) -> int:
        """In CSS pixels; the page keeps this much free before the plot is drawn."""
        return int(self.layout["height"])

    def plot(self) -> Json:
        """What the page's script hands to plotly."""
        config = {
            "displaylogo": False,
            "displayModeBar": self.zoomable,
            # Named one by one: plotly's own choice has a button that sends the plot's data to its makers.
            "modeBarButtons": [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d"]],
            "doubleClick": "reset",
            "showTips": False,
        }
        return {"id": self.id, "data": list(self.data), "layout": self.layout, "config": config}


def layout(height: int, **more: Any) -> Json:
    """What every plot has in common; text and grid get their colours from the page's style sheet."""
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 8, "r": 10, "t": 6, "b": 40, "pad": 0},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": _FONT, "size": 13},
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "hoverlabel": {"font": {"family": _FONT, "size": 12}, "align": "left"},
        **more,
    }


def rows_layout(rows: int, title: str, upper: float, **axis: Any) -> Json:
    """A plot with one row a variant, from the top down at y = 0, -1, -2 …, over an x axis from 0 to `upper`."""
    return layout(
        rows * ROW_PX + 52,
        xaxis={
            "title": {"text": title, "font": {"size": 12}, "standoff": 6},
            "range": [0, upper],
            "fixedrange": True,
            "zeroline": True,
            "ticks": "",
            **axis,
        },
        yaxis={"range": [-rows + 0.42, 0.6], "fixedrange": True, "visible": False},
    )


def row_labels(names: Sequence[str], values: Sequence[str]) -> list[Json]:
    """Each row's name at its left end and its figure at its right, above what is drawn."""
    made: list[Json] = []
    for row, (name, value) in enumerate(zip(names, values, strict=True)):
        common = {"y": -row + 0.34, "yref": "y", "xref": "paper", "showarrow": False, "yanchor": "middle"}
        made.append({**common, "x": 0, "xanchor": "left", "text": f"<b>{label(name)}</b>"})
        made.append({**common, "x": 1, "xanchor": "right", "text": label(value, 60), "name": "value"})
    return made
