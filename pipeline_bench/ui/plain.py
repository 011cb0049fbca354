"""Plain lines for pipes, CI and ``--no-live``: one a finished trial, more of a long one; no control characters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from pipeline_bench.analysis import precision
from pipeline_bench.analysis.speedups import beyond_ceiling
from pipeline_bench.model.diagnosis import CEILING, Diagnosis
from pipeline_bench.model.result import Precision
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial, TrialRecord, plan
from pipeline_bench.report.attempts import too_wide
from pipeline_bench.run.observer import Observer, Progress
from pipeline_bench.system import interrupts
from pipeline_bench.system.files import takes_output
from pipeline_bench.text import NAME, one_line, units
from pipeline_bench.ui import diagnosing
from pipeline_bench.ui.progress import stage

_MAKING_LINES = 4
_OPEN = 2
"""Of what is open after a round so much is named: a comparison of eight variants begins with 18 questions."""
_BEYOND_CEILING = (
    "This machine's speed changes so much between trials that a fix came faster than the model without any input. Such "
    "gains are chance, and are left out here."
)
_LONG_TRIAL_S = 20.0
"""A trial that takes longer says how far it is: after this time, and each time after as long again."""


class PlainView(Observer):
    """Writes to a text stream what has happened, line by line.

    Args:
        stream: where to write; flushed after every line, so that a reader of the pipe sees it at once.
        folder: where the session is saved, if that is to be shown at the start.
        clock: seconds, for how much of a diagnosis' budget is left.
    """

    def __init__(self, stream: TextIO, folder: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream
        self._folder = folder
        self._planned: int | None = 0
        self._diagnoses = False
        self._rounds = 0
        self._making = ("", 0)
        self._clock = clock
        self._started_s = clock()
        self._found: set[object] = set()
        """What was told of the limit: its stage, why, and how certainly, or a text that names none."""
        self._next_line_s = _LONG_TRIAL_S
        self._noisy = False
        """Whether it was told that trials seem faster than the model alone."""

    def preparing(self, what: str) -> None:
        self._line(f"{one_line(what, NAME)} ...")

    def making(self, what: str, made: int, total: int) -> None:
        reached = (what, _MAKING_LINES * made // total)
        if reached != self._making:
            self._making = reached
            self._line(f"making data, {one_line(what, NAME)}: {made:,} of {total:,}")

    def session_started(self, session: Session, plan: Sequence[Trial]) -> None:
        self._planned = len(plan) if session.precision is None and session.diagnosis is None else None
        self._diagnoses = session.diagnosis is not None
        self._started_s = self._clock()
        variants = units.count(len(session.scenario.variants), "variant")
        name = one_line(session.scenario.name, NAME)
        if session.diagnosis is not None:
            self._line(f"{name}: up to {session.diagnosis.budget_s:g} s of measuring, beside the starts of its trials")
        elif session.precision is None:
            self._line(f"{name}: {units.count(len(plan), 'trial')} of {variants}")
        else:
            goal = session.precision.goal
            until = "everything is decided" if goal is None else f"±{units.precision(goal)} is reached"
            self._line(f"{name}: {variants}, repeated until {until}, for {session.precision.budget_s:g} s at most")
        if self._folder is not None:
            self._line(f"saved in {self._folder}")

    def trial_started(self, trial: Trial) -> None:
        self._next_line_s = _LONG_TRIAL_S

    def progress(self, trial: Trial, progress: Progress) -> None:
        if progress.elapsed_s < self._next_line_s:
            return
        self._next_line_s = 2 * progress.elapsed_s
        doing = diagnosing.stage(trial, progress) if self._diagnoses else stage(trial, progress)
        self._line(f"{self._named(trial)}: {doing}, {units.clock(progress.elapsed_s)} so far")

    def trial_finished(self, trial: Trial, record: TrialRecord, session: Session) -> None:
        if session.diagnosis is not None:
            self._diagnosed(trial, record, session, session.diagnosis)
            return
        if self._planned is not None:
            self._planned = len(plan(session.scenario))  # a variant may have come since the start
        self._line(f"{self._named(trial)}: {', '.join(_outcome(record))}")
        if session.precision is not None and session.precision.repeats > self._rounds:
            self._rounds = session.precision.repeats
            self._line(_state_after_round(session, session.precision))

    def _diagnosed(self, trial: Trial, record: TrialRecord, session: Session, diagnosis: Diagnosis) -> None:
        """Write what a finished trial of a diagnosis tried, the gain so far, and what is left of the budget."""
        left = diagnosing.left(session, self._clock() - self._started_s)
        # Why there will be no diagnosis is what the report says next.
        tried = [record.status] if diagnosis.failure is not None else _tried(trial, record, session)
        self._line(f"{self._named(trial)}: {', '.join(tried)}; {left}")
        if not self._noisy and record.status == "ok" and _is_beyond_ceiling(trial, session):
            self._noisy = True
            self.note(_BEYOND_CEILING)
        found, limit = diagnosing.found(session), diagnosis.bottleneck
        if not found or limit is None:
            return
        # Its share is another with every trial.
        fact = found if limit.stage is None else (limit.stage, limit.cause, limit.certainty, limit.limits)
        if fact not in self._found:
            self._found.add(fact)
            self._line(f"found: {found}")

    def _named(self, trial: Trial) -> str:
        """Return which trial this is: its number, what it runs and, in a comparison, which repeat of it."""
        if self._diagnoses:
            return f"[{trial.index + 1}] {diagnosing.named(trial)}"
        name = one_line(trial.variant.name, NAME)
        if self._planned is None:
            return f"[{trial.index + 1}] {name}, repeat {trial.repeat + 1}"
        number = f"{trial.index + 1:>{len(str(self._planned))}}/{self._planned}"
        return f"[{number}] {name}, repeat {trial.repeat + 1}/{trial.variant.run.repeats}"

    def note(self, text: str) -> None:
        self._line(f"note: {text}")

    def _line(self, text: str) -> None:
        while not takes_output(self.stream, interrupts.CHECK_EVERY_S):
            if interrupts.is_kept_back():  # nobody reads what would have been said here
                return
        self.stream.write(one_line(text) + "\n")
        self.stream.flush()


def _state_after_round(session: Session, goal: Precision) -> str:
    """After a round: how well the least known ratio is known, and how much of the budget is left."""
    after = f"after {units.count(goal.repeats, 'repeat')}"
    left_s = max(0.0, goal.budget_s - session.elapsed_s)
    if goal.goal is None:
        still = precision.open_words(session, _OPEN)
        return f"{after}: {f'open: {still}' if still else 'nothing is open'}; {units.clock(left_s)} of the budget left"
    if goal.ended_by is not None:
        return goal.text
    known = f"goal ±{units.precision(goal.goal)}, {precision.widest_words(session)}"
    return f"{after}: {known}; {units.clock(left_s)} of the budget left"


def _tried(trial: Trial, record: TrialRecord, session: Session) -> list[str]:
    """Return how a trial of a diagnosis ended, with the gain of its variant over all of its trials."""
    if record.status != "ok":
        return [_why_not(trial, session) or _ending(record)]
    # A gain is a ratio of means.
    parts = [units.milliseconds(float(record.step_ns.mean()) / 1e6)] if record.step_ns.size else ["ok"]
    result = session.find_result(trial.variant.name)
    if result is None or result.speedup.value is None or result.variant == CEILING:
        return parts
    if not _is_beyond_ceiling(trial, session):
        ends = result.speedup.ci95
        shown = units.with_ends(units.ratio, result.speedup.value, None if ends is None or too_wide(ends) else ends)
        said = diagnosing.outcome(session, result)
        parts.append(f"{shown} so far{f', {said}' if said else ''}")
    return parts


def _is_beyond_ceiling(trial: Trial, session: Session) -> bool:
    """Return whether the fix of a trial came faster than the model without any input: its gain is chance."""
    result = session.find_result(trial.variant.name)
    return result is not None and result.variant != CEILING and bool(beyond_ceiling(result.speedup, session))


def _why_not(trial: Trial, session: Session) -> str:
    """Return why a fix that failed could not but fail, in place of what TensorFlow says of it; "" of others."""
    attempts = session.diagnosis.attempts if session.diagnosis is not None else ()
    fits = (a for a in attempts if (a.fix.variant, a.outcome) == (trial.variant.name, "not-applicable"))
    reason = next((each.reason for each in fits), "")
    return f"does not apply: {reason.rstrip('.')}" if reason else ""


def _ending(record: TrialRecord) -> str:
    return record.status if record.reason is None else f"{record.status}: {record.reason.rstrip('.')}"


def _outcome(record: TrialRecord) -> list[str]:
    parts = [_ending(record)]
    if record.step_ns.size:
        parts.append(f"{units.milliseconds(float(record.step_ns.mean()) / 1e6)} a step")
    steps = record.steps.count if record.steps is not None else 0
    return [*parts, units.count(steps, "step"), units.seconds(record.took_s)]
