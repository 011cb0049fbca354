"""What a variant's device said of itself during the measured steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline_bench.analysis import stats
from pipeline_bench.analysis.measured import Measured
from pipeline_bench.model.result import BUSY_TIME, CPU_TIME, DeviceUtilization

# The shortest window that the driver averages over (nvml.h, nvmlUtilization_t: 1/6 s to 1 s).
_NVML_WINDOW_NS = 1_000_000_000 // 6
# How far outside the measured steps a sample of CPU time may lie that an edge is interpolated from.
_CPU_EDGE_NS = 50_000_000


def of(runs: Sequence[Measured], cores: int) -> DeviceUtilization:
    """What the device said during the measured steps.

    NVML for a GPU, CPU time over wall time and cores for a CPU, the busy time over wall time for an emulated device.
    """
    device = runs[0].record.device
    if runs[0].emulated is not None:
        shares = [run.busy_share for run in runs if run.busy_share is not None]
        if not shares:
            return DeviceUtilization(source=BUSY_TIME, reason="the loop did not bring the emulated device's busy time")
        return _percent(BUSY_TIME, [100 * share for share in shares], sum(len(run.step_ms) for run in runs))
    if device is not None and device.kind == "cpu":
        return _cpu_utilization(runs, cores)
    by_source: dict[str, list[list[float]]] = {}
    reason = None
    for run in runs:
        for track in run.record.samples:
            if track.metric != "device_utilization_percent":
                continue
            reason = track.reason or reason
            if track.at_ns is not None and track.values is not None:
                at_ns = track.at_ns.unpack()
                # A sample speaks of the time before its stamp, so that the first ones would still see the warm-up.
                inside = (at_ns - _NVML_WINDOW_NS >= run.start_ns[0]) & (at_ns <= run.end_ns[-1])
                by_source.setdefault(track.source, []).append(track.values.unpack()[inside].tolist())
    source = max(by_source, key=lambda name: sum(map(len, by_source[name])), default=None)
    trials = [values for values in by_source[source] if values] if source else []
    if not trials:
        short = "no sample of the device lies wholly within the measured steps; run more steps"
        return DeviceUtilization(source=source, reason=reason or short)
    return _percent(str(source), [float(np.mean(values)) for values in trials], sum(map(len, trials)))


def _percent(source: str, of_trials: Sequence[float], samples: int) -> DeviceUtilization:
    """The mean over the trials, with its interval, which ends where a percentage has to."""
    ci95 = stats.mean_interval(of_trials)
    return DeviceUtilization(
        source=source,
        mean_percent=float(np.mean(of_trials)),
        ci95=ci95 and (max(0.0, ci95[0]), min(100.0, ci95[1])),
        samples=samples,
    )


def _cpu_utilization(runs: Sequence[Measured], cores: int) -> DeviceUtilization:
    source = CPU_TIME
    percents: list[float] = []
    samples = 0
    reason = None
    for run in runs:
        track = next((track for track in run.record.samples if track.metric == "cpu_seconds"), None)
        if track is None or track.at_ns is None or track.values is None:
            reason = track.reason if track else "the host sampler took no sample"
            continue
        first_ns, last_ns = int(run.start_ns[0]), int(run.end_ns[-1])
        at_ns = track.at_ns.unpack()
        near = (at_ns >= first_ns - _CPU_EDGE_NS) & (at_ns <= last_ns + _CPU_EDGE_NS)
        value = stats.cpu_utilization_percent(at_ns[near], track.values.unpack()[near], first_ns, last_ns, cores)
        if value is not None:
            percents.append(value)
            samples += int(near.sum())
    if 2 * len(percents) < len(runs):
        short = f"{len(runs) - len(percents)} of {len(runs)} trials were too short for two samples of CPU time"
        return DeviceUtilization(source=source, reason=reason or short)
    return _percent(source, percents, samples)
