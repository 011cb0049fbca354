"""The attempts of a diagnosis as every report lists them: what came of each, and why it was left or never tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline_bench.analysis.speedups import beyond_ceiling, excludes_gain, is_open, may_gain, smallest
from pipeline_bench.analysis.thresholds import PROBABLE_CLAIM
from pipeline_bench.diagnosis import attempt_statistics
from pipeline_bench.diagnosis.attempt_statistics import CONFIRMED_TRIALS, AttemptStatistics
from pipeline_bench.diagnosis.conclusion import beaten, best_part
from pipeline_bench.model.diagnosis import PROVEN, Attempt, Diagnosis, Outcome
from pipeline_bench.model.result import Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.report.layout import DETAILS
from pipeline_bench.text import NAME, REASON, TEXT, one_line, sentence, units

_OUTCOMES: dict[Outcome, str] = {
    "proposed": "proposed",
    "faster": "faster",
    "no-gain": "no gain",
    "slower": "slower",
    "refused": "refused",
    "not-applicable": "does not apply",
    "failed": "failed",
    "not-tried": "not tried",
    "pending": "not done",
}
"""The outcomes in words, in the order of a report."""
_EQUALITY = {
    "identical": "the same samples in the same order",
    "reordered": "the same samples in another order",
    "random": "the same samples, apart from random content",
    "unequal": "other samples",
    "not-told": "whether the samples are the same is not known",
}
_TOO_WIDE = 10.0
"""An interval whose ends are so many times apart, or a least difference so large, says nothing of use."""
_LACKS = ("hardly faster", "hardly more than a part alone", "too few trials", "samples not compared")
"""What a fix lacks that is faster beyond chance and yet not proposed."""


@dataclass(frozen=True)
class Tried:
    """One attempt as a report lists it."""

    attempt: Attempt
    variant: str
    title: str
    """What it does, in words; of a combination, which is of fixes that are listed too, only its name."""
    outcome: str
    gain: str
    """``3.12×``; a dash where it was not measured."""
    interval: str
    """``3.04 to 3.20×``, or that it is too wide to be of use; empty where there is none."""
    remark: str
    """Whether the samples stayed the same, or why it came to nothing."""

    @property
    def helps(self) -> bool:
        """Whether it makes the pipeline faster and may be used."""
        return self.attempt.outcome in PROVEN

    @property
    def why_not(self) -> str:
        """Why it cannot be used, in a few words; empty where it can."""
        if self.attempt.outcome not in ("refused", "failed"):
            return ""
        status = self.attempt.equality.status if self.attempt.equality is not None else None
        return {"unequal": "other samples", "reordered": "another order"}.get(status or "", f"{DETAILS} shows why")

    @property
    def lead(self) -> str:
        """What came of it, behind its name: ``faster 3.12× (3.04 to 3.20×)``."""
        between = ", " if self.outcome in _LACKS or self.outcome.endswith("%") else " "
        gain = f"{between}{self.gain}" if self.gain != units.NOT_MEASURED else ""
        return f"{self.outcome}{gain}{f' ({self.interval})' if self.interval else ''}"

    @property
    def text(self) -> str:
        """What it does, where its name is not all that is known, and the remark, in sentences."""
        title = "" if self.title == self.variant else self.title.rstrip(".")
        sentences = [part for part in (title, self.remark) if part]
        return f"{'. '.join(sentences)}." if sentences else ""


def tried(session: Session, diagnosis: Diagnosis) -> list[Tried]:
    """Return every attempt: those that help first, the best of them first, then the others, each with its reason.

    Of those not proven the one comes first that the conclusion calls the most promising.
    """
    speedups = {result.variant: result.speedup for result in session.results}
    every = attempt_statistics.of(session, diagnosis)
    found = {each.name: each for each in every}
    labels, notes = _labels(diagnosis), _notes(session)

    def rank(each: Tried) -> tuple[int, float]:
        name, outcome = each.attempt.fix.variant, each.attempt.outcome
        gain = found[name].likely_gain if outcome == "no-gain" else speedups.get(name, Speedup()).value or 0.0
        return list(_OUTCOMES).index(outcome), -gain

    made = []
    for attempt in diagnosis.attempts:
        fix = attempt.fix
        speedup = speedups.get(fix.variant, Speedup())
        maybe = attempt.outcome == "no-gain" and may_gain(speedup)  # what was measured too little is not without gain
        if maybe and (beyond := beyond_ceiling(speedup, session)):
            speedup, notes[fix.variant] = Speedup(), beyond
        ci95 = speedup.ci95
        remark = "; ".join(_remarks(attempt, speedup, maybe, notes.get(fix.variant, "")))
        made.append(
            Tried(
                attempt,
                one_line(fix.variant, NAME),
                one_line(fix.variant if fix.combines else fix.title, REASON),
                _outcome(found[fix.variant], every, speedup),
                units.ratio(speedup.value),
                "interval too wide" if ci95 is not None and too_wide(ci95) else units.ends(units.ratio, ci95, "{}"),
                _opening(remark, labels),
            )
        )
    return sorted(made, key=rank)


def _outcome(each: AttemptStatistics, every: list[AttemptStatistics], speedup: Speedup) -> str:
    """Return the outcome in words: the level that would prove a gain, and of a proven one what else it lacks.

    It is no gain only where the trials exclude one; those that are too few for an interval do not.
    """
    if each.attempt.outcome != "no-gain":
        return _OUTCOMES[each.attempt.outcome]
    if speedup.difference == "faster":
        hardly, part_alone, too_few, not_compared = _LACKS
        if not each.contends or beaten(each, best_part(each, every)):
            return part_alone if each.contends else hardly
        return too_few if each.trials < CONFIRMED_TRIALS else not_compared
    if speedup.ci95 is not None and speedup.ci95[0] > 1:
        return f"not proven at {units.confidence(PROBABLE_CLAIM)}"
    if is_open(speedup):
        return "not decided"
    return _OUTCOMES["no-gain"] if excludes_gain(speedup) else "not proven"


def _remarks(attempt: Attempt, speedup: Speedup, maybe: bool, note: str) -> Iterator[str]:
    """Yield what is to be said of an attempt, in its order, in clauses without a full stop."""
    fix = attempt.fix
    helps = attempt.outcome in PROVEN
    texts = [attempt.reason]
    if attempt.equality is not None and helps:
        texts.append(attempt.equality.text or _EQUALITY[attempt.equality.status])
    least = speedup.smallest or _TOO_WIDE
    if attempt.outcome == "no-gain" and not maybe and speedup.value is not None and least < _TOO_WIDE:
        texts.append(smallest(speedup))
    if helps or maybe or attempt.outcome in ("not-tried", "pending"):
        texts.append(fix.because)
    if helps and not fix.because:
        texts += ["may change the order"] * fix.reorders
        texts += ["runs a function on several threads at once"] * fix.threads
    yield from (one_line(text, TEXT).rstrip(".") for text in (*texts, note) if text)


def left_out(tries: Sequence[Tried], diagnosis: Diagnosis) -> list[str]:
    """Return the fixes that were never tried, a line for those of one reason: ``Reason: fix, fix``."""
    groups: dict[str, list[str]] = {}
    for each in tries:
        if each.attempt.outcome == "not-tried":
            reason = one_line(each.attempt.reason, TEXT).rstrip(".") or "no reason is known"
            groups.setdefault(reason, []).append(each.variant)
    labels = _labels(diagnosis)
    return [f"{_opening(reason, labels)}: {', '.join(fixes)}" for reason, fixes in groups.items()]


def _notes(session: Session) -> dict[str, str]:
    """Return what the first trial of each variant that says anything says of how it was measured."""
    found: dict[str, str] = {}
    for trial in session.trials:
        if trial.inspection is not None and trial.inspection.notes:
            text = trial.inspection.notes[0]
            found.setdefault(trial.variant, text[:1].lower() + text[1:])
    return found


def _labels(diagnosis: Diagnosis) -> tuple[str, ...]:
    stages = diagnosis.inspection.stages if diagnosis.inspection is not None else ()
    names = [each for s in stages for each in (s.label, s.function.name if s.function is not None else s.method)]
    return tuple(f"{each}{end}" for each in names for end in (" ", ", "))


def _opening(text: str, labels: tuple[str, ...]) -> str:
    """Return the text as a sentence begins; but the name of a stage or of a function is code, and stays as it is."""
    return text if text.startswith(labels) else sentence(text)


def too_wide(interval: tuple[float, float]) -> bool:
    """Return whether the ends of a ratio's interval are so far apart that it is of no use."""
    low, high = interval
    return low <= 0 or high / low > _TOO_WIDE
