"""A machine on which a pipeline's true period is known: the search runs against it, with noise and a fake clock."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline_bench.analysis.results import summarise
from pipeline_bench.diagnosis import bottleneck, variants
from pipeline_bench.diagnosis.search import Search
from pipeline_bench.diagnosis.step_times import StepTimes
from pipeline_bench.model import Series
from pipeline_bench.model.calls import Value
from pipeline_bench.model.diagnosis import AS_WRITTEN, Bottleneck, Diagnosis
from pipeline_bench.model.edits import Edit
from pipeline_bench.model.events import Copied, Device, InGraph, KeptMemory, KnownShapes
from pipeline_bench.model.fingerprint import ElementComponent, Fingerprint
from pipeline_bench.model.pipeline import Inspection, Location, ScriptTraining, Stage, StageCost, Target
from pipeline_bench.model.session import Session
from pipeline_bench.model.task import Task
from pipeline_bench.model.trial import PhaseMark, Trial, TrialRecord, TrialSteps
from pipeline_bench.model.user_function import OnBatches, UserFunction
from tests.unit.sessions import CPU, GPU

TARGET = Target(file="train.py", name="make_dataset")
MODEL = Target(file="train.py", name="make_model")
MS = 1e6
STEPS = 60
BUDGET_S = 60.0
"""Where a test names none: half of what a user has, so that what most rules need still fits."""


def find(inspection: Inspection, cores: int, *times: Any, **named: Any) -> Bottleneck:
    """The bottleneck, by the times of a step (`StepTimes`)."""
    return bottleneck.find(inspection, cores, StepTimes(*times, **named))


def function(
    name: str,
    *,
    python: bool = False,
    stateful: bool = False,
    changes_state: bool = False,
    changes_seeds: bool = False,
    random: bool = False,
    draws_in_python: bool | None = None,
    parses_examples: bool = False,
    on_batches: OnBatches | None = None,
) -> UserFunction:
    return UserFunction(
        name=name,
        file="train.py",
        line=3,
        python=python or draws_in_python is not None,
        stateful=stateful or python or random or changes_state or draws_in_python is not None,
        changes_state=changes_state,
        changes_seeds=changes_seeds,
        random=random,
        draws_in_python=draws_in_python,
        parses_examples=parses_examples,
        on_batches=on_batches,
    )


def stage(
    number: int,
    method: str,
    *inputs: int,
    of: UserFunction | None = None,
    inner: tuple[Stage, ...] = (),
    **arguments: Value,
) -> Stage:
    place = Location(file="/home/user/train.py", line=10 + number)
    return Stage(id=number, method=method, inputs=inputs, arguments=arguments, function=of, place=place, inner=inner)


def cost(
    number: int,
    elapsed_ms: float | None,
    cpu_ms: float | None = None,
    *,
    elements: float = 1.0,
    element_bytes: float = 1000.0,
    reason: str | None = None,
) -> StageCost:
    cpu_ms = elapsed_ms if cpu_ms is None else cpu_ms
    return StageCost(
        stage=number,
        elapsed_ns=None if elapsed_ms is None else elapsed_ms * MS,
        cpu_ns=None if cpu_ms is None else cpu_ms * MS,
        queued_ns=None if cpu_ms is None else 0.0,
        elements=elements,
        element_bytes=element_bytes,
        reason=reason,
    )


def inspection(
    stages: tuple[Stage, ...],
    costs: tuple[StageCost, ...],
    *,
    batch_size: int | None = 32,
    cardinality: int | None = 100,
    default_parallelised: bool = True,
) -> Inspection:
    return Inspection(
        stages=stages,
        sink=stages[-1].id,
        batch_size=batch_size,
        cardinality=cardinality,
        pass_elements=cardinality,
        costs=costs,
        default_parallelised=default_parallelised,
    )


def with_stage(looked: Inspection, number: int, **changes: Any) -> Inspection:
    """The same inspection but for these fields of a stage."""
    stages = tuple(each.model_copy(update=changes) if each.id == number else each for each in looked.stages)
    return looked.model_copy(update={"stages": stages})


def with_function(looked: Inspection, number: int, **changes: Any) -> Inspection:
    """The same inspection but for these fields of a stage's function."""
    made = looked.stage(number).function
    assert made is not None
    return with_stage(looked, number, function=made.model_copy(update=changes))


def python_decode(decode_ms: float = 20.0, num_parallel_calls: int | None = None) -> Inspection:
    """Files, a Python map that computes one call at a time, a batch."""
    given: dict[str, Value] = {} if num_parallel_calls is None else {"num_parallel_calls": num_parallel_calls}
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "map", 0, of=function("decode", python=True)).model_copy(update={"arguments": given}),
        stage(2, "batch", 1, batch_size=32),
    )
    return inspection(stages, (cost(0, 0.1, elements=32), cost(1, decode_ms, elements=32), cost(2, 0.5)))


