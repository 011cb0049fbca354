"""Session → CSV that a spreadsheet opens: one row a variant, raw numbers, empty where nothing was measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from pipeline_bench.session import Estimate, Interval, Result, Session

Cell = str | int | float | None

# A spreadsheet takes a cell that begins like this for a formula, and a scenario's names are anybody's.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _ends(ci95: Interval | None, end: int) -> float | None:
    return ci95[end] if ci95 else None


def _estimate(name: str, get: Callable[[Result], Estimate]) -> dict[str, Callable[[Result], Cell]]:
    return {
        name: lambda result: get(result).value,
        f"{name}_low": lambda result: _ends(get(result).ci95, 0),
        f"{name}_high": lambda result: _ends(get(result).ci95, 1),
    }


_COLUMNS: dict[str, Callable[[Result], Cell]] = {
    "variant": lambda result: result.variant,
    "backend": lambda result: result.backend,
    "status": lambda result: result.status,
    "trials": lambda result: result.trials,
    "steps": lambda result: result.steps,
    "step_ms_median": lambda result: result.step_ms.median,
    "step_ms_median_low": lambda result: _ends(result.step_ms.ci95, 0),
    "step_ms_median_high": lambda result: _ends(result.step_ms.ci95, 1),
    "step_ms_mean": lambda result: result.step_ms.mean,
    "step_ms_p05": lambda result: result.step_ms.p05,
    "step_ms_p95": lambda result: result.step_ms.p95,
    "samples_per_second": lambda result: result.samples_per_second,
    **_estimate("input_wait_share", lambda result: result.input_wait_share),
    **_estimate("host_slowdown_share", lambda result: result.host_slowdown_share),
    **_estimate("accelerator_utilization", lambda result: result.accelerator_utilization),
    "device_utilization_percent": lambda result: result.device_utilization.mean_percent,
    "device_utilization_source": lambda result: result.device_utilization.source,
    "speedup": lambda result: result.speedup.value,
    "speedup_over": lambda result: result.speedup.over,
    "loss": lambda result: result.loss,
    "accuracy_before": lambda result: result.accuracy.before,
    "accuracy_after": lambda result: result.accuracy.after,
    "verdict": lambda result: result.verdict.kind,
    "verdict_text": lambda result: result.verdict.text,
}


def render(session: Session) -> str:
    """One line of heads, then a line a variant (RFC 4180); a text that looks like a formula is quoted with ``'``."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for result in session.results:
        writer.writerow([_safe(read(result)) for read in _COLUMNS.values()])
    return out.getvalue()


def _safe(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
