"""What limits a watched job, which has no ceiling beside it: its input, or not, and how sure that is."""

from __future__ import annotations

import math

from pipeline_bench.analysis import stats, thresholds, verdicts
from pipeline_bench.model.result import Doubt, InconclusiveCause, Verdict
from pipeline_bench.text import units


def judge(
    step_ms: float | None,
    wait_ms: float | None,
    wait_share: float | None,
    steps: int,
    reason: str | None,
    device_waits: bool,
    gpu_percent: float | None = None,
    diagnosable: bool = True,
    *,
    wait_error: float = 0.0,
    taken: float = 0.0,
) -> Verdict:
    """Return the verdict on a watched job, which has no ceiling beside it: input-bound, or inconclusive.

    How sure it is follows from how far the input wait lies from its threshold.

    Args:
        step_ms: milliseconds a step on average.
        wait_ms: milliseconds that a step waited for its batch on average.
        wait_share: the same as a share of the step, 0 to 1; None where it was not measured.
        steps: how many steps that is over.
        reason: why the wait was not measured.
        device_waits: whether the device is idle while the loop waits; the verdict is not a severe one otherwise.
        gpu_percent: the GPU's utilization meanwhile, 0 to 100; None without one, and where it was not sampled.
        diagnosable: whether `pipeline-bench diagnose` knows what it takes its batches from.
        wait_error: one standard deviation of the error with which `wait_share` was measured.
        taken: what others took of the CPU during those steps, 0 to 1.
    """
    if wait_share is None:
        why = (reason or "no step has ended").removesuffix(".")
        return verdicts.unjudged("not-measured", f"its input wait was not measured: {why}")
    few = steps < thresholds.NEEDED_STEPS
    if few and (steps < thresholds.PROBABLE_STEPS or wait_share < thresholds.PROBABLE_WAIT):
        reason = f"only {units.count(steps, 'step')} ended, {thresholds.NEEDED_STEPS} are needed"
        return verdicts.inconclusive(reason, "too-few-steps")
    waits = (
        f"waits {units.milliseconds(wait_ms)} of its mean step of {units.milliseconds(step_ms)} for the batch "
        f"({units.share(wait_share)})"
    )
    chance = 1.0 if few else _chance_above(thresholds.BOUND_SHARE, wait_share, wait_error)
    reach = stats.NORMAL_REACH * wait_error
    doubt = Doubt(
        figure="input wait",
        low=max(0.0, wait_share - reach),
        high=min(1.0, wait_share + reach),
        line=thresholds.BOUND_SHARE,
        rounds=0,
        taken_share=taken,
    )
    if 1 - thresholds.PROBABLE < chance < thresholds.PROBABLE:
        why = f"{waits}, which may be on either side of the threshold: {verdicts.doubt_text(doubt)}"
        how = "; `pipeline-bench diagnose` measures it beside the model alone" * diagnosable
        return verdicts.inconclusive(f"{why}{how}", "at-threshold", doubt)
    if chance < thresholds.PROBABLE:
        sure = chance <= 1 - thresholds.CERTAIN
        return _not_input_bound(waits, None if sure else doubt, gpu_percent, diagnosable)
    severe = device_waits and wait_share >= thresholds.SEVERE_SHARE
    caveat = "" if device_waits else ". The GPU may have been busy during the wait, so the gain can be much smaller"
    reason = (
        f"{waits}; without the wait it would be at most {verdicts.without_wait(wait_share)} as fast"
        f"{'; `pipeline-bench diagnose` finds the stage and tries fixes' * diagnosable}{caveat}"
    )
    if few:
        reason += f"; in doubt: only {units.count(steps, 'step')}"
        return verdicts.stated("input-bound", reason, severe=severe, sure=False)
    return verdicts.stated("input-bound", reason, severe=severe, doubt=None if chance >= thresholds.CERTAIN else doubt)


def _chance_above(line: float, value: float, error: float) -> float:
    """Return how probable it is that a figure lies on a line or above, of a normal error of that standard deviation."""
    if error <= 0:
        return float(value >= line)
    return (1 + math.erf((value - line) / error / math.sqrt(2))) / 2


def _not_input_bound(waits: str, doubt: Doubt | None, gpu_percent: float | None, diagnosable: bool) -> Verdict:
    """Return that a watched job's input is not its limit, probably where there is a doubt, and what the rest may be."""
    cause: InconclusiveCause
    if gpu_percent is not None and gpu_percent < thresholds.GPU_BUSY_PERCENT:
        cause = "gpu-idle"
        reason = (
            f"{waits}; the GPU runs kernels {units.percent(gpu_percent)} of the time: it waits for the host, "
            "for example for the copy of the batch, Python, or threads of the input on the same cores"
            f"{'; `pipeline-bench diagnose` measures the copy and the model alone' * diagnosable}"
        )
    else:
        cause = "only-not-input"
        reason = (
            f"{waits}; what takes the rest, the model, the host or the input's own work on the model's cores, is not "
            f"known without a ceiling{', which `pipeline-bench diagnose` measures' * diagnosable}"
        )
    return verdicts.inconclusive(reason, cause, doubt, sure=doubt is None)
