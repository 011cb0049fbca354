"""The variants of a diagnosis: what each trial is asked to do, and for how long."""

from __future__ import annotations

from typing import Literal

from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING, Diagnosis, Fix
from pipeline_bench.model.edits import Edit, SetArgument
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.session import Session
from pipeline_bench.model.task import FINGERPRINT_BATCHES, KIND, Activity, Task
from pipeline_bench.model.trial import Trial
from pipeline_bench.scenario import Component, Run, Runtime, Scenario, Variant
from pipeline_bench.text.units import NS_PER_MS, NS_PER_S

Asked = Literal["none", "own", "beside as written"]
"""Which samples a trial is asked for: none, its own, or its own and the pipeline's as written in the same run."""
INSPECTION = "inspection"
"""The variant of the trial that looks at the pipeline; it is none of the scenario's, since it has no figures."""

_INSPECTION_PART = 6
"""The inspection may take this part of the budget."""
_SECOND_LOOK_PART = 4
_SECOND_LOOK_S = (3.0, 90.0)
"""The shortest and the longest that stages are looked at again, where the first time was too short for some."""
_LIMIT_PART = 8
"""Filling a cache, or a fingerprint, may take this part of the budget."""
_LIMIT_S = (3.0, 30.0)
"""The shortest and the longest of both."""
_ELEMENTS = 30
"""As many elements give a mean that a trial's own noise does not move by much."""
_TIME_S = (1.2, 6.0)
"""A trial measures at least and at most so long, warm-up aside."""
_TIME_PART = 30
"""And no trial measures longer than this part of the budget, but for the shortest time."""
_START_PART = 4
_LONG_TIME_PART = 12
"""Where it takes long until a trial trains, it measures for a quarter of that, up to this part of the budget: three
trials each of two variants are left. Fewer starts then end a diagnosis of 60 s in half of the time."""
_COMPARED_S, _FEWEST_COMPARED = 0.6, 2
"""A pass over the batches that are compared may take about so long; there are two passes, on a busy machine perhaps."""
_WARMUP_S = 0.7
"""AUTOTUNE doubles its interval from 10 ms on; by then it has looked at the pipeline several times."""
_OVERRUN = 0.15
"""Of the budget, beyond it: a fix that stalls may take no longer."""
_SHORTEST_STALL_S = 10.0
"""TensorFlow needs seconds to start on a busy machine; a shorter time would end trials that only began slowly."""


def scenario(diagnosis: Diagnosis, stall_timeout_s: float | None = None) -> Scenario:
    """Return what a diagnosis begins with: the pipeline as written and, with a model, its ceiling.

    Args:
        diagnosis: as it was asked for.
        stall_timeout_s: a trial without progress for so long is ended; by default what the budget leaves room for.
    """
    stall_s = stall_timeout_s or max(_SHORTEST_STALL_S, diagnosis.budget_s / 2)
    run = Run(time_s=_TIME_S[0], repeats=1, stall_timeout_s=stall_s)
    return Scenario(
        name=f"diagnosis of {diagnosis.target.label}",
        question="Which stage limits the pipeline, and what makes it faster?",
        variants=tuple(_variant(name, diagnosis, run, Runtime()) for name in base_of(diagnosis)),
    )


