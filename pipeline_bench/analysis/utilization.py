"""What a device said of itself in the measured steps: its utilization, and what of a GPU was busy beneath it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import stats
from pipeline_bench.analysis.measured import Measured, Times, columns
from pipeline_bench.analysis.precision import rounds, with_steps
from pipeline_bench.analysis.stats import Floats
from pipeline_bench.model.result import BUSY_TIME, CPU_TIME, Activity, DeviceUtilization
from pipeline_bench.model.selftest import Window
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Track
from pipeline_bench.samplers.nvml_metrics import ACTIVITY, RATES_SOURCE, SAMPLES_SOURCE
from pipeline_bench.text.units import NS_PER_MS

Mask = npt.NDArray[np.bool_]

# What a figure speaks of where no selftest has found it: a buffered sample of the median time between two of them, but
# of the driver's shortest window at least, and its rates of the longest (nvml.h, nvmlUtilization_t: 1/6 s to 1 s by
# product). An H100 has samples of 200 ms, every 200 ms (reports/h100-selftest).
_NVML_WINDOW_NS = {SAMPLES_SOURCE: 1_000_000_000 // 6, RATES_SOURCE: 1_000_000_000}
TRIAL_ON_GPU_S, LONGEST_ON_GPU_S = 1.0, 4.0
"""How long the trials of the fastest variant on a GPU train, where nothing else says how long, so that some of NVML's
figures speak of them; and what those of the slowest, which have as many steps, take for that at the most."""
_BESIDE_STEPS = 0.05
"""Of what a figure speaks of, as much may lie between any two steps, and in all beside such: a callback between two
epochs is more."""
# How far outside the measured steps a sample of CPU time may lie that an edge is interpolated from.
_CPU_EDGE_NS = 50_000_000


def of(
    runs: Sequence[Measured], cores: int, known: Sequence[Window] = (), *, steps_alone: bool = False
) -> DeviceUtilization:
    """Return what the device said during the measured steps.

    NVML for a GPU, CPU time over wall time and cores for a CPU, the busy time over wall time for an emulated device. Of
    a trial that is shorter than what a figure of NVML's speaks of there is none. A watched job does other things
    between its steps, as a callback or an evaluation: if `steps_alone`, no figure of a GPU speaks of those.
    """
    device = runs[0].record.device
    if runs[0].emulated is not None:
        shares = [run.busy_share for run in runs if run.busy_share is not None]
        if not shares:
            return DeviceUtilization(source=BUSY_TIME, reason="the loop did not report the emulated device's busy time")
        return _percent(BUSY_TIME, [100 * share for share in shares], sum(len(run.step_ms) for run in runs))
    if device is not None and device.kind == "cpu":
        return _cpu_utilization(runs, cores)
    return _gpu_utilization(runs, known, steps_alone).model_copy(update={"activity": _activity(runs)})


def of_gpu(percent: float | None, source: str | None) -> float | None:
    """Return a device's utilization in percent if NVML is its source, and so a GPU the device; else None."""
    return percent if source in _NVML_WINDOW_NS else None


def _gpu_utilization(runs: Sequence[Measured], known: Sequence[Window], steps_alone: bool) -> DeviceUtilization:
    tracks = [
        (run, track) for run in runs for track in run.record.samples if track.metric == "device_utilization_percent"
    ]
    by_source: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    windows_ns: dict[str, float] = {}
    for name in dict.fromkeys(track.source for _, track in tracks if track.values is not None):
        own = [(run, track) for run, track in tracks if track.source == name]
        windows_ns[name], latency_ns = _window_ns(name, known, [track for _, track in own])
        by_source[name] = [_spoken_within(run, track, windows_ns[name], latency_ns, steps_alone) for run, track in own]
    source = max(by_source, key=lambda name: sum(values.size for values, _ in by_source[name]), default=None)
    trials = [found for found in by_source[source] if found[0].size] if source else []
    if source is None or not trials:
        short = "no sample of the device lies completely within the measured steps; run more steps"
        reasons = [track.reason for _, track in tracks if track.reason]
        return DeviceUtilization(source=source, reason=reasons[-1] if reasons else short)
    window_ns = windows_ns[source]
    found = _percent(source, [float(np.mean(values)) for values, _ in trials], sum(v.size for v, _ in trials))
    covered_ns = sum(window_ns + np.minimum(np.diff(ends_ns), window_ns).sum() for _, ends_ns in trials)
    spoken = {"window_ms": window_ns / NS_PER_MS, "coverage": _coverage(covered_ns, runs)}
    checked = next((window for window in known if window.source == source), None)
    return _widened(found.model_copy(update=spoken), checked, covered_ns / window_ns)


