"""What the runner reports while it runs. Views implement what they need; every method of `Observer` does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial, TrialRecord


@dataclass(frozen=True)
class Progress:
    """How far the running trial is. Means are over its latest steps; None where nothing was measured yet."""

    phase: str
    steps: int
    elapsed_s: float
    """Seconds since the trial's process was started."""
    training_s: float
    """Seconds since its first step ended; 0 before."""
    step_ms: float | None = None
    input_wait_share: float | None = None
    device_utilization_percent: float | None = None
    """The newest sample."""
    device_utilization_source: str | None = None


class Observer:
    """Hears of a session's course, in the parent's main thread."""

    def preparing(self, what: str) -> None:
        """Take in that something takes a few seconds before the first trial; `what` names it in a few words."""

    def making(self, what: str, made: int, total: int) -> None:
        """Data that the trials read is being made; called a few times a second, with what is there and what will be.

        `what` says what is made in a few words: ``images for image_folder``.
        """

    def session_started(self, session: Session, plan: Sequence[Trial]) -> None:
        """Take in that the session file exists; nothing has been measured."""

    def trial_started(self, trial: Trial) -> None:
        """Take in that the trial's process is about to start."""

    def progress(self, trial: Trial, progress: Progress) -> None:
        """Called a few times a second while the trial runs."""

    def trial_finished(self, trial: Trial, record: TrialRecord, session: Session) -> None:
        """Take in that the trial has ended, and that `session`, with its results brought up to date, has been saved."""

    def note(self, text: str) -> None:
        """Take in something that the user should know, in one line."""


class Guarded(Observer):
    """Passes everything on to a view, until the view's terminal or pipe is gone; the measuring goes on without it."""

    def __init__(self, view: Observer) -> None:
        self._view: Observer = view
        for name, method in vars(Observer).items():
            if callable(method) and not name.startswith("_"):
                setattr(self, name, partial(self._forward, name))

    def _forward(self, name: str, *given: Any) -> None:
        try:
            getattr(self._view, name)(*given)
        except OSError:  # EPIPE of `| head`, EIO of a terminal that was closed
            self._view = Observer()
