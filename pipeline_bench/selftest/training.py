"""Runs the selftest's trainings on a GPU: each comparison with a session of its own, beneath the selftest's folder.

And a step of the selftest: the parts that it measures, and how; whatever it raises, the steps behind it are run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline_bench import environment
from pipeline_bench.errors import PipelineBenchError, SessionError
from pipeline_bench.model.selftest import Part, Selftest
from pipeline_bench.model.session import Session, load
from pipeline_bench.model.trial import Trial
from pipeline_bench.planted import gpu_loads
from pipeline_bench.run import comparison, machine
from pipeline_bench.run.child import beside
from pipeline_bench.run.observer import Guarded, Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.run.runner import ByPrecision, TrialGate
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario
from pipeline_bench.selftest import cases, judge, on_gpu
from pipeline_bench.text import line_of

FOLDER = "gpu"
_TUTORIAL_STEPS = 5000
_WAYS_LIMIT_S, _TUTORIAL_LIMIT_S, _SEARCH_LIMIT_S = 150.0, 90.0, 90.0
"""A trial that is under way when the time is over fails for that reason, and none begins behind it."""
_NEIGHBOUR = {"name": "neighbour", "kernel": "wide", "period_ms": 20.0, "share": 0.5, "sm_share": 1.0, "seconds": 120.0}
_BEGINS_WITHIN_S = 30.0


@dataclass(frozen=True)
class Bench:
    """Where the trainings run, and who hears of them."""

    folder: Path
    """The selftest's own."""
    observer: Observer
    sampler: NvmlSampler
    device: str = "gpu:0"
    """A runtime's."""


def steps(bench: Bench) -> Iterator[SelftestStep]:
    """Yield the steps; where TensorFlow has no GPU, the first one says so, and the others do nothing."""
    ways = (cases.TRAINING, cases.PLACED, cases.MIRRORED, cases.MATPOW, cases.NEIGHBOUR)
    yield SelftestStep(ways, partial(_every_way, bench))
    yield SelftestStep((cases.TUTORIAL,), partial(_tutorial, bench))
    yield SelftestStep((cases.STARVED,), partial(_starved, bench))


def _every_way(bench: Bench, outcome: Outcome) -> Outcome:
    bench.observer.preparing("asking TensorFlow for its GPUs")
    gpus, reason = _gpus(bench)
    if not gpus:
        return changed(outcome, lambda selftest: judge.with_parts(selftest, [judge.not_run(cases.TRAINING, reason)]))
    scenario = comparison.without_unavailable(on_gpu.every_way(bench.device, min(2, gpus)))
    names = [variant.name for variant in scenario.variants]
    with _Neighbour(names.index(on_gpu.BESIDE)) as gate:
        ran = _ran(bench, outcome, "training", scenario, _Limited(_WAYS_LIMIT_S), gate)
    return _with_parts(outcome, ran, on_gpu.parts_of_every_way(ran.session, bench.device))


def _tutorial(bench: Bench, outcome: Outcome) -> Outcome:
    if _has_no_gpu(outcome):
        return outcome
    scenario = on_gpu.tutorial(bench.device, on_gpu.FIRST_WIDTH, _TUTORIAL_STEPS)
    ran = _ran(bench, outcome, "two_layer", scenario, _Limited(_TUTORIAL_LIMIT_S))
    return _with_parts(outcome, ran, [on_gpu.part_of_tutorial(cases.TUTORIAL, ran.session, bench.device)])


def _starved(bench: Bench, outcome: Outcome) -> Outcome:
    """Search the width at which feed_dict starves this GPU, and repeat the tutorial with it."""
    if _has_no_gpu(outcome):
        return outcome
    searched = _ran(bench, outcome, "width", on_gpu.searching(bench.device), _Search(_SEARCH_LIMIT_S))
    width = on_gpu.nearest_width(on_gpu.utilizations(searched.session))
    check = on_gpu.check_of_search(searched.session, width)
    found = _with_parts(outcome, searched, [judge.part(cases.STARVED, [check])])
    if width is None or found.interrupted or found.unsaved:
        return found
    scenario = on_gpu.tutorial(bench.device, width, _TUTORIAL_STEPS)
    ran = _ran(bench, outcome, "two_layer_starved", scenario, _Limited(_TUTORIAL_LIMIT_S))
    return _with_parts(outcome, ran, [on_gpu.part_of_tutorial(cases.STARVED, ran.session, bench.device, [check])])


def _gpus(bench: Bench) -> tuple[int, str]:
    """Return how many GPUs TensorFlow uses, and why it uses none; a CPU may stand in for one."""
    if bench.device == "cpu":
        return 1, ""
    if environment.tensorflow_version() is None:
        return 0, "TensorFlow is not installed"
    answer = machine.ask_tensorflow()
    reasons = answer.report.reasons if answer.report is not None else (answer.reason,)
    return len(answer.gpus), "; ".join(["TensorFlow uses no GPU here", *filter(None, reasons)])


