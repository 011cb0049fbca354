"""Tables of a page: cells with their interval below and their reason as a footnote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_bench.model.result import DeviceUtilization, Estimate, Interval
from pipeline_bench.model.session import Session
from pipeline_bench.text import one_line, units


@dataclass(frozen=True)
class Cell:
    """A figure, its interval or a remark below it, and where it is missing the reason; `whole` is never broken."""

    text: str
    under: str = ""
    reason: str | None = None
    remark: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under heads; the first cell of a row is its head."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why figures are missing: each reason once, in the order of its first mark."""
        found = (one_line(cell.reason or "") for row in self.rows for cell in row)
        return tuple(dict.fromkeys(reason for reason in found if reason))

    def mark(self, cell: Cell) -> str:
        """The number of the cell's footnote; empty where there is none."""
        reason = one_line(cell.reason or "")
        return str(self.reasons.index(reason) + 1) if reason else ""


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Cell | str]]) -> Table:
    """A table, with plain texts as cells."""
    made = tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows)
    return Table(caption, tuple(heads), made)


def milliseconds(value_ms: float | None, ci95: Interval | None, reason: str | None) -> Cell:
    """A time in ms, for a column whose head says so."""
    under = f"{units.plain_milliseconds(ci95[0])} to {units.plain_milliseconds(ci95[1])}" if ci95 else ""
    return _cell(units.plain_milliseconds(value_ms), under, reason)


def of_estimate_ms(estimate: Estimate) -> Cell:
    """An estimate in ms."""
    return milliseconds(estimate.value, estimate.ci95, estimate.reason)


def share(estimate: Estimate) -> Cell:
    """A share of the step in percent."""
    return _cell(units.share(estimate.value), share_range(estimate.ci95), estimate.reason)


def share_range(ci95: Interval | None) -> str:
    """The interval of a share, ``28 to 30 %``."""
    if ci95 is None:
        return ""
    low, high = units.share(ci95[0]), units.share(ci95[1])
    return f"{low.removesuffix(' %')} to {high}"


def fraction(estimate: Estimate) -> Cell:
    """A figure between 0 and 1, such as AU."""
    under = f"{units.fraction(estimate.ci95[0])} to {units.fraction(estimate.ci95[1])}" if estimate.ci95 else ""
    return _cell(units.fraction(estimate.value), under, estimate.reason)


def device(utilization: DeviceUtilization) -> Cell:
    """What the device reported of itself."""
    ci95 = utilization.ci95 and (utilization.ci95[0] / 100, utilization.ci95[1] / 100)
    return _cell(units.percent(utilization.mean_percent), share_range(ci95), utilization.reason)


def ratio(value: float | None, ci95: Interval | None, reason: str | None) -> Cell:
    """A ratio with its interval."""
    under = f"{units.ratio(ci95[0]).removesuffix('×')} to {units.ratio(ci95[1])}" if ci95 else ""
    return _cell(units.ratio(value), under, reason)


def _cell(text: str, under: str, reason: str | None) -> Cell:
    return Cell(text, under, reason if text == units.NOT_MEASURED else None)


def ceilings(session: Session) -> frozenset[str]:
    """The names of the variants that are the reference others are held against."""
    return session.scenario.ceilings
