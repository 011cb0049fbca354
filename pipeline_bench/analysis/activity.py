"""What of a GPU was busy in the measured steps, beneath its utilization: SMs, tensor cores, memory, bus. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline_bench.analysis.measured import Measured
from pipeline_bench.model.result import Activity
from pipeline_bench.model.trial import ACTIVITY, Track

_NS_PER_MS = 1e6


def activity(runs: Sequence[Measured]) -> tuple[Activity, ...]:
    """Return what was sampled of each metric, or why nothing was; empty where no trial asked for it.

    A value speaks of the time since the one before it, and counts where all of that lies within the measured steps.
    """
    return tuple(found for metric in ACTIVITY if (found := _of(metric, runs)) is not None)


def _of(metric: str, runs: Sequence[Measured]) -> Activity | None:
    tracks = [(run, track) for run in runs for track in run.record.samples if track.metric == metric]
    if not tracks:
        return None
    source = tracks[0][1].source
    spans = [_whole(run, track) for run, track in tracks]
    values, windows_ns = (np.concatenate([each[part] for each in spans]) for part in (0, 1))
    if not values.size:
        reason = next((track.reason for _, track in tracks if track.reason), None)
        return Activity(
            metric=metric, source=source, reason=reason or "no figure lies wholly within the measured steps"
        )
    measured_ns = sum(int(run.end_ns[-1] - run.start_ns[0]) for run, _ in tracks)
    return Activity(
        metric=metric,
        source=source,
        mean=float(np.average(values, weights=windows_ns)),
        samples=int(values.size),
        window_ms=float(np.median(windows_ns)) / _NS_PER_MS,
        coverage=min(1.0, float(windows_ns.sum()) / max(1, measured_ns)),
    )


def _whole(run: Measured, track: Track) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a track whose windows lie within the measured steps, and these windows in ns."""
    if track.at_ns is None or track.values is None:
        return np.zeros(0), np.zeros(0)
    at_ns, values = track.at_ns.unpack(), track.values.unpack()
    inside = (at_ns[:-1] >= run.start_ns[0]) & (at_ns[1:] <= run.end_ns[-1])
    return values[1:][inside], np.diff(at_ns)[inside].astype(np.float64)
