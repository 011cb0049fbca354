"""What a step of the pipeline as written takes, whether it proves that no input limits it, and what steps do not show.

Trials are short: what an epoch begins with may lie outside of their steps, and a buffer that was filled before them
may feed them all.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from pipeline_bench.analysis.measured import AllSteps, Measured
from pipeline_bench.analysis.thresholds import BOUND_SHARE, DEARER_ALONE, EXPLAINED, FILLING, LEAST_CAUSE, NOT_THE_LIMIT
from pipeline_bench.diagnosis import segments, stage_graph
from pipeline_bench.diagnosis.fixes.cache_size import pass_elements
from pipeline_bench.model.calls import KEEPING
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING
from pipeline_bench.model.element_flow import AUTOTUNED_BATCHES
from pipeline_bench.model.pipeline import Inspection, Stage, StageCost
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.text import units
from pipeline_bench.text.units import NS_PER_MS

HANDS_ON = frozenset({"range", "from_tensors", "zip", "prefetch", "repeat", "take", "skip", "with_options"})
"""Stages that compute nothing: on a busy machine one is the costliest of those measured, if what computes was not."""
_OF_BEGINNINGS = 0.5
"""A median wait below this part of the mean: most of the wait lies in few steps."""
_CONTRADICTS = 1.25
"""Trials of one ceiling that differ by more did not measure the model alone."""
_STEADY = 1.1
"""Trials of the same that differ by more cannot show that a step is within some percent of its ceiling."""


class StepTimes(NamedTuple):
    """What a step of the pipeline as written takes, or an element of the sink where there is no model, in ms."""

    as_written_ms: float | None
    """None where it was not measured: the stages' own costs then say how long it should take."""
    ceiling_ms: float | None = None
    """Of the model without any input; None without a model."""
    wait_ms: float | None = None
    """What it waits for its batch, on average; None where it is not known."""
    typical_wait_ms: float | None = None
    """The median of the same."""
    steps: int | None = None
    """How many were measured; None where that does not matter."""
    steady: bool = True
    """Whether trials of the same differ by little: a ceiling near the step then proves that no input limits it."""
    trains: bool = False
    """Whether they are a model's, whose ceiling is not known at first."""
    in_a_row: int | None = None
    """The most that one trial measured, one after another; None where that is not known."""
    beside_model_ms: float | None = None
    """What a PyDataset's `__getitem__` took for a batch while they ran; None where it was not timed."""

    @property
    def waits_little(self) -> bool:
        """Whether a step is known to wait for so little of its time that no input makes it 3 % faster."""
        return self.wait_ms is not None and self.wait_ms <= (1 - NOT_THE_LIMIT) * (self.as_written_ms or 0.0)

    @property
    def most_wait_at_beginnings(self) -> bool:
        """Whether most of what steps wait, on average, lies in few of them: those that begin an epoch."""
        typical_ms = self.typical_wait_ms
        return typical_ms is not None and typical_ms < _OF_BEGINNINGS * (self.wait_ms or 0.0)


def mean_ms(session: Session, variant: str) -> float | None:
    """Return the mean step of a variant in ms; None where it was not measured."""
    result = session.find_result(variant)
    return None if result is None else result.step_ms.mean


def trial_means_ms(session: Session, variant: str) -> list[float]:
    """Return the mean step of each measured trial of a variant in ms, without its warm-up."""
    return [Measured(AllSteps(each)).mean_ms for each in session.trials_of(variant) if each.measured]


def ceiling_ms(session: Session) -> float | None:
    """Return what a step of the model alone takes in ms, None where it was not measured.

    Of rounds in which the pipeline as written was measured too; of trials that contradict each other the shortest.
    """
    means_ms = trial_means_ms(session, CEILING)
    if _spread(means_ms) > _CONTRADICTS:  # other work makes a step longer only: of 40 and 80 ms the model needs 40
        return min(means_ms)
    written = session.find_result(AS_WRITTEN)
    beside_ms = None if written is None else written.ceiling_ms.value
    return mean_ms(session, CEILING) if beside_ms is None else beside_ms


