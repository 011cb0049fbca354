"""The selftest's parts on a GPU: known loads, run in a child, beside what NVML says of them at the sampler's settings.

Nothing of it was seen on a GPU yet; the arithmetic was tested against a stub of the driver and of NVML.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import thresholds
from pipeline_bench.model import Series
from pipeline_bench.model.selftest import Check, Copy, GpuRun, Part, Selftest, Window
from pipeline_bench.model.trial import ACTIVITY, SAMPLES_SOURCE, Track
from pipeline_bench.planted import gpu_loads
from pipeline_bench.run.child import call
from pipeline_bench.run.observer import Observer
from pipeline_bench.samplers import Reading
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.samplers.nvml_metrics import RATES, UTILIZATION
from pipeline_bench.samplers.nvml_metrics import SOURCE as GPM
from pipeline_bench.selftest import cases, judge

Change = Callable[[Selftest], Selftest]
_POLL_S = 0.2
"""As often as a trial is sampled (`run.follower`)."""
_LATE_NS = 1_500_000_000
"""A reading is kept with a run up to so long after its end: the longest window, and what a sample may come late."""
_SHARES, _QUICK_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0), (0.0, 0.25, 1.0)
_PERIODS_S, _QUICK_PERIODS_S = {5.0: 2.0, 20.0: 2.0, 100.0: 3.0, 500.0: 4.0, 2000.0: 8.0}, {20.0: 1.5, 1000.0: 3.0}
"""How long the runs of a period, in ms, last."""
_KERNELS = {"wide": 1.0, "one-SM": 0.0}
"""The share of the SMs that each is on; 0 for a single one."""
_SM_SHARES = (0.25, 0.5, 1.0)
_SIZES_BYTES, _QUICK_SIZES_BYTES = (1 << 20, 16 << 20, 256 << 20), (16 << 20,)
_ACTIVITY_S = 2.0
_LIMIT_S = 240.0
INSTRUMENTS = (SAMPLES_SOURCE, RATES.source)


def parts(sampler: NvmlSampler, observer: Observer, quick: bool) -> Iterator[tuple[str, Change]]:
    """Yield what is done on a GPU, a few dozen seconds each: its part, and what gives the selftest with its finding."""
    for period_ms, seconds in (_QUICK_PERIODS_S if quick else _PERIODS_S).items():
        yield cases.UTILIZATION, partial(_duty_cycles, sampler, observer, _duty(period_ms, seconds, quick))
    yield cases.ACTIVITY, partial(_activity, sampler, observer)
    yield cases.COPY, partial(_copies, observer, _QUICK_SIZES_BYTES if quick else _SIZES_BYTES)


def _duty(period_ms: float, seconds: float, quick: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{kernel}, {100 * share:.0f} % of {period_ms:g} ms",
            "kernel": kernel,
            "period_ms": period_ms,
            "share": share,
            "sm_share": sm_share,
            "seconds": seconds,
        }
        for kernel, sm_share in _KERNELS.items()
        for share in (_QUICK_SHARES if quick else _SHARES)
    ]


# --- utilization -----------------------------------------------------------------------------------------------------


def _duty_cycles(
    sampler: NvmlSampler, observer: Observer, loads: Sequence[dict[str, Any]], selftest: Selftest
) -> Selftest:
    """Run duty cycles of one period, and judge all that were run so far."""
    observer.preparing(f"kernels of known busy time, every {loads[0]['period_ms']:g} ms")
    ran, failed, _ = _ran(sampler, loads)
    runs = (*selftest.gpu_runs, *ran)
    cycles = [run for run in runs if run.asked_share is not None and run.kernel in _KERNELS]
    found = tuple(fit(cycles, UTILIZATION, source) for source in INSTRUMENTS)
    checks = [check for window in found for check in _utilization_checks(cycles, window)]
    part = judge.part(cases.UTILIZATION, checks)
    if failed and not cycles:
        part = part.model_copy(update={"status": "not-run", "reason": failed})
    return judge.with_parts(selftest.model_copy(update={"gpu_runs": runs, "windows": found}), [part])


def _utilization_checks(runs: Sequence[GpuRun], window: Window) -> Iterator[Check]:
    """Yield a check for each kernel and period: of the share that came out worst."""
    if window.error_points is None:
        yield Check(what="every run", figure=window.source, unit="percent", reason=window.reason or "nothing was read")
        return
    for kernel, period_ms in dict.fromkeys((run.kernel, run.period_ms) for run in runs):
        alike = [run for run in runs if (run.kernel, run.period_ms) == (kernel, period_ms)]
        judged = [
            judge.judged(run.name, window.source, "percent", planted, measured, thresholds.SELFTEST_POINTS)
            for run in alike
            if (planted := spoken_of(run, UTILIZATION, window)) is not None
            and (measured := mean_of(run, UTILIZATION, window)) is not None
        ]
        if judged:
            yield max(judged, key=lambda check: abs(check.error or 0.0))


# --- what GPM says ---------------------------------------------------------------------------------------------------


def _activity(sampler: NvmlSampler, observer: Observer, selftest: Selftest) -> Selftest:
    """Keep a known share of the SMs, the tensor cores, the memory and the bus busy, and judge what GPM says."""
    observer.preparing("SMs, tensor cores, memory and bus")
    always = {"period_ms": 100.0, "share": 1.0, "seconds": _ACTIVITY_S}
    loads = [
        {"name": f"{100 * share:.0f} % of the SMs", "kernel": "wide", "sm_share": share, **always}
        for share in _SM_SHARES
    ]
    loads.append({"name": "tensor cores", "kernel": "tensor", "sm_share": 1.0, **always})
    copies = ("copy in memory", "copy to the device")
    loads += [{"name": kernel, "kernel": kernel, "seconds": _ACTIVITY_S} for kernel in copies]
    ran, failed, facts = _ran(sampler, loads)
    # They are no duty cycles: what was asked of them is a share of the SMs.
    ran = [run.model_copy(update={"asked_share": None}) for run in ran]
    checks = [check for run in ran for check in _activity_checks(run, facts)]
    part = judge.part(cases.ACTIVITY, checks)
    if failed and not ran:
        part = part.model_copy(update={"status": "not-run", "reason": failed})
    selftest = selftest.model_copy(update={"gpu_runs": (*selftest.gpu_runs, *ran)})
    return judge.with_parts(selftest, [part])


def _activity_checks(run: GpuRun, facts: dict[str, Any]) -> Iterator[Check]:
    sm, _, tensor, dram, _, pcie = ACTIVITY
    seconds = (run.end_ns - run.start_ns) / 1e9
    moved = (run.bytes_moved or 0) / seconds if seconds else 0.0
    if run.kernel == "wide":
        share = next(share for share in _SM_SHARES if run.name == f"{100 * share:.0f} % of the SMs")
        blocks = max(1, round(share * facts["sm_count"]))
        yield _gpm_check(run, sm, 100 * blocks / facts["sm_count"] * (run.busy_share or 0.0), judged=True)
        yield _gpm_check(run, tensor, 0.0, judged=True)
    elif run.kernel == "tensor":
        yield _gpm_check(run, tensor, None)
    elif run.kernel == "copy in memory":
        most = facts["memory_bytes_per_s"]  # 0 of memory that is the host's own, as the driver gives it no clock
        yield _gpm_check(run, dram, 100 * 2 * moved / most if most else None)
    else:
        yield _gpm_check(run, pcie, moved / (1 << 20))


def _gpm_check(run: GpuRun, metric: str, planted: float | None, *, judged: bool = False) -> Check:
    """Return what GPM said of a run; only what follows from the load alone is judged."""
    at_ns, values = readings(run, metric, GPM)
    between = (at_ns[:-1] >= run.start_ns) & (at_ns[1:] <= run.end_ns)  # a value is of the time since the one before
    found = values[1:][between]
    measured = float(found.mean()) if found.size else None
    unit = "percent" if metric.endswith("percent") else "mib_per_s"
    figure = metric.removeprefix("device_").removesuffix("_percent").removesuffix("_mib_per_s").replace("_", " ")
    if judged and measured is not None and planted is not None:
        return judge.judged(run.name, figure, "percent", planted, measured, thresholds.SELFTEST_POINTS)
    reasons = [track.reason for track in run.tracks if track.metric == metric and track.reason]
    reason = None if measured is not None else run.reason or next(iter(reasons), "GPM gave no figure")
    return Check(what=run.name, figure=figure, unit=unit, planted=planted, measured=measured, reason=reason)


# --- copies ----------------------------------------------------------------------------------------------------------


def _copies(observer: Observer, sizes_bytes: Sequence[int], selftest: Selftest) -> Selftest:
    """Time copies to the device, and what of them a kernel hides."""
    observer.preparing("copies to the device")
    found: list[Copy] = []
    answer = call(
        gpu_loads.copies,
        {"sizes_bytes": list(sizes_bytes)},
        limit_s=_LIMIT_S,
        progress=lambda message: found.append(Copy(**message["copy"])),
    )
    checks = [
        Check(
            what=f"{each.size_bytes >> 20} MiB, {each.memory}, {each.hidden_share or 0:.0%} hidden by a kernel",
            figure="copy",
            unit="ms",
            planted=each.device_ms,
            measured=each.wall_ms,
        )
        for each in found
    ]
    part = Part(
        name=cases.COPY,
        # A pinned copy that the engine makes beside a kernel costs nothing; none hidden is worth a word.
        status="passed" if found else "not-run",
        meaning=cases.MEANING[cases.COPY],
        checks=tuple(checks),
        reason=None if found else answer.failed or answer.ending,
    )
    return judge.with_parts(selftest.model_copy(update={"copies": tuple(found)}), [part])


# --- loads beside the sampler ----------------------------------------------------------------------------------------


def _ran(sampler: NvmlSampler, loads: Sequence[dict[str, Any]]) -> tuple[list[GpuRun], str, dict[str, Any]]:
    """Run loads in a child while NVML is sampled.

    Returns:
        Each with what was read of it; why they ended before the last, empty where they did not; facts of the GPU.
    """
    facts: dict[str, Any] = {}
    ended: list[dict[str, Any]] = []

    def take(message: dict[str, Any]) -> None:
        if "gpu" in message:
            facts.update(message["gpu"])
            sampler.select(facts["pci_bus_id"])
            sampler.begin(both=True)
        else:
            ended.append(message["load"])

    with _sampled(sampler) as readings:
        answer = call(gpu_loads.run, {"loads": list(loads)}, limit_s=_LIMIT_S, progress=take)
        time.sleep(2 * _POLL_S)
    failed = "" if answer.result is not None else answer.failed or answer.ending
    return [_with_readings(load, readings) for load in ended], failed, facts


@contextmanager
def _sampled(sampler: NvmlSampler) -> Iterator[list[Reading]]:
    """Poll the sampler in a thread of its own, as often as beside a trial."""
    readings: list[Reading] = []
    over = threading.Event()

    def poll() -> None:
        while not over.wait(_POLL_S):
            readings.extend(sampler.poll())

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        over.set()
        thread.join()


def _with_readings(load: dict[str, Any], readings: Sequence[Reading]) -> GpuRun:
    own: dict[tuple[str, str], list[Reading]] = {}
    for reading in readings:
        wanted = reading.metric == UTILIZATION or reading.metric in ACTIVITY
        near = load["start_ns"] <= reading.at_ns <= load["end_ns"] + _LATE_NS
        if wanted and (near or reading.reason is not None):
            own.setdefault((reading.metric, reading.source), []).append(reading)
    columns = {name: Series.pack(load[name]) if load.get(name) else None for name in ("busy_start_ns", "busy_end_ns")}
    tracks = tuple(_track(metric, source, own[metric, source]) for metric, source in own)
    return GpuRun(**{**load, **columns}, tracks=tracks)


def _track(metric: str, source: str, readings: Sequence[Reading]) -> Track:
    known = [reading for reading in readings if reading.value is not None]
    reason = next((reading.reason for reading in readings if reading.reason), None)
    if not known:
        return Track(metric=metric, source=source, reason=reason)
    return Track(
        metric=metric,
        source=source,
        at_ns=Series.pack([reading.at_ns for reading in known]),
        values=Series.pack([reading.value for reading in known if reading.value is not None]),
        reason=reason,
    )


Floats = npt.NDArray[np.float64]
_NS_PER_MS = 1e6
_WINDOWS_MS = (10, 20, 50, 100, 167, 200, 250, 333, 500, 667, 1000, 1500, 2000)
_LATENCIES_MS = range(0, 1001, 20)
_FEWEST = 10
_MOVES_POINTS = 5.0
"""The figures must differ by this much, one standard deviation, or they fit to any window."""


class Busy:
    """When a GPU was busy, as a function of time."""

    def __init__(self, runs: Sequence[GpuRun]) -> None:
        """Put the busy times of runs together, which follow each other."""
        starts = [run.busy_start_ns.unpack() for run in runs if run.busy_start_ns is not None]
        ends = [run.busy_end_ns.unpack() for run in runs if run.busy_end_ns is not None]
        start = np.concatenate([np.zeros(0), *starts]).astype(np.float64)
        end = np.concatenate([np.zeros(0), *ends]).astype(np.float64)
        order = np.argsort(start)
        start, end = start[order], np.maximum.accumulate(end[order])
        start[1:] = np.maximum(start[1:], end[:-1])  # two kernels that overlap are busy once
        until = np.cumsum(np.maximum(end - start, 0.0))
        self._at_ns = np.column_stack([start, end]).ravel()
        self._total_ns = np.column_stack([until - np.maximum(end - start, 0.0), until]).ravel()

    def percent(self, from_ns: Floats, to_ns: Floats) -> Floats:
        """Return how much of each span it was busy, 0 to 100."""
        if not self._at_ns.size:
            return np.zeros_like(from_ns)
        total = np.interp(to_ns, self._at_ns, self._total_ns) - np.interp(from_ns, self._at_ns, self._total_ns)
        return np.asarray(100 * total / np.maximum(to_ns - from_ns, 1.0))


def readings(run: GpuRun, metric: str, source: str) -> tuple[Floats, Floats]:
    """Return when and what was read by an instrument, also after the run's end; empty where nothing was."""
    for track in run.tracks:
        if (track.metric, track.source) == (metric, source) and track.at_ns is not None and track.values is not None:
            return track.at_ns.unpack().astype(np.float64), track.values.unpack().astype(np.float64)
    return np.zeros(0), np.zeros(0)