def shuffled(
    first_ms: float, *, buffer_size: int = 3200, epochs: int = 5, cache: bool = False, **given: object
) -> Inspection:
    """100 batches of 32: a map of 30 ms a batch in front of a shuffle, whose first batch takes so long."""
    stages = (
        stage(0, "from_tensor_slices"),
        stage(1, "map", 0, of=function("load", stateful=True)),
        stage(2, "cache", 1) if cache else stage(2, "with_options", 1),
        stage(3, "shuffle", 2, buffer_size=buffer_size),
        stage(4, "batch", 3, batch_size=32),
    )
    costs = (cost(0, 0.3), cost(1, 30.0), cost(2, 0.1), cost(3, 0.1, elements=32), cost(4, 0.2))
    training = ScriptTraining(line="train.py:9", model=True, epochs=epochs)
    filled = {"first_ns": first_ms * 1e6, "training": training, **given}
    return inspection(stages, costs).model_copy(update=filled)


def component(
    hashes: tuple[int, ...] = tuple(range(64)), *, name: str = "0", is_random: bool = False
) -> ElementComponent:
    return ElementComponent(
        name=name,
        dtype="float32",
        shape="[8]",
        ordered=f"{hash(hashes) & (2**64 - 1):016x}",
        unordered=f"{sum(hashes) & (2**64 - 1):016x}",
        sample_hashes=hashes,
        mean=0.5,
        std=0.25,
        random=is_random,
    )


