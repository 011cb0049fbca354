"""Which trial of a diagnosis comes next, within its budget. Pure: everything follows from the session.

First the inspection, from which the bottleneck and the candidates follow, then rounds of attempts (`next_trial`). What
is left of the budget then measures again what leaves the bottleneck in doubt.
Speed-ups are over the trial of the pipeline as written of the same round.
"""

from __future__ import annotations

import math

from pipeline_bench.analysis.thresholds import NEEDED_STEPS
from pipeline_bench.diagnosis import bottleneck, conclusion, fixes, refusals, step_times, variants
from pipeline_bench.diagnosis.next_trial import NextTrial
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING, Diagnosis, NotTried
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial, TrialRecord
from pipeline_bench.text import REASON, one_line

_CACHE_SHARE = 0.5
"""Of the free memory, or of the machine's where that is not known: the most that a cache is to take."""
_MOST_ROUNDS = 5
"""Of the pipeline as written and its ceiling, for a verdict between two plausible ones."""
_LOOK_AGAIN_BY = 0.5
"""Of the budget: the stages are looked at again no later than this."""
_SAME_DOUBT = "A second measurement of the stages leaves it in doubt too."


class Search:
    """Plans a diagnosis: a `runner.Planner`."""

    def __init__(
        self,
        free_memory_bytes: float | None = None,
        no_servers: str | None = None,
        allowed_cpus: int | None = None,
    ) -> None:
        """Plan for this machine.

        Args:
            free_memory_bytes: what a cache in memory may take a part of; None: of the machine's memory.
            no_servers: why no trial may start servers of TensorFlow's; None where it may.
            allowed_cpus: how many CPUs a trial may run on; None: its cores, which are fewer under a quota.
        """
        self._free_memory_bytes = free_memory_bytes
        self._no_servers = no_servers
        self._allowed_cpus = allowed_cpus

    def next(self, session: Session) -> tuple[Session, Trial | None]:
        """Return the trial that comes next, None when the diagnosis has ended; see `runner.Planner`."""
        diagnosis = _of(session)
        if diagnosis.failure is not None:
            return session, None
        if not session.trials_of(variants.INSPECTION):
            return session, variants.inspection_trial(session, diagnosis)
        if diagnosis.inspection is None:
            return session, None
        session = variants.with_measured(session, diagnosis)
        if self._should_look_again(session, diagnosis):
            return session, variants.inspection_trial(session, diagnosis, again=True)
        session, trial = NextTrial(session, _of(session)).next()
        return session, trial or _against_doubt(session, _of(session))

    @staticmethod
    def _should_look_again(session: Session, diagnosis: Diagnosis) -> bool:
        """Return whether unmeasured stages hide what limits the pipeline, and there is time to measure them.

        Before any fix is tried: what is tried first follows from the costs.
        """
        inspection = diagnosis.inspection
        assert inspection is not None
        base = {AS_WRITTEN, *variants.base_of(diagnosis)}
        ran = [trial.variant for trial in session.trials]
        if ran.count(variants.INSPECTION) > 1 or not base <= set(ran) or set(ran) - base - {variants.INSPECTION}:
            return False
        late = any(cost.late and cost.elapsed_ns is None for cost in inspection.costs)
        found = diagnosis.bottleneck
        in_time = session.charged_s < _LOOK_AGAIN_BY * diagnosis.budget_s
        return late and found is not None and found.stage is None and in_time

    def updated(self, session: Session, interrupted: bool) -> Session:
        """Return the session with what can now be said; see `runner.Planner`."""
        diagnosis = self._inspected(session, _of(session))
        diagnosis = refusals.ruled(session, diagnosis)
        session = session.model_copy(update={"diagnosis": diagnosis})
        diagnosis = conclusion.concluded(session, diagnosis, "interrupted" if interrupted else self._ended(session))
        return session.model_copy(update={"diagnosis": diagnosis})

    def _ended(self, session: Session) -> NotTried | None:
        after, trial = self.next(session)
        if trial is not None:
            return None
        return "budget" if NextTrial(after, _of(after)).spent else "not-needed"

    def _inspected(self, session: Session, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis with the inspection, the bottleneck, and the candidates, as soon as each is known."""
        if diagnosis.failure is not None or not session.trials:
            return diagnosis
        inspected = next(iter(session.trials_of(variants.INSPECTION)), None)
        if inspected is not None and diagnosis.inspection is None:
            if (inspection := _usable(inspected)) is None:
                return _failed(diagnosis, inspected)
            diagnosis = diagnosis.model_copy(update={"inspection": inspection})
            if inspection.training is not None and inspection.training.model:
                diagnosis = diagnosis.model_copy(update={"model": diagnosis.target})
        if diagnosis.inspection is None:
            return diagnosis
        diagnosis = diagnosis.model_copy(update={"inspection": self._best_look(session, diagnosis.inspection)})
        judged = self._judged(session, diagnosis)
        written = session.trials_of(AS_WRITTEN)
        if len(written) == 1 and not written[0].measured and written[0].status != "interrupted":
            return _failed(judged, written[0])
        tops = session.trials_of(CEILING)
        if len(tops) == 1 and tops[0].broke:
            return _failed(judged, tops[0])
        return judged

    @staticmethod
    def _best_look(session: Session, known: Inspection) -> Inspection:
        """Return the look at the stages that measured most of them, and of several such one that leaves no doubt.

        Where a trial of the pipeline as written could not fill its cache, all that is measured is a first epoch; so it
        is where the training passes over its data once, or makes its cache anew for each pass: it gives nothing then.
        """
        cold = any(trial.inspection and trial.inspection.cold for trial in session.trials_of(AS_WRITTEN))
        cold |= any(stage.method == "cache" and (known.once or stage.anew) for stage in known.stages)
        times, cores = step_times.of(session), session.environment.cores

        def worth(look: Inspection) -> tuple[int, bool]:
            return _measured(look), bottleneck.find(look, cores, times).doubt != "stages"

        looks = [known, *_looks(session, known)]
        return max((look.of_first_epoch() if cold and not look.cold else look for look in looks), key=worth)

    def _judged(self, session: Session, diagnosis: Diagnosis) -> Diagnosis:
        inspection = diagnosis.inspection
        assert inspection is not None
        times, cores = step_times.of(session), session.environment.cores
        found = bottleneck.find(inspection, cores, times)
        complete = [look for look in _looks(session, inspection) if _measured(look) >= _measured(inspection)]
        if found.doubt == "stages" and len(complete) > 1:
            found = found.model_copy(update={"text": f"{found.text} {_SAME_DOUBT}"})
        diagnosis = diagnosis.model_copy(update={"bottleneck": found})
        tried = {trial.variant for trial in session.trials}
        begun = [each for each in diagnosis.attempts if each.fix.variant in tried or each.fix.combines]
        if times.as_written_ms is None or (begun and session.trials[-1].variant != variants.INSPECTION):
            return diagnosis
        context = fixes.Context(
            cores=cores,
            allowed_cpus=self._allowed_cpus,
            gpu=session.environment.accelerator_kind == "gpu",
            model=diagnosis.model is not None,
            allow_reordering=diagnosis.allow_reordering,
            allow_threads=diagnosis.allow_threads,
            bottleneck=found,
            as_written_ms=times.as_written_ms,
            free_memory_bytes=_CACHE_SHARE * (self._free_memory_bytes or session.environment.memory_bytes),
            no_servers=self._no_servers,
            data_service=diagnosis.data_service,
        )
        known = [each.fix.variant for each in begun], [each.fix.edits for each in begun]
        others = (
            each
            for each in fixes.attempts(inspection, context)
            if each.fix.variant not in known[0] and each.fix.edits not in known[1]
        )
        return diagnosis.model_copy(update={"attempts": (*begun, *others)})


def _against_doubt(session: Session, diagnosis: Diagnosis) -> Trial | None:
    """Return the trial that may take away what leaves the bottleneck in doubt; None where the budget has no room."""
    doubt = diagnosis.bottleneck.doubt if diagnosis.bottleneck is not None else None
    left_s = diagnosis.budget_s - session.charged_s
    if doubt == "stages":
        first, *more = session.trials_of(variants.INSPECTION)
        longer_s = variants.look_s(diagnosis, again=True) - variants.look_s(diagnosis)
        fits = _charged_s(session, first) + longer_s <= left_s
        return variants.inspection_trial(session, diagnosis, again=True) if fits and not more else None
    if doubt == "steps":
        times = step_times.of(session)
        written = session.trials_of(AS_WRITTEN)
        trials = math.ceil(bottleneck.steps_wanted(times) * len(written) / times.steps) if times.steps else math.inf
        needed_s = trials * max(_charged_s(session, trial) for trial in written)
        if all(trial.measured for trial in written) and needed_s <= left_s:
            return variants.trial(session, AS_WRITTEN, max(trial.repeat for trial in session.trials) + 1, "none")
    return _for_a_verdict(session, diagnosis, left_s)


def _for_a_verdict(session: Session, diagnosis: Diagnosis, left_s: float) -> Trial | None:
    """Return a trial more of what has no verdict; None where the budget ends before there are steps enough for one.

    The verdict is of the pipeline as written beside its ceiling: both are measured in whole rounds. Where there are
    enough steps and more than one verdict is plausible, a few more rounds may decide.
    """
    result = session.find_result(AS_WRITTEN)
    if result is None or not result.steps or result.verdict.kind != "inconclusive":
        return None
    has_two = result.verdict.doubt is not None and result.verdict.doubt.likeliest is not None
    is_between = has_two and not conclusion.nothing_to_gain(session)  # then no verdict would lead to a fix
    if result.verdict.cause != "too-few-steps" and not is_between:
        return None
    base = variants.base_of(diagnosis)
    trials = [trial for name in base for trial in session.trials_of(name)]
    if not all(map(session.trials_of, base)) or not all(trial.measured for trial in trials):
        return None
    last = max(trial.repeat for trial in session.trials)
    due = [name for name in base if all(trial.repeat != last for trial in session.trials_of(name))]
    fewest = min(session.result(name).steps for name in base)
    rounds = len({trial.repeat for trial in trials})
    wanted = math.ceil((NEEDED_STEPS - fewest) * rounds / max(1, fewest))
    if wanted <= 0 and min(len(session.trials_of(name)) for name in base) >= _MOST_ROUNDS:
        return None
    round_s = sum(max(_charged_s(session, trial) for trial in session.trials_of(name)) for name in base)
    if max(1, wanted) * round_s > left_s:
        return None
    name, number = (due[0], last) if 0 < len(due) < len(base) else (base[0], last + 1)
    return variants.trial(session, name, number, "none")


def _usable(inspected: TrialRecord) -> Inspection | None:
    """Return the first trial's inspection; None if it failed, or waited in vain for the pipeline's first element."""
    found = inspected.inspection
    hung = inspected.status == "stalled" and found is not None and found.first_ns is None
    return None if found is None or not found.stages or inspected.traceback or hung else found


def _looks(session: Session, known: Inspection) -> list[Inspection]:
    """Return the looks at the stages that are known; another run of a script may make other ones."""
    looks = [trial.inspection for trial in session.trials_of(variants.INSPECTION)]
    return [each for each in looks if each is not None and _calls(each) == _calls(known)]


def _calls(inspection: Inspection) -> list[tuple[int, str, tuple[int, ...]]]:
    return [(stage.id, stage.label, stage.inputs) for stage in inspection.stages]


def _measured(inspection: Inspection) -> int:
    return sum(cost.elapsed_ns is not None for cost in inspection.costs)


def _charged_s(session: Session, trial: TrialRecord) -> float:
    """Return how much of the budget a trial took."""
    return trial.took_s - trial.start_s(_of(session).target.is_script)


def _of(session: Session) -> Diagnosis:
    assert session.diagnosis is not None, "the session has no diagnosis to plan"
    return session.diagnosis


def _failed(diagnosis: Diagnosis, trial: TrialRecord) -> Diagnosis:
    why = one_line(trial.reason or "", REASON) or f"the trial ended: {trial.status}"
    return diagnosis.model_copy(update={"failure": why, "traceback": trial.traceback, "text": why})
