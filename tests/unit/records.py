"""Builds trial records from step times, so that results and verdicts are tested against known figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pipeline_bench.analysis import stats
from pipeline_bench.analysis.results import summarise
from pipeline_bench.model import Series
from pipeline_bench.model.events import Device
from pipeline_bench.model.session import Environment, Session
from pipeline_bench.model.trial import AccuracyPair, Track, TrialRecord, TrialStatus, TrialSteps
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from tests.unit.sessions import CPU

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


def of_ceilings(*names: str, repeats: int = 3) -> Scenario:
    """A scenario without any input: every variant is a ceiling, as in the lesson on threads."""
    entries = [{"name": name, "backend": "ceiling"} for name in names]
    return resolve({"name": "test", "run": {"steps": 100, "repeats": repeats}, "variants": entries})


def steps_of(step_ms: ArrayLike, wait_ms: float | None = None, start_ns: int = 0) -> TrialSteps:
    """Steps of these times, one behind the other, of each of which `wait_ms` is input wait."""
    took_ns = np.round(np.asarray(step_ms, dtype=np.float64) * NS_PER_MS).astype(np.int64)
    end_ns = start_ns + np.cumsum(took_ns)
    wait = None if wait_ms is None else np.full(len(took_ns), round(wait_ms * NS_PER_MS), dtype=np.int64)
    return TrialSteps(
        start_ns=Series.pack(end_ns - took_ns),
        end_ns=Series.pack(end_ns),
        wait_ns=None if wait is None else Series.pack(wait),
        loss=Series.pack(np.linspace(1, 0.5, len(took_ns))),
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
    start_ns: int = 0,
    **changes: Any,
) -> TrialRecord:
    """A trial whose steps take `step_ms`, one figure with a little noise or one a step, `wait_ms` of it input wait."""
    generator = np.random.default_rng(repeat + 17 * len(variant))
    one = isinstance(step_ms, float | int)
    noisy = step_ms * (1 + noise * generator.standard_normal(steps)) if one else step_ms
    taken = steps_of(noisy, wait_ms, start_ns)
    end_ns = taken.end_ns.unpack()
    return TrialRecord(
        index=repeat,
        variant=variant,
        repeat=repeat,
        status=status,
        reason=None if status == "ok" else "planted",
        started_ns=start_ns,
        ended_ns=int(end_ns[-1]),
        first_step_s=0.1,
        warmup_steps=stats.warmup_steps(end_ns - taken.start_ns.unpack()),
        steps=taken,
        accuracy=AccuracyPair(before=0.5, after=0.9),
        device=Device(kind="gpu", name="Test GPU") if gpu else Device(kind="cpu", name="CPU:0"),
        samples=tuple(samples),
    ).model_copy(update=changes)


def track(metric: str, at_ns: ArrayLike, values: ArrayLike, source: str = "planted") -> Track:
    """Samples at these times; one value stands for all of them."""
    stamps = np.asarray(at_ns, dtype=np.int64)
    column = np.zeros(stamps.shape) + np.asarray(values, dtype=float)
    return Track(metric=metric, source=source, at_ns=Series.pack(stamps), values=Series.pack(column))


def rounds(of_ms: Mapping[str, tuple[float, float | None]], repeats: int = 3, noise: float = 0.01) -> list[TrialRecord]:
    """Trials of each variant in every round, by the time of its steps and the wait in it."""
    return [record(name, repeat, *ms, noise=noise) for repeat in range(repeats) for name, ms in of_ms.items()]


def session(of: Scenario, trials: Sequence[TrialRecord], environment: Environment = CPU, **changes: Any) -> Session:
    """The session of these trials, with the results that come of them."""
    made = Session(
        started_at="2026-01-01T00:00:00+00:00",
        scenario=of,
        environment=environment,
        trials=tuple(trials),
        results=summarise(of, trials, environment.cores),
    )
    return made.model_copy(update=changes)