def fingerprint(*components: ElementComponent, complete: bool = True, **updates: object) -> Fingerprint:
    some = components or (component(),)
    samples = len(some[0].sample_hashes)
    made = Fingerprint(complete=complete, elements=samples // 8, samples=samples, batch_sizes=(8,), components=some)
    return made.model_copy(update=updates)


PeriodMs = Callable[[tuple[Edit, ...]], float]
Told = Callable[[tuple[Edit, ...]], Fingerprint | None]


@dataclass
class Machine:
    """Runs trials: `period_ms` is the truth of each pipeline by its edits; a trial's own noise is `noise`, relative."""

    looked_at: Inspection
    period_ms: PeriodMs
    ceiling_ms: float | None = None
    noise: float = 0.0
    seed: int = 0
    overhead_s: float = 2.0
    told: Told = lambda edits: fingerprint()
    fails: Callable[[Trial], str | None] = lambda trial: None
    second_look: Inspection | None = None
    """What a second look at the pipeline finds; None: the same."""
    cold: bool = False
    """Whether the pipeline as written cannot fill its cache in a trial."""
    told_as_written: Inspection | None = None
    """What a trial of the pipeline as written tells beside its steps."""
    cached_elements: int | None = None
    """What an edit that keeps something keeps of a pass, where the trial tells it."""
    steps: int = STEPS
    """Of each trial."""
    start_s: float = 0.0
    """What a trial's process takes to start."""
    in_one_process: bool = False
    """Whether the trials behind the first as written run in its process."""
    telling_s: float = 0.0
    """What telling which samples arrive takes."""
    copied: Copied | None = None
    """What the copy of a batch takes where the model is on a GPU; None: it is on the CPU."""
    known_shapes: KnownShapes | None = None
    """What a step of the model takes with shapes that the dataset does not promise."""
    in_graph: InGraph | None = None
    """What a step of a model that runs as eager code takes as a graph."""
    kept_memory: tuple[KeptMemory, ...] = ()
    """What steps as written take with kept memory, in the first trials of these."""
    now_s: float = 5.0
    ran: list[Trial] = field(default_factory=list)

    def run(self, trial: Trial) -> TrialRecord:
        self.ran.append(trial)
        started_ns = int(self.now_s * 1e9)
        task = Task.model_validate(trial.variant.source.options)
        self.now_s += self.start_s
        phases = (PhaseMark(name="build", at_ns=int(self.now_s * 1e9)),) if self.start_s else ()
        common = {
            "phases": phases,
            "index": trial.index,
            "variant": trial.variant.name,
            "repeat": trial.repeat,
            "started_ns": started_ns,
            "launcher": "reused" if self.in_one_process and trial.index > 1 else "forkserver",
        }
        if (reason := self.fails(trial)) is not None:
            self.now_s += self.overhead_s
            return TrialRecord.model_validate(
                {
                    **common,
                    "status": "failed",
                    "reason": reason,
                    "ended_ns": int(self.now_s * 1e9),
                    "inspection": None if task.activity == "inspect" else self._sent(trial.variant.name, task),
                }
            )
        if task.activity == "inspect":
            self.now_s += task.limit_s / 2
            first = sum(each.variant.name == variants.INSPECTION for each in self.ran) == 1
            found = self.looked_at if first or self.second_look is None else self.second_look
            return TrialRecord.model_validate(
                {**common, "status": "ok", "inspection": found, "ended_ns": int(self.now_s * 1e9)}
            )
        assert trial.variant.run.time_s is not None
        self.now_s += self.overhead_s + task.warmup_s + trial.variant.run.time_s
        if task.fingerprint:
            phases = (*phases, PhaseMark(name="fingerprint", at_ns=int(self.now_s * 1e9)))
            self.now_s += self.telling_s
        return TrialRecord.model_validate(
            {
                **common,
                "phases": phases,
                "status": "ok",
                "ended_ns": int(self.now_s * 1e9),
                "steps": self._steps(task, started_ns),
                "warmup_steps": 1,
                "inspection": self._sent(trial.variant.name, task),
                "fingerprint": self._told(task) if task.fingerprint else None,
                "device": None if self.copied is None else Device(kind="gpu", name="Test GPU"),
                "copied": self.copied if task.activity == "ceiling" else None,
                "known_shapes": self.known_shapes if task.activity == "ceiling" else None,
                "in_graph": self.in_graph if task.activity == "ceiling" else None,
                "kept_memory": self._kept(trial),
            }
        )

    def _kept(self, trial: Trial) -> KeptMemory | None:
        found = self.kept_memory[trial.repeat : trial.repeat + 1] if trial.variant.name == AS_WRITTEN else ()
        return next(iter(found), None)

    def _sent(self, variant: str, task: Task) -> Inspection | None:
        if self.cold and variant == AS_WRITTEN:
            return Inspection(cold=True)
        if self.told_as_written is not None and variant == AS_WRITTEN:
            return self.told_as_written
        keeps = any(edit.keeps for edit in task.edits)
        return Inspection(cached_elements=self.cached_elements) if keeps else None

    def _told(self, task: Task) -> Fingerprint | None:
        found = self.told(task.edits)
        if found is None or not task.fingerprint_as_written:
            return found
        return found.model_copy(update={"as_written": self.told(())})

    def _steps(self, task: Task, started_ns: int) -> TrialSteps:
        noise = random.Random(f"{self.seed} {len(self.ran)}").gauss(0, self.noise)
        own_ms = self.period_ms(task.edits) if task.activity != "ceiling" else 0.0
        wait_ms = max(own_ms - (self.ceiling_ms or 0.0), 0.0) if self.ceiling_ms else own_ms
        step_ms = max(own_ms, self.ceiling_ms or 0.0) * float(np.exp(noise))
        edges = started_ns + (np.arange(self.steps + 1) * step_ms * MS).astype(np.int64)
        return TrialSteps(
            start_ns=Series.pack(edges[:-1]),
            end_ns=Series.pack(edges[1:]),
            wait_ns=Series.pack(np.full(self.steps, int(min(wait_ms, step_ms) * MS))),
            loss=Series.pack(np.zeros(self.steps)),
        )


def session(machine: Machine, **options: Any) -> Session:
    """A session that has not begun; `options` are what a user asks of a `Diagnosis`."""
    model = MODEL if machine.ceiling_ms is not None else None
    asked = Diagnosis(model=model, **{"target": TARGET, "budget_s": BUDGET_S, **options})
    return Session(
        started_at="2026-01-01T00:00:00+00:00",
        scenario=variants.scenario(asked),
        environment=CPU if machine.copied is None else GPU,
        diagnosis=asked,
    )


def diagnose(machine: Machine, *, most: int = 300, free_memory_bytes: float | None = None, **options: Any) -> Session:
    """The search to its end, as the runner runs it; `options` as of `session`."""
    search, state = Search(free_memory_bytes), session(machine, **options)
    for _ in itertools.repeat(None, most):
        state, trial = search.next(state)
        if trial is None:
            return state
        state = after(search, state, machine.run(trial))
    raise AssertionError(f"the search does not end within {most} trials")


def measured(machine: Machine, **options: Any) -> Session:
    """The search to the first trial of the pipeline as written, and of its ceiling; what it says if it ends there."""
    search, state = Search(), session(machine, **options)
    for last in (False, True) if machine.ceiling_ms is None else (False, False, True):
        state, trial = search.next(state)
        assert trial is not None
        state = after(search, state, machine.run(trial), interrupted=last)
    return state


def said(found: Session) -> Diagnosis:
    assert found.diagnosis is not None
    return found.diagnosis


def text_of(machine: Machine, **options: Any) -> str:
    """What is said after no more trials than those of `measured`."""
    return said(measured(machine, **options)).text


def after(search: Search, state: Session, record: TrialRecord, interrupted: bool = False) -> Session:
    """What the runner makes of a trial's record."""
    trials = (*state.trials, record)
    results = summarise(state.scenario, trials, state.environment.cores)
    return search.updated(state.model_copy(update={"trials": trials, "results": results}), interrupted)
