"""The figures of a watched job: as a summary in one line, and as the result of its session. Pure.

A job has no ceiling beside it. What it shows is how long its steps wait; that a step without its wait would be the
model's own, and the device busy for all of it, is the best that could be. So 1 minus the share of the wait is the most
that the accelerator utilization can be, and is shown as that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_bench.analysis import measured, utilization, verdicts, watched
from pipeline_bench.analysis.results import step_time
from pipeline_bench.analysis.thresholds import BOUND_SHARE, NEEDED_STEPS, WATCHED_ERROR
from pipeline_bench.model.result import DeviceCopy, DeviceUtilization, Estimate, Result, Speedup, StepTime, Verdict
from pipeline_bench.model.selftest import Checked
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.monitoring.steps import Totals
from pipeline_bench.scenario import Scenario
from pipeline_bench.text import units
from pipeline_bench.text.units import NS_PER_MS

VARIANT = "job"
OWN = "own"
"""The kind of every part of a watched job: none of them is a plug-in."""
_NO_CEILING = "a job that is watched from within has no ceiling beside it"
_NO_STEP = "no step has ended"
_FEW_STEPS, _MOST_OF_WAIT = 0.05, 0.5
"""The share of a job's steps that are few, and of its wait that is most, 0 to 1."""
_MISSING = {
    "samples_per_second": "how many samples a step takes is not known of a watched job",
    "loss": "a watched job's loss is left to its own records",
    "accuracy": "a watched job's accuracy is left to its own records",
}


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
    disturbed: int = 0
    """Steps that other work took too much from: no figure is of them, where enough others are left."""

    @property
    def line(self) -> str:
        """The summary in one line."""
        steps = units.count(self.steps, "step")
        if self.disturbed:
            steps += f", {self.steps - self.disturbed:,} without other work beside them"
        steps += f"{',' * bool(self.disturbed)} of {units.milliseconds(self.step_ms)}"
        parts = [steps if self.steps else self.reason or _NO_STEP]
        if self.input_wait_share is None and self.steps:
            parts.append(f"input wait not measured: {self.reason}")
        elif self.input_wait_share is not None:
            wait = f"{units.milliseconds(self.input_wait_ms)} ({units.share(self.input_wait_share)})"
            bound = self.utilization_at_most
            au = f"AU {units.NOT_MEASURED}" if bound is None else f"AU at most {units.fraction(bound)}"
            parts += [f"input wait {wait}", au]
        if self.device_utilization_percent is not None:
            used = units.percent(self.device_utilization_percent)
            parts.append(f"device {used} ({self.device_utilization_source})")
        if self.input_wait_share is not None:
            few = self.steps < NEEDED_STEPS and self.verdict.kind != "input-bound"
            doubt = self.verdict.doubt and f" ({verdicts.doubt_interval(self.verdict.doubt)})"
            parts.append(f"{self.verdict_name}{f', {NEEDED_STEPS} are needed' * few}{doubt or ''}")
        return "; ".join(parts)

    @property
    def verdict_name(self) -> str:
        """The verdict in two words, for a line."""
        if self.verdict.kind == "input-bound":
            return verdicts.label(self.verdict)
        if self.steps and self.input_wait_share is None:
            return "no verdict"
        if self.steps < NEEDED_STEPS:
            return "too few steps for a verdict"
        return verdicts.first_words(self.verdict)


def summarise(
    totals: Totals,
    used: tuple[float | None, str | None],
    reason: str | None,
    device_waits: bool = True,
    diagnosable: bool = True,
) -> JobSummary:
    """Return the figures of some steps.

    Args:
        totals: of the steps.
        used: the device's utilization in percent and its source; both None where it was not sampled.
        reason: why waits were not measured, where they were not.
        device_waits: whether the device is idle while the loop waits; else the rest of the step bounds nothing.
        diagnosable: as for `watched.judge`.
    """
    share = totals.wait_share
    reason = None if share is not None else reason or _NO_STEP
    return JobSummary(
        steps=totals.steps,
        step_ms=totals.step_ms,
        input_wait_ms=totals.wait_ms,
        input_wait_share=share,
        utilization_at_most=None if share is None or not device_waits else 1 - share,
        device_utilization_percent=used[0],
        device_utilization_source=used[1],
        verdict=watched.judge(
            totals.step_ms,
            totals.wait_ms,
            share,
            totals.steps,
            reason,
            device_waits,
            utilization.of_gpu(*used),
            diagnosable,
            wait_error=WATCHED_ERROR,
        ),
        reason=reason,
    )


def of_result(result: Result, steps: int, device_waits: bool) -> JobSummary:
    """Return the figures of a job's saved result; it had so many steps. `device_waits` is as for `summarise`."""
    share = result.input_wait_share.value
    return JobSummary(
        steps=steps,
        step_ms=result.step_ms.mean,
        input_wait_ms=result.input_wait_ms.value,
        input_wait_share=share,
        utilization_at_most=None if share is None or not device_waits else 1 - share,
        device_utilization_percent=result.device_utilization.mean_percent,
        device_utilization_source=result.device_utilization.source,
        verdict=result.verdict,
        reason=result.input_wait_share.reason if share is None else None,
        disturbed=steps - result.steps if result.steps else 0,
    )


