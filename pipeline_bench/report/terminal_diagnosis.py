"""A diagnosis as a terminal shows it: where it stands, the tree, what to do, how far it can go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline_bench.model.diagnosis import Diagnosis, Outcome
from pipeline_bench.model.session import Session
from pipeline_bench.report import diagnosis as words
from pipeline_bench.report import pipeline_tree
from pipeline_bench.report.diagnosis import Tried
from pipeline_bench.report.pipeline_tree import Row
from pipeline_bench.text import one_line, units

_WIDE, _NARROW = 120, 72
_BAR_WIDE, _BAR = 12, 8
_ROOM_FOR_MARK = 30
_INDENT = (0, 0, 0, 2)
_BOTTLENECK = "bold red"
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_OTHERS: dict[str, tuple[Outcome, ...]] = {
    "Tried, and not proven to make it faster:": ("no-gain", "pending"),
    "Tried, and not to be used:": ("slower", "refused", "failed"),
}
_OUTCOME_STYLES = {"proposed": "bold green", "faster": "green", "slower": "yellow", "refused": "red", "failed": "red"}


def sections(session: Session, diagnosis: Diagnosis, width: int) -> list[RenderableType]:
    """The parts of the report that are a diagnosis', in their order; a part without anything to say is left out."""
    tries = words.tried(session, diagnosis)
    parts = (
        headline(session, diagnosis),
        failure(diagnosis),
        _standing(session, diagnosis),
        _tree(session, diagnosis, width),
        _attempts(tries, diagnosis),
        _code(tries, diagnosis),
        _limits(session, diagnosis, width),
        _notes(diagnosis),
    )
    return [part for part in parts if part is not None]


def headline(session: Session, diagnosis: Diagnosis) -> RenderableType:
    """The sentence that the report begins with."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row("→", Text(words.headline(session, diagnosis), style="bold", overflow="fold"))
    return grid


def _head(text: str, more: str = "") -> Text:
    return Text.assemble((text, "bold underline"), (f"  {more}" if more else "", "dim"))


def failure(diagnosis: Diagnosis) -> RenderableType | None:
    """Return the traceback of the user's own code; None where it did not fail."""
    lines = words.traceback_lines(diagnosis.traceback)
    if not lines:
        return None
    shown = [Padding(Text(line, overflow="fold"), _INDENT) for line in lines]
    return Group(Text("Your function's own traceback:", style="bold red"), *shown)


def _standing(session: Session, diagnosis: Diagnosis) -> RenderableType | None:
    lines = words.standing(session, diagnosis)
    return Group(_head("Where it stands"), *map(Text, lines)) if lines else None


def _tree(session: Session, diagnosis: Diagnosis, width: int) -> RenderableType | None:
    rows = pipeline_tree.rows(diagnosis)
    if not rows:
        return None
    noun = words.element_noun(diagnosis)
    parts: list[RenderableType] = [_head("Which stage", f"from source to sink, each alone; ms a {noun}")]
    if said := words.bottleneck(session, diagnosis):
        found = diagnosis.bottleneck is not None and diagnosis.bottleneck.stage is not None
        parts.append(Text(said, style=_BOTTLENECK if found else ""))
    drawn = _tree_table(rows) if width >= _WIDE else _tree_lines(rows, width)
    parts += [drawn, *_tree_captions(rows)]
    return Group(*parts)


def stages(diagnosis: Diagnosis, width: int) -> RenderableType | None:
    """Return the tree of stages alone, a line each; None where it is not known."""
    rows = pipeline_tree.rows(diagnosis)
    return _tree_lines(rows, width, below=False) if rows else None


def attempt_lines(session: Session, diagnosis: Diagnosis) -> Iterator[Text]:
    """Yield a line for each fix that was tried, in the order of the report."""
    for each in words.tried(session, diagnosis):
        if each.attempt.outcome not in ("not-tried", "pending"):
            interval = f" ({each.interval})" if each.interval else ""
            said = f" {each.gain}{interval}" if each.gain != units.NOT_MEASURED else ""
            said += " (--details shows why)" if each.attempt.outcome == "failed" else ""
            yield Text.assemble("· ", (each.variant, "bold"), ": ", (each.outcome, _style(each)), said)


def _tree_table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("stage", overflow="fold", min_width=20)
    table.add_column("where", max_width=22, overflow="fold")
    for head in ("own ms", "share", "CPU ms", "parallel", "buffer", "element"):
        table.add_column(head, justify="right" if head.endswith("ms") else "left", no_wrap=True)
    for row in rows:
        name, place = _name(row), Text(row.place, style="dim")
        cells = [] if row.is_inner else [*_figures(row, _BAR_WIDE), Text(row.buffer), Text(row.element)]
        table.add_row(name, place, *cells)
    return table


def _tree_lines(rows: Sequence[Row], width: int, *, below: bool = True) -> Group:
    """On a narrow terminal: what has no column stands below its stage."""
    bar = _BAR if width >= _NARROW else 0
    columns = [
        ("own ms", 7, True),
        ("share", 5 + (bar and bar + 1), False),
        ("CPU ms", 7, True),
        ("parallel", 9, False),
    ]
    room = width - sum(cells + 2 for _, cells, _ in columns)
    head = "stage".ljust(room)
    head += "".join("  " + (title.rjust(cells) if right else title.ljust(cells)) for title, cells, right in columns)
    lines = [Text(head, style="dim", no_wrap=True)]
    for row in rows:
        line = _name(row, room)
        for figure, (_, cells, right) in zip([] if row.is_inner else _figures(row, bar), columns, strict=False):
            figure.truncate(cells, overflow="ellipsis")
            blank = " " * (cells - figure.cell_len)
            line.append("  ").append_text(Text(blank) + figure if right else figure + Text(blank))
        lines += [line, *(_below(row, width) if below else [])]
    return Group(*lines)