def base_of(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the variants of every round: what attempts are compared with and, with a model, its ceiling."""
    return (AS_WRITTEN,) if diagnosis.model is None else (AS_WRITTEN, CEILING)


def with_measured(session: Session, diagnosis: Diagnosis) -> Session:
    """Return the session with its first variants as the inspection says: samples an element, length of a trial."""
    first = session.scenario.variants[0]
    names = base_of(diagnosis)
    run = first.run.model_copy(update={"time_s": _time_s(diagnosis), "steps": None, "repeats": 1})
    base = tuple(_variant(name, diagnosis, run, first.runtime) for name in names)
    others = tuple(variant for variant in session.scenario.variants if variant.name not in names)
    return _with_variants(session, (*base, *others))


def with_fix(session: Session, diagnosis: Diagnosis, fix: Fix, left_s: float) -> Session:
    """Return the session with a variant for the fix, unless it has one; it may stall for what is left of the budget."""
    if any(variant.name == fix.variant for variant in session.scenario.variants):
        return session
    base = session.scenario.variant(AS_WRITTEN)
    over_s = left_s + _OVERRUN * diagnosis.budget_s
    longest_s = max(_SHORTEST_STALL_S, min(over_s, diagnosis.budget_s / _INSPECTION_PART))
    stall_s = min(base.run.stall_timeout_s, longest_s)
    run = base.run.model_copy(update={"stall_timeout_s": stall_s})
    added = _variant(fix.variant, diagnosis, run, base.runtime, fix.edits)
    return _with_variants(session, (*session.scenario.variants, added))


def inspection_trial(session: Session, diagnosis: Diagnosis, *, again: bool = False) -> Trial:
    """Return the trial that looks at the pipeline; `again` with more time, where the first had too little."""
    first = session.scenario.variants[0]
    run = first.run.model_copy(update={"time_s": diagnosis.budget_s, "steps": None, "repeats": 1})
    is_script = diagnosis.model is None or diagnosis.model.is_script
    task = Task(
        target=diagnosis.target,
        model=None if again or is_script else diagnosis.model,  # the first look has seen that it is one
        activity="inspect",
        limit_s=look_s(diagnosis, again=again),
    )
    return Trial(index=len(session.trials), repeat=0, variant=_of_task(INSPECTION, task, run, first.runtime))


def look_s(diagnosis: Diagnosis, *, again: bool = False) -> float:
    """Return the most time for a look at the pipeline, the first or one `again`."""
    part, ends = (_SECOND_LOOK_PART, _SECOND_LOOK_S) if again else (_INSPECTION_PART, _LIMIT_S)
    return _within(diagnosis.budget_s / part, ends)


def trial(session: Session, name: str, number: int, fingerprint: Asked) -> Trial:
    """Return a trial of one of the session's variants in a round.

    Args:
        session: whose scenario holds the variant.
        name: the variant's.
        number: the round, from 0.
        fingerprint: which samples it is also to report.
    """
    variant = session.scenario.variant(name)
    if fingerprint != "none":
        beside = fingerprint == "beside as written"
        options = {**variant.source.options, "fingerprint": True, "fingerprint_as_written": beside}
        source = variant.source.model_copy(update={"options": options})
        variant = variant.model_copy(update={"source": source})
    return Trial(index=len(session.trials), repeat=number, variant=variant)


def expected_s(diagnosis: Diagnosis) -> float:
    """Return about how long a trial takes, before any has: starting, warming up, measuring, telling the samples."""
    return 3.0 + _WARMUP_S + _time_s(diagnosis)


def _variant(name: str, diagnosis: Diagnosis, run: Run, runtime: Runtime, edits: tuple[Edit, ...] = ()) -> Variant:
    activity: Activity = "drain" if diagnosis.model is None else "train"
    inspection = diagnosis.inspection
    training = None if inspection is None else inspection.training
    task = Task(
        target=diagnosis.target.model_copy(update={"of_loop": None if training is None else training.of_loop}),
        model=diagnosis.model,
        activity="ceiling" if name == CEILING else activity,
        batch_size=max(1, inspection.batch_size or 1) if inspection is not None else 1,
        edits=edits,
        warmup_s=_WARMUP_S,
        fingerprint_batches=_fingerprint_batches(inspection),
        cold=inspection is not None and inspection.cold,
        warm=name != CEILING and _keeps_batches(inspection) and not any(map(_sets_processes, edits)),
        ahead_elements=None if inspection is None else inspection.ahead_elements,
        limit_s=_within(diagnosis.budget_s / _LIMIT_PART, _LIMIT_S),
    )
    return _of_task(name, task, run, runtime)


def _keeps_batches(inspection: Inspection | None) -> bool:
    """Return whether a PyDataset's class keeps what it makes, and later epochs are what is to be measured."""
    if inspection is None or inspection.api != "PyDataset" or inspection.cold:
        return False
    return any(cost.first_epoch_ns is not None for cost in inspection.costs)


def _sets_processes(edit: Edit) -> bool:
    """Return whether an edit has processes make the batches, which end with the epoch, and with what they kept."""
    return isinstance(edit, SetArgument) and edit.argument == "use_multiprocessing" and edit.value is True


def _fingerprint_batches(inspection: Inspection | None) -> int:
    """Return how many batches of a `PyDataset` or a generator are compared: as many as there is time for."""
    element_ms = _element_ms(inspection)
    if not element_ms:  # 0 where feeding the stages took as long as they did
        return FINGERPRINT_BATCHES
    return int(_within(_COMPARED_S * 1e3 / element_ms, (_FEWEST_COMPARED, FINGERPRINT_BATCHES)))


def _of_task(name: str, task: Task, run: Run, runtime: Runtime) -> Variant:
    return Variant(
        name=name,
        backend="tf_data",
        source=Component(kind=KIND, options=task.model_dump(mode="json")),
        model=Component(kind="none" if task.model is None else "your_model"),
        loop=Component(kind="drain" if task.model is None else "train"),
        runtime=runtime,
        run=run,
        ceiling=None if name == CEILING else CEILING,
    )


def _time_s(diagnosis: Diagnosis) -> float:
    longest = max(_TIME_S[0], min(_TIME_S[1], diagnosis.budget_s / _TIME_PART))
    element_ms, made_ns = _element_ms(diagnosis.inspection), diagnosis.inspection and diagnosis.inspection.make_ns
    of_start = min((made_ns or 0.0) / NS_PER_S / _START_PART, diagnosis.budget_s / _LONG_TIME_PART, _TIME_S[1])
    of_elements = 0.0 if element_ms is None else _within(_ELEMENTS * element_ms / 1e3, (_TIME_S[0], longest))
    return round(max(_TIME_S[0], of_start, of_elements), 2)


def _element_ms(inspection: Inspection | None) -> float | None:
    """Return about how long an element takes: the stages one after another, which is more than where they overlap."""
    costs = [] if inspection is None else [cost.elapsed_ns for cost in inspection.costs if cost.elapsed_ns is not None]
    return sum(costs) / NS_PER_MS if costs else None


def _within(value: float, ends: tuple[float, float]) -> float:
    return min(ends[1], max(ends[0], value))


def _with_variants(session: Session, variants: tuple[Variant, ...]) -> Session:
    scenario = session.scenario.model_copy(update={"variants": variants})
    return session.model_copy(update={"scenario": scenario})
