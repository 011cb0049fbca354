"""The table of a session in a terminal: a row per variant, its columns chosen by the width there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline_bench.analysis import speedups
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import (
    Column,
    Unit,
    columns,
    facts,
    in_order,
    mean_step,
    step_parts,
)
from pipeline_bench.report.layout import fitting
from pipeline_bench.text import units

_NAME_CELLS = 48
"""A longer name of a variant ends in an ellipsis."""

_FULL, _WIDE, _MEDIUM = 136, 112, 78
_NARROW = (
    "step_ms_mean",
    "input_wait_share",
    "accelerator_utilization",
    "host_slowdown_share",
    "device_utilization_percent",
    "speedup",
)
_DROPPED = ("device_utilization_percent", "host_slowdown_share", "accelerator_utilization", "input_wait_share")
"""The columns of a narrow terminal, and those of them that go first."""
_GAP = 2
_SMALLEST_NAME = 12
_LIMIT_CELLS = 24
"""What a variant's limit in its row needs at least."""
_BAR_CELLS = 22
_INTERVALS = (
    "±: the wider side of the 95 % interval over trials; its two ends where that is as much as the figure itself, or a "
    "ratio's sides differ"
)
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass
class Footnotes:
    """Why a figure is missing: each reason once, numbered in the order of its first mark."""

    reasons: list[str] = field(default_factory=list)
    shown: bool = True
    """Whether they will stand below the table; else there are no marks."""

    def mark(self, reason: str | None) -> str:
        """Return the mark to put behind a figure; empty where there is no reason."""
        text = reason or ""
        if not text or not self.shown:
            return ""
        if text not in self.reasons:
            self.reasons.append(text)
        return str(self.reasons.index(text) + 1).translate(_SUPERSCRIPTS)

    def lines(self) -> list[Text]:
        """Return the reasons, to be shown under the table."""
        marks = (str(i + 1).translate(_SUPERSCRIPTS) for i in range(len(self.reasons)))
        return [Text(f"{mark} {reason}", style="dim") for mark, reason in zip(marks, self.reasons, strict=True)]


@dataclass(frozen=True)
class _Row:
    result: Result
    is_reference: bool
    """Whether it is a ceiling, beside what is compared."""
    footnotes: Footnotes
    margins: bool = True
    """Whether each figure has its margin below it."""

    @property
    def trouble(self) -> str | None:
        """Why the figures are over fewer trials than were planned, or over none yet."""
        result = self.result
        if result.status in {"ok", "pending"}:
            return result.reason
        return f"{result.status}: {result.reason}" if result.reason else result.status

    def figure(self, shown: str, reason: str | None, under: str = "") -> Text:
        """Return a figure over its margin; a dash with a footnote where there is none."""
        if shown == units.NOT_MEASURED and not self.is_reference:  # a caption says what a ceiling lacks
            shown += self.footnotes.mark(self.trouble if reason in {None, self.result.reason} else reason)
        text = Text(shown, justify="right")
        return text.append(f"\n{under}", style="dim") if under and self.margins else text


@dataclass(frozen=True)
class _Cells:
    """A column as it is drawn."""

    head: RenderableType
    cell: Callable[[_Row], Text]
    width: int


def variants_table(session: Session, width: int) -> RenderableType:
    """Return every variant's figures, the ceilings dimmed below the rest, with captions and footnotes."""
    footnotes = Footnotes()
    rows = _rows(session, footnotes)
    parts: list[RenderableType] = [_grid(rows, _columns(session, width), width)]
    if width < _FULL:
        parts += [Text(), _grid(rows, _learning(session), width)]
    return Group(*parts, Text(), *_captions(session), *footnotes.lines())


def figures_table(
    session: Session,
    width: int,
    *,
    margins: bool,
    references: bool,
    limit: Callable[[Result, int], Text] | None,
    most: int | None,
) -> Table:
    """Return the figures alone, in few lines.

    Args:
        session: whose results they are.
        width: the columns of the terminal.
        margins: whether each figure of a variant has its margin below it.
        references: whether the ceilings have rows.
        limit: what limits a variant, in so many cells, to stand in its row in place of some figures.
        most: how many rows there may be.
    """
    rows = [
        replace(row, margins=margins and not row.is_reference)
        for row in _rows(session, Footnotes(shown=False))
        if references or not row.is_reference
    ][:most]
    drawn = _columns(session, min(width, _FULL - 1)) if limit is None else _with_limits(session, rows, width, limit)
    return _grid(rows, drawn, width, fold=session.hosts is not None)


def variant_name(name: str) -> str:
    """Return a variant's name for a terminal, of so many cells at most."""
    text = Text(name)
    text.truncate(_NAME_CELLS, overflow="ellipsis")
    return text.plain


def _rows(session: Session, footnotes: Footnotes) -> list[_Row]:
    references = speedups.references(session.scenario)
    return [_Row(result, result.variant in references, footnotes) for result in in_order(session)]


