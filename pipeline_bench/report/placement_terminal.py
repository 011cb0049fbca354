"""The placement of a session's ops, as a terminal shows it: a line a device, never a line an op."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline_bench.model.session import Session
from pipeline_bench.report import placement
from pipeline_bench.text import one_line, units

_MOST_LINES = 24


def section(session: Session) -> RenderableType | None:
    """A line a variant and device, those alike together; None where nothing was asked for."""
    found = placement.found(session)
    if not found:
        return None
    lines = []
    for placed in found:
        if placed.reason is not None:
            lines.append((placed.name, "", Text(f"not known: {one_line(placed.reason)}", style="yellow")))
        for i, device in enumerate(placed.devices):
            name = one_line(device.device, 40)
            lines.append(("" if i else placed.name, name, Text(f"{units.count(device.ops, 'op')}: {device.text}")))
        if placed.not_kept:
            lines.append(("", "", Text(placed.not_kept, style="dim")))
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column()
    grid.add_column(no_wrap=True)
    grid.add_column()
    for variant, name, text in lines[:_MOST_LINES]:
        grid.add_row(Text(variant, style="bold"), Text(name), text)
    rest = [Text(f"and {units.count(len(lines) - _MOST_LINES, 'line')} more")] if len(lines) > _MOST_LINES else []
    end = Text("every op by name is in report.html and session.json", style="dim")
    return Group(Text("placement: which device ran the ops of a step", style="bold"), grid, *rest, end)
