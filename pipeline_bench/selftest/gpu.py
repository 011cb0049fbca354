"""The selftest's parts on a GPU: known loads, run in a child, beside what NVML says of them at the sampler's settings.

It was seen on an H100 (docs/selftest.md); the arithmetic is tested against a stub of the driver and of NVML.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from pipeline_bench.analysis import thresholds
from pipeline_bench.model import Series
from pipeline_bench.model.selftest import Check, Copy, GpuRun, Part, Selftest, Window
from pipeline_bench.planted import gpu_loads
from pipeline_bench.run.child import call
from pipeline_bench.run.follower import SAMPLE_EVERY_S
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.trial_log import tracks
from pipeline_bench.samplers import Reading
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.samplers.nvml_metrics import ACTIVITY, RATES, SAMPLES_SOURCE, UTILIZATION
from pipeline_bench.selftest import cases, judge, windows
from pipeline_bench.selftest.windows import fit, mean_of, spoken_of
from pipeline_bench.text import units

Change = Callable[[Selftest], Selftest]
_LATE_NS = 1_500_000_000
"""A reading is kept with a run up to so long after its end: the longest window, and what a sample may come late."""
_IDLE_PERCENT = 2.0
"""A GPU that is read as busier than this without a kernel is used by others: then its windows cannot be found."""
_SETTLED_NS = 1_200_000_000
"""From then on a figure speaks of nothing before a run: a rate's window is a second, and comes with the next poll."""
_SHARES, _QUICK_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0), (0.0, 0.25, 1.0)
_LONG_MS, _SHARES_OF_LONG = 2000.0, (0.0, 0.25, 0.5, 0.75, 1.0)
"""Fewer shares of a period whose runs take long."""
_PERIODS_S, _QUICK_PERIODS_S = {5.0: 1.7, 20.0: 1.7, 100.0: 2.5, 500.0: 4.0, 2000.0: 6.0}, {20.0: 1.5, 1100.0: 3.3}
"""How long the runs of a period, in ms, last. If it is a whole number of polls, each poll sees one of few places:
a quick selftest, which has no other, could then not distinguish the windows of rates."""
_KERNELS = {"wide": 1.0, "one-SM": 0.0}
"""The share of the SMs that each is on; 0 for a single one."""
_SM_SHARES = (0.25, 0.5, 1.0)
_SIZES_BYTES, _QUICK_SIZES_BYTES = (1 << 20, 16 << 20, 256 << 20), (16 << 20,)
_ACTIVITY_S = 2.0
_LIMIT_S = 240.0
_NO_WINDOW = "no figure speaks of the run alone"
INSTRUMENTS = (SAMPLES_SOURCE, RATES.source)


def parts(sampler: NvmlSampler, observer: Observer, quick: bool) -> Iterator[tuple[str, Change]]:
    """Yield what is done on a GPU, a few dozen seconds each: its part, and what gives the selftest with its finding."""
    for period_ms, seconds in (_QUICK_PERIODS_S if quick else _PERIODS_S).items():
        yield cases.UTILIZATION, partial(_duty_cycles, sampler, observer, _duty(period_ms, seconds, quick))
    yield cases.ACTIVITY, partial(_activity, sampler, observer)
    yield cases.COPY, partial(_copies, observer, _QUICK_SIZES_BYTES if quick else _SIZES_BYTES)


def tells_windows(selftest: Selftest | None) -> bool:
    """Return whether the longest periods were run: short ones alone fit to any window."""
    periods = _QUICK_PERIODS_S if selftest is not None and selftest.quick else _PERIODS_S
    runs = () if selftest is None else selftest.gpu_runs
    return any(run.period_ms == max(periods) and run.busy_share is not None for run in runs)


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
        for share in (_QUICK_SHARES if quick else _SHARES_OF_LONG if period_ms >= _LONG_MS else _SHARES)
    ]


# --- utilization -----------------------------------------------------------------------------------------------------


def _duty_cycles(
    sampler: NvmlSampler, observer: Observer, loads: Sequence[dict[str, Any]], selftest: Selftest
) -> Selftest:
    """Run duty cycles of one period, and judge all that were run so far."""
    observer.preparing(f"kernels of known busy time, every {loads[0]['period_ms']:g} ms")
    runs = (*selftest.gpu_runs, *_ran(sampler, loads)[0])
    cycles = [run for run in runs if run.asked_share is not None and run.kernel in _KERNELS]
    used_percent = max((_idle_percent(run) for run in cycles if run.asked_share == 0), default=0.0)
    if used_percent > _IDLE_PERCENT:
        reason = f"others used the GPU: it was busy for {units.percent(used_percent)} of a time without a kernel"
        part = judge.not_run(cases.UTILIZATION, reason)
        return judge.with_parts(selftest.model_copy(update={"gpu_runs": runs, "windows": ()}), [part])
    found = tuple(fit(cycles, UTILIZATION, source) for source in INSTRUMENTS)
    checks = [check for window in found for check in _utilization_checks(cycles, window)]
    broken = [_broke_off(run.name, run.reason) for run in cycles if run.reason]
    part = _part(cases.UTILIZATION, checks, broken, whole=len(cycles) - len(broken))
    return judge.with_parts(selftest.model_copy(update={"gpu_runs": runs, "windows": found}), [part])


def _idle_percent(run: GpuRun) -> float:
    """Return what NVML read in a run without a kernel, once its figures no longer speak of the time before it."""
    values = [windows.readings(run, UTILIZATION, source) for source in INSTRUMENTS]
    quiet = [found[(at_ns > run.start_ns + _SETTLED_NS) & (at_ns <= run.end_ns)] for at_ns, found in values]
    return max((float(found.mean()) for found in quiet if found.size), default=0.0)


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
        if missing := len([run for run in alike if not run.reason]) - len(judged):
            what = f"{missing} of {len(alike)} runs, {kernel}, every {period_ms or 0:g} ms"
            yield Check(what=what, figure=window.source, unit="percent", reason=_NO_WINDOW)


