"""Trials with something planted in them: step times that are known, and tracks of samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline_bench.model.trial import Track, TrialRecord
from tests.unit import records

Floats = npt.NDArray[np.float64]

MS = 1_000_000
EVERY_MS = 200


def steady(seed: int, steps: int = 1000, step_ms: float = 5.0, spread: float = 0.1) -> Floats:
    """Step times with lognormal noise and nothing else."""
    return step_ms * np.exp(spread * np.random.default_rng(seed).standard_normal(steps))


def trial(
    repeat: int, step_ms: Sequence[float] | Floats, *samples: Track, variant: str = "v", gpu: bool = False
) -> TrialRecord:
    """A trial whose first step begins at 0 of the clock, with the warm-up that is found in it."""
    return records.record(variant, repeat, list(step_ms), samples=samples, gpu=gpu)


def track(metric: str, values: Sequence[float], every_ms: int = EVERY_MS) -> Track:
    """Samples at 0, `every_ms`, twice that …"""
    return records.track(metric, np.arange(len(values)) * every_ms * MS, values)


def absent(metric: str) -> Track:
    """A metric that could not be read."""
    return Track(metric=metric, source="planted", reason="it could not be read")
