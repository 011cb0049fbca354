"""A diagnosis as a terminal shows it: the conclusion, the tree, what to do, how far it can go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline_bench.model.diagnosis import Diagnosis, Limit
from pipeline_bench.model.session import Session
from pipeline_bench.report import diagnosis as words
from pipeline_bench.report import pipeline_tree
from pipeline_bench.report.attempts import Tried, tried
from pipeline_bench.report.diagnosis import Section
from pipeline_bench.report.layout import DETAILS, beside, fitting, headline
from pipeline_bench.report.pipeline_tree import StageRow
from pipeline_bench.text import units

_WIDE, _NARROW = 120, 72
_BAR_WIDE, _BAR = 12, 8
_LEAST_DRAWN = 0.005
"""The least share that has a bar: what is written as more than 0 %."""
_ROOM_FOR_MARK = 30
_LEAST_NAME = 12
"""A stage of which less is shown cannot be distinguished from another: the last columns go first."""
_INDENT = (0, 0, 0, 2)
_NUMBERS = ("own ms", "CPU ms")
"""The columns that are aligned to the right."""
_BOTTLENECK = "bold red"
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_OUTCOME_STYLES = {"proposed": "bold green", "faster": "green", "slower": "yellow", "refused": "red", "failed": "red"}


def sections(session: Session, diagnosis: Diagnosis, width: int) -> list[RenderableType]:
    """Return the parts of the report that are a diagnosis', in their order."""
    shown = words.sections(session, diagnosis)
    return [headline(words.headline(session)), *(_section(section, width) for section in shown)]


def _section(section: Section, width: int) -> RenderableType:
    more = f"  {section.more}" if section.more else ""
    parts: list[RenderableType] = [Text.assemble((section.title, "bold underline"), (more, "dim"))]
    if section.code:
        lines = (Text(line, _diff_style(line) if section.is_diff else "", overflow="fold") for line in section.code)
        parts.append(Padding(Group(*lines), _INDENT))
    parts += [Text(line, _BOTTLENECK if section.is_finding else "") for line in section.lines]
    if section.rows:
        parts.append(_tree_table(section.rows) if width >= _WIDE else _tree_lines(section.rows, width))
        parts += [Text(caption, "dim") for caption in pipeline_tree.captions(section.rows)]
    for head, tries in section.tries:
        parts += [*([Text()] if len(parts) > 1 else []), Text(f"{head}:", "dim"), *map(_attempt, tries)]
    if section.left_out:
        points = (("·", Text(f"{text}.", "dim")) for text in section.left_out)
        parts += [Text(), Text("Not tried:", "dim"), *map(beside, points)]
    return Group(*parts, *([_limits(section.limits, width)] if section.limits else []))


def failure(diagnosis: Diagnosis, width: int, most: int) -> RenderableType | None:
    """Return the last lines of the traceback of the user's own code; None where it did not fail."""
    lines = words.traceback_lines(diagnosis.traceback, most)
    return _section(Section(words.TRACEBACK, code=lines), width) if lines else None


def stages(diagnosis: Diagnosis, width: int, most: int) -> RenderableType | None:
    """Return the tree of stages alone, a line each, the costliest of many; None where it is not known.

    Of those that are left out, it counts none that a function builds for each element: these have no figures.
    """
    rows = pipeline_tree.rows(diagnosis)
    if not rows:
        return None
    costly = sorted(rows, key=lambda row: (row.is_bottleneck, row.share or 0.0), reverse=True)[:most]
    shown = [_tree_lines([row for row in rows if any(row is each for each in costly)], width, below=False)]
    left = sum(not row.is_inner for row in rows) - sum(not row.is_inner for row in costly)
    return Group(*shown, *([Text(f"  and {units.count(left, 'shorter stage')} ({DETAILS})", "dim")] if left else []))


