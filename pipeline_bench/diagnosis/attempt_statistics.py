"""How the attempts stand while a diagnosis runs: how often each was measured, what it gained, whether it may go on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from pipeline_bench.analysis.measured import AllSteps, Measured
from pipeline_bench.analysis.thresholds import GAINED
from pipeline_bench.diagnosis import chain, equality, variants
from pipeline_bench.diagnosis.fixes import caches
from pipeline_bench.diagnosis.step_times import StepTimes
from pipeline_bench.model.calls import BATCH_AS_IS
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING, RULED_OUT, Attempt, Diagnosis, EqualityStatus, Fix
from pipeline_bench.model.edits import BatchInGenerator, GatherBatches, GatherWindows, MoveBefore, Remove
from pipeline_bench.model.fingerprint import Fingerprint
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.text import NAME, REASON, joined, one_line, units
from pipeline_bench.text.units import NS_PER_MS

CONFIRMED_TRIALS = 3
"""A proposal has at least this many paired trials: of fewer, no interval of a use can be had."""
_CONTRADICTS = 1.25
"""Trials of one ceiling that differ by more did not measure the model alone."""
_STEADY = 1.1
"""Trials of the same that differ by more cannot show that a step is within some percent of its ceiling."""
_NAMED = 3
"""Of stages that may draw, so many are named."""
FINGERPRINT_TRIALS = 2
"""So many trials are asked which samples arrive, where the first did not say."""


@dataclass(frozen=True)
class AttemptStatistics:
    """What the trials of an attempt came to so far."""

    attempt: Attempt
    trials: int
    """Measured ones that have one of the pipeline as written in their round."""
    gain: float | None
    """The speed-up over the pipeline as written, 1 for none."""
    faster: bool
    """Whether the interval of the speed-up lies above 1."""
    slower: bool
    asked: int
    """Trials that ended, measured or not."""
    in_all: float | None = None
    """The speed-up over all epochs, where a cache gains from the second on and their number is known; else the gain."""

    @property
    def name(self) -> str:
        """The attempt's variant."""
        return self.attempt.fix.variant

    @property
    def possible(self) -> bool:
        """Whether it has not been ruled out."""
        return self.attempt.outcome not in (*RULED_OUT, "not-tried")

    @property
    def contends(self) -> bool:
        """Whether it gained something in what was measured of it."""
        return self.possible and self.gain is not None and self.gain >= GAINED

    @property
    def proposable(self) -> bool:
        """Whether it may be proposed: faster beyond chance, in enough trials, and with samples as they should be."""
        is_compared = self.attempt.equality is not None
        return self.contends and self.faster and is_compared and self.trials >= CONFIRMED_TRIALS


def of(session: Session, diagnosis: Diagnosis) -> list[AttemptStatistics]:
    """Return how every attempt stands, in the diagnosis' order."""
    results = {result.variant: result for result in session.results}
    measured = {trial.repeat for trial in session.trials_of(AS_WRITTEN) if trial.measured}
    gains = {name: result.speedup.value for name, result in results.items()}
    passes = chain.passes(diagnosis.inspection) if diagnosis.inspection is not None else None
    found = []
    for attempt in diagnosis.attempts:
        own = session.trials_of(attempt.fix.variant)
        result = results.get(attempt.fix.variant)
        speedup = result.speedup if result is not None else None
        found.append(
            AttemptStatistics(
                attempt=attempt,
                trials=sum(trial.measured and trial.repeat in measured for trial in own),
                gain=speedup.value if speedup is not None else None,
                in_all=_in_all(attempt.fix, diagnosis, gains, passes),
                faster=speedup is not None and speedup.difference == "faster",
                slower=speedup is not None and speedup.difference == "slower",
                asked=sum(trial.status != "interrupted" for trial in own),
            )
        )
    return found


def _in_all(fix: Fix, diagnosis: Diagnosis, gains: dict[str, float | None], passes: float | None) -> float | None:
    """Return the speed-up of a fix over so many passes over the data: a cache gains nothing in the first one.

    The other fixes of a combination gain there what the best of them has gained alone.
    """
    gain = gains.get(fix.variant)
    if not gain or passes is None or passes < 1 or not fix.keeps:
        return gain
    others = [name for name in fix.combines if not diagnosis.attempt(name).fix.keeps]
    first = max([1.0, *(gains.get(name) or 1.0 for name in others)])
    return passes / (1 / first + (passes - 1) / gain)