def copy_ms(session: Session) -> float | None:
    """Return what the copy of a batch to the GPU takes in ms; None where it was not measured, or is none."""
    written = session.find_result(AS_WRITTEN)
    ms = None if written is None else written.device_copy.ms.value
    return ms if ms is not None and ms > 0 else None


def of(session: Session) -> StepTimes:
    """Return what a step takes as written. The first step of an epoch does not move the median wait."""
    written = session.find_result(AS_WRITTEN)
    trials = [trial for trial in session.trials_of(AS_WRITTEN) if trial.measured]
    waits = [wait_ns for trial in trials if (wait_ns := trial.after_warmup("wait_ns")) is not None]
    counts = [trial.steps.count - trial.warmup_steps for trial in trials if trial.steps is not None]
    as_written_ms = mean_ms(session, AS_WRITTEN)
    return StepTimes(
        as_written_ms=as_written_ms,
        ceiling_ms=ceiling_ms(session),
        wait_ms=None if written is None else written.input_wait_ms.value,
        typical_wait_ms=float(np.median(np.concatenate(waits))) / NS_PER_MS if waits else None,
        steps=sum(counts),
        steady=all(_spread(trial_means_ms(session, variant)) <= _STEADY for variant in (AS_WRITTEN, CEILING)),
        trains=session.diagnosis is not None and session.diagnosis.model is not None,
        in_a_row=max(counts, default=None),
        beside_model_ms=_beside_model_ms(trials, as_written_ms),
    )


def _beside_model_ms(trials: list[TrialRecord], as_written_ms: float | None) -> float | None:
    """Return what a `__getitem__` takes for a batch beside the model, of such a step; None where it was not timed.

    By its share of the steps of the same trial: a step is of those that no other work slowed, and its calls are of all.
    """
    shares = [
        trial.inspection.beside_model_ns / NS_PER_MS / Measured(AllSteps(trial)).mean_ms
        for trial in trials
        if trial.inspection is not None and trial.inspection.beside_model_ns is not None
    ]
    return statistics.fmean(shares) * as_written_ms if shares and as_written_ms is not None else None


def _spread(means_ms: list[float]) -> float:
    """Return the longest over the shortest; 1 where there is none."""
    return max(means_ms, default=1.0) / min(means_ms, default=1.0)


class Beginning(NamedTuple):
    """What each pass over the data begins with: a shuffle fills its buffer, or a skip drops what was made."""

    stage: Stage
    batches: int
    """Elements of the sink in a pass; 0 where that is not known."""
    first_ms: float
    """How long the first of them takes."""
    wait_ms: float
    """What that is beyond a usual step."""
    saved_ms: float
    """What the last batches of the pass wait less than the measured ones: the buffer has them when its input ends."""
    measured: bool
    """Whether it is in the measured steps: a trial counts a step that begins a pass only behind a whole one, so that
    of two passes in a row one has it."""
    estimated: bool = False
    """Whether the number of batches follows from the size of the files."""

    @property
    def does_first(self) -> str:
        """What the stage does before its first element, in words that follow its name."""
        if self.stage.method == "skip":
            return f"drops {units.count(self.stage.ahead or 0, 'finished element')} before it gives"
        return "fills its buffer before it gives"

    def holds_of(self, inspection: Inspection, stage: Stage) -> bool:
        """Return whether its stage is a buffer, and holds what another stage gave."""
        return self.stage.method == "shuffle" and stage in stage_graph.upstream(inspection, self.stage)

    @property
    def batch_ms(self) -> float:
        """What both come to for each batch of the pass."""
        return max(0.0, self.wait_ms - self.saved_ms) / self.batches if self.batches else 0.0

    def of_pass(self, element: str = "batch", elements: str = "batches") -> str:
        """Return how many elements of the sink a pass has, in words."""
        return "about " * self.estimated + units.count(self.batches, element, elements)

    def spared(self, inspection: Inspection, stages: Collection[int]) -> float:
        """Return which part of it is spared if these stages compute nothing, 0 to 1; by their part of all in front."""
        front = {each.id for each in stage_graph.upstream(inspection, self.stage)} - {self.stage.id}
        costs_ns = {each.stage: max(each.elapsed_ns or 0.0, each.cpu_ns or 0.0) for each in inspection.costs}
        all_ns = sum(costs_ns.get(number, 0.0) for number in front)
        if not all_ns:
            return float(not front.isdisjoint(stages))
        return sum(costs_ns.get(number, 0.0) for number in front.intersection(stages)) / all_ns

    def speedup(self, step_ms: float, spared: float, gain: float = 1.0) -> float:
        """Return how many times as fast a pass is with this part of it spared, where steps gain that much."""
        return (step_ms + self.batch_ms) / (step_ms / gain + (1 - spared) * self.batch_ms)