def _part(name: str, checks: Sequence[Check], broken: Sequence[Check], whole: int) -> Part:
    """Return a part: not run where no load came to its end, and failed where one broke off beside `whole` ones."""
    if broken and not whole:
        return judge.not_run(name, broken[0].reason)
    return judge.part(name, [*checks, *broken])


def _broke_off(what: str, reason: str | None) -> Check:
    return judge.word(what, "load", "runs", "broke off", reason)


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
    ran, facts, failed = _ran(sampler, loads)
    # They are no duty cycles: what was asked of them is a share of the SMs.
    ran = [run.model_copy(update={"asked_share": None}) for run in ran]
    whole = ran[:-1] if failed else ran
    checks = [check for load, run in zip(loads, whole, strict=False) for check in _activity_checks(load, run, facts)]
    broken = [_broke_off(run.name, failed) for run in ran[len(whole) :]]
    part = _part(cases.ACTIVITY, checks, broken, len(whole))
    selftest = selftest.model_copy(update={"gpu_runs": (*selftest.gpu_runs, *ran)})
    return judge.with_parts(selftest, [part])


def _activity_checks(load: Mapping[str, Any], run: GpuRun, facts: dict[str, Any]) -> Iterator[Check]:
    sm, _, tensor, dram, _, pcie = ACTIVITY
    seconds = (run.end_ns - run.start_ns) / 1e9
    moved = (run.bytes_moved or 0) / seconds if seconds else 0.0
    if run.kernel == "wide":
        blocks = max(1, round(load["sm_share"] * facts["sm_count"]))
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
    tracks = [track for track in run.tracks if track.metric == metric]
    found = np.concatenate([np.zeros(0), *(track.late_within(run.start_ns, run.end_ns)[0] for track in tracks)])
    measured = float(np.mean(found)) if found.size else None
    unit = "percent" if metric.endswith("percent") else "mib_per_s"
    figure = metric.removeprefix("device_").removesuffix("_percent").removesuffix("_mib_per_s").replace("_", " ")
    if judged and measured is not None and planted is not None:
        return judge.judged(run.name, figure, "percent", planted, measured, thresholds.SELFTEST_POINTS)
    reasons = [track.reason for track in tracks if track.reason]
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
    failed = answer.why
    due = [(size, memory) for size in sizes_bytes for memory in gpu_loads.MEMORIES][len(found) :]
    if failed and due:
        found.append(Copy(size_bytes=due[0][0], memory=due[0][1], reason=failed))
    broken = [_broke_off(_copy_name(each), each.reason) for each in found if each.reason]
    checks = [check for each in found if not each.reason for check in _copy_checks(each)]
    part = _part(cases.COPY, checks, broken, len(found) - len(broken))
    return judge.with_parts(selftest.model_copy(update={"copies": tuple(found)}), [part])


def _copy_name(copy: Copy) -> str:
    return f"{copy.size_bytes >> 20} MiB, {copy.memory}"


def _copy_checks(copy: Copy) -> Iterator[Check]:
    """Yield what is shown of a copy: its time by the device and by the host, and what of it a kernel hides."""
    what = _copy_name(copy)
    yield Check(what=what, figure="copy", unit="ms", planted=copy.device_ms, measured=copy.wall_ms)
    yield Check(what=what, figure="until the call is back", unit="ms", measured=copy.call_ms)
    yield Check(what=what, figure="hidden by a kernel", unit="share", measured=copy.hidden_share)


# --- loads beside the sampler ----------------------------------------------------------------------------------------


def _ran(sampler: NvmlSampler, loads: Sequence[dict[str, Any]]) -> tuple[list[GpuRun], dict[str, Any], str]:
    """Run loads in a child while NVML is sampled.

    Returns:
        Each with what was read of it, the last with a reason where it broke off; facts of the GPU; that reason or "".
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
        time.sleep(2 * SAMPLE_EVERY_S)
    runs = [_with_readings(load, readings) for load in ended]
    failed = answer.why if len(ended) < len(loads) else ""
    return [*runs, _broken(loads[len(ended)], failed)] if failed else runs, facts, failed


def _broken(load: dict[str, Any], reason: str) -> GpuRun:
    now_ns = time.monotonic_ns()
    asked = {"period_ms": load.get("period_ms"), "asked_share": load.get("share")}
    return GpuRun(name=load["name"], kernel=load["kernel"], start_ns=now_ns, end_ns=now_ns, reason=reason, **asked)


@contextmanager
def _sampled(sampler: NvmlSampler) -> Iterator[list[Reading]]:
    """Poll the sampler in a thread of its own, as often as beside a trial."""
    readings: list[Reading] = []
    over = threading.Event()

    def poll() -> None:
        while not over.wait(SAMPLE_EVERY_S):
            readings.extend(sampler.poll())

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        over.set()
        thread.join()


def _with_readings(load: dict[str, Any], readings: Sequence[Reading]) -> GpuRun:
    own = [
        reading
        for reading in readings
        if (reading.metric == UTILIZATION or reading.metric in ACTIVITY)
        and (load["start_ns"] <= reading.at_ns <= load["end_ns"] + _LATE_NS or reading.reason is not None)
    ]
    columns = {name: Series.pack(load[name]) if load.get(name) else None for name in ("busy_start_ns", "busy_end_ns")}
    return GpuRun(**{**load, **columns}, tracks=tracks(own))
