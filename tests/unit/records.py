"""Builds trial records from step times, so that results and verdicts are tested against known figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline_bench.analysis import stats
from pipeline_bench.model.events import Device
from pipeline_bench.model.series import Series
from pipeline_bench.model.trial import AccuracyPair, Track, TrialRecord, TrialStatus, TrialSteps
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve

NS_PER_MS = 1_000_000


def scenario(*backends: str, repeats: int = 3, steps: int = 100) -> Scenario:
    """A scenario with one variant a backend, and its ceiling."""
    return resolve(
        {
            "name": "test",
            "run": {"steps": steps, "repeats": repeats},
            "variants": [{"name": backend, "backend": backend} for backend in backends],
        }
    )


def record(
    variant: str,
    repeat: int,
    step_ms: float | Sequence[float],
    wait_ms: float | None = 0.0,
    *,
    steps: int = 100,
    status: TrialStatus = "ok",
    gpu: bool = False,
    samples: Sequence[Track] = (),
    noise: float = 0.01,
) -> TrialRecord:
    """A trial whose steps take `step_ms`, one figure with a little noise or one a step, `wait_ms` of it input wait."""
    generator = np.random.default_rng(repeat + 17 * len(variant))
    if isinstance(step_ms, float | int):
        durations = step_ms * (1 + noise * generator.standard_normal(steps))
    else:
        durations = np.asarray(step_ms, dtype=np.float64)
    duration_ns = np.round(durations * NS_PER_MS).astype(np.int64)
    end_ns = np.cumsum(duration_ns)
    start_ns = end_ns - duration_ns
    wait = None if wait_ms is None else Series.pack(np.full(len(durations), round(wait_ms * NS_PER_MS), dtype=np.int64))
    return TrialRecord(
        index=repeat,
        variant=variant,
        repeat=repeat,
        status=status,
        reason=None if status == "ok" else "planted",
        started_ns=0,
        ended_ns=int(end_ns[-1]),
        first_step_s=0.1,
        warmup_steps=stats.warmup_steps(duration_ns),
        steps=TrialSteps(
            start_ns=Series.pack(start_ns),
            end_ns=Series.pack(end_ns),
            wait_ns=wait,
            loss=Series.pack(np.linspace(1, 0.5, len(durations))),
        ),
        accuracy=AccuracyPair(before=0.5, after=0.9),
        device=Device(kind="gpu", name="Test GPU") if gpu else Device(kind="cpu", name="CPU:0"),
        samples=tuple(samples),
    )