def beginning(inspection: Inspection, times: StepTimes) -> Beginning | None:
    """Return what a pass begins with, where that takes a good part of it; None where it does not, or is not known.

    Where a cache serves later passes, how long the first one takes to begin says nothing of them.
    """
    counted, step_ms = of_a_pass(inspection), times.as_written_ms or 0.0
    about = pass_elements(inspection, inspection.stage(inspection.sink)) if counted is None else None
    batches = max(0, round(about or 0.0) if counted is None else counted)
    wait_ms = (inspection.first_ns or 0.0) / NS_PER_MS - step_ms
    late = inspection.ahead_elements is not None
    if not step_ms or not (batches or late):
        return None
    if any(stage.method in KEEPING for stage in inspection.stages) and not inspection.once:
        return None
    stage = next((each for each in reversed(inspection.stages) if _begins_with(inspection, each, batches)), None)
    if stage is None or _begins_once(inspection, stage):
        return None
    whole = _held(inspection, stage) or batches
    held = min(batches, whole) if stage.method == "shuffle" else 0.0
    if late and about is not None and held:  # what was computed is of a buffer that its input may be too short to fill
        wait_ms *= held / whole
    if wait_ms < BOUND_SHARE * (batches * step_ms + wait_ms):
        return None
    measured = not late and times.in_a_row is not None and times.in_a_row >= 2 * batches
    saved_ms = held * (times.wait_ms or 0.0)
    return Beginning(stage, batches, wait_ms + step_ms, wait_ms, saved_ms, measured, about is not None)


def _begins_with(inspection: Inspection, stage: Stage, batches: int) -> bool:
    """Return whether what a stage holds, or leaves out, is a good part of a pass of so many batches.

    Of a pass of unknown length (0), whether it is more than in the trials.
    """
    if stage.method not in ("shuffle", "skip"):
        return False
    held = _held(inspection, stage)
    if held is None:
        return stage.method == "shuffle"
    return held >= FILLING * batches if batches else (stage.ahead or 0) > (inspection.ahead_elements or 0)


def _begins_once(inspection: Inspection, stage: Stage) -> bool:
    """Return whether all epochs of a `fit` take from one iterator, as Keras has it with `steps_per_epoch`."""
    training = inspection.training
    if training is None or training.in_loop or training.epochs is None or training.steps is None:
        return False
    return stage_graph.endless(inspection, stage)


def unseen_beginning(inspection: Inspection, times: StepTimes) -> Beginning | None:
    """Return what a pass begins with, where that takes more than all that the measured steps wait and is in none."""
    begins = beginning(inspection, times)
    return begins if begins and not begins.measured and begins.batch_ms > (times.wait_ms or 0.0) else None


