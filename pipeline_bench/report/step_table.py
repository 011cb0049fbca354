"""The table of a session in a terminal: a row per variant, its columns chosen by the width there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline_bench.model.result import BUSY_TIME, Estimate, Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import palette, words
from pipeline_bench.text import one_line, units

NAME_LIMIT = 48
"""A longer name of a variant ends in an ellipsis."""

_FULL, _WIDE, _MEDIUM = 136, 112, 78
_GAP = 2
_SMALLEST_NAME = 12
_FEW_VARIANTS = 4
"""So many rows of two lines leave room on a screen of 24 lines for what is said of them."""
_BAR_CELLS = 22
_PARTS = (("wait", "▓", palette.INPUT_WAIT), ("compute", "█", palette.COMPUTE), ("host", "░", palette.HOST_SLOWDOWN))
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass
class Footnotes:
    """Why a figure is missing: each reason once, numbered in the order of its first mark."""

    reasons: list[str] = field(default_factory=list)
    shown: bool = True
    """Whether they will stand below the table; else there are no marks."""

    def mark(self, reason: str | None) -> str:
        """The mark to put behind a figure; empty where there is no reason."""
        text = one_line(reason or "")
        if not text or not self.shown:
            return ""
        if text not in self.reasons:
            self.reasons.append(text)
        return str(self.reasons.index(text) + 1).translate(_SUPERSCRIPTS)

    def lines(self) -> list[Text]:
        """The reasons, to be shown under the table."""
        marks = (str(i + 1).translate(_SUPERSCRIPTS) for i in range(len(self.reasons)))
        return [Text(f"{mark} {reason}", style="dim") for mark, reason in zip(marks, self.reasons, strict=True)]


@dataclass(frozen=True)
class _Row:
    result: Result
    is_ceiling: bool
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
        """A figure over its margin; a dash with a footnote where there is none."""
        if shown == units.NOT_MEASURED and not self.is_ceiling:  # a caption says what a ceiling lacks
            shown += self.footnotes.mark(self.trouble if reason in {None, self.result.reason} else reason)
        text = Text(shown, justify="right")
        return text.append(f"\n{under}", style="dim") if under and self.margins else text


@dataclass(frozen=True)
class _Column:
    head: RenderableType
    cell: Callable[[_Row], Text]
    width: int


def variants_table(session: Session, width: int) -> RenderableType:
    """Every variant's figures, the ceilings dimmed below the rest, with captions and footnotes."""
    footnotes = Footnotes()
    rows = [_Row(result, is_ceiling(session, result), footnotes) for result in session.results]
    rows.sort(key=lambda row: row.is_ceiling)
    table = _grid(rows, _columns(width, session.device_label), width)
    parts: list[RenderableType] = [table]
    if width < _FULL:
        parts += [Text(), _grid(rows, _learning(), width)]
    return Group(*parts, Text(), *_captions(session, width, rows), *footnotes.lines())


def figures_table(session: Session, width: int) -> Table:
    """Return the figures alone, in few lines: each with its margin below it where there are few variants."""
    few = len(session.results) <= _FEW_VARIANTS
    rows = [_Row(result, is_ceiling(session, result), Footnotes(shown=False), few) for result in session.results]
    rows.sort(key=lambda row: row.is_ceiling)
    return _grid(rows, _columns(min(width, _FULL - 1), session.device_label), width, fold=False)


def is_ceiling(session: Session, result: Result) -> bool:
    """Whether a result is the reference that others are held against."""
    return result.variant in session.scenario.ceilings


def variant_name(name: str) -> str:
    """A variant's name as every part of the report shows it."""
    text = Text(one_line(name))
    text.truncate(NAME_LIMIT, overflow="ellipsis")
    return text.plain


def _grid(rows: Sequence[_Row], columns: Sequence[_Column], width: int, *, fold: bool = True) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    left = width - sum(column.width + _GAP for column in columns)
    longest = max((Text(variant_name(row.result.variant)).cell_len for row in rows), default=0)
    cells = max(_SMALLEST_NAME, min(left, longest + 1))
    table.add_column("\nvariant", width=cells, overflow="fold" if fold else "ellipsis", no_wrap=not fold)
    for column in columns:
        table.add_column(column.head, width=column.width, justify="right", no_wrap=True)
    for row in rows:
        name = Text(variant_name(row.result.variant), style="" if row.is_ceiling else "bold")
        if row.result.status != "pending":
            name.append(row.footnotes.mark(row.trouble))
        figures = (column.cell(row) for column in columns)
        table.add_row(name, *figures, style="dim" if row.is_ceiling else "")
    return table


def _columns(width: int, device: str) -> list[_Column]:
    step = _Column("\nms/step", _step, 7)
    rate = _Column("samples\n/s", _rate, 7)
    wait = _Column("input\nwait", lambda row: _share(row, row.result.input_wait_share), 5)
    host = _Column("host\nslowdown", lambda row: _share(row, row.result.host_slowdown_share), 8)
    utilization = _Column("\nAU", _utilization, 5)
    device_column = _Column(f"{device}\nutil.", _device, 5)
    speedup = _Column("speed-\nup", _speedup, 6)
    if width < _MEDIUM:
        step = _Column("ms/step\nsamp./s", _step_and_rate, 7)
        host = _Column("host\nslow.", host.cell, 5)
        columns = [step, wait, utilization, host, device_column, speedup]
        for least in (device_column, host, utilization, wait):  # a figure that is cut would be another figure
            if _SMALLEST_NAME + sum(column.width + _GAP for column in columns) > width:
                columns.remove(least)
        return columns
    columns = [step, rate, wait, host, utilization, device_column, speedup]
    if width >= _WIDE:
        columns.insert(columns.index(utilization), _Column(_legend(), _bar, _BAR_CELLS))
    return columns + _learning() if width >= _FULL else columns


