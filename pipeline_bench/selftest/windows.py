"""What NVML's figures speak of: the window that explains them best, found by busy times that are known. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline_bench.model.selftest import GpuRun, Window
from pipeline_bench.text.units import NS_PER_MS

Floats = npt.NDArray[np.float64]
_WINDOWS_MS = (10, 20, 50, 100, 167, 200, 250, 333, 500, 667, 1000, 1500, 2000)
_LATENCIES_MS = range(0, 1001, 20)
_FEWEST = 10
_MOVES_POINTS = 5.0
"""The figures must differ by this much, one standard deviation, or they fit to any window."""


class Busy:
    """When a GPU was busy, as a function of time."""

    def __init__(self, runs: Sequence[GpuRun]) -> None:
        """Join the busy times of runs, which follow each other."""
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
    window_ns, latency_ns = (NS_PER_MS * (ms or 0.0) for ms in (window.window_ms, window.latency_ms))
    from_ns, to_ns = at_ns - latency_ns - window_ns, at_ns - latency_ns
    whole = (from_ns >= run.start_ns) & (to_ns <= run.end_ns)
    return values[whole], from_ns[whole], to_ns[whole]


def fit(runs: Sequence[GpuRun], metric: str, source: str) -> Window:
    """Return the window that explains the figures best, and how close they then come to the device's own time."""
    read = [readings(run, metric, source) for run in runs]
    at_ns = np.concatenate([np.zeros(0), *(at for at, _ in read)])
    values = np.concatenate([np.zeros(0), *(each for _, each in read)])
    if not at_ns.size:
        return Window(source=source, reason=_reason(runs, metric, source))
    if at_ns.size < _FEWEST or float(np.std(values)) < _MOVES_POINTS:
        return Window(source=source, reason=f"{at_ns.size} figures that hardly differ tell no window")
    busy = Busy(runs)
    best = (float("inf"), 0, 0)
    for window_ms in _WINDOWS_MS:
        for latency_ms in _LATENCIES_MS:
            to_ns = at_ns - latency_ms * NS_PER_MS
            off = values - busy.percent(to_ns - window_ms * NS_PER_MS, to_ns)
            best = min(best, (float(np.sqrt(np.mean(off**2))), window_ms, latency_ms))
    found = Window(
        source=source,
        window_ms=float(best[1]),
        latency_ms=float(best[2]),
        period_ms=float(np.median(np.diff(at_ns))) / NS_PER_MS,
    )
    errors = [error for run in runs if (error := error_of(run, metric, found)) is not None]
    if not errors:
        return found.model_copy(update={"reason": "no run was long enough for a whole window"})
    single = np.concatenate([_errors_of_figures(run, metric, found, busy) for run in runs])
    worst, of_figures = (float(np.percentile(np.abs(each), 95)) for each in (errors, single))
    return found.model_copy(update={"error_points": worst, "figure_points": of_figures, "runs": len(errors)})


def _errors_of_figures(run: GpuRun, metric: str, window: Window, busy: Busy) -> Floats:
    """Return each figure that speaks of nothing but the run, less what it should come to, in percentage points."""
    values, from_ns, to_ns = inside(run, metric, window)
    return values - busy.percent(from_ns, to_ns)


def _reason(runs: Sequence[GpuRun], metric: str, source: str) -> str:
    """Return why there is no figure: what the instrument said, or else the other, which is asked where it has none."""
    reasons = {track.source: track.reason for run in runs for track in run.tracks if track.metric == metric}
    others = [reason for reason in reasons.values() if reason]
    return reasons.get(source) or next(iter(others), "the driver gave no such figure")


def error_of(run: GpuRun, metric: str, window: Window) -> float | None:
    """Return the mean of a run's figures less what they should come to, in percentage points; None without a figure."""
    measured, planted = mean_of(run, metric, window), spoken_of(run, metric, window)
    return None if measured is None or planted is None else measured - planted


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
