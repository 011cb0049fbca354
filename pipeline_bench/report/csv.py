"""Session → CSV that a spreadsheet opens: one row a variant, raw numbers, empty where nothing was measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from pipeline_bench.model.result import Estimate, Interval, Result
from pipeline_bench.model.session import Session

Cell = str | int | float | None

# A spreadsheet takes a cell that begins like this for a formula, and a scenario's names are anybody's (OWASP, "CSV
# Injection"). The wide forms count as the narrow ones where the language of the spreadsheet is Chinese or Japanese.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def _ends(ci95: Interval | None, end: int) -> float | None:
    return ci95[end] if ci95 else None


def _interval(name: str, get: Callable[[Result], Interval | None]) -> dict[str, Callable[[Result], Cell]]:
    return {
        f"{name}_low": lambda result: _ends(get(result), 0),
        f"{name}_high": lambda result: _ends(get(result), 1),
    }


def _estimate(name: str, get: Callable[[Result], Estimate]) -> dict[str, Callable[[Result], Cell]]:
    return {name: lambda result: get(result).value, **_interval(name, lambda result: get(result).ci95)}


_COLUMNS: dict[str, Callable[[Result], Cell]] = {
    "variant": lambda result: result.variant,
    "backend": lambda result: result.backend,
    "status": lambda result: result.status,
    "reason": lambda result: result.reason,
    "trials": lambda result: result.trials,
    "steps": lambda result: result.steps,
    "step_ms_median": lambda result: result.step_ms.median,
    **_interval("step_ms_median", lambda result: result.step_ms.ci95),
    "step_ms_mean": lambda result: result.step_ms.mean,
    "step_ms_p05": lambda result: result.step_ms.p05,
    "step_ms_p95": lambda result: result.step_ms.p95,
    "samples_per_second": lambda result: result.samples_per_second,
    **_interval("samples_per_second", lambda result: result.samples_per_second_ci95),
    **_estimate("input_wait_share", lambda result: result.input_wait_share),
    **_estimate("host_slowdown_share", lambda result: result.host_slowdown_share),
    **_estimate("accelerator_utilization", lambda result: result.accelerator_utilization),
    "device_utilization_percent": lambda result: result.device_utilization.mean_percent,
    **_interval("device_utilization_percent", lambda result: result.device_utilization.ci95),
    "device_utilization_source": lambda result: result.device_utilization.source,
    "speedup": lambda result: result.speedup.value,
    **_interval("speedup", lambda result: result.speedup.ci95),
    "speedup_difference": lambda result: result.speedup.difference,
    "speedup_smallest": lambda result: result.speedup.smallest,
    "speedup_over": lambda result: result.speedup.over,
    "loss": lambda result: result.loss,
    "accuracy_before": lambda result: result.accuracy.before,
    "accuracy_after": lambda result: result.accuracy.after,
    "work_status": lambda result: result.work.status,
    "work_text": lambda result: result.work.text,
    "verdict": lambda result: result.verdict.kind,
    "verdict_text": lambda result: result.verdict.text,
    "emulated_device": lambda result: result.emulated,
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
