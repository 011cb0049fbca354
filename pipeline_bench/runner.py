"""Runs a scenario: trials in interleaved order, each in its own process, the session saved after each one."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Protocol

from pipeline_bench import disturbances, environment, follower, precision
from pipeline_bench import session as sessions
from pipeline_bench.errors import PipelineBenchError, SessionError
from pipeline_bench.events import Device, Failed
from pipeline_bench.observer import Observer
from pipeline_bench.process import Child, FreshLauncher, Launcher, trim
from pipeline_bench.results import summarise
from pipeline_bench.samplers import Reading, Sampler
from pipeline_bench.samplers.host import HostSampler
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.session import Session, TrialRecord, TrialStatus
from pipeline_bench.trial import Trial, plan
from pipeline_bench.trial_log import TrialLog

TRIALS_FOLDER = "trials"


class Planner(Protocol):
    """Decides which trial comes next, and what the trials so far come to. Pure: everything follows from the session."""

    def next(self, session: Session) -> tuple[Session, Trial | None]:
        """The trial that comes next, None when all is done; a variant that is new is then in the session's scenario."""

    def updated(self, session: Session, interrupted: bool) -> Session:
        """The session with what can now be said, its results being up to date."""


class ByPrecision:
    """The scenario's plan, and further rounds where the session has a goal of precision."""

    def next(self, session: Session) -> tuple[Session, Trial | None]:
        """See `Planner`."""
        return session, precision.next_trial(session)

    def updated(self, session: Session, interrupted: bool) -> Session:
        """See `Planner`."""
        return precision.updated(session, interrupted)


class Runner:
    """Turns a new session into a finished one."""

    def __init__(
        self,
        folder: Path,
        launcher: Launcher,
        gpu: NvmlSampler,
        observer: Observer,
        clock_ns: follower.ClockNs = time.monotonic_ns,
        planner: Planner | None = None,
    ) -> None:
        self._folder = folder
        self._launcher = launcher
        self._gpu = gpu
        self._observer = observer
        self._clock_ns = clock_ns
        self._stderr_folder = folder / TRIALS_FOLDER
        self._planner: Planner = planner or ByPrecision()

    def run(self, session: Session) -> tuple[Session, bool]:
        """Run every trial that the planner asks for: by default those of the session's scenario and its goal.

        When the session can no longer be saved, on a full disk perhaps, it ends there, with a note; what was measured
        is in the session that is returned.

        Returns:
            The session, and whether the user interrupted it.
        """
        self._stderr_folder.mkdir(exist_ok=True)
        session = self._with_results(session)
        sessions.save(session, self._folder)
        self._observer.session_started(session, plan(session.scenario))
        described = session.environment
        asked_for_cpu = all(variant.runtime.device == "cpu" for variant in session.scenario.variants)
        interrupted = False
        try:
            while not interrupted:
                session, trial = self._planner.next(session)
                if trial is None:
                    break
                self._observer.trial_started(trial)
                record = self._run_trial(trial, session.environment.cores)
                records = (*session.trials, record)
                devices = [record.device for record in records if record.device]
                machine = environment.seen_by_tensorflow(described, devices, asked_for_cpu)
                interrupted = record.status == "interrupted"
                session = self._with_results(session.model_copy(update={"trials": records, "environment": machine}))
                session = self._planner.updated(session, interrupted)
                sessions.save(session, self._folder)
                self._observer.trial_finished(trial, record, session)
        except KeyboardInterrupt:  # between two trials; within one it becomes the trial's record
            interrupted = True
            session = self._planner.updated(session, interrupted)
            sessions.save(session, self._folder)
        except SessionError as error:
            self._observer.note(error.message)
            session = session.model_copy(update={"notes": (*session.notes, error.message)})
        self._observer.session_finished(session)
        return session, interrupted

    def _with_results(self, session: Session) -> Session:
        cores = session.environment.cores
        disturbed = disturbances.find(session.trials, cores)
        results = summarise(session.scenario, session.trials, cores, disturbed)
        return session.model_copy(update={"results": results, "disturbances": disturbed})

    def _run_trial(self, trial: Trial, cores: int) -> TrialRecord:
        stderr = self._stderr_folder / f"{trial.index + 1:03}-{_slug(trial.variant.name)}-r{trial.repeat + 1}.stderr"
        log = TrialLog(trial, self._clock_ns())
        child: Child | None = None
        status: TrialStatus
        try:
            child = self._start(trial, stderr)
            samplers = (HostSampler(child.pid), self._gpu, _LogKeeper(stderr))
            self._gpu.begin()
            status = follower.watch(log, child, samplers, self._observer, cores, self._select_gpu, self._clock_ns)
        except KeyboardInterrupt:
            status = "interrupted"
        except (PipelineBenchError, OSError) as error:
            log.failed = Failed(error=f"its process could not be started: {error}")
            status = "failed"
        finally:
            if child is not None:
                child.close()
        return follower.record(log, status, child, stderr, self._clock_ns())

    def _start(self, trial: Trial, stderr: Path) -> Child:
        """Start the trial's process; with a fresh interpreter, from now on, when the fork server does not answer."""
        try:
            return self._launcher.start(trial, stderr)
        except (PipelineBenchError, OSError) as error:
            if self._launcher.name == "fresh":
                raise
            self._observer.note(f"the fork server is gone, every trial now starts a fresh interpreter: {error}")
            self._launcher.close()
            self._launcher = FreshLauncher()
            return self._launcher.start(trial, stderr)

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


def _slug(name: str) -> str:
    """A variant's name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40] or "variant"