def result_of(
    scenario: Scenario,
    trial: TrialRecord,
    cores: int,
    checked: Checked,
    reason: str | None,
    waits: bool,
    diagnosable: bool = True,
) -> Result:
    """Return the figures of a job as one trial: there is no ceiling, and nobody said how many samples a step takes.

    Args:
        scenario: of the job.
        trial: its steps, and what was sampled meanwhile.
        cores: that it may use.
        checked: the last selftest of this machine.
        reason: why waits were not measured, where they were not.
        waits: whether the device is idle while the loop waits.
        diagnosable: as for `watched.judge`.
    """
    none, gone = Estimate(reason=_NO_CEILING), trial.reason
    common: dict[str, Any] = {
        "variant": VARIANT,
        "backend": OWN,
        "status": trial.status,
        "host_slowdown_ms": none,
        "host_slowdown_share": none,
        "ceiling_ms": none,
        "device_copy": DeviceCopy.without(_NO_CEILING),
        "missing": _MISSING,
    }
    if trial.steps is None:
        return Result(
            **common,
            reason=gone,
            step_ms=StepTime(reason=gone),
            input_wait_ms=Estimate(reason=reason or gone),
            input_wait_share=Estimate(reason=reason or gone),
            accelerator_utilization=none,
            device_utilization=DeviceUtilization(reason=gone),
            speedup=Speedup(reason=gone),
            verdict=verdicts.not_measured(str(gone)),
        )
    (run,) = measured.of(scenario, [trial], cores)[VARIANT].values()
    if _few_hold_the_wait(run):
        run = measured.Measured(run.every)
    step, used = step_time([run]), utilization.of([run], cores, checked.usable_windows, steps_alone=True)
    wait_ms = share = None
    error, why, bound = 0.0, reason or "no wait was measured", ""
    if run.mean_wait_ms is not None:
        share = min(1.0, run.mean_wait_ms / run.mean_ms)
        beside = measured.systematic_error("wait", run.device_kind, run.taken)
        error = math.hypot(WATCHED_ERROR, beside)
        wait_ms, why = share * run.mean_ms, str(step.reason)
        bound = f"; it is at most {units.fraction(1 - share)}, 1 - input wait" if waits else ""
    on_gpu = utilization.of_gpu(used.mean_percent, used.source)
    return Result(
        **common,
        trials=1,
        steps=run.steps,
        warmup_steps=(trial.warmup_steps,),
        step_ms=step,
        input_wait_ms=Estimate(value=wait_ms, reason=why),
        input_wait_share=Estimate(value=share, reason=why),
        accelerator_utilization=Estimate(reason=f"{_NO_CEILING}{bound}"),
        device_utilization=used,
        speedup=Speedup(over=VARIANT, reason="this is the variant that the others are compared with"),
        against_fastest=Speedup(over=VARIANT, reason="this is the fastest variant"),
        verdict=watched.judge(
            step.mean,
            wait_ms,
            share,
            run.steps,
            why,
            waits,
            on_gpu,
            diagnosable,
            wait_error=error,
            taken=run.taken,
        ),
    )


def _few_hold_the_wait(run: measured.Measured) -> bool:
    """Return whether few of the steps that count have most of a job's wait, as where each epoch begins with a fill.

    Then no step is left out for what other work took: which of the other steps are would decide the figure. Half of
    them left out, and none of three epochs' first, doubles what a step waits. A wait that others caused is in steps
    that do not count.
    """
    job, wait_ns = run.every, run.record.after_warmup("wait_ns")
    if wait_ns is None:
        return False
    count = np.ones(wait_ns.size) if job.steps is None else job.steps
    waited_ns, lasted_ns = np.maximum(wait_ns, 0) * count, (job.end_ns - job.start_ns) * count
    few_ns = np.sort(waited_ns[run.counts])[-max(1, int(_FEW_STEPS * wait_ns.size)) :].sum()
    return bool(few_ns >= max(_MOST_OF_WAIT * waited_ns.sum(), BOUND_SHARE / 2 * lasted_ns.sum()))


def disturbed_note(trial: TrialRecord, steps: int, result: Result) -> str | None:
    """Return which steps the figures of a job are not of, and what all take; None where they are of all."""
    if trial.steps is None or result.steps >= steps:
        return None
    all_of_it = measured.AllSteps(trial)
    took_ms = np.average((all_of_it.end_ns - all_of_it.start_ns) / NS_PER_MS, weights=all_of_it.steps)
    return (
        f"{steps - result.steps:,} of the job's {units.count(steps, 'step')} had other work beside them, and no figure "
        f"is of those: with them a step takes {units.milliseconds(float(took_ms))}"
    )
