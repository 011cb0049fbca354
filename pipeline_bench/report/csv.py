"""Session → CSV that a spreadsheet opens: one row a variant, raw numbers, empty where nothing was measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import COLUMNS

Cell = str | int | float | None

# A spreadsheet takes a cell that begins like this for a formula, and a scenario's names are anybody's (OWASP, "CSV
# Injection"). The wide forms count as the narrow ones where the language of the spreadsheet is Chinese or Japanese.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def render(session: Session) -> str:
    """Return a line of heads, then a line a variant (RFC 4180); a text that looks like a formula begins with ``'``."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_heads())
    writer.writerows([_safe(cell) for cell in _cells(result)] for result in session.results)
    return out.getvalue()


def _heads() -> Iterator[str]:
    for column in COLUMNS:
        if column.key:
            has_interval = column.unit is not None and column.unit.margin is not None
            yield from (f"{column.key}{end}" for end in (("", "_low", "_high") if has_interval else ("",)))


def _cells(result: Result) -> Iterator[Cell]:
    for column in COLUMNS:
        if column.key:
            figure = column.read(result)
            yield figure if column.unit is None else figure.value
            if column.unit is not None and column.unit.margin is not None:
                yield from figure.ci95 or (None, None)


def _safe(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
