"""Runs a scenario: trials in interleaved order, each in its own process, the session saved after each one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from pipeline_bench import environment
from pipeline_bench.analysis import copies, interference, precision, utilization
from pipeline_bench.analysis.results import summarise
from pipeline_bench.errors import PipelineBenchError, SessionError
from pipeline_bench.model import session as sessions
from pipeline_bench.model.events import Device, Failed
from pipeline_bench.model.session import Environment, Session
from pipeline_bench.model.task import Task
from pipeline_bench.model.trial import Trial, TrialRecord, TrialStatus, plan
from pipeline_bench.run import follower, machine
from pipeline_bench.run.launcher import Child, TrialServer, trim
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.run.trial_log import TrialLog
from pipeline_bench.samplers import Reading, Sampler
from pipeline_bench.samplers.host import HostSampler
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.system import interrupts

TRIALS_FOLDER = "trials"
_TRIALS_OF_A_PROCESS = 3
"""A round of a diagnosis begins in a process of its own where so many ran in the one before. What one process has by
chance, as where its memory lies, is then in few of the pairs."""


class Planner(Protocol):
    """Decides which trial comes next, and what the trials so far come to. Pure: everything follows from the session."""

    def next(self, session: Session) -> tuple[Session, Trial | None]:
        """Return the session, with a new variant in its scenario, and the next trial; None when all is done."""

    def updated(self, session: Session, interrupted: bool) -> Session:
        """Return the session with what can now be said, its results being up to date."""


class TrialGate(Protocol):
    """What a trial waits for before it begins, and what hears when it has ended."""

    def enter(self, index: int) -> None:
        """Wait until the trial of that index may begin.

        Raises:
            PipelineBenchError: it may not, and why.
            KeyboardInterrupt: the user interrupted.
        """

    def leave(self, index: int) -> None:
        """Hear that it has ended."""


class ByPrecision:
    """The scenario's plan, and further rounds where the session has a goal of precision."""

    adapts: ClassVar[bool] = True
    """Whether trials become longer where a model is on a GPU, and its ceilings of copies join the plan; and shorter
    where steps take long."""

    def next(self, session: Session) -> tuple[Session, Trial | None]:
        """See `Planner`."""
        if self.adapts:
            session = utilization.with_longer_trials(copies.with_host_ceilings(session))
            session = precision.with_shorter_trials(session)
        return session, precision.next_trial(session)

    def updated(self, session: Session, interrupted: bool) -> Session:
        """See `Planner`."""
        return precision.updated(session, interrupted)


class _Agreed(ByPrecision):
    """The plan behind a gate, which knows each trial beforehand: none joins it."""

    adapts = False


