"""How a run of trials ended, and whether it went through."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import plan


@dataclass(frozen=True)
class Outcome:
    """A session, where it lies, and whether the user interrupted it."""

    session: Session
    folder: Path
    interrupted: bool
    unsaved: str | None = None
    """Why the session's file is not up to date; None where it is."""
    cut_off: bool = False
    """Whether a session that could not be saved ended the trials, also if it is saved by now."""

    @property
    def measured(self) -> bool:
        """Whether there is anything that a user would miss: a trial, or a part of a selftest."""
        selftest = self.session.selftest
        return bool(self.session.trials or (selftest is not None and selftest.parts))

    @property
    def all_ok(self) -> bool:
        """Whether every trial that was planned went through; with a goal of precision, every one until it ended.

        Of a diagnosis whether there is one: a fix that fails is a finding. Of a selftest whether some part passed, and
        none failed.
        """
        trials, precision = self.session.trials, self.session.precision
        if self.unsaved is not None:
            return False
        if self.session.selftest is not None:
            parts = self.session.selftest.parts
            ended = not (self.interrupted or self.cut_off)
            found = {part.status for part in parts}
            return ended and "passed" in found and found <= {"passed", "shown", "not-run"}
        if self.session.diagnosis is not None:
            return not (self.interrupted or self.cut_off) and self.session.diagnosis.failure is None
        if precision is not None:
            whole = precision.ended_by in ("precision", "decided", "budget")
        else:
            whole = len(trials) == len(plan(self.session.scenario))
        return whole and all(trial.status == "ok" for trial in trials)