def _name(row: Row, room: int | None = None) -> Text:
    """The guides and the stage's name, cut to `room` cells where there is one; the mark of the bottleneck stays."""
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


def _figures(row: Row, bar: int) -> list[Text]:
    share = Text(f"{units.share(row.share):>5}")
    cells = max(1, round((row.share or 0) * bar)) if row.share and bar else 0
    share.append(f" {'█' * cells}", style="red" if row.is_bottleneck else "cyan")
    share.rstrip()
    parallelism = Text(row.parallelism)
    return [Text(units.plain_milliseconds(row.own_ms)), share, Text(units.plain_milliseconds(row.cpu_ms)), parallelism]


def _below(row: Row, width: int) -> list[Text]:
    buffer = f"buffer {row.buffer}" if row.buffer else ""
    said = ", ".join(part for part in (row.place, row.element, buffer) if part)
    rest = "  " if row.guide.startswith(("└", "─", " ")) else "│ " * (row.depth + 1)
    text = Text(f"{rest}  {said}", style="dim")
    text.truncate(width, overflow="ellipsis")
    return [text] if said and not row.is_inner else []


def _tree_captions(rows: Sequence[Row]) -> list[Text]:
    said = [pipeline_tree.SHARE, "parallel: as written, then as AUTOTUNE set it from first to last"]
    if any(row.buffer for row in rows):
        said.append(pipeline_tree.BUFFER)
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.reason:
            reasons.setdefault(row.reason, []).append(row.label)
    said += [f"{units.NOT_MEASURED} {', '.join(labels)}: {reason}" for reason, labels in reasons.items()]
    return [Text(text, style="dim") for text in said]


def _attempts(tries: Sequence[Tried], diagnosis: Diagnosis) -> RenderableType | None:
    if not tries:
        return None
    parts: list[RenderableType] = [_head("What to do", "each tried in processes of its own")]
    helping = [each for each in tries if each.helps]
    if helping:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("gain", justify="right", no_wrap=True)
        table.add_column("95 % interval", no_wrap=True)
        table.add_column("fix", overflow="fold")
        for each in helping:
            table.add_row(Text(each.gain, style=_style(each)), Text(each.interval), _described(each))
        parts.append(table)
    for head, outcomes in _OTHERS.items():
        if others := [each for each in tries if each.attempt.outcome in outcomes]:
            parts += [*([Text()] if len(parts) > 1 else []), Text(head, "dim"), *map(_other, others)]
    if left_out := words.left_out(tries, diagnosis):
        parts += [Text(), Text("Not tried:", "dim"), *(_point(Text(f"{text}.", "dim")) for text in left_out)]
    return Group(*parts)


def _described(each: Tried) -> Text:
    text = Text(each.variant, "bold")
    text.append(f"  {each.outcome}" if each.outcome == "proposed" else "", style=_style(each))
    said = [part for part in (_told(each), each.remark) if part]
    if said:
        text.append(f"\n{'. '.join(said)}.", style="dim")
    return text


def _told(each: Tried) -> str:
    """What a fix does, where its name is not all that is known."""
    return "" if each.title == each.variant else each.title.rstrip(".")


def _other(each: Tried) -> RenderableType:
    gain = f" {each.gain}" if each.gain != units.NOT_MEASURED else ""
    interval = f" ({each.interval})" if each.interval else ""
    head = Text.assemble((each.variant, "bold"), ": ", (each.outcome, _style(each)), f"{gain}{interval}. ")
    said = [part for part in (_told(each), each.remark) if part]
    return _point(head.append(f"{'. '.join(said)}." if said else "", style="dim"))


def _point(text: Text) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row("·", text)
    return grid


def _style(each: Tried) -> str:
    return _OUTCOME_STYLES.get(each.attempt.outcome, "")


def _code(tries: Sequence[Tried], diagnosis: Diagnosis) -> RenderableType | None:
    shown = words.code(tries, diagnosis)
    if shown is None:
        return None
    name, code = shown
    parts: list[RenderableType] = [_head("The code to write", f"for {name}; your files are not touched")]
    if code.diff:
        lines = words.diff_lines(code.diff)
        parts.append(Padding(Group(*(Text(line, _diff_style(line), overflow="fold") for line in lines)), _INDENT))
    if code.text:
        parts.append(Text(f"{'Besides: ' if code.diff else ''}{one_line(code.text)}"))
    return Group(*parts)


def _diff_style(line: str) -> str:
    return "bold" if line.startswith(("---", "+++")) else _DIFF_STYLES.get(line[:1], "")


def _limits(session: Session, diagnosis: Diagnosis, width: int) -> RenderableType | None:
    lines = words.limits(session, diagnosis)
    if not lines:
        return None
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, show_header=False)
    table.add_column(overflow="fold", max_width=max(20, width // 3))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for each in lines:
        style = "bold" if each.reached else ""
        figure = units.milliseconds(each.ms)
        table.add_row(Text(each.name, style), Text(figure, style), Text(each.text, "" if each.reached else "dim"))
    return Group(_head("How far it can go", f"the time of a {words.element_noun(diagnosis)} at best"), table)


def _notes(diagnosis: Diagnosis) -> RenderableType | None:
    notes = diagnosis.inspection.notes if diagnosis.inspection is not None else ()
    return Group(*(Text(f"note: {note}", style="yellow") for note in notes)) if notes else None