def beginning_of_unknown_part(inspection: Inspection, times: StepTimes) -> Beginning | None:
    """Return what each pass begins with, where nothing tells how many batches it has, and so what part that is."""
    begins = beginning(inspection, times)
    is_unknown = begins is not None and not begins.batches and of_a_pass(inspection) is None
    return begins if begins and is_unknown and not stage_graph.endless(inspection, begins.stage) else None


def fed_by(inspection: Inspection, cores: int, times: StepTimes) -> Stage | None:
    """Return the buffer that may have fed all measured steps with what it held before them; None where none did.

    It is filled while the model is traced. That alone proves nothing, nor does it that stages measured alone are slow,
    as the machine may have been. But where all in front of a buffer takes much longer for a batch than a step did, and
    what is behind it does not, steps that take no more of it than it holds cannot show what all later ones wait for.
    """
    parts, step_ms = segments.of(inspection, cores), times.as_written_ms or 0.0
    period_ms = parts.period_ns / NS_PER_MS
    is_of_model = times.trains or times.ceiling_ms is not None
    waits = (times.wait_ms or 0.0) >= LEAST_CAUSE * step_ms  # which those that a buffer feeds do not
    if not is_of_model or waits or not times.in_a_row or period_ms <= DEARER_ALONE * step_ms:
        return None
    taken = times.in_a_row * (1 - step_ms / period_ms)  # beyond what came in meanwhile
    for stage in inspection.stages:
        # How long a shuffle takes to begin is known of a pass of known length (`beginning`).
        fills = stage.method == "prefetch" or (stage.method == "shuffle" and of_a_pass(inspection) is None)
        size = _held(inspection, stage, inspection.ahead_elements if stage.method == "shuffle" else None)
        behind = segments.without(parts, [each.id for each in stage_graph.upstream(inspection, stage)])
        goes_with_step = behind.period_ns <= DEARER_ALONE * step_ms * NS_PER_MS
        if fills and goes_with_step and taken <= (AUTOTUNED_BATCHES if size is None else size):
            return stage
    return None


def of_a_pass(inspection: Inspection) -> int | None:
    """Return how many elements the sink gives: by its cardinality, or as counted; None where neither is known."""
    return inspection.pass_elements if inspection.cardinality is None else inspection.cardinality


def _held(inspection: Inspection, stage: Stage, most: int | None = None) -> float | None:
    """Return how many elements of the sink a stage holds, or skips, `most` of its own; None where that is not known."""
    size = stage.ahead if stage.method == "skip" else stage.arguments.get("buffer_size")
    cost = inspection.cost(stage.id)
    if not isinstance(size, int) or size < 0 or cost is None or not cost.elements:
        return None
    return (size if most is None else min(size, most)) / cost.elements


def at_the_model(inspection: Inspection, cores: int, times: StepTimes) -> str:
    """Return why no input would make the training step 3 % faster, in half a sentence; "" where one might.

    The model takes the step by itself, in steady trials if the stages compute so much that they may slow it; or all
    that a step waits and the stages compute (without a ceiling: take) is too little: no input saves more than both.
    Steps prove it only if they show all that the input costs: where a stage was not measured, if they hardly wait, and
    are more than its buffers hold.
    """
    as_written_ms, ceiling_ms, wait_ms = times.as_written_ms, times.ceiling_ms, times.wait_ms
    measured = {cost.stage for cost in inspection.costs if cost.elapsed_ns is not None}
    unmeasured = any(stage.id not in measured and stage.method not in HANDS_ON for stage in inspection.stages)
    begins = unseen_beginning(inspection, times) or beginning_of_unknown_part(inspection, times)
    unseen = begins or fed_by(inspection, cores, times)
    if as_written_ms is None or unseen or (unmeasured and not _outlasts_buffers(inspection, times)):
        return ""
    step = units.milliseconds(as_written_ms)
    all_ms = taken_ms(inspection, elapsed=ceiling_ms is None)
    proven = times.steady or (all_ms is not None and all_ms < LEAST_CAUSE * as_written_ms)
    if proven and ceiling_ms is not None and ceiling_ms > as_written_ms:  # by chance, or by what the machine did
        return f"a step takes {step}, and the model alone no less"
    if proven and ceiling_ms is not None and ceiling_ms >= NOT_THE_LIMIT * as_written_ms:
        return f"a step takes {step}, and the model alone {units.milliseconds(ceiling_ms)}"
    if wait_ms is None or all_ms is None or wait_ms + all_ms > (1 - NOT_THE_LIMIT) * as_written_ms:
        return ""
    waits = f"a step of {step} waits {units.milliseconds(wait_ms)} for its batch, and all stages together"
    taken = units.milliseconds(all_ms)
    if ceiling_ms is None:
        return f"{waits} take {taken}"
    return f"{waits} compute for {taken}; the model alone takes {units.milliseconds(ceiling_ms)}"


