"""Disturbances of the GPU: a clock held down or lower than beside it, and other processes that have the GPU open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipeline_bench.analysis.disturbances.measured import MeasuredTrial, stands_out, without
from pipeline_bench.model.result import Disturbance
from pipeline_bench.text import one_line, units

# nvmlClocksEventReasons (nvml.h). Left out on purpose: idle (0x1), the clocks that a user set (0x2, 0x10, 0x100).
_HELD_DOWN = {
    0x08: "a hardware slowdown",
    0x20: "its temperature (driver)",
    0x40: "its temperature (hardware)",
    0x80: "an external power brake",
}
_POWER_CAP = 0x04

# Half of the share from which a verdict names a cause (verdicts.BOUND_SHARE).
THROTTLED_SHARE = 0.05
CLOCK_DIFFERENCE = 0.05

# A starved GPU lowers its clock by itself, which is no disturbance: only samples of a GPU that is at work count.
_BUSY_PERCENT = 50.0
_FEWEST_SAMPLES = 5


def find(trials: Sequence[MeasuredTrial]) -> Iterator[Disturbance]:
    """The disturbances of all trials that ran on a GPU."""
    on_gpu = [trial for trial in trials if trial.record.device is not None and trial.record.device.kind == "gpu"]
    clocks = {id(trial): _busy_clock_mhz(trial) for trial in on_gpu}
    highest = max((max(clock, default=0.0) for clock in clocks.values() if clock is not None), default=None)
    for trial in on_gpu:
        yield from _contention(trial)
    for variant in dict.fromkeys(trial.variant for trial in on_gpu):
        repeats = [trial for trial in on_gpu if trial.variant == variant]
        yield from _throttling(repeats, highest)
        lags = [_lag(trial, on_gpu, clocks) for trial in repeats]
        for index, (trial, (lag, text)) in enumerate(zip(repeats, lags, strict=True)):
            if stands_out(lag, without([lag for lag, _ in lags], index), CLOCK_DIFFERENCE):
                yield trial.disturbance("gpu-clock", lag, text)


def _contention(trial: MeasuredTrial) -> Iterator[Disturbance]:
    """Others that have the GPU open; whether they use it NVML does not say, so that the cost is not known.

    The trial is one of those that NVML lists, unless it lists none, as in some containers: then nothing is known.
    """
    processes = trial.sampled("device_processes")
    if processes is None or (others := round(float(processes.values.max())) - 1) < 1:
        return
    who = "another process" if others == 1 else f"{others} other processes"
    yield trial.disturbance("gpu-contention", None, f"{who} had the GPU open; NVML does not say how much they used it")


def _throttling(repeats: Sequence[MeasuredTrial], highest_mhz: float | None) -> Iterator[Disturbance]:
    """A clock that heat, hardware or power held down; a power cap only where not every repeat meets it.

    Many GPUs reach their power cap under any full load, so that it is then the variant's own.
    """
    capped = [_share_with(trial, _POWER_CAP) for trial in repeats]
    for index, trial in enumerate(repeats):
        held = {name: _share_with(trial, bit) for bit, name in _HELD_DOWN.items()}
        if stands_out(capped[index], without(capped, index), THROTTLED_SHARE):
            held["its power cap"] = capped[index]
        name = max(held, key=lambda each: held[each])
        if held[name] < THROTTLED_SHARE:
            continue
        text = f"{name} held the GPU's clock down for {units.share(held[name])} of the time"
        yield trial.disturbance("gpu-throttling", _clock_loss(trial, highest_mhz), text)


def _share_with(trial: MeasuredTrial, bit: int) -> float:
    """The share of the measured time in which the clock was held down for that reason; 0 where it was not sampled."""
    reasons = trial.sampled("device_throttle_reasons")
    return 0.0 if reasons is None else reasons.share((reasons.values.astype(np.int64) & bit) != 0)


def _clock_loss(trial: MeasuredTrial, highest_mhz: float | None) -> float | None:
    """What the trial's mean clock lacks of the session's highest: the most that it can have cost."""
    clock = trial.sampled("device_sm_clock_mhz")
    return 1 - clock.mean() / highest_mhz if clock is not None and highest_mhz else None


def _busy_clock_mhz(trial: MeasuredTrial) -> list[float] | None:
    """The clock, sample by sample, while the GPU was at work; None where that is not known, or hardly ever was."""
    clock, used = trial.sampled("device_sm_clock_mhz"), trial.sampled("device_utilization_percent")
    if clock is None or used is None:
        return None
    busy = np.interp(clock.at_ns, used.at_ns, used.values) >= _BUSY_PERCENT
    return clock.values[busy].tolist() if busy.sum() >= _FEWEST_SAMPLES else None


def _lag(
    trial: MeasuredTrial, trials: Sequence[MeasuredTrial], clocks: dict[int, list[float] | None]
) -> tuple[float, str]:
    """How far the trial's clock lay below another's of its repeat, or fell within it, relative; and which in words."""
    own = clocks[id(trial)]
    if not own:
        return 0.0, ""
    third = max(1, len(own) // 3)
    before, after = float(np.median(own[:third])), float(np.median(own[-third:]))
    fall = 1 - after / before if before > 0 else 0.0
    beside = {other.variant: clocks[id(other)] for other in trials if other.repeat == trial.repeat}
    medians = {name: float(np.median(clock)) for name, clock in beside.items() if clock}
    fastest = max(medians, key=lambda name: medians[name])
    mine = float(np.median(own))
    lag = 1 - mine / medians[fastest] if medians[fastest] > 0 else 0.0
    if fall > lag:
        return fall, f"the GPU's clock fell from {before:.0f} to {after:.0f} MHz while it was at work"
    return lag, f"the GPU ran at {mine:.0f} MHz, beside {medians[fastest]:.0f} MHz for {one_line(fastest)}"
