"""Runs a selftest: the comparison of what is planted, the program's own cost, the GPU; saved after every part."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline_bench import environment
from pipeline_bench.model.selftest import Selftest, keep_last
from pipeline_bench.model.session import Session, save
from pipeline_bench.planted import delays
from pipeline_bench.run import comparison
from pipeline_bench.run.child import call
from pipeline_bench.run.observer import Guarded, Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.run.runner import ByPrecision
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario
from pipeline_bench.selftest import cases, gpu, judge, training
from pipeline_bench.selftest.cases import PlantedVariant
from pipeline_bench.selftest.training import SelftestStep, attempt, changed, changing
from pipeline_bench.system import interrupts
from pipeline_bench.system.files import ScratchFolder
from pipeline_bench.worker import probe_cost

_COST_WIDTH = 64
_COST_ROUNDS, _QUICK_COST_ROUNDS = 100, 40
_BARE_STEPS, _QUICK_BARE_STEPS = 60, 40
_LIMIT_S = 120.0
"""For a call in a process of its own: TensorFlow's import takes 2 to 4 s, and on a loaded machine some times that."""
_JUDGED = ("passed", "failed", "disturbed")
"""Without a part of these a selftest says nothing of the machine."""


@dataclass(frozen=True)
class SelftestPlan:
    """What a selftest plants, and the scenario of its comparison. The folder goes with `planned`'s block."""

    planted: Sequence[PlantedVariant]
    scenario: Scenario
    quick: bool


@contextmanager
def planned(quick: bool) -> Iterator[SelftestPlan]:
    """Make the files that are read, and give the plan; they are removed with the block's end."""
    with ScratchFolder() as folder:
        if not quick:
            cases.write_files(folder.path)
        planted = cases.all_of(quick, folder.path)
        yield SelftestPlan(planted, comparison.without_unavailable(cases.scenario(planted, quick)), quick)


def run(plan: SelftestPlan, folder: Path, observer: Observer, command: str = "") -> Outcome:
    """Run a selftest into a folder that exists.

    What a GPU says comes first, where there is one, then the comparison and the cost of measuring. A part that cannot
    be run, or that raises, says why, and the others go on.

    Args:
        plan: what is planted.
        folder: where the session is kept, saved after every part and every trial.
        observer: hears of every trial and of every part.
        command: the command line, for the record; by default this process's own.

    Raises:
        SessionError: the folder cannot be written.
    """
    observer = Guarded(observer)
    with interrupts.deferred(), closing(NvmlSampler.open()) as sampler:
        session = comparison.new_session(plan.scenario, sampler, command, observer)
        outcome = Outcome(session.model_copy(update={"selftest": Selftest(quick=plan.quick)}), folder, False)
        save(outcome.session, folder)
        try:
            for step in _steps(plan, folder, observer, sampler):
                outcome = attempt(step, outcome)
                if outcome.unsaved:
                    return outcome
                save(outcome.session, folder)
                if gpu.tells_windows(outcome.session.selftest):  # the rest takes minutes, and may be interrupted
                    keep_last(judge.cited(outcome.session, session.environment), ended=False)
                if outcome.interrupted:
                    return outcome
        except KeyboardInterrupt:
            return replace(outcome, interrupted=True)
    selftest = outcome.session.selftest
    if selftest is not None and any(part.status in _JUDGED for part in selftest.parts):
        keep_last(judge.cited(outcome.session, session.environment))
    return outcome


def _steps(plan: SelftestPlan, folder: Path, observer: Observer, sampler: NvmlSampler) -> Iterator[SelftestStep]:
    if sampler.accelerator.name is not None and sampler.accelerator.reason is None:
        for name, change in gpu.parts(sampler, observer, plan.quick):
            yield changing(name, change)
        if not plan.quick:
            yield from training.steps(training.Bench(folder, observer, sampler))
    compared = dict.fromkeys(each.part for each in plan.planted)
    yield SelftestStep(tuple(compared), lambda outcome: _compared(outcome, plan, observer, sampler))
    yield changing(cases.COST, lambda selftest: _cost(selftest, plan.quick, observer))


# --- the comparison --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judging(ByPrecision):
    """The scenario's plan; what the trials come to is judged after each of them, so that the file always has it."""

    adapts = False  # copies of batches this small cost nothing, and no figure of NVML's is looked at
    planted: Sequence[PlantedVariant]

    def updated(self, session: Session, interrupted: bool) -> Session:
        session = super().updated(session, interrupted)
        assert session.selftest is not None
        found = judge.of_comparison(session, self.planted, session.selftest.bare_ms)
        return session.model_copy(update={"selftest": judge.with_parts(session.selftest, found)})


def _compared(outcome: Outcome, plan: SelftestPlan, observer: Observer, sampler: NvmlSampler) -> Outcome:
    """Time bare steps, and run the comparison; where TensorFlow is missing, its parts say so."""
    if environment.tensorflow_version() is None:
        return _not_compared(outcome, plan, "TensorFlow is not installed")
    observer.preparing("timing bare steps, without the program")
    devices = sorted({each.device_ms for each in plan.planted if each.device_ms is not None})
    steps = _QUICK_BARE_STEPS if plan.quick else _BARE_STEPS
    answer = call(delays.ceilings, {"device_ms": devices, "steps": steps}, limit_s=_LIMIT_S)
    if answer.result is None:
        return _not_compared(outcome, plan, f"a bare step could not be timed: {answer.why}")
    bare_ms = {f"{ms:g}": took for ms, took in zip(devices, answer.result["ceiling_ms"], strict=True)}
    session = changed(outcome, lambda selftest: selftest.model_copy(update={"bare_ms": bare_ms})).session
    cpu_s, began_s = _own_cpu_s(sampler), time.monotonic()
    ran = comparison.run(session, outcome.folder, observer, sampler, _Judging(plan.planted))
    if not ran.session.trials or ran.interrupted:
        return ran
    beside = judge.of_beside(_own_cpu_s(sampler) - cpu_s, time.monotonic() - began_s)
    return changed(ran, lambda selftest: judge.with_parts(selftest, [beside]))


def _own_cpu_s(sampler: NvmlSampler) -> float:
    """Return the CPU time of this process and of NVML's so far."""
    times = os.times()
    return times.user + times.system + sampler.cpu_s


def _not_compared(outcome: Outcome, plan: SelftestPlan, reason: str) -> Outcome:
    missing = [judge.not_run(name, reason) for name in dict.fromkeys(each.part for each in plan.planted)]
    return changed(outcome, lambda selftest: judge.with_parts(selftest, missing))


def _cost(selftest: Selftest, quick: bool, observer: Observer) -> Selftest:
    """Time steps with and without what measures."""
    if environment.tensorflow_version() is None:
        return selftest
    observer.preparing("timing steps with and without the probe")
    began_s = time.monotonic()
    rounds = _QUICK_COST_ROUNDS if quick else _COST_ROUNDS
    answer = call(probe_cost.blocks, {"width": _COST_WIDTH, "rounds": rounds}, limit_s=_LIMIT_S)
    if answer.result is None:
        part = judge.not_run(cases.COST, f"the steps could not be timed: {answer.why}")
    else:
        blocks = answer.result
        part = judge.of_cost(blocks[probe_cost.BARE], blocks[probe_cost.PROBED], seconds=time.monotonic() - began_s)
    return judge.with_parts(selftest, [part])
