"""What a page says of a diagnosis: the tree as boxes on rails, what was tried, the code to write, the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline_bench.model.diagnosis import Limit
from pipeline_bench.report.attempts import Tried
from pipeline_bench.report.diagnosis import Section
from pipeline_bench.report.html import elements
from pipeline_bench.report.html.elements import Cell, Table, table
from pipeline_bench.report.pipeline_tree import StageRow
from pipeline_bench.text import units

_MARKS = {"+": "ins", "-": "del", "@": "at"}


@dataclass(frozen=True)
class Box:
    """A stage as it is drawn: its row, its rails and its bar."""

    row: StageRow
    rails: tuple[tuple[int, str], ...]
    """The place of each rail from the left, and its part that is drawn: ``full``, ``up``, ``down``, ``none``."""
    percent: float
    """The length of its bar, of the longest one."""
    colour: str


def boxes(rows: Sequence[StageRow]) -> list[Box]:
    """Return the stages of a tree as they are drawn."""
    longest = max((row.share or 0.0 for row in rows), default=0.0)
    last = max((index for index, row in enumerate(rows) if not row.is_inner), default=0)
    return [
        Box(
            row,
            _rails(row, index < last),
            round(100 * (row.share or 0.0) / longest, 1) if longest else 0.0,
            elements.INPUT_WAIT if row.is_bottleneck else elements.DEVICE,
        )
        for index, row in enumerate(rows)
    ]


def rails(drawn: Sequence[Box]) -> int:
    """Return how many rails the widest row has."""
    return max((box.row.depth + box.row.joins + 1 for box in drawn), default=0)


def _rails(row: StageRow, goes_on: bool) -> tuple[tuple[int, str], ...]:
    through = [(rail, "full") for rail in range(row.depth)]
    if row.is_inner:
        own = "full" if goes_on else "none"
    elif row.begins:
        own = "down" if goes_on else "none"
    else:
        own = "full" if goes_on else "up"
    joined = [(rail, "up") for rail in range(row.depth + 1, row.depth + row.joins + 1)]
    return (*through, (row.depth, own), *joined)


def attempts(caption: str, tries: Sequence[Tried]) -> Table:
    """Return a table of attempts."""
    return table(
        caption,
        tries,
        ("fix", lambda each: Cell(each.title, "" if each.title == each.variant else each.variant)),
        ("outcome", lambda each: Cell(each.outcome, whole=True)),
        ("gain", lambda each: Cell(each.gain, each.interval, whole=True)),
        ("remark", lambda each: f"{each.remark}." if each.remark else ""),
    )


def code(section: Section) -> Markup:
    """Return the lines of a traceback, or of a diff with those marked that are added and removed."""
    if not section.is_diff:
        return Markup("\n").join(section.code)
    made = []
    for text in section.code:
        mark = None if text.startswith(("---", "+++")) else _MARKS.get(text[:1])
        tag = "span" if mark in (None, "at") else mark
        kind = Markup(' class="{}"').format(mark or "file") if tag == "span" and text[:1] != " " else ""
        made.append(Markup("<{0}{1}>{2}</{0}>").format(tag, kind, text))
    return Markup("\n").join(made)


def limits(lines: Sequence[tuple[Limit, bool]]) -> Table:
    """Return what was reached and the limits as a table."""
    return table(
        "The time as it was reached, and if only one thing limited it",
        lines,
        ("", lambda line: line[0].name),
        ("at best", lambda line: Cell(units.milliseconds(line[0].ms), whole=True)),
        ("because", lambda line: line[0].text),
    )