def _spoken_within(
    run: Measured, track: Track, window_ns: float, latency_ns: float, steps_alone: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a track that speak of the measured steps alone, and up to when each does."""
    if track.at_ns is None or track.values is None:
        return np.zeros(0), np.zeros(0)
    # A sample speaks of the time before its stamp, so that the first ones would still see the warm-up.
    to_ns = track.at_ns.unpack() - latency_ns
    inside = (to_ns - window_ns >= run.start_ns[0]) & (to_ns <= run.end_ns[-1])
    if steps_alone:  # those that are left out too: the device works in a step that others disturbed
        inside &= _within_steps(to_ns, window_ns, run.every.start_ns, run.every.end_ns, run.every.steps)
    return track.values.unpack()[inside], to_ns[inside]


def during_steps(at_ns: Times, source: str, start_ns: Times, end_ns: Times, steps: Times | None) -> Mask:
    """Return which figures of a GPU, by their stamps, speak of steps alone, and not of what came between them.

    Args:
        at_ns: the stamps, shape [n].
        source: of the figures.
        start_ns: when each step began, in order, shape [m].
        end_ns: when each ended, shape [m].
        steps: how many steps each row is the mean of, shape [m]; None: each is one.
    """
    return _within_steps(at_ns, _window_ns(source, (), ())[0], start_ns, end_ns, steps)


def _within_steps(to_ns: Times | Floats, window_ns: float, start_ns: Times, end_ns: Times, steps: Times | None) -> Mask:
    """Return which windows that end then lie in steps, but for `_BESIDE_STEPS`; the rest is as of `during_steps`."""
    if not start_ns.size:
        return np.zeros(to_ns.size, dtype=np.bool_)
    ends_ns = np.maximum.accumulate(start_ns + (end_ns - start_ns) * (1 if steps is None else steps))
    ended_ns = np.append(start_ns[0], ends_ns[:-1])
    begins_ns = np.maximum(start_ns, ended_ns)  # several threads may take steps at once
    # What a loop does between any two steps is a part of it; Keras takes a fifth of a short one.
    begins_ns = np.where(begins_ns - ended_ns <= _BESIDE_STEPS * window_ns, ended_ns, begins_ns)
    edges_ns = np.stack([begins_ns, ends_ns], axis=1).ravel()
    in_steps_ns = np.cumsum(np.stack([np.zeros_like(begins_ns), ends_ns - begins_ns], axis=1).ravel())
    from_ns, until_ns = (np.interp(at_ns, edges_ns, in_steps_ns) for at_ns in (to_ns - window_ns, to_ns))
    return np.asarray(until_ns - from_ns >= (1 - _BESIDE_STEPS) * window_ns)


def _coverage(covered_ns: float, runs: Sequence[Measured]) -> float:
    """Return a time as a share of what was measured, 0 to 1."""
    return min(1.0, float(covered_ns) / max(1, sum(int(run.end_ns[-1] - run.start_ns[0]) for run in runs)))


def _window_ns(source: str, known: Sequence[Window], tracks: Sequence[Track]) -> tuple[float, float]:
    """Return the length of what a figure of that source speaks of, and how long before its stamp that ended."""
    for window in known:
        if window.source == source and window.window_ms is not None:
            return NS_PER_MS * window.window_ms, NS_PER_MS * (window.latency_ms or 0.0)
    least_ns = _NVML_WINDOW_NS.get(source, max(_NVML_WINDOW_NS.values()))
    apart_ns = [np.diff(track.at_ns.unpack()) for track in tracks if track.at_ns is not None]
    if source != SAMPLES_SOURCE or not sum(each.size for each in apart_ns):
        return least_ns, 0.0
    found_ns = float(np.median(np.concatenate(apart_ns)))
    return min(max(least_ns, found_ns), max(_NVML_WINDOW_NS.values())), 0.0


def _widened(found: DeviceUtilization, checked: Window | None, windows: float) -> DeviceUtilization:
    """Return a utilization whose interval has what the instrument's own error adds, as the selftest found it.

    Of one trial, which has no interval of its own, it is that error. The selftest's runs last for many windows: what
    differs from one to the next, which the spread of several trials shows, may be more in a mean of few.
    """
    if checked is None or checked.error_points is None or found.mean_percent is None:
        return found
    mean, error_points = found.mean_percent, checked.error_points
    if found.ci95 is None and checked.figure_points is not None:
        error_points = max(error_points, checked.figure_points / math.sqrt(windows))
    low, high = (math.hypot(end - mean, error_points) for end in found.ci95 or (mean, mean))
    return found.model_copy(update={"ci95": (max(0.0, mean - low), min(100.0, mean + high))})


def _cpu_utilization(runs: Sequence[Measured], cores: int) -> DeviceUtilization:
    percents: list[float] = []
    samples = 0
    reason = None
    for run in runs:
        sampled = columns(run.record, "cpu_seconds")
        if sampled is None:
            reasons = (track.reason for track in run.record.samples if track.metric == "cpu_seconds")
            reason = next(reasons, "the host sampler took no sample")
            continue
        first_ns, last_ns = int(run.start_ns[0]), int(run.end_ns[-1])
        at_ns, cpu_s = sampled
        near = (at_ns >= first_ns - _CPU_EDGE_NS) & (at_ns <= last_ns + _CPU_EDGE_NS)
        grown = stats.growth(at_ns[near], cpu_s[near], first_ns, last_ns)
        if grown is not None:
            used_s, sampled_ns = grown
            percents.append(min(100.0, max(0.0, 100 * used_s / (sampled_ns / 1e9 * cores))))
            samples += int(near.sum())
    if 2 * len(percents) < len(runs):
        short = f"{len(runs) - len(percents)} of {len(runs)} trials were too short for two samples of CPU time"
        return DeviceUtilization(source=CPU_TIME, reason=reason or short)
    return _percent(CPU_TIME, percents, samples)


def _percent(source: str, of_trials: Sequence[float], samples: int) -> DeviceUtilization:
    """Return the mean over the trials, with its interval, which ends where a percentage has to."""
    ci95 = stats.mean_interval(of_trials)
    return DeviceUtilization(
        source=source,
        mean_percent=float(np.mean(of_trials)),
        ci95=ci95 and (max(0.0, ci95[0]), min(100.0, ci95[1])),
        samples=samples,
    )


# --- what of a GPU was busy beneath its utilization -------------------------------------------------------------------


def _activity(runs: Sequence[Measured]) -> tuple[Activity, ...]:
    """Return what was sampled of each metric, or why nothing was; empty where no trial asked for it.

    A value counts where all of the time that it speaks of lies within the measured steps, as late as it may be.
    """
    return tuple(found for metric in ACTIVITY if (found := _activity_of(metric, runs)) is not None)


def _activity_of(metric: str, runs: Sequence[Measured]) -> Activity | None:
    tracks = [(run, track) for run in runs for track in run.record.samples if track.metric == metric]
    if not tracks:
        return None
    source = tracks[0][1].source
    spans = [track.late_within(run.start_ns[0], run.end_ns[-1]) for run, track in tracks]
    values, windows_ns = (np.concatenate([each[part] for each in spans]) for part in (0, 1))
    if not values.size:
        reason = next((track.reason for _, track in tracks if track.reason), None)
        return Activity(
            metric=metric, source=source, reason=reason or "no figure lies completely within the measured steps"
        )
    return Activity(
        metric=metric,
        source=source,
        mean=float(np.average(values, weights=windows_ns)),
        samples=int(values.size),
        window_ms=float(np.median(windows_ns)) / NS_PER_MS,
        coverage=_coverage(float(windows_ns.sum()), [run for run, _ in tracks]),
    )


# --- trials that are long enough for it -------------------------------------------------------------------------------


def chooses_steps(session: Session) -> bool:
    """Return whether it follows from a session's first round how many steps its trials have."""
    on_gpu = any(trial.on_gpu for trial in session.trials)
    return on_gpu and session.precision is not None and session.precision.goal is None


def with_longer_trials(session: Session) -> Session:
    """Return the session with more steps in each trial from the second round on, where its models are on a GPU.

    The steps of a scenario take 50 ms on a GPU of today: NVML says nothing of so short a time, and starting the trials
    takes the budget. Then the fastest variant trains for `TRIAL_ON_GPU_S`, and the others for as many steps, but no
    longer than `LONGEST_ON_GPU_S`. A session with a plan or a goal of its own stays as it is.
    """
    if not chooses_steps(session) or any(trial.repeat for trial in session.trials) or rounds(session) != 1:
        return session
    steps_ns = {
        trial.variant: float(trial.step_ns.mean()) for trial in session.trials if trial.measured and trial.on_gpu
    }
    ceilings = {variant.name for variant in session.scenario.variants if variant.is_ceiling}
    compared_ns = [ns for name, ns in steps_ns.items() if name not in ceilings]
    if not compared_ns:
        return session
    steps = 1e9 * min(TRIAL_ON_GPU_S / min(compared_ns), LONGEST_ON_GPU_S / max(compared_ns))
    own = {each.name: each.run.steps for each in session.scenario.variants if each.name in steps_ns}
    # A multiple of its own: a call of several is not cut.
    return with_steps(session, {name: few * max(1, math.ceil(steps / few)) for name, few in own.items() if few})