def _learning() -> list[_Column]:
    loss = _Column(
        "final\nloss", lambda row: row.figure(units.loss(row.result.loss), row.result.missing.get("loss")), 8
    )
    return [loss, _Column("accuracy\nbefore → after", _accuracy, 14)]


def _step(row: _Row) -> Text:
    step = row.result.step_ms
    return row.figure(units.plain_milliseconds(step.median), step.reason, units.margin(step.median, step.ci95))


def _rate(row: _Row) -> Text:
    rate, interval = row.result.samples_per_second, row.result.samples_per_second_ci95
    return row.figure(units.rate(rate), None, units.rate_margin(rate, interval))


def _step_and_rate(row: _Row) -> Text:
    step, rate = row.result.step_ms, row.result.samples_per_second
    return row.figure(units.plain_milliseconds(step.median), step.reason, units.rate(rate) if rate is not None else "")


def _share(row: _Row, estimate: Estimate) -> Text:
    margin = units.share_margin(estimate.value, estimate.ci95)
    return row.figure(units.share(estimate.value), estimate.reason, margin)


def _utilization(row: _Row) -> Text:
    estimate = row.result.accelerator_utilization
    return row.figure(units.fraction(estimate.value), estimate.reason, units.margin(estimate.value, estimate.ci95))


def _device(row: _Row) -> Text:
    used = row.result.device_utilization
    return row.figure(units.percent(used.mean_percent), used.reason, units.percent_margin(used.mean_percent, used.ci95))


def _speedup(row: _Row) -> Text:
    speedup = row.result.speedup
    if speedup.over == row.result.variant and speedup.value is None:
        return Text("1×", justify="right")  # what the others are held against is no missing figure
    return row.figure(units.ratio(speedup.value), speedup.reason, units.margin(speedup.value, speedup.ci95))


def _accuracy(row: _Row) -> Text:
    accuracy = row.result.accuracy
    if accuracy.before is None and accuracy.after is None:
        return row.figure(units.NOT_MEASURED, row.result.missing.get("accuracy"))
    return Text(f"{units.share(accuracy.before)} → {units.share(accuracy.after)}", justify="right")


def _legend() -> Text:
    legend = Text("a step\n", justify="left")
    for name, block, colour in _PARTS:
        legend.append(block, style=colour).append(f"{name} ")
    return legend


def _bar(row: _Row) -> Text:
    """The step's three parts as lengths; a part below nothing, which noise can make, has none."""
    result = row.result
    shares = (result.input_wait_share, result.accelerator_utilization, result.host_slowdown_share)
    values = [max(0.0, share.value) for share in shares if share.value is not None]
    if len(values) < len(_PARTS) or not sum(values):
        return Text()
    bar, reached, drawn = Text(justify="left"), 0.0, 0
    for value, (_, block, colour) in zip(values, _PARTS, strict=True):
        reached += value / sum(values)
        cells = round(reached * _BAR_CELLS) - drawn  # rounding the ends, not the lengths, keeps the bar's length
        bar.append(block * cells, style=colour)
        drawn += cells
    return bar


def _instrument(session: Session, source: str) -> str:
    """How a device utilization was had; the CPU's needs saying, because it is not what a GPU's is."""
    if session.environment.accelerator_kind == "gpu":
        return source
    cores = units.count(session.environment.cores, "core")
    return f"the trial's CPU time ÷ (wall time × {cores}), the input's work included"


def _captions(session: Session, width: int, rows: Sequence[_Row]) -> list[Text]:
    """What the heads have no room to say: instruments, references and the meaning of the small figures."""
    utilizations = [row.result.device_utilization for row in rows]
    sources = dict.fromkeys(one_line(u.source) for u in utilizations if u.source and u.mean_percent is not None)
    overs = dict.fromkeys(variant_name(r.speedup.over) for r in session.results if r.speedup.over is not None)
    captions = ["ms/step: the median; all other figures are from means"]
    if busy := words.busy_time(session):
        sources.pop(BUSY_TIME, None)
        captions.append(busy)
    captions += [f"{session.environment.accelerator_kind.upper()} util.: {_instrument(session, s)}" for s in sources]
    captions += [
        f"speed-up: samples/s over those of {over}; called a difference where it is one at 99 %" for over in overs
    ]
    if any(result.step_ms.ci95 is not None for result in session.results):
        captions.append("±: the wider side of the 95 % interval over trials")
    alone = dict.fromkeys(r.step_ms.reason for r in session.results if r.step_ms.median is not None)
    captions += [f"no ±: {one_line(reason)}" for reason in alone if reason]
    step = "AU, accelerator utilization: the ceiling's step time ÷ the variant's, its compute part"
    ceilings = (
        "ceiling: the same model on one batch that sits on the device; that batch over and over: its loss says nothing"
    )
    captions += [text for text in (step, ceilings if any(row.is_ceiling for row in rows) else "") if text]
    captions += _warmups(rows)
    return [Text(caption, style="dim") for caption in captions]


def _warmups(rows: Sequence[_Row]) -> list[str]:
    """How many steps were left out at the start of the trials, which is also how long a variant took to be steady."""
    spans = []
    for result in (row.result for row in rows):
        if result.warmup_steps:
            few, many = min(result.warmup_steps), max(result.warmup_steps)
            spans.append(f"{variant_name(result.variant)}: {few if few == many else f'{few} to {many}'}")
    return [f"warm-up left out, steps per trial: {'; '.join(spans)}"] if spans else []
