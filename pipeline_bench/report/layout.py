"""The pieces that every report in a terminal is laid out with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

DETAILS = "--details of report"
"""What shows all of a session: an option of `pipeline-bench report`, which needs no name of the last one."""
_Key = TypeVar("_Key")


def spaced(sections: Iterable[RenderableType | None]) -> Group:
    """Return the sections with an empty line between them; None is left out."""
    parts = [part for section in sections if section is not None for part in (section, Text())]
    return Group(*parts[:-1])


def group(lines: Iterable[RenderableType]) -> RenderableType | None:
    """Return lines one below the other; None where there is none."""
    shown = list(lines)
    return Group(*shown) if shown else None


def beside(*rows: tuple[str | Text, Text]) -> RenderableType:
    """Return texts, each behind a mark or a name, whose further lines are aligned with their first."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def headline(text: str) -> RenderableType:
    """Return the sentence that every report begins with."""
    return beside(("→", Text(text, style="bold")))


def fitting(widths: Mapping[_Key, int], dropped: Iterable[_Key], room: int) -> list[_Key]:
    """Return the columns to show, in their order: a figure that is cut would be another figure.

    Args:
        widths: of each column, with the gap beside it, in cells.
        dropped: those that go one after the other until the rest has room; another stays.
        room: cells for all of them.
    """
    kept = dict(widths)
    for key in dropped:
        if sum(kept.values()) <= room:
            break
        kept.pop(key, None)
    return [*kept]


def headed(*heads: str, fold: bool = False) -> Table:
    """Return an empty table of figures behind a name; `fold`: a figure that does not fit goes on in the next line."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(heads[0], overflow="fold")
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=not fold, overflow="fold" if fold else "ellipsis")
    return table