class Runner:
    """Turns a new session into a finished one."""

    def __init__(
        self,
        folder: Path,
        launcher: TrialServer,
        gpu: NvmlSampler,
        observer: Observer,
        planner: Planner | None = None,
        replacement: Callable[[], TrialServer] | None = None,
        *,
        expose_servers: bool = False,
        gate: TrialGate | None = None,
    ) -> None:
        """Make a runner.

        Args:
            folder: the session's, which exists.
            launcher: starts the trials; the caller closes it.
            gpu: the accelerator's sampler, open.
            observer: hears of every trial.
            planner: decides which trials; by default the scenario's plan.
            replacement: starts another launcher when `launcher` is lost; None: the trials then fail.
            gate: lets each trial begin.
            expose_servers: let trials that start servers of TensorFlow's listen on the machine's own network.
        """
        self._folder = folder
        self._launcher = launcher
        self._gpu = gpu
        self._observer = observer
        self._stderr_folder = folder / TRIALS_FOLDER
        self._planner: Planner = planner or (ByPrecision() if gate is None else _Agreed())
        self._replacement = replacement
        self._replaced: list[TrialServer] = []
        self._expose_servers = expose_servers
        self._gate = gate
        self._waiting: Child | None = None
        """The process that has run the last trial, and waits for a further one."""
        self._ran: list[Trial] = []
        """What it has run."""
        self._reuses = True

    def run(self, session: Session) -> Outcome:
        """Run every trial that the planner asks for: by default those of the session's scenario and its goal.

        A signal takes effect where nothing is lost by it: while a trial is waited for, or between two trials. When the
        session can no longer be saved, on a full disk perhaps, it ends there.
        """
        self._stderr_folder.mkdir(exist_ok=True)
        session = self._with_results(session)
        sessions.save(session, self._folder)
        with interrupts.deferred():
            self._observer.session_started(session, plan(session.scenario))
            try:
                session, interrupted, unsaved = self._run_trials(session)
                return Outcome(session, self._folder, interrupted, unsaved, cut_off=unsaved is not None)
            finally:
                self._end_waiting()
                for launcher in self._replaced:
                    launcher.close()

    def _run_trials(self, session: Session) -> tuple[Session, bool, str | None]:
        """Return the session at its end, whether the user interrupted it, and why its file is not up to date."""
        described = session.environment
        while True:
            try:
                interrupts.check()
            except KeyboardInterrupt:
                session = self._planner.updated(session, interrupted=True)
                return session, True, self._save(session)
            session, trial = self._planner.next(session)
            if trial is None:
                return session, False, None
            self._observer.trial_started(trial)
            record = self._run_trial(trial, session.environment.cores)
            interrupted = record.status == "interrupted"
            session = self._with_record(session, record, described)
            unsaved = self._save(session)
            if unsaved is None:
                self._observer.trial_finished(trial, record, session)
            if interrupted or unsaved:
                return session, interrupted, unsaved

    def _with_record(self, session: Session, record: TrialRecord, described: Environment) -> Session:
        """Return the session with the trial that has just ended, and what can now be said."""
        records = (*session.trials, record)
        devices = [record.device for record in records if record.device]
        asked_for_cpu = all(variant.runtime.device == "cpu" for variant in session.scenario.variants)
        machine = environment.seen_by_tensorflow(described, devices, asked_for_cpu)
        session = session.model_copy(update={"trials": records, "environment": machine})
        try:
            return self._planner.updated(self._with_results(session), record.status == "interrupted")
        except Exception:  # a fault of this program's must not cost what was measured
            self._save(session)
            raise

    def _save(self, session: Session) -> str | None:
        """Save the session; return why it cannot be, None where it is."""
        try:
            sessions.save(session, self._folder)
        except SessionError as error:
            self._observer.note(error.message)
            return error.message
        return None

    def _with_results(self, session: Session) -> Session:
        cores = session.environment.cores
        disturbed = interference.find(session.trials, cores, session.scenario)
        known = session.checked.usable_windows if session.checked is not None else ()
        open_ended = session.precision is not None
        results = summarise(session.scenario, session.trials, cores, known, open_ended=open_ended)
        return session.model_copy(update={"results": results, "disturbances": disturbed})

    def _run_trial(self, trial: Trial, cores: int) -> TrialRecord:
        """Run a trial, and once more in a process of its own where it fails in one that has run others.

        What these have left there may be why: a generator that is used up, a lock that nobody gives back.
        """
        record = self._run_once(trial, cores)
        if record.launcher != "reused" or record.status not in ("failed", "stalled"):
            return record
        again = self._run_once(trial, cores)
        self._reuses = again.status != "ok"
        return again

    def _run_once(self, trial: Trial, cores: int) -> TrialRecord:
        stderr = self._stderr_folder / f"{trial.index + 1:03}-{_slug(trial.variant.name)}-r{trial.repeat + 1}.stderr"
        log = TrialLog(trial, time.monotonic_ns())
        child: Child | None = None
        status: TrialStatus
        what = ""
        try:
            if self._gate is not None:
                self._gate.enter(trial.index)
            what = "its process could not be started: "
            log.started_ns = time.monotonic_ns()
            child = self._start(trial, stderr)
        except KeyboardInterrupt:
            status = "interrupted"
        except (PipelineBenchError, OSError) as error:
            log.apply(Failed(error=f"{what}{error}"))
            status = "failed"
        else:
            status = self._watch(log, child, stderr, cores)
        finally:
            ended_ns = time.monotonic_ns()  # before another rank is let in
            if self._gate is not None:
                self._gate.leave(trial.index)
        launcher = child.launcher if child else "fresh"
        return log.record(status, follower.reason(log, status), launcher, stderr, ended_ns)

    def _watch(self, log: TrialLog, child: Child, stderr: Path, cores: int) -> TrialStatus:
        samplers = (HostSampler(child.pid, helper=self._gpu), self._gpu, _LogKeeper(stderr))
        try:
            self._gpu.begin()
            return follower.watch(log, child, samplers, self._observer, cores, self._select_gpu)
        except KeyboardInterrupt:
            return "interrupted"
        finally:
            if child.waits:
                self._waiting, self._ran = child, [*self._ran, log.trial]
            else:
                child.close()
            log.take(self._gpu.end())

    def _end_waiting(self) -> None:
        """End the process that waits for a further trial, if there is one."""
        if self._waiting is not None:
            self._waiting.close()
        self._waiting, self._ran = None, []

    def _reused(self, trial: Trial, stderr: Path) -> Child | None:
        """Return the process that waits, asked for the trial; None where it may not run that, or is gone."""
        child = self._waiting
        if child is None or not self._reuses or child.dead or not _may_follow(trial, self._ran):
            return None
        try:
            child.ask(trial, stderr)
        except OSError:
            return None
        self._waiting = None
        return child

    def _start(self, trial: Trial, stderr: Path) -> Child:
        """Start the trial's process; by another launcher, from now on, where this one is lost."""
        if (child := self._reused(trial, stderr)) is not None:
            return child
        self._end_waiting()
        private = machine.starts_servers(trial.variant) and not self._expose_servers
        try:
            return self._launcher.start(trial, stderr, private_network=private)
        except (PipelineBenchError, OSError) as error:
            if self._replacement is None or not self._launcher.lost:
                raise
            self._observer.note(
                f"the server that starts the trials was lost; a new one starts each in a fresh interpreter: {error}"
            )
            self._launcher.close()
            self._launcher = self._replacement()
            self._replaced.append(self._launcher)
            return self._launcher.start(trial, stderr, private_network=private)

    def _select_gpu(self, device: Device) -> None:
        if device.kind == "gpu":
            self._gpu.select(device.pci_bus_id)


class _LogKeeper(Sampler):
    """Keeps what a trial writes to stderr from filling the disk; polled like a sampler, and reads nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def poll(self) -> list[Reading]:
        trim(self._path)
        return []


def _may_follow(trial: Trial, ran: Sequence[Trial]) -> bool:
    """Return whether a trial may run in the process of others, of which a new one begins with a round."""
    asked, before = (Task.model_validate(each.variant.source.options) for each in (trial, ran[-1]))
    is_full = len(ran) >= _TRIALS_OF_A_PROCESS and not asked.edits and asked.activity != "ceiling"
    return not is_full and asked.may_follow(before)


def _slug(name: str) -> str:
    """Return a variant's name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40] or "variant"