def _outlasts_buffers(inspection: Inspection, times: StepTimes) -> bool:
    """Return whether steps hardly waited, though they were more than all that the pipeline's buffers may have held.

    A shuffle may hold any number of batches where its pass has no known end, and so may a buffer of what is cut up.
    """
    held, is_known = 0.0, True
    for stage in inspection.stages:
        is_known = is_known and stage.method != "unbatch"
        is_known = is_known and (stage.method != "shuffle" or of_a_pass(inspection) is not None)
        size = stage.arguments.get("buffer_size" if stage.method == "prefetch" else "max_queue_size")
        holds = stage.method == "prefetch" or size is not None
        held += (size if isinstance(size, int) and size >= 0 else AUTOTUNED_BATCHES) if holds else 0
    return times.waits_little and is_known and (times.in_a_row or 0) > held


def beside_model(inspection: Inspection, times: StepTimes) -> Inspection:
    """Return the inspection with what a PyDataset's `__getitem__` took while the model's steps ran, where that is more.

    It is no more than a step, which takes one batch. Where most of the wait lies at epochs' beginnings, and it fills
    less than half of a step, the steps do not wait for it: it then counts as alone.
    """
    step_ms, beside_ms = times.as_written_ms or 0.0, times.beside_model_ms or 0.0
    beside_ns = min(beside_ms, step_ms) * NS_PER_MS
    if times.most_wait_at_beginnings and beside_ms < EXPLAINED * step_ms:
        return inspection

    python = [stage.id for stage in inspection.stages if stage.runs_python]

    def timed(cost: StageCost) -> StageCost:
        is_more = cost.elapsed_ns is not None and beside_ns > DEARER_ALONE * cost.elapsed_ns
        is_more = is_more and inspection.api == "PyDataset" and cost.stage in python
        return cost.model_copy(update={"elapsed_ns": beside_ns}) if is_more else cost

    return inspection.model_copy(update={"costs": tuple(map(timed, inspection.costs))})


def hardly_waits(times: StepTimes) -> str:
    """Return how little of a step is waited for its batch, as a sentence but for its capital and its stop."""
    share = units.share((times.wait_ms or 0.0) / (times.as_written_ms or 1.0))
    return f"the training hardly waits for its input ({share} of a step of {units.milliseconds(times.as_written_ms)})"


def taken_ms(inspection: Inspection, *, elapsed: bool) -> float | None:
    """Return the CPU time of all stages for an element; `elapsed`: of each stage its wall time where that is more."""
    if len(inspection.costs) < len(inspection.stages):
        return None
    taken_ns = 0.0
    for cost in inspection.costs:
        if cost.cpu_ns is None or cost.elapsed_ns is None:
            if inspection.stage(cost.stage).method in HANDS_ON:
                continue
            return None
        taken_ns += max(cost.cpu_ns, cost.elapsed_ns) if elapsed else cost.cpu_ns
    return taken_ns / NS_PER_MS
