"""What a job's steps come to while it runs, in figures and in one line. Pure.

A job has no ceiling beside it. What it shows is how long its steps wait; that a step without its wait would be the
model's own, and the device busy for all of it, is the best that could be. So 1 minus the share of the wait is the most
that the accelerator utilization can be, and is shown as that.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_bench.analysis import verdicts
from pipeline_bench.analysis.measured import NEEDED_STEPS
from pipeline_bench.model.result import Verdict
from pipeline_bench.monitoring.steps import Totals
from pipeline_bench.text import units


@dataclass(frozen=True)
class JobSummary:
    """A job, or an epoch of it, so far; None where nothing was measured, and the reason."""

    steps: int
    step_ms: float | None
    """Milliseconds from the start of a step to the start of the next one, on average."""
    input_wait_ms: float | None
    """Milliseconds that a step was blocked for its batch, on average."""
    input_wait_share: float | None
    """Of the steps' time, 0 to 1."""
    utilization_at_most: float | None
    """What the accelerator utilization cannot exceed, 0 to 1: the rest of the step; None where a GPU may have been
    busy while the loop waited."""
    device_utilization_percent: float | None
    """What the device said of itself meanwhile, 0 to 100."""
    device_utilization_source: str | None
    verdict: Verdict
    reason: str | None = None
    """Why the input wait was not measured."""

    @property
    def line(self) -> str:
        """The summary in one line."""
        step = f"{units.count(self.steps, 'step')} of {units.milliseconds(self.step_ms)}"
        if self.input_wait_share is None:
            wait = f"input wait not measured: {self.reason or 'no step has ended'}"
            return "; ".join([step, wait, *self._device()])
        wait = f"input wait {units.milliseconds(self.input_wait_ms)} ({units.share(self.input_wait_share)})"
        au = (
            f"AU at most {units.fraction(self.utilization_at_most)}" if self.utilization_at_most is not None else "AU –"
        )
        name = "not input-bound"
        if self.verdict.kind == "input-bound":
            name = f"{'severely ' if self.verdict.severe else ''}input-bound"
        elif self.steps < NEEDED_STEPS:
            name = "too few steps for a verdict"
        return "; ".join([step, wait, au, *self._device(), name])

    def _device(self) -> list[str]:
        if self.device_utilization_percent is None:
            return []
        return [f"device {units.percent(self.device_utilization_percent)} ({self.device_utilization_source})"]


def summary(
    totals: Totals, utilization: tuple[float | None, str | None], reason: str | None, bounded: bool = True
) -> JobSummary:
    """The figures of some steps.

    Args:
        totals: of the steps.
        utilization: the device's in percent and its source; both None where it was not sampled.
        reason: why waits were not measured, where they were not.
        bounded: whether the device is idle while the loop waits; else the rest of the step bounds nothing.
    """
    share = totals.wait_share
    reason = None if share is not None else reason or "no step has ended"
    return JobSummary(
        steps=totals.steps,
        step_ms=totals.step_ms,
        input_wait_ms=totals.wait_ms,
        input_wait_share=share,
        utilization_at_most=None if share is None or not bounded else 1 - share,
        device_utilization_percent=utilization[0],
        device_utilization_source=utilization[1],
        verdict=verdict(totals.step_ms, totals.wait_ms, share, totals.steps, reason, bounded),
        reason=reason,
    )


def verdict(
    step_ms: float | None,
    wait_ms: float | None,
    share: float | None,
    steps: int,
    reason: str | None,
    bounded: bool,
) -> Verdict:
    """The verdict of `verdicts.judge_watched`, never a severe one where a GPU may have been busy during the wait."""
    found = verdicts.judge_watched(step_ms, wait_ms, share, steps, reason)
    if bounded or found.kind != "input-bound":
        return found
    text = f"{found.text.removeprefix('severely ')} The GPU may have been busy meanwhile, so it can be much less."
    return found.model_copy(update={"severe": False, "text": text})
