"""Trials without the command line: a scenario's session, run on a server that is there, and what can be left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline_bench import environment
from pipeline_bench.model.result import Precision
from pipeline_bench.model.selftest import Part
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.run.launcher import TrialServer
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.run.runner import Runner
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve


def without_ceilings(scenario: Scenario, *kept: str | None) -> Scenario:
    """Leave the ceilings out, but for those with these names: a trial less for each that a test does not look at."""
    variants = [variant for variant in scenario.variants if not variant.is_ceiling or variant.name in kept]
    return scenario.model_copy(update={"variants": tuple(variants)})


def alone(*variants: dict[str, Any], run: dict[str, Any] | None = None, **job: Any) -> Scenario:
    """Return a scenario of these variants without their ceilings, each measured once; `job` is what they share."""
    document = {"name": "test", **job, "run": {"repeats": 1, **(run or {})}, "variants": list(variants)}
    return without_ceilings(resolve(document))


def selected(request: pytest.FixtureRequest, parameter: str) -> set[Any]:
    """Return the values of a parameter for which tests of this file were selected."""
    items = (item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function))
    params = (item.callspec.params for item in items if hasattr(item, "callspec"))
    return {each[parameter] for each in params if parameter in each}


def new_session(scenario: Scenario, precision: Precision | None = None) -> Session:
    return Session(
        started_at="2026-01-01T00:00:00+00:00",
        scenario=scenario,
        environment=environment.describe(environment.Accelerator()),
        precision=precision,
    )


def parts_of(outcome: Outcome) -> dict[str, Part]:
    """Return the parts of a selftest by their names."""
    assert outcome.session.selftest is not None
    return {part.name: part for part in outcome.session.selftest.parts}


def losses(record: TrialRecord) -> Any:
    """Return the loss of each step of a trial that went well."""
    assert record.status == "ok", record.reason
    assert record.steps is not None
    return record.steps.loss.unpack()


def see_length(record: TrialRecord, seconds: float) -> None:
    """The step that reaches the time is the last one; the first, which compiles, does not count."""
    assert record.status == "ok", record.reason
    assert record.steps is not None
    end_ns = record.steps.end_ns.unpack()
    assert end_ns[-1] - end_ns[0] >= seconds * 1e9
    assert (end_ns[:-1] - end_ns[0] < seconds * 1e9).all()


def run(server: TrialServer, scenario: Scenario, folder: Path, observer: Observer | None = None) -> Session:
    """Run the scenario's trials, without a device that is sampled."""
    return Runner(folder, server, NvmlSampler(), observer or Observer()).run(new_session(scenario)).session
