"""A difference as a terminal shows it: what makes it unfair, the variants' changes, the machine's own, the gates."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline_bench.model.difference import Difference, Outcome, Ratio, Shift, VariantChange
from pipeline_bench.report import diff_words as words
from pipeline_bench.report import palette
from pipeline_bench.report.step_table import variant_name
from pipeline_bench.text import one_line, units

_WIDE = 136
_POINTS_WIDE = 120
_OUTCOMES: dict[Outcome, str] = {"passed": "green", "failed": "bold red", "undecided": "cyan"}
_DIFFERENCES = {"faster": "green", "slower": "red", "none": ""}


def render(difference: Difference, width: int) -> RenderableType:
    """Everything that a difference says, for a terminal of that many columns."""
    sections = [
        Text(words.headline(difference), style="bold"),
        _heading(difference),
        _lines("This comparison is not fair; not the same in both sessions:", words.unfair(difference), "yellow"),
        _lines("Disturbances, which are not the variants':", words.noises(difference), "yellow"),
        _wide(difference) if width >= _WIDE else _stacked(difference, width >= _POINTS_WIDE),
        _sentences(difference),
        _lines("", (*words.machine(difference), *words.alone(difference)), ""),
        _lines("", _notes(difference, width), "dim"),
        _gates(difference),
    ]
    spaced = [part for section in sections if section is not None for part in (section, Text())]
    return Group(*spaced[:-1])


def _notes(difference: Difference, width: int) -> list[str]:
    points = [words.POINTS_NOTE] if width >= _POINTS_WIDE else []
    return [f"{'; '.join([words.INTERVAL_NOTE, *points])}.", f"{words.au_note(difference)}."]


def _heading(difference: Difference) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(Text("before", style="bold"), Text(words.side(difference.before), overflow="fold"))
    grid.add_row(Text("after", style="bold"), Text(words.side(difference.after), overflow="fold"))
    return grid


def _lines(head: str, lines: Iterable[str], style: str) -> RenderableType | None:
    shown = [Text(line, style=style) for line in lines]
    if not shown or not head:
        return Group(*shown) if shown else None
    # What does not fit its line goes on further in, so that it is not taken for another one.
    grid = Table.grid(padding=0)
    grid.add_column(width=2)
    grid.add_column(overflow="fold")
    for line in shown:
        grid.add_row("", line)
    return Group(Text(head, style=f"bold {style}".strip()), grid)


def _wide(difference: Difference) -> Table:
    """One line a variant, both sessions side by side."""
    table = _table("variant", "ms/step", "change", "beside the ceiling", "AU", "input wait", "verdict")
    for change in words.variants(difference):
        table.add_row(*_cells(change, between=" → ", gap=" ", points=True))
    return table


def _stacked(difference: Difference, points: bool) -> Table:
    """Two lines a variant: before over after; the changes of the shares in points, where there is room for them."""
    table = _table("variant", "ms/\nstep", "change", "beside\nceiling", "AU", "input\nwait", "verdict")
    for change in words.variants(difference):
        table.add_row(*_cells(change, between="\n", gap="\n", points=points))
    return table


def _cells(change: VariantChange, between: str, gap: str, points: bool) -> list[Text]:
    """A variant's row: `between` stands between before and after, `gap` before an interval."""
    au, wait = change.accelerator_utilization, change.input_wait_share
    step = (units.plain_milliseconds(change.step_ms_before), units.plain_milliseconds(change.step_ms_after))
    return [
        _name(change),
        Text(between.join(step)),
        _ratio(change.step_time, gap),
        _ratio(change.beside_ceiling, gap),
        _shift(units.fraction(au.before), units.fraction(au.after), au if points else None, between),
        _shift(units.share(wait.before), units.share(wait.after), wait if points else None, between),
        _verdict(change, between),
    ]


def _table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(heads[0], overflow="fold")
    for head in heads[1:-1]:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column(heads[-1], overflow="fold")
    return table


def _name(change: VariantChange) -> Text:
    return Text(variant_name(change.variant), style="dim" if change.is_ceiling else "bold")


def _ratio(ratio: Ratio, gap: str) -> Text:
    text = Text(units.change(ratio.value), style=_DIFFERENCES.get(ratio.difference or "none", ""))
    if ratio.ci95 is not None:
        ends = [units.change(end).removesuffix(" %") for end in ratio.ci95]
        text.append(f"{gap}({ends[0]} to {ends[1]})", style="dim")
    return text


def _shift(before: str, after: str, shift: Shift | None, gap: str) -> Text:
    text = Text(f"{before}{gap}{after}")
    points = words.points(shift) if shift is not None else ""
    return text.append(f" ({points})", style="dim") if points else text


def _verdict(change: VariantChange, gap: str) -> Text:
    after = Text(change.verdict_after, style=palette.VERDICTS[change.verdict_after])
    if change.verdict_before == change.verdict_after:
        return after
    return Text.assemble((change.verdict_before, palette.VERDICTS[change.verdict_before]), gap, after)


def _sentences(difference: Difference) -> RenderableType | None:
    lines = [change.text for change in words.variants(difference) if not change.is_ceiling]
    return _lines("", (one_line(line, words.TEXT_LIMIT) for line in lines), "")


def _gates(difference: Difference) -> RenderableType | None:
    if not difference.gates:
        return None
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for gate in difference.gates:
        text = f"{words.demand(gate)}: {one_line(gate.text, words.TEXT_LIMIT)}"
        grid.add_row(Text(words.outcome(gate), style=_OUTCOMES[gate.outcome]), Text(text))
    return grid