def attempt_lines(session: Session, diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    """Yield a line for each fix that was tried, in the order of the report; a name gives way to what came of it."""
    for each in tried(session, diagnosis):
        if each.attempt.outcome not in ("not-tried", "pending"):
            line = Text("· ") + _lead(dataclasses.replace(each, interval=each.why_not or each.interval))
            name = Text(each.variant, "bold")
            name.truncate(max(1, name.cell_len - max(0, line.cell_len - width)), overflow="ellipsis")
            yield Text.assemble("· ", name, line[len("· ") + len(each.variant) :])


def _tree_table(rows: Sequence[StageRow]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("stage", overflow="fold", min_width=20)
    table.add_column("where", max_width=22, overflow="fold")
    for head in pipeline_tree.HEADS:
        table.add_column(head, justify="right" if head in _NUMBERS else "left", no_wrap=True)
    for row in rows:
        table.add_row(_name(row), Text(row.place, style="dim"), *_figures(row, _BAR_WIDE))
    return table


def _tree_lines(rows: Sequence[StageRow], width: int, *, below: bool = True) -> Group:
    """Return the tree for a narrow terminal: what has no column stands below its stage."""
    bar = _BAR if width >= _NARROW else 0
    columns = [
        ("own ms", 7, True),
        ("share", 5 + (bar and bar + 1), False),
        ("CPU ms", 7, True),
        ("parallel", min(12, max([9, *(len(row.parallelism) for row in rows)])), False),
    ]
    widths = {title: cells + 2 for title, cells, _ in columns}
    columns = columns[: len(fitting(widths, [*widths][:0:-1], width - _LEAST_NAME))]
    longest = max((_name(row).cell_len for row in rows), default=0)  # the figures stand beside the names
    room = min(max(longest, _ROOM_FOR_MARK), width - sum(cells + 2 for _, cells, _ in columns))
    head = "stage".ljust(room)
    head += "".join("  " + (title.rjust(cells) if right else title.ljust(cells)) for title, cells, right in columns)
    lines = [Text(head, style="dim", no_wrap=True)]
    for row in rows:
        line = _name(row, room)
        for figure, (_, cells, right) in zip(_figures(row, bar), columns, strict=False):
            figure.truncate(cells, overflow="ellipsis")
            blank = " " * (cells - figure.cell_len)
            line.append("  ").append_text(Text(blank) + figure if right else figure + Text(blank))
        lines += [line, *(_below(row, width) if below else [])]
    return Group(*lines)


def _name(row: StageRow, room: int | None = None) -> Text:
    """Return the guides and the stage's name, cut to `room` cells if given; the bottleneck's mark stays."""
    if row.is_inner:
        name, mark = Text(f"{row.guide} {row.label}", style="dim"), Text()
    else:
        style = _BOTTLENECK if row.is_bottleneck else "bold"
        name, mark = Text.assemble((f"{row.guide} ", "dim"), (row.label, style)), Text()
        if row.is_bottleneck:
            mark = Text(f" {words.MARK if room is None or room >= _ROOM_FOR_MARK else words.MARK[0]}", style)
    if room is not None:
        name.truncate(max(1, room - mark.cell_len), overflow="ellipsis")
        mark.append(" " * (room - name.cell_len - mark.cell_len))
    return name + mark


def _figures(row: StageRow, bar: int) -> Iterator[Text]:
    for head, figure in row.figures.items():
        if head == "share":
            part = row.share or 0.0
            cells = max(1, round(part * bar)) if bar and part >= _LEAST_DRAWN else 0
            share = Text(f"{figure:>5}").append(f" {'█' * cells}", style="red" if row.is_bottleneck else "cyan")
            share.rstrip()
            yield share
        else:
            yield Text(figure)


def _below(row: StageRow, width: int) -> list[Text]:
    buffer = f"buffer {row.buffer}" if row.buffer else ""
    said = ", ".join(part for part in (row.place, row.element, buffer) if part)
    rest = "  " if row.guide.startswith(("└", "─", " ")) else "│ " * (row.depth + 1)
    text = Text(f"{rest}  {said}", style="dim")
    text.truncate(width, overflow="ellipsis")
    return [text] if said and not row.is_inner else []


def _attempt(each: Tried) -> RenderableType:
    return beside(("·", _lead(each).append(". ").append(each.text, style="dim")))


def _lead(each: Tried) -> Text:
    return Text.assemble((each.variant, "bold"), ": ", (each.lead, _OUTCOME_STYLES.get(each.attempt.outcome, "")))


def _diff_style(line: str) -> str:
    return "bold" if line.startswith(("---", "+++")) else _DIFF_STYLES.get(line[:1], "")


def _limits(lines: Sequence[tuple[Limit, bool]], width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, show_header=False)
    table.add_column(overflow="fold", max_width=max(20, width // 3))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for each, is_reached in lines:
        style = "bold" if is_reached else ""
        figure = units.milliseconds(each.ms)
        table.add_row(Text(each.name, style), Text(figure, style), Text(each.text, "" if is_reached else "dim"))
    return table
