"""What a page is made of: foreign text made harmless, colours, tables, and figures that plotly draws."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pipeline_bench import report
from pipeline_bench.model.result import Result, VerdictKind
from pipeline_bench.report import Unit
from pipeline_bench.text import NAME, one_line, units

T = TypeVar("T")
Json = dict[str, Any]

LABEL_LIMIT = 24
_SIGNIFICANT_DIGITS = 6
"""More than a plot of a few thousand pixels can show; fewer would move a time stamp of an hour's axis."""


def name(text: str) -> str:
    """Return a variant's name as the page shows it, on one line."""
    return one_line(text, NAME)


def label(text: str, limit: int = LABEL_LIMIT) -> str:
    """Return text for a plot. plotly reads tags and entities in every label, so the ones in a name are escaped."""
    return html.escape(one_line(text, limit), quote=False)


def json_block(value: Any) -> str:
    """Return JSON that cannot leave the ``<script>`` element it stands in, numbers cut to six significant digits.

    A number that is not finite, which JSON has no word for, is null: plotly draws nothing there.
    """
    text = json.dumps(_rounded(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.{_SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
        case dict():
            return {key: _rounded(part) for key, part in value.items()}
        case list() | tuple():
            return [_rounded(part) for part in value]
    return value


# Colours: one shade of each of the report's colours that reads on white, on near black and on paper. Every shade has a
# contrast of at least 3:1 to both backgrounds, which WCAG 2.2 (1.4.11) asks of graphics, and of 4.5:1 to the near black
# that is written on it. Colour is never the only sign: parts of a step carry a pattern and their name, variants their
# name, verdicts their word.

ON_COLOUR = "#101215"

# Vermilion, bluish green and amber: red, green and yellow moved apart for readers who confuse red and green.
SHADES = {
    "red": "#d9552b",
    "green": "#1f9a73",
    "yellow": "#bd8a00",
    "magenta": "#a65fb8",
    "cyan": "#2a8f8f",
    "bright_black": "#808994",
    "bold red": "#d9552b",
}
INPUT_WAIT = SHADES[report.INPUT_WAIT]
COMPUTE = SHADES[report.COMPUTE]
HOST_SLOWDOWN = SHADES[report.HOST_SLOWDOWN]
UTILIZATION = COMPUTE
"""Of AU, which is the compute part of a step."""
DEVICE = "#3f7fd0"
NEUTRAL = SHADES["bright_black"]
VERDICTS: dict[VerdictKind, str] = {kind: SHADES[colour] for kind, colour in report.VERDICT_STYLES.items()}
VARIANTS = ("#3f7fd0", "#c2701f", "#2a8f8f", "#a65fb8", "#8a8420", "#c75a86")
_DASHES = ("solid", "dash", "dot", "dashdot")
PHASES = {"import": "#808994", "build": "#8a8420", "evaluate": "#7373d1", "trace": "#7373d1"}
"""The phases around the training, which has its variant's colour."""


def of_variant(index: int) -> tuple[str, str]:
    """Return colour and dash of the variant at that place; both together repeat only after 24."""
    return VARIANTS[index % len(VARIANTS)], _DASHES[index // len(VARIANTS) % len(_DASHES)]


@dataclass(frozen=True)
class Cell:
    """A figure, its interval or a remark below it, and where it is missing the reason; `whole` is never broken."""

    text: str
    under: str = ""
    reason: str | None = None
    remark: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under heads; the first cell of a row is its head."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why figures are missing: each reason once, in the order of its first mark."""
        found = (cell.reason or "" for row in self.rows for cell in row)
        return tuple(dict.fromkeys(reason for reason in found if reason))

    def mark(self, cell: Cell) -> str:
        """Return the number of the cell's footnote; empty where there is none."""
        reason = cell.reason or ""
        return str(self.reasons.index(reason) + 1) if reason else ""


def table(caption: str, items: Iterable[T], *columns: tuple[str, Callable[[T], Cell | str]]) -> Table:
    """Return a table with a row an item; a column is its head and what makes its cell of the item."""
    made = ([cell(item) for _, cell in columns] for item in items)
    rows = tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in made)
    return Table(caption, tuple(head for head, _ in columns), rows)


def figure_cell(unit: Unit, figure: report.Figure) -> Cell:
    """Return a figure over its interval; a dash with the reason where there is none."""
    text = unit.text(figure)
    under = "the baseline" if figure.is_baseline else units.ends(unit.show, figure.ci95, "{}")
    return Cell(text, under, figure.reason if text == units.NOT_MEASURED else None, figure.remark)


def estimate_cell(unit: Unit, name: str) -> Callable[[Result], Cell]:
    """Return what makes the cell of an estimate, by the name of its field."""
    read = report.estimate(name)
    return lambda result: figure_cell(unit, read(result))


ROW_PX = 58
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class Legend:
    """An entry of a plot's legend in plain HTML: ``mark`` names the shape of its sample."""

    text: str
    colour: str
    mark: str = "square"


@dataclass(frozen=True)
class Plot:
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

    def for_plotly(self) -> Json:
        """Return what the page's script hands to plotly."""
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
    """Return what every plot has in common; text and grid get their colours from the page's style sheet."""
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


def axis(title: str, upper: float, **more: Any) -> Json:
    """Return an x axis from 0 to `upper` with its title below."""
    return {"title": {"text": title, "font": {"size": 12}, "standoff": 6}, "range": [0, upper], **more}


def rows_layout(rows: int, title: str, upper: float, **more: Any) -> Json:
    """Return a plot with one row a variant, from the top down at y = 0, -1, -2 …, over an axis from 0 to `upper`."""
    return layout(
        rows * ROW_PX + 52,
        xaxis=axis(title, upper, fixedrange=True, zeroline=True, ticks="", **more),
        yaxis={"range": [-rows + 0.42, 0.6], "fixedrange": True, "visible": False},
    )


def note(text: str, x: float, y: float, **more: Any) -> Json:
    """Return a text that stands at a place of the plot: `x` as a share of its width."""
    return {"text": text, "x": x, "xref": "paper", "y": y, "showarrow": False, "yanchor": "middle", **more}


def row_labels(names: Sequence[str], values: Sequence[str]) -> list[Json]:
    """Return each row's name at its left end and its figure at its right, above what is drawn."""
    made: list[Json] = []
    for row, (name, value) in enumerate(zip(names, values, strict=True)):
        made.append(note(f"<b>{label(name)}</b>", 0, 0.34 - row, yref="y", xanchor="left"))
        made.append(note(label(value, 60), 1, 0.34 - row, yref="y", xanchor="right", name="value"))
    return made


def scatter(mode: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> Json:
    """Return points or lines for plotly."""
    return {"type": "scatter", "mode": mode, "x": x, "y": y, **more}


def filled(x: Sequence[Any], y: Sequence[Any], text: str, fill: str, **line: Any) -> Json:
    """Return an area within a line, which says its text where it is pointed at."""
    more = {"hoveron": "fills", "hoverinfo": "text", "text": text, "fillcolor": fill}
    return scatter("lines", x, y, fill="toself", line=line, **more)


def bars(name: str, style: tuple[str, str], x: Sequence[float], y: Sequence[Any], **more: Any) -> Json:
    """Return a part of bars that lie on their side, distinguished by colour and by plotly's pattern."""
    colour, shape = style
    pattern = {"shape": shape, "bgcolor": colour, "fgcolor": "rgba(255,255,255,0.4)", "size": 7, "solidity": 0.2}
    marker = {"color": colour, "line": {"width": 0}, "pattern": pattern}
    return {"type": "bar", "orientation": "h", "name": name, "x": x, "y": y, "marker": marker, **more}