def inside(run: GpuRun, metric: str, window: Window) -> tuple[Floats, Floats, Floats]:
    """Return the values that speak of nothing but the run, and from when to when each does, by the window."""
    at_ns, values = readings(run, metric, window.source)
    window_ns, latency_ns = (_NS_PER_MS * (ms or 0.0) for ms in (window.window_ms, window.latency_ms))
    from_ns, to_ns = at_ns - latency_ns - window_ns, at_ns - latency_ns
    whole = (from_ns >= run.start_ns) & (to_ns <= run.end_ns)
    return values[whole], from_ns[whole], to_ns[whole]


def fit(runs: Sequence[GpuRun], metric: str, source: str) -> Window:
    """Return the window that explains the figures best, and how close they then come to the device's own time."""
    read = [readings(run, metric, source) for run in runs]
    at_ns = np.concatenate([np.zeros(0), *(at for at, _ in read)])
    values = np.concatenate([np.zeros(0), *(each for _, each in read)])
    if at_ns.size < _FEWEST or float(np.std(values)) < _MOVES_POINTS:
        return Window(source=source, reason=f"{at_ns.size} figures that hardly differ tell no window")
    busy = Busy(runs)
    best = (float("inf"), 0, 0)
    for window_ms in _WINDOWS_MS:
        for latency_ms in _LATENCIES_MS:
            to_ns = at_ns - latency_ms * _NS_PER_MS
            off = values - busy.percent(to_ns - window_ms * _NS_PER_MS, to_ns)
            best = min(best, (float(np.sqrt(np.mean(off**2))), window_ms, latency_ms))
    found = Window(
        source=source,
        window_ms=float(best[1]),
        latency_ms=float(best[2]),
        period_ms=float(np.median(np.diff(at_ns))) / _NS_PER_MS,
    )
    errors = [error for run in runs if (error := error_of(run, metric, found)) is not None]
    if not errors:
        return found.model_copy(update={"reason": "no run was long enough for a whole window"})
    worst = float(np.percentile(np.abs(errors), 95))
    return found.model_copy(update={"error_points": worst, "runs": len(errors)})


def error_of(run: GpuRun, metric: str, window: Window) -> float | None:
    """Return the mean of a run's figures less its busy time, in percentage points; None where it has no figure."""
    measured = mean_of(run, metric, window)
    return None if measured is None or run.busy_share is None else measured - 100 * run.busy_share


def mean_of(run: GpuRun, metric: str, window: Window) -> float | None:
    """Return the mean of the figures that speak of nothing but the run; None where there is none."""
    values, _, _ = inside(run, metric, window)
    return float(np.mean(values)) if values.size else None


def spoken_of(run: GpuRun, metric: str, window: Window) -> float | None:
    """Return how busy the GPU was, 0 to 100, in the times that these figures speak of: what they should come to.

    Of long periods that is not the run's own share, since the figures do not speak of each part of it alike.
    """
    _, from_ns, to_ns = inside(run, metric, window)
    return float(np.mean(Busy([run]).percent(from_ns, to_ns))) if to_ns.size else None
