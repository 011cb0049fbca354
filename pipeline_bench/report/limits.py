"""How far a user's pipeline can go: its limits as every report lists them, with what was reached among them."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_bench.model.diagnosis import AS_WRITTEN, Diagnosis
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.text import NAME, TEXT, one_line


@dataclass(frozen=True)
class LimitLine:
    """One limit beside what was reached."""

    name: str
    ms: float | None
    text: str
    reached: bool = False
    """Whether it was measured of the pipeline, and is no limit."""


def limits(session: Session, diagnosis: Diagnosis) -> list[LimitLine]:
    """Return the limits, the nearest first, with what was reached as it is written and with the fix among them."""
    if not diagnosis.limits:
        return []
    written_ms = reached_ms(diagnosis, session.find_result(AS_WRITTEN))
    lines = [LimitLine("as written", written_ms, "reached", True)] if written_ms else []
    proposed = session.find_result(diagnosis.proposal or "")
    if proposed is not None and proposed.step_ms.mean is not None:
        name = one_line(proposed.variant, NAME)
        lines.append(LimitLine(f"with {name}", proposed.step_ms.mean, "reached, with the proposed fix", True))
    for limit in diagnosis.limits:
        lines.append(LimitLine(one_line(limit.name, NAME), limit.ms, one_line(limit.text, TEXT)))
    return sorted(lines, key=lambda each: -each.ms if each.ms is not None else float("inf"))


def reached_ms(diagnosis: Diagnosis, result: Result | None) -> float | None:
    """Return the mean of a step, or of an element, as written; None where it was not measured."""
    return diagnosis.reached_ms or (result.step_ms.mean if result is not None else None)