def seconds_a_trial(session: Session, diagnosis: Diagnosis) -> dict[str, float]:
    """Return the budget's mean seconds in a trial of each variant that has had one, less its start and fingerprint."""
    took_s: dict[str, list[float]] = {}
    for trial in session.trials:
        if trial.variant != variants.INSPECTION:
            besides_s = trial.start_s(diagnosis.target.is_script) + trial.phase_s("fingerprint")
            took_s.setdefault(trial.variant, []).append((trial.ended_ns - trial.started_ns) / 1e9 - besides_s)
    return {name: fmean(each) for name, each in took_s.items()}


def ruled(session: Session, diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with those attempts marked that failed, or that are refused for their samples."""
    written = fingerprint(session, AS_WRITTEN)
    any_order = diagnosis.allow_reordering or order_varies(session, diagnosis.inspection)
    attempts = []
    for attempt in diagnosis.attempts:
        own = session.trials_of(attempt.fix.variant)
        if attempt.outcome in (*RULED_OUT, "not-tried"):
            attempts.append(attempt)
        elif not own:  # what is known without a trial needs none
            frozen = _frozen(attempt.fix, diagnosis.inspection, written)
            untried = {"outcome": "not-tried", "reason": frozen} if frozen else {}
            attempts.append(attempt.model_copy(update=untried))
        else:
            found = fingerprint(session, attempt.fix.variant)
            beside = found.as_written if found is not None else None
            attempts.append(_ruled(attempt, own, beside or written, found, diagnosis, any_order=any_order))
    return diagnosis.model_copy(update={"attempts": tuple(attempts)})


def fingerprint(session: Session, variant: str) -> Fingerprint | None:
    """Return the fingerprint of the variant's samples: the first complete one, else the last."""
    fingerprints = [trial.fingerprint for trial in session.trials_of(variant) if trial.fingerprint]
    return next((found for found in fingerprints if found.reason is None), fingerprints[-1] if fingerprints else None)


def reproducible(session: Session) -> bool | None:
    """Return whether another run of the user's code gives the samples of the first; None where no trial shows it."""
    known = _of_other_runs(session)
    return known <= {"identical", "random"} if known else None


def order_varies(session: Session, inspection: Inspection | None) -> bool:
    """Return whether the user asks for any order, and gets the same samples in another one in each run."""
    asks = inspection is not None and not chain.promises_order(inspection)
    return asks and "reordered" in (known := _of_other_runs(session)) and "unequal" not in known


def _of_other_runs(session: Session) -> set[EqualityStatus]:
    """Return what the samples of other runs of the user's code are, against the first, as far as trials show it."""
    first = fingerprint(session, AS_WRITTEN)
    again = [trial.fingerprint.as_written for trial in session.trials if trial.fingerprint is not None]
    return {equality.compare(first, each).status for each in again if each is not None} - {"not-told"}


def wants_fingerprint(session: Session, variant: str) -> bool:
    """Return whether the next trial of the variant should report which samples arrive."""
    found = fingerprint(session, variant)
    return (found is None or found.reason is not None) and len(session.trials_of(variant)) < FINGERPRINT_TRIALS


def asked(session: Session, variant: str) -> variants.Asked:
    """Return which samples the next trial of an attempt is to report.

    Those of the pipeline as written too, until it is known that another run of the user's code gives the same.
    """
    if not wants_fingerprint(session, variant):
        return "none"
    return "own" if reproducible(session) else "beside as written"


def _ruled(
    attempt: Attempt,
    own: list[TrialRecord],
    written: Fingerprint | None,
    found: Fingerprint | None,
    asked: Diagnosis,
    *,
    any_order: bool,
) -> Attempt:
    bad = next(_bad(own), None)
    if bad is not None:
        at_once = all(trial.status == "failed" and (trial.steps is None or not trial.steps.count) for trial in own)
        why = _does_not_apply(attempt.fix, asked.inspection) if at_once else ""
        return attempt.model_copy(update={"outcome": "not-applicable" if why else "failed", "reason": why or bad})
    compared = equality.compare(written, found)
    if compared.status == "not-told" and found is None and len(own) < FINGERPRINT_TRIALS:
        return attempt  # its next trial is asked again
    updates: dict[str, object] = {"equality": compared}
    if asked.inspection is not None and (kept := _kept(own)) is not None:
        parts = [asked.attempt(name).fix for name in attempt.fix.combines]
        updates["fix"] = caches.priced(attempt.fix, asked.inspection, kept, parts)
    reason = equality.refusal(compared, any_order) or _frozen(attempt.fix, asked.inspection, written)
    reason = reason or _ends_before_reading(attempt.fix, asked.inspection, own)
    if reason is None and compared.status == "not-told":
        seen = all(each is not None and each.components for each in (written, found))
        reason = _not_known(attempt.fix, compared.text, asked, seen=seen)
    if reason is not None:
        updates |= {"outcome": "refused", "reason": reason}
    return attempt.model_copy(update=updates)


def _does_not_apply(fix: Fix, inspection: Inspection | None) -> str:
    """Return why a fix that failed could not but fail: a function got what it was not written for; "" of others."""
    if inspection is None or fix.combines:
        return ""
    moves = [(inspection.stage(e.stage), inspection.stage(e.other)) for e in fix.edits if isinstance(e, MoveBefore)]
    for stage, other in moves:
        if stage.method == "filter":
            return f"{one_line(stage.label, NAME)} looks at what {one_line(other.label, NAME)} gives."
    behind = {other.id for stage, other in moves if stage.method in BATCH_AS_IS}
    maps = [stage for stage in inspection.stages if stage.id in {*behind, *(fix.stages if behind else ())}]
    functions = [stage.function for stage in maps if stage.method == "map" and stage.function is not None]
    unknown = [each for each in functions if each.on_batches is None] or functions
    return f"{one_line(unknown[0].name, NAME)} takes one element, and no batch." if unknown else ""


def _moves_filter(fix: Fix, inspection: Inspection | None) -> bool:
    """Return whether it is more than the order that could change, which the user may have allowed."""
    moved = [edit.stage for edit in fix.edits if isinstance(edit, MoveBefore)]
    return inspection is not None and any(inspection.stage(number).method == "filter" for number in moved)


def _not_known(fix: Fix, why: str, asked: Diagnosis, *, seen: bool) -> str | None:
    """Return why a fix is refused whose samples are not known to be the same; None where the user accepts that.

    Who accepts another order does not accept other samples: where none was `seen`, a cache or a batch may freeze draws.
    """
    if _moves_filter(fix, asked.inspection):
        return f"It is not known whether as many samples are left out: {why}."
    unknown = f"It is not known whether its samples are the same: {why}"
    gathers = any(isinstance(edit, BatchInGenerator | GatherBatches | GatherWindows) for edit in fix.edits)
    others = asked.inspection is not None and bool(_run_otherwise(fix, asked.inspection))
    if not seen and (fix.keeps or gathers or others):
        return f"{unknown}; no option accepts that of a fix that keeps samples, or makes them in batches."
    return None if asked.allow_reordering else f"{unknown}; --allow-reordering accepts that."


def _frozen(fix: Fix, inspection: Inspection | None, written: Fingerprint | None) -> str | None:
    """Return why a fix is refused that makes one random draw of many: of Python's draws, or of a variable's changes.

    A cache would keep one draw for ever, a batch share one. Where no sample could be compared, any may be drawn.
    """
    if inspection is None or written is None:
        return None
    none_seen = written.complete and not written.components
    if not none_seen and not _drawn_beside_graph(inspection, written):
        return None
    kept = _run_otherwise(fix, inspection)
    draw = (each for each in inspection.stages if each.method == "from_generator" or each.keeps_state)
    able = [each for each in draw if each in kept]
    if not able:
        return None
    names = joined([one_line(stage.label, NAME) for stage in able[:_NAMED]], "or")
    if none_seen:
        why = (written.reason or "no sample could be compared").rstrip(".")
        return f"It is not known whether {names} draws random samples: {why}."
    return f"The samples are random, and {names} may draw them: it must run as often as it does now."


def _drawn_beside_graph(inspection: Inspection, written: Fingerprint) -> bool:
    """Return whether Python or a variable draws: what the graph draws is known, and no candidate touches it.

    Samples then differ between two passes with one seed, or are random and no op of the graph explains it.
    """
    explained = any(stage.draws for stage in inspection.stages)
    return any(each.kept_state or (each.random and not explained) for each in written.components)


def _run_otherwise(fix: Fix, inspection: Inspection) -> list[Stage]:
    """Return the stages that run more or less often with a fix: in front of a cache, or on batches."""
    kept: list[Stage] = []
    for number in fix.kept_stages:
        kept += chain.upstream(inspection, inspection.stage(number))
    for edit in fix.edits:
        if isinstance(edit, Remove) and inspection.stage(edit.stage).method == "cache":
            kept += chain.upstream(inspection, inspection.stage(edit.stage))
        if isinstance(edit, MoveBefore) and inspection.stage(edit.stage).method in BATCH_AS_IS:
            ahead = chain.upstream(inspection, inspection.stage(inspection.stage(edit.other).inputs[0]))
            kept += [each for each in chain.upstream(inspection, inspection.stage(edit.stage)) if each not in ahead]
    return kept


def _ends_before_reading(fix: Fix, inspection: Inspection | None, own: list[TrialRecord]) -> str | None:
    """Return why nothing would be read from the cache of a fix: the training takes no more than what fills it.

    Where TensorFlow does not know how many elements a pass has, a trial that filled the cache does.
    """
    training = inspection.training if inspection is not None else None
    if inspection is None or training is None or training.in_loop or training.steps is None:
        return None
    cost = inspection.cost(fix.kept_stages[0]) if len(fix.kept_stages) == 1 else None
    kept = _kept(own)
    if kept is None or cost is None or not cost.elements or training.steps > kept / cost.elements:
        return None
    takes, has = units.count(training.steps, "batch", "batches"), round(kept / cost.elements)
    return f"The fit takes {takes}, and a pass over the data has {has:,}: nothing would be read from a cache."


def _kept(own: list[TrialRecord]) -> int | None:
    """Return how many elements the trials of a cache filled it with; None where none was, or none told it."""
    told = (trial.inspection.cached_elements for trial in own if trial.inspection is not None)
    return next((elements for elements in told if elements is not None), None)


def _bad(own: list[TrialRecord]) -> Iterator[str]:
    """Yield why the attempt failed, where one of its trials did.

    A single stall beside trials that went through proves nothing against it: TensorFlow 2.21 now and then waits for
    its AUTOTUNE thread for seconds when an iterator is deleted, whatever the pipeline.
    """
    stalls = sum(trial.status == "stalled" for trial in own)
    tolerated = stalls == 1 and any(trial.measured for trial in own)
    for trial in own:
        if trial.status == "stalled" and tolerated:
            continue
        if trial.broke:
            reason = one_line(trial.reason or "", REASON).rstrip(".")
            yield f"{'It stalled' if trial.status == 'stalled' else 'It failed'}{': ' if reason else ''}{reason}."
        elif trial.status == "ok" and not trial.measured:
            yield "No step was measured after its warm-up."


def mean_ms(session: Session, variant: str) -> float | None:
    """Return the mean step of a variant in ms; None where it was not measured."""
    result = session.find_result(variant)
    return None if result is None else result.step_ms.mean


def trial_means_ms(session: Session, variant: str) -> list[float]:
    """Return the mean step of each measured trial of a variant in ms, without its warm-up."""
    return [Measured(AllSteps(each)).mean_ms for each in session.trials_of(variant) if each.measured]


def contradicting_ceiling_ms(session: Session) -> float | None:
    """Return the shortest mean step of the ceiling's trials in ms, if they contradict each other; else None.

    What else a machine does makes a step longer only, so that of 40 and 80 ms the model needs 40 at the most.
    """
    means_ms = trial_means_ms(session, CEILING)
    return min(means_ms) if means_ms and max(means_ms) > _CONTRADICTS * min(means_ms) else None


def ceiling_ms(session: Session) -> float | None:
    """Return what a step of the model alone takes in ms, None where it was not measured.

    Of rounds in which the pipeline as written was measured too; of trials that contradict each other the shortest.
    """
    if (shortest_ms := contradicting_ceiling_ms(session)) is not None:
        return shortest_ms
    written = session.find_result(AS_WRITTEN)
    beside_ms = None if written is None else written.ceiling_ms.value
    return mean_ms(session, CEILING) if beside_ms is None else beside_ms


def copy_ms(session: Session) -> float | None:
    """Return what the copy of a batch to the GPU takes in ms; None where it was not measured, or is none."""
    written = session.find_result(AS_WRITTEN)
    ms = None if written is None else written.device_copy.ms.value
    return ms if ms is not None and ms > 0 else None


def step_times(session: Session) -> StepTimes:
    """Return what a step takes as written. The first step of an epoch does not move the median wait."""
    written = session.find_result(AS_WRITTEN)
    trials = [trial for trial in session.trials_of(AS_WRITTEN) if trial.measured]
    waits = [wait_ns for trial in trials if (wait_ns := trial.after_warmup("wait_ns")) is not None]
    counts = [trial.steps.count - trial.warmup_steps for trial in trials if trial.steps is not None]
    return StepTimes(
        mean_ms(session, AS_WRITTEN),
        ceiling_ms(session),
        None if written is None else written.input_wait_ms.value,
        float(np.median(np.concatenate(waits))) / NS_PER_MS if waits else None,
        sum(counts),
        all(_is_steady(trial_means_ms(session, variant)) for variant in (AS_WRITTEN, CEILING)),
        trains=session.diagnosis is not None and session.diagnosis.model is not None,
        in_a_row=max(counts, default=None),
    )


def _is_steady(means_ms: list[float]) -> bool:
    return not means_ms or max(means_ms) <= _STEADY * min(means_ms)


def by_gain(found: AttemptStatistics) -> float:
    """Return a key that sorts the highest gain first, and what was not measured last."""
    return math.inf if found.in_all is None else -found.in_all