def _has_no_gpu(outcome: Outcome) -> bool:
    """Return whether the first step has found none: it has then no other part."""
    assert outcome.session.selftest is not None
    return cases.PLACED not in {part.name for part in outcome.session.selftest.parts}


def _with_parts(outcome: Outcome, ran: Outcome, parts: Sequence[Part]) -> Outcome:
    """Return the selftest's outcome with what a comparison came to; an interrupt of that one is one of its own."""
    found = replace(outcome, interrupted=ran.interrupted, unsaved=ran.unsaved, cut_off=ran.cut_off)
    return changed(found, lambda selftest: judge.with_parts(selftest, parts))


# --- a comparison ----------------------------------------------------------------------------------------------------


def _ran(
    bench: Bench, outcome: Outcome, name: str, scenario: Scenario, limit: _Limited, gate: TrialGate | None = None
) -> Outcome:
    """Run a comparison with a session of its own, which has the windows of NVML's figures that were just found."""
    folder = bench.folder / FOLDER / name
    folder.mkdir(parents=True)
    session = comparison.new_session(scenario, bench.sampler, outcome.session.command)
    session = session.model_copy(update={"checked": judge.cited(outcome.session, session.environment)})
    observer = _Timed(bench.observer, limit)
    return comparison.run(session, folder, observer, bench.sampler, limit, gate=gate)


class _Limited(ByPrecision):
    """The scenario's plan, as far as the time goes."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._ends_s = time.monotonic() + limit_s

    @property
    def over(self) -> bool:
        return time.monotonic() > self._ends_s

    def next(self, session: Session) -> tuple[Session, Trial | None]:
        return (session, None) if self.over else super().next(session)


class _Search(_Limited):
    """Adds a variant of another width until one is near enough."""

    def next(self, session: Session) -> tuple[Session, Trial | None]:
        session, trial = super().next(session)
        if trial is not None or self.over:
            return session, trial
        found = on_gpu.utilizations(session)
        width = on_gpu.next_width(found) if found else None
        if width is None:
            return session, None
        scenario = on_gpu.with_width(session.scenario, width)
        return super().next(session.model_copy(update={"scenario": scenario}))


class _Timed(Guarded):
    """A view that ends the running trial when the time is over: it hears of it ten times a second."""

    def __init__(self, view: Observer, limit: _Limited) -> None:
        super().__init__(view)
        self._limit = limit

    def _forward(self, name: str, *given: Any) -> None:
        if name == "progress" and self._limit.over:
            raise PipelineBenchError(f"the selftest's limit for these trials, {self._limit.limit_s:g} s, was over")
        super()._forward(name, *given)


class _Neighbour(ExitStack):
    """Has another process keep the GPU busy for half of the time while the trial of that index runs."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self._index = index

    def enter(self, index: int) -> None:
        if index == self._index:
            self.enter_context(beside(gpu_loads.run, {"loads": [_NEIGHBOUR]}, begins_within_s=_BEGINS_WITHIN_S))

    def leave(self, index: int) -> None:
        self.close()


# --- a step ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelftestStep:
    """What is measured at a time, between two saves of the session."""

    names: Sequence[str]
    """Of the parts that it measures."""
    do: Callable[[Outcome], Outcome]


def changing(name: str, change: Callable[[Selftest], Selftest]) -> SelftestStep:
    """Return the step of one part that changes nothing but the session's selftest."""
    return SelftestStep((name,), lambda outcome: changed(outcome, change))


def changed(outcome: Outcome, change: Callable[[Selftest], Selftest]) -> Outcome:
    """Return the outcome with another selftest."""
    selftest = outcome.session.selftest
    assert selftest is not None
    return replace(outcome, session=outcome.session.model_copy(update={"selftest": change(selftest)}))


def attempt(step: SelftestStep, outcome: Outcome) -> Outcome:
    """Return what a step came to; the parts of one that raised have the reason.

    Raises:
        SessionError: the session cannot be saved or read.
    """
    try:
        return step.do(outcome)
    except SessionError:
        raise
    except PipelineBenchError as error:
        reason, expected = error.message, True
    except Exception as error:  # a fault of this program's in one part must not cost the others
        reason, expected = line_of(error), False
    # A comparison has saved the trials that it ran until then.
    outcome = replace(outcome, session=load(outcome.folder))
    return changed(outcome, lambda selftest: _with_reason(selftest, step.names, reason, expected=expected))


def _with_reason(selftest: Selftest, names: Sequence[str], reason: str, *, expected: bool) -> Selftest:
    """Return the selftest with the reason in these parts; what could not be begun, for a known reason, did not fail."""
    known, failed = {part.name: part for part in selftest.parts}, {"status": "failed", "reason": reason}
    ended = [
        judge.not_run(name, reason).model_copy(update={} if expected else failed)
        if name not in known
        else known[name].model_copy(update=failed)
        for name in names
    ]
    return judge.with_parts(selftest, ended)
