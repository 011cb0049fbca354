"""The live screens and the plain lines of a run, and here the pieces that the screens are made of.

None of them changes its size while values change.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Return the latest `width` values as block characters, the newest at the right, blank where there is none.

    Args:
        values: 0 to 100, oldest first; None where nothing was measured.
        width: how many characters.
    """
    latest = values[-width:] if width > 0 else ()
    return "".join(map(_block, latest)).rjust(max(0, width))


def _block(value: float | None) -> str:
    if value is None or math.isnan(value):
        return " "
    level = int(min(100.0, max(0.0, value)) / 100 * len(_BLOCKS))
    return _BLOCKS[min(level, len(_BLOCKS) - 1)]


def cut(text: Text, width: int) -> Text:
    """Return the text on one line of at most `width` cells."""
    text.truncate(width, overflow="ellipsis")
    text.no_wrap = True
    return text


def filled(text: str, width: int, lines: int, style: str = "") -> Text:
    """Return the text on exactly so many lines, broken between words and cut where it needs more."""
    broken = textwrap.wrap(text, max(8, width), max_lines=lines, placeholder=" …", subsequent_indent="  ")
    return Text("\n").join(cut(Text(line, style=style), width) for line in (broken + [""] * lines)[:lines])


def overall_bar(done: float, total: float, figures: str, width: int) -> Table:
    """Return the bar of the whole session, as long as the figures beside it leave room for."""
    bar_cells = max(4, min(40, width - Text(figures).cell_len - 2))
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=bar_cells)
    table.add_column(no_wrap=True, overflow="crop")
    table.add_row(ProgressBar(total=total, completed=min(done, total), width=bar_cells), Text(figures))
    return table


def figure_table(
    name: str, name_cells: int, columns: Sequence[tuple[str, int, bool]], *, marked: bool = False
) -> Table:
    """Return an empty table of columns that keep their width.

    Args:
        name: head of the first column, whose texts may be cut.
        name_cells: its width.
        columns: the head, the width and whether it is aligned to the right, of each other column.
        marked: whether a column of one cell comes before the first.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    if marked:
        table.add_column("", width=1, no_wrap=True)
    table.add_column(name, width=name_cells, no_wrap=True, overflow="ellipsis")
    for head, cells, right in columns:
        table.add_column(head, width=cells, justify="right" if right else "left", no_wrap=True, overflow="crop")
    return table