def _grid(rows: Sequence[_Row], drawn: Sequence[_Cells], width: int, *, fold: bool = True) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    left = width - sum(column.width + _GAP for column in drawn)
    cells = max(_SMALLEST_NAME, min(left, _longest_name(rows) + 1))
    fold = fold or len({variant_name(row.result.variant)[: cells - 1] for row in rows}) < len(
        rows
    )  # else two are alike
    table.add_column("\nvariant", width=cells, overflow="fold" if fold else "ellipsis", no_wrap=not fold)
    for column in drawn:
        table.add_column(column.head, width=column.width, justify="right", no_wrap=True)
    for row in rows:
        name = Text(variant_name(row.result.variant), style="" if row.is_reference else "bold")
        if row.result.status != "pending":
            name.append(row.footnotes.mark(row.trouble))
        table.add_row(name, *(column.cell(row) for column in drawn), style="dim" if row.is_reference else "")
    return table


def _longest_name(rows: Sequence[_Row]) -> int:
    return max((Text(variant_name(row.result.variant)).cell_len for row in rows), default=0)


def _with_limits(
    session: Session, rows: Sequence[_Row], width: int, limit: Callable[[Result, int], Text]
) -> list[_Cells]:
    """Return the columns of figures beside which a variant's limit has room, and a last one for it."""
    figures = _of_figures(session)
    left = width - max(_SMALLEST_NAME, _longest_name(rows) + 1) - _GAP
    widths = {key: column.width + _GAP for key, column in figures.items()}
    kept = fitting(widths, ("samples_per_second", *_DROPPED), left - _LIMIT_CELLS)
    cells = left - sum(widths[key] for key in kept)
    drawn = [figures[key] for key in kept]
    return [*drawn, _Cells(Text("\nlimit", justify="left"), lambda row: limit(row.result, cells), cells)]


def _of_figures(session: Session, *, learning: bool = False) -> dict[str, _Cells]:
    return {
        column.key: _Cells(column.two_lines, _cell(column, unit), column.cells)
        for column, unit in columns(session, learning=learning)
        if column.two_lines
    }


def _columns(session: Session, width: int) -> list[_Cells]:
    drawn = _of_figures(session)
    if width < _MEDIUM:
        drawn["step_ms_mean"] = _Cells("ms/step\nsamp./s", _step_and_rate, 7)
        drawn["host_slowdown_share"] = _Cells("host\nslow.", drawn["host_slowdown_share"].cell, 5)
        widths = {key: drawn[key].width + _GAP for key in _NARROW}
        return [drawn[key] for key in fitting(widths, _DROPPED, width - _SMALLEST_NAME)]
    made = list(drawn.values())
    if width >= _WIDE:
        made.insert([*drawn].index("accelerator_utilization"), _Cells(_legend(session), _bar, _BAR_CELLS))
    return made + _learning(session) if width >= _FULL else made


def _learning(session: Session) -> list[_Cells]:
    return [*_of_figures(session, learning=True).values(), _Cells("accuracy\nbefore → after", _accuracy, 14)]


def _cell(column: Column, unit: Unit) -> Callable[[_Row], Text]:
    def cell(row: _Row) -> Text:
        figure = column.read(row.result)
        under = unit.margin(figure.value, figure.ci95) if unit.margin else ""
        fits = len(under) <= column.cells  # what is cut would be another interval
        return row.figure(unit.text(figure), figure.reason, under if fits else units.NOT_MEASURED)

    return cell


def _step_and_rate(row: _Row) -> Text:
    step, rate = mean_step(row.result), row.result.samples_per_second
    return row.figure(units.plain_milliseconds(step.value), step.reason, units.rate(rate) if rate is not None else "")


def _accuracy(row: _Row) -> Text:
    accuracy = row.result.accuracy
    if accuracy.before is None and accuracy.after is None:
        return row.figure(units.NOT_MEASURED, row.result.missing.get("accuracy"))
    return Text(f"{units.share(accuracy.before)} → {units.share(accuracy.after)}", justify="right")


def _legend(session: Session) -> Text:
    legend = Text("a step", justify="left")
    wait, compute, host, *copy = step_parts.drawn(session.results)
    for part in copy:
        legend.append(f" {part.block}", style=part.colour).append(part.short)
    legend.append("\n")
    for part in (wait, compute, host):
        legend.append(part.block, style=part.colour).append(f"{part.short} ")
    return legend


def _bar(row: _Row) -> Text:
    """Return the step's parts as lengths; a part below nothing, which noise can make, has none."""
    bar, reached, drawn = Text(justify="left"), 0.0, 0
    for (_, length), part in zip(step_parts.of(row.result), step_parts.PARTS, strict=False):
        reached += length
        cells = round(reached * _BAR_CELLS) - drawn  # rounding the ends, not the lengths, keeps the bar's length
        bar.append(part.block * cells, style=part.colour)
        drawn += cells
    return bar


def _captions(session: Session) -> list[Text]:
    """Return what the heads have no room to say, and what the small figures mean."""
    steps = [result.step_ms for result in session.results]
    intervals = [_INTERVALS] if any(each.ci95 for each in steps) else []
    alone = dict.fromkeys(each.reason for each in steps if each.median is not None)
    intervals += [f"no ±: {reason}" for reason in alone if reason]
    warmups = [f"{variant_name(r.variant)}: {facts.span(r.warmup_steps)}" for r in in_order(session) if r.warmup_steps]
    last = [f"warm-up left out, steps per trial: {'; '.join(warmups)}"] if warmups else []
    return [Text(caption, style="dim") for caption in (*facts.captions(session, intervals), *last)]
