"""How the attempts stand while a diagnosis runs: how often each was measured, what it gained, whether it may go on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from pipeline_bench.analysis.thresholds import GAINED
from pipeline_bench.diagnosis import equality, stage_graph, step_times, variants
from pipeline_bench.diagnosis.fixes.workers import pools
from pipeline_bench.diagnosis.step_times import StepTimes
from pipeline_bench.model.diagnosis import AS_WRITTEN, RULED_OUT, Attempt, Diagnosis, EqualityStatus, Fix
from pipeline_bench.model.edits import SetArgument
from pipeline_bench.model.events import KEEP
from pipeline_bench.model.fingerprint import Fingerprint
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.session import Session

CONFIRMED_TRIALS = 3
"""A proposal has at least this many paired trials: of fewer, no interval of a use can be had."""
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
    ended: int
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
        """Whether it gained something in what was measured of it, and loses nothing over all epochs."""
        gains = self.possible and self.gain is not None and self.gain >= GAINED
        return gains and (self.in_all is None or self.in_all >= 1)

    @property
    def likely_gain(self) -> float:
        """What it gains as if two more trials had gained nothing: of many fixes one has luck in its only trial."""
        return float((self.in_all or 0.0) ** (self.trials / (self.trials + 2))) if self.trials else 0.0

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
    passes = stage_graph.passes(diagnosis.inspection) if diagnosis.inspection is not None else None
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
                ended=sum(trial.status != "interrupted" for trial in own),
            )
        )
    return found


def _in_all(fix: Fix, diagnosis: Diagnosis, gains: dict[str, float | None], passes: float | None) -> float | None:
    """Return the speed-up of a fix over so many passes over the data: a cache gains nothing in the first one.

    The other fixes of a combination gain there what the best of them has gained alone. One that keeps things in one
    process in place of several may take as many times as long there.
    """
    gain = gains.get(fix.variant)
    if not gain or passes is None or passes < 1 or not fix.keeps:
        return gain
    others = [name for name in fix.combines if not diagnosis.attempt(name).fix.keeps]
    first = max([1.0, *(gains.get(name) or 1.0 for name in others)]) / _processes_left_out(fix, diagnosis.inspection)
    return passes / (1 / first + (passes - 1) / gain)


def _processes_left_out(fix: Fix, inspection: Inspection | None) -> int:
    """Return how many worker processes make the batches that a fix has one process make; 1 where there are none."""
    edits = [edit for edit in fix.edits if isinstance(edit, SetArgument) and edit.argument == "use_multiprocessing"]
    if inspection is None or not edits or edits[0].value is True:
        return 1
    return max((workers for *_, workers, processes in pools(inspection) if processes), default=1)


def seconds_a_trial(session: Session, diagnosis: Diagnosis) -> dict[str, float]:
    """Return the budget's mean seconds in a trial of each variant that has had one, less what comes once."""
    took_s: dict[str, list[float]] = {}
    for trial in session.trials:
        if trial.variant != variants.INSPECTION:
            besides_s = trial.start_s(diagnosis.target.is_script) + trial.phase_s("fingerprint") + trial.phase_s(KEEP)
            took_s.setdefault(trial.variant, []).append(trial.took_s - besides_s)
    return {name: fmean(each) for name, each in took_s.items()}


def fingerprint(session: Session, variant: str) -> Fingerprint | None:
    """Return the fingerprint of the variant's samples: the first complete one, else the last."""
    fingerprints = [trial.fingerprint for trial in session.trials_of(variant) if trial.fingerprint]
    return next((found for found in fingerprints if found.reason is None), fingerprints[-1] if fingerprints else None)


def reproducible(session: Session) -> bool | None:
    """Return whether another run of the user's code gives the samples of the first; None where no trial shows it."""
    known = _of_later_passes(session, in_other_runs=True)
    return known <= {"identical", "random"} if known else None


def order_varies(session: Session, inspection: Inspection | None) -> bool:
    """Return whether the user asks for any order, and gets the same samples in another one in each run."""
    asks = inspection is not None and not stage_graph.promises_order(inspection)
    return asks and "reordered" in (known := _of_later_passes(session)) and "unequal" not in known


def _of_later_passes(session: Session, *, in_other_runs: bool = False) -> set[EqualityStatus]:
    """Return what the samples as written are in other trials, against the first, as far as these show it.

    Args:
        session: so far.
        in_other_runs: leave out trials in the process of the first, for which the user's code ran no other time.
    """
    first, process, known = fingerprint(session, AS_WRITTEN), 0, set[EqualityStatus]()
    of_first = None
    for trial in session.trials:
        process += trial.launcher != "reused"
        found = trial.fingerprint
        if found is first and of_first is None:
            of_first = process
        if found is not None and found.as_written is not None and not (in_other_runs and process == of_first):
            known.add(equality.compare(first, found.as_written).status)
    return known - {"not-told"}


def wants_fingerprint(session: Session, variant: str) -> bool:
    """Return whether the next trial of the variant should report which samples arrive."""
    found = fingerprint(session, variant)
    return (found is None or found.reason is not None) and len(session.trials_of(variant)) < FINGERPRINT_TRIALS


def samples_to_report(session: Session, variant: str) -> variants.Asked:
    """Return which samples the next trial of an attempt is to report.

    Those of the pipeline as written too, until it is known that another run of the user's code gives the same.
    """
    if not wants_fingerprint(session, variant):
        return "none"
    return "own" if reproducible(session) else "beside as written"


def over_an_epoch(found: AttemptStatistics, inspection: Inspection, times: StepTimes) -> float:
    """Return the speed-up with what an epoch begins with, as estimated, where no measured step shows that.

    What a cache keeps is spared there from the second epoch on; of any other fix it is counted as written.
    """
    gain, step_ms, begins = found.in_all or 0.0, times.as_written_ms, step_times.beginning(inspection, times)
    if not gain or not step_ms or begins is None or begins.measured:
        return gain
    fix = found.attempt.fix
    spared = begins.spared(inspection, fix.stages) if fix.keeps and not inspection.once else 0.0
    return begins.speedup(step_ms, spared, gain)


def by_gain(found: AttemptStatistics) -> float:
    """Return a key that sorts the highest gain first, and what was not measured last."""
    return math.inf if found.in_all is None else -found.in_all
