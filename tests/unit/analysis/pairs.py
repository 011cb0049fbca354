"""Builds sessions from the mean step times of their trials, so that differences are tested against known figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialStatus
from tests.unit import records

CEILING_MS = (2.0, 2.02, 1.98)


def session(
    step_ms: Mapping[str, Sequence[float]],
    ceiling_ms: Sequence[float] = CEILING_MS,
    *,
    wait_ms: float = 0.5,
    status: Mapping[str, TrialStatus] | None = None,
    **changes: Any,
) -> Session:
    """A session with one variant a backend; a mean step time a trial, `wait_ms` of it input wait.

    `status` gives the trials of a variant another end than ``ok``, which leaves it without figures.
    """
    scenario = records.scenario(*step_ms, repeats=max(map(len, [*step_ms.values(), ceiling_ms])))
    ends: Mapping[str, TrialStatus] = status or {}
    trials = [
        records.record(name, repeat, ms, wait_ms, noise=0.001, status=ends.get(name, "ok"))
        for name, values in step_ms.items()
        for repeat, ms in enumerate(values)
    ]
    trials += [records.record("ceiling", repeat, ms, None, noise=0.001) for repeat, ms in enumerate(ceiling_ms)]
    return records.session(scenario, trials, **changes)


def of_other_jobs(made: Session, **source: Any) -> Session:
    """The session with other options of every variant's source, its ceiling's too."""
    variants = tuple(
        v.model_copy(update={"source": v.source.model_copy(update={"options": {**v.source.options, **source}})})
        for v in made.scenario.variants
    )
    return made.model_copy(update={"scenario": made.scenario.model_copy(update={"variants": variants})})
