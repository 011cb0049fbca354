"""The progress of a running session: what each variant has shown so far, and how long the rest will take."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pipeline_bench.model.result import BUSY_TIME, Result, Verdict
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial, TrialRecord
from pipeline_bench.model.trial import plan as planned
from pipeline_bench.report import mean_step
from pipeline_bench.run.observer import Progress
from pipeline_bench.scenario import Variant
from pipeline_bench.text import units

_HISTORY = 256
_PHASES = {
    "import": "starting",
    "build": "building",
    "evaluate": "evaluating",
    "inspect": "looking for the record",
}


@dataclass
class VariantProgress:
    """One variant: its trials so far and the newest figures."""

    variant: Variant
    finished: int = 0
    running: bool = False
    failed: bool = False
    """One of its trials did not end well."""
    fraction: float = 0.0
    """How much of the running trial is done, 0 to 1."""
    step_ms: float | None = None
    input_wait_share: float | None = None
    device_percent: float | None = None
    history: deque[float] = field(default_factory=lambda: deque[float](maxlen=_HISTORY))
    """The device utilization of the running trial; after it, of the last."""
    verdict: Verdict | None = None
    repeats: int | None = None
    """How many trials it will have; None where that is not known beforehand."""

    @cached_property
    def emulates(self) -> bool:
        """Whether its model only emulates its device."""
        return self.variant.emulated_device is not None

    @property
    def done(self) -> bool:
        """Whether all of its trials have ended."""
        return self.repeats is not None and self.finished >= self.repeats

    def update(self, progress: Progress) -> None:
        """Take the running trial's newest figures; what it has not measured yet keeps the last trial's value."""
        self.fraction = fraction(self.variant, progress)
        if progress.step_ms is not None:
            self.step_ms = progress.step_ms
        if progress.input_wait_share is not None:
            self.input_wait_share = progress.input_wait_share
        if progress.device_utilization_percent is not None:
            self.device_percent = progress.device_utilization_percent
            self.history.append(progress.device_utilization_percent)

    def settle(self, result: Result, judged: bool) -> None:
        """Take the figures over all trials so far; a verdict before the ceiling has run would be none."""
        self.step_ms = mean_step(result).value
        self.input_wait_share = result.input_wait_share.value
        self.device_percent = result.device_utilization.mean_percent
        self.verdict = result.verdict if judged and result.verdict.kind != "not-measured" else None


class SessionProgress:
    """What a running session has shown so far.

    Args:
        session: as it was when it started.
        plan: the trials in their order; with a goal of precision, those that the scenario asks for.
    """

    def __init__(self, session: Session, plan: Sequence[Trial]) -> None:
        self.session = session
        self.plan = tuple(plan)
        self.open_ended = session.precision is not None or session.diagnosis is not None
        """Whether trials are added until a goal is reached or a budget is spent; a diagnosis adds variants, too."""
        self.rows = {
            variant.name: VariantProgress(variant, repeats=None if self.open_ended else variant.run.repeats)
            for variant in session.scenario.variants
        }
        self.trial: Trial | None = None
        self.last: Progress | None = None
        self.finished = 0
        self.source: str | None = None
        self._took_s: dict[str, list[float]] = {}

    def start(self, trial: Trial) -> None:
        self.trial, self.last = trial, None
        if not self.open_ended and trial.index >= len(self.plan):
            self.plan += (trial,)
        row = self.row(trial)
        row.running, row.fraction = True, 0.0
        row.history.clear()

    def update(self, trial: Trial, progress: Progress) -> None:
        """Take in how far the running trial has come."""
        if self.row(trial).emulates and progress.device_utilization_source != BUSY_TIME:
            # Until the emulated device is there, what is known is the CPU's, and no figure of the device.
            progress = dataclasses.replace(
                progress, device_utilization_percent=None, device_utilization_source=BUSY_TIME
            )
        self.last = progress
        self.source = progress.device_utilization_source or self.source
        self.row(trial).update(progress)

    def finish(self, trial: Trial, record: TrialRecord, session: Session) -> None:
        self.session, self.trial, self.last = session, None, None
        if not self.open_ended:
            self.plan = planned(session.scenario)
        self.finished += 1
        row = self.row(trial)
        row.running, row.fraction, row.finished = False, 0.0, row.finished + 1
        row.failed = row.failed or record.status != "ok"
        if record.status == "ok":
            self._took_s.setdefault(trial.variant.name, []).append(record.took_s)
        for result in session.results:
            other = self.rows.get(result.variant)
            if other is not None and result.trials:
                ceiling = self.rows.get(other.variant.ceiling or "")
                other.settle(result, judged=ceiling is None or ceiling.finished > 0)
        if session.precision is not None and session.precision.ended_by is not None:
            for other in self.rows.values():
                other.repeats = other.finished

    def row(self, trial: Trial) -> VariantProgress:
        """Return the row of a trial's variant, which may be one that its session did not begin with."""
        repeats = None if self.open_ended else trial.variant.run.repeats
        return self.rows.setdefault(trial.variant.name, VariantProgress(trial.variant, repeats=repeats))

    @property
    def ended(self) -> bool:
        """Whether no trial follows."""
        return all(row.done for row in self.rows.values())

    @property
    def trials_done(self) -> float:
        """How many trials have ended, the running one's share included."""
        return self.finished + (self.rows[self.trial.variant.name].fraction if self.trial is not None else 0.0)

    def left_s(self, elapsed_s: float) -> float | None:
        """Return seconds until the last trial ends, going by the trials that ended well; None before anything is known.

        With a goal of precision, seconds until its budget is spent.

        Args:
            elapsed_s: since the session was started.
        """
        if self.session.precision is not None:
            return max(0.0, self.session.precision.budget_s - elapsed_s)
        running_s = self._running_left_s()
        waiting = self.plan[self.finished + (self.trial is not None) :]
        waiting_s = [self._expected_s(trial.variant) for trial in waiting]
        known = [seconds for seconds in waiting_s if seconds is not None]
        if running_s is None or len(known) < len(waiting_s):
            return None
        return running_s + sum(known)

    def _running_left_s(self) -> float | None:
        """Return the seconds until the running trial ends; 0 where none runs."""
        if self.trial is None:
            return 0.0
        last, variant = self.last, self.trial.variant
        done = fraction(variant, last) if last is not None else 0.0
        if last is not None and done > 0:
            return last.training_s * (1 - done) / done
        expected_s = self._expected_s(variant, of_another_running=False)
        return None if expected_s is None else max(0.0, expected_s - (last.elapsed_s if last is not None else 0.0))

    def _expected_s(self, variant: Variant, *, of_another_running: bool = True) -> float | None:
        """Return how long a variant's trial should take: as its own did, as all did, or as the running one does."""
        own = self._took_s.get(variant.name)
        every = own or [seconds for took_s in self._took_s.values() for seconds in took_s]
        if every:
            return sum(every) / len(every)
        if not of_another_running or self.last is None:
            return None
        rest_s = self._running_left_s()
        return None if rest_s is None else self.last.elapsed_s + rest_s


def fraction(variant: Variant, progress: Progress) -> float:
    """Return how much of its training a trial has done, 0 to 1."""
    run = variant.run
    if run.steps is not None:
        done = progress.steps / run.steps
    elif run.time_s is not None:
        done = progress.training_s / run.time_s
    else:
        done = 0.0
    return min(1.0, max(0.0, done))


def stage(trial: Trial, progress: Progress) -> str:
    """Return what a running trial does, and how far its training is."""
    if progress.phase != "train":
        return _PHASES.get(progress.phase, progress.phase)
    run = trial.variant.run
    if run.time_s is not None:
        return f"{units.clock(progress.training_s)} of {units.clock(run.time_s)}, step {progress.steps}"
    return f"step {progress.steps}" + (f"/{run.steps}" if run.steps is not None else "")
