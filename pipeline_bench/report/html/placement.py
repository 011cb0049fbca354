"""The placement of a session's ops on a page: a table of the devices, and every op folded away below."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_bench.model.session import Session
from pipeline_bench.report import placement
from pipeline_bench.report.html import tables
from pipeline_bench.report.html.tables import Cell, Table
from pipeline_bench.report.html.text import line
from pipeline_bench.text import units

_MOST_OPS = 1000


@dataclass(frozen=True)
class PlacementView:
    """What the page shows: the devices, and the ops of each placement with the words of its fold."""

    devices: Table
    method: str
    ops: tuple[tuple[str, Table], ...]


def view(session: Session) -> PlacementView | None:
    """The placement of the session's variants; None where none was asked for."""
    found = placement.found(session)
    if not found:
        return None
    rows: list[list[Cell | str]] = []
    for placed in found:
        if placed.reason is not None:
            not_known = Cell(units.NOT_MEASURED, "", line(placed.reason))
            rows.append([line(placed.name), not_known, units.NOT_MEASURED, units.NOT_MEASURED])
        rows += [
            [line(placed.name), line(device.device), f"{device.ops:,}", device.text or "none"]
            for device in placed.devices
        ]
    heads = ("variant", "device", "ops", "types")
    ops = tuple((_summary(placed), _ops(placed)) for placed in found if placed.ops)
    return PlacementView(tables.table("Which device ran the ops of a step", heads, rows), placement.METHOD, ops)


def _summary(placed: placement.Placed) -> str:
    kept = units.count(len(placed.ops), "op")
    kept = f"the first {_MOST_OPS:,} of {kept}, all in session.json" if len(placed.ops) > _MOST_OPS else kept
    rest = f"; {placed.not_kept}" if placed.not_kept else ""
    return line(f"The ops of {placed.name}: {kept}{rest}")


def _ops(placed: placement.Placed) -> Table:
    rows = [[line(op.name), line(op.type), line(op.device)] for op in placed.ops[:_MOST_OPS]]
    return tables.table(line(placed.name), ("op", "type", "device"), rows)
