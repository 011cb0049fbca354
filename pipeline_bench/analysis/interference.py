"""What disturbed a trial, from the trials' own records: other processes, a throttled CPU or GPU, a machine that drifts.

In its step times, a disturbance is what some repeats of a variant show and others do not; what all of them show is the
variant's own way, a queue that empties and fills, for one. What others took of the machine is a disturbance wherever it
is. Pure: the same trials give the same disturbances.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pipeline_bench import plugins
from pipeline_bench.analysis import step_interference, thresholds
from pipeline_bench.analysis.measured import throttled_cpus
from pipeline_bench.analysis.step_interference import MeasuredTrial, stands_out, without
from pipeline_bench.loops import Loop
from pipeline_bench.model.result import Disturbance
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.text import grouped, units

# nvmlClocksEventReasons (nvml.h). Left out on purpose: idle (0x1), the clocks that a user set (0x2, 0x10, 0x100).
_HELD_DOWN = {
    0x08: "a hardware slowdown",
    0x20: "its temperature (driver)",
    0x40: "its temperature (hardware)",
    0x80: "an external power brake",
}
_POWER_CAP = 0x04
_FEWEST_SAMPLES = 5


def find(trials: Sequence[TrialRecord], cores: int, scenario: Scenario | None = None) -> tuple[Disturbance, ...]:
    """Return everything that disturbed the trials that ended well, by variant as they first ran, and by repeat.

    Args:
        trials: those that have ended, in any order; what failed, or measured no step, is left out.
        cores: the cores that this process may use.
        scenario: whose trials they are; without it, a trial is taken to have the GPU open in one process.
    """
    measured = [trial for trial in map(MeasuredTrial.of, sorted(trials, key=lambda trial: trial.index)) if trial]
    variants = list(dict.fromkeys(trial.variant for trial in measured))
    found: list[Disturbance] = []
    for variant in variants:
        repeats = sorted((trial for trial in measured if trial.variant == variant), key=lambda trial: trial.repeat)
        found += [*step_interference.find(repeats), *_host(repeats, cores)]
    own = {} if scenario is None else {variant.name: _device_processes(variant) for variant in scenario.variants}
    found += _gpu(measured, own)
    return tuple(sorted(found, key=lambda each: (variants.index(each.variant), each.repeat)))


# --- the host --------------------------------------------------------------------------------------------------------


def _host(repeats: Sequence[MeasuredTrial], cores: int) -> Iterator[Disturbance]:
    """Yield the disturbances of one variant's repeats.

    Other processes and a hypervisor are no variant's own, so that they count where every repeat has them, too. What
    they take while an emulated device is busy is lost to nobody.
    """
    for trial in repeats:
        for found in (*_contention(trial), *_steal(trial)):
            yield found.model_copy(update={"cost_share": min(found.cost_share or 0.0, trial.host_share)})
    yield from _quota(repeats, cores)


def _contention(trial: MeasuredTrial) -> Iterator[Disturbance]:
    other, machine = trial.sampled("other_cpu_percent"), trial.sampled("machine_cpu_percent")
    if other is None or machine is None:
        return
    busy_percent = np.interp(other.at_ns, machine.at_ns, machine.values)
    full = busy_percent >= thresholds.SATURATED_PERCENT
    taken = np.where(full, other.values, 0.0) / 100
    cost_share = float(np.average(taken, weights=other.covers_ns))
    if cost_share < thresholds.CONTENTION_SHARE:
        return
    while_full = float(np.average(other.values[full], weights=other.covers_ns[full]))
    text = f"other processes took {units.percent(while_full)} of the machine's CPU"
    lasted = other.share(full)
    if lasted < 0.9:  # noqa: PLR2004 - said of the whole trial unless a visible part of it is meant
        text += f" for {units.share(lasted)} of its time"
    yield trial.disturbance("cpu-contention", cost_share, f"{text}, and almost none was idle")


def _steal(trial: MeasuredTrial) -> Iterator[Disturbance]:
    stolen = trial.sampled("steal_percent")
    if stolen is None or stolen.mean() / 100 < thresholds.STEAL_SHARE:
        return
    machine = trial.sampled("machine_cpu_percent")
    # Only what runs is stolen from: 10 % of the time of a core that is busy half of it is a fifth of its work.
    busy_percent = max(machine.mean() if machine is not None else 100.0, stolen.mean())
    text = f"the hypervisor gave {units.percent(stolen.mean())} of the machine's CPU to others"
    yield trial.disturbance("steal", stolen.mean() / busy_percent, text)


def _quota(repeats: Sequence[MeasuredTrial], cores: int) -> Iterator[Disturbance]:
    """Yield the time that a quota withheld; what every repeat lacks is the machine that the variant was given."""
    shares = [_throttled_share(trial, cores) for trial in repeats]
    known = [share for share in shares if share is not None]
    for trial, share in zip(repeats, shares, strict=True):
        if share is None or share < thresholds.QUOTA_SHARE:
            continue
        text = f"the CPU quota of its control group kept its threads waiting for {units.share(share)} of the time"
        yield trial.disturbance("cpu-throttling", share - min(known) if len(known) > 1 else None, text)


def _throttled_share(trial: MeasuredTrial, cores: int) -> float | None:
    """Return it as a share of the time of all CPUs that the trial may run on; None where it was not sampled."""
    grown = trial.grown("cpu_throttled_seconds")
    return None if grown is None else min(1.0, grown * 1e9 / throttled_cpus(trial.record, cores))


# --- the GPU ---------------------------------------------------------------------------------------------------------


def _device_processes(variant: Variant) -> int:
    """Return how many processes of a variant's own trial have a GPU open; 1 where its loop cannot be loaded.

    The workers of between_graph have a GPU each.
    """
    loop: Loop | None = plugins.make_if_known("loops", variant.loop.kind, variant.loop.options)
    return 1 if loop is None else loop.device_processes


def _gpu(trials: Sequence[MeasuredTrial], own_processes: Mapping[str, int]) -> Iterator[Disturbance]:
    """Yield the disturbances of all trials that ran on a GPU."""
    on_gpu = [trial for trial in trials if trial.record.on_gpu]
    clocks = {id(trial): _busy_clock_mhz(trial) for trial in on_gpu}
    highest = max((max(clock, default=0.0) for clock in clocks.values() if clock is not None), default=None)
    for trial in on_gpu:
        yield from _gpu_contention(trial, own_processes.get(trial.variant, 1))
    for repeats in grouped((trial.variant, trial) for trial in on_gpu).values():
        yield from _gpu_throttling(repeats, highest)
        lags = [_lag(trial, on_gpu, clocks) for trial in repeats]
        for index, (trial, (lag, text)) in enumerate(zip(repeats, lags, strict=True)):
            if stands_out(lag, without([lag for lag, _ in lags], index), thresholds.GPU_CLOCK_DIFFERENCE):
                yield trial.disturbance("gpu-clock", lag, text)


def _gpu_contention(trial: MeasuredTrial, own: int) -> Iterator[Disturbance]:
    """Yield others that have the GPU open; whether they use it NVML does not say, so that the cost is not known.

    The trial's own are among those that NVML lists, unless it lists none, as in some containers: then nothing is known.
    """
    processes = trial.sampled("device_processes")
    if processes is None or (others := round(float(np.max(processes.values))) - own) < 1:
        return
    who = "another process" if others == 1 else f"{others} other processes"
    yield trial.disturbance("gpu-contention", None, f"{who} had the GPU open; NVML does not say how much they used it")


def _gpu_throttling(repeats: Sequence[MeasuredTrial], highest_mhz: float | None) -> Iterator[Disturbance]:
    """Yield a clock that heat, hardware or power held down; a power cap only where not every repeat meets it.

    Many GPUs reach their power cap under any full load, so that it is then the variant's own.
    """
    capped = [_share_with(trial, _POWER_CAP) for trial in repeats]
    for index, trial in enumerate(repeats):
        held = {name: _share_with(trial, bit) for bit, name in _HELD_DOWN.items()}
        if stands_out(capped[index], without(capped, index), thresholds.GPU_THROTTLED_SHARE):
            held["its power cap"] = capped[index]
        name = max(held, key=lambda each: held[each])
        if held[name] < thresholds.GPU_THROTTLED_SHARE:
            continue
        text = f"{name} held the GPU's clock down for {units.share(held[name])} of the time"
        yield trial.disturbance("gpu-throttling", _clock_loss(trial, highest_mhz), text)


def _share_with(trial: MeasuredTrial, bit: int) -> float:
    """Return the share of the measured time in which the clock was held down for that reason; 0 where not sampled."""
    reasons = trial.sampled("device_throttle_reasons")
    return 0.0 if reasons is None else reasons.share((reasons.values.astype(np.int64) & bit) != 0)


def _clock_loss(trial: MeasuredTrial, highest_mhz: float | None) -> float | None:
    """Return what the trial's mean clock while at work lacks of the session's highest: the most that it can have cost.

    A GPU that waits for its input lowers its clock by itself.
    """
    clock = _busy_clock_mhz(trial)
    return 1 - float(np.mean(clock)) / highest_mhz if clock is not None and highest_mhz else None


def _busy_clock_mhz(trial: MeasuredTrial) -> list[float] | None:
    """Return the clock's samples while the GPU was at work; None where that is not known, or hardly ever was."""
    clock, used = trial.sampled("device_sm_clock_mhz"), trial.sampled("device_utilization_percent")
    if clock is None or used is None:
        return None
    busy = np.interp(clock.at_ns, used.at_ns, used.values) >= thresholds.GPU_BUSY_PERCENT
    return clock.values[busy].tolist() if busy.sum() >= _FEWEST_SAMPLES else None


def _lag(
    trial: MeasuredTrial, trials: Sequence[MeasuredTrial], clocks: dict[int, list[float] | None]
) -> tuple[float, str]:
    """Return how far the trial's clock lay below another's of its repeat, or fell, relative; and which in words."""
    own = clocks[id(trial)]
    if not own:
        return 0.0, ""
    third = max(1, len(own) // 3)
    before, after = float(np.median(own[:third])), float(np.median(own[-third:]))
    fall = 1 - after / before if before > 0 else 0.0
    beside = [other for other in trials if other.repeat == trial.repeat]
    medians = {other.variant: float(np.median(clock)) for other in beside if (clock := clocks[id(other)])}
    fastest = max(medians, key=lambda name: medians[name])
    mine = float(np.median(own))
    lag = 1 - mine / medians[fastest] if medians[fastest] > 0 else 0.0
    if fall > lag:
        return fall, f"the GPU's clock fell from {before:.0f} to {after:.0f} MHz while it was at work"
    return lag, f"the GPU ran at {mine:.0f} MHz, beside {medians[fastest]:.0f} MHz for {fastest}"
