"""One job as it is watched: its steps, what its device and host do meanwhile, and the session that is kept of it."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_bench import environment
from pipeline_bench.analysis import measured, verdicts
from pipeline_bench.analysis.results import device_utilization, step_time
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.hosts import ranks
from pipeline_bench.model.events import Device
from pipeline_bench.model.result import DeviceUtilization, Estimate, Result, Speedup, StepTime, Verdict
from pipeline_bench.model.series import Series
from pipeline_bench.model.session import Session, save
from pipeline_bench.model.session_folders import make_folder
from pipeline_bench.model.trial import PhaseMark, TrialRecord, TrialSteps
from pipeline_bench.monitoring.fit import Course
from pipeline_bench.monitoring.publishing import Publisher
from pipeline_bench.monitoring.sampling import Readings, SamplerThread, jax_is_at_work
from pipeline_bench.monitoring.steps import JobSummary, StepLog, Totals, summarise
from pipeline_bench.run.trial_log import tracks
from pipeline_bench.samplers.host import HostSampler
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Component, Run, Scenario, Variant
from pipeline_bench.text import line_of, units

VARIANT = "job"
OWN = "own"
"""The kind of every part of a watched job: none of them is a plug-in."""
_CEILING = "the model alone"
_NO_CEILING = "a job that is watched from within has no ceiling beside it"
_MISSING = {
    "samples_per_second": "how many samples a step takes is not known of a watched job",
    "loss": "a watched job's loss is left to its own records",
    "accuracy": "a watched job's accuracy is left to its own records",
}
WARMUP_STEPS = 10
"""At most: the first steps trace and compile, and find a full buffer."""
_NVML_OPENS_WITHIN_S = 2.0
"""Waited for only when the job ends: it may be shorter than the opening takes, and is not to be held up by it."""


class JobRecord:
    """Gathers what a job shows of itself, from its own threads; nothing that goes wrong in here may disturb it.

    Attributes:
        log: the job's steps.
        collective_ms: how long a step was at collectives with other workers, where that was measured.
        reason: why waits are not measured, where they are not.
        problem: why the session could not be saved, where it could not.
        notes: for the session's reader.
        progress: gives the sums over all steps so far, those too that are not in the log yet; called in the sampler's
            thread.
        course: of a training that has epochs; the session keeps it.
        buffered: gives how many batches are ready and how many there can be, in the same thread; None: not known.
    """

    def __init__(
        self,
        name: str,
        device: Device,
        after_poll: Callable[[], None] | None = None,
        *,
        waits_for_device: bool | None = None,
    ) -> None:
        """Begin to watch.

        Args:
            name: the job's, for a reader.
            device: that the job trains on.
            after_poll: called in the sampler's thread after each poll.
            waits_for_device: whether each step of the loop ends with the device's work on it, so that the device is
                idle while the next one waits; None: where it is a CPU and JAX is not at work.
        """
        self._waits_for_device = waits_for_device
        self.log = StepLog()
        self.progress: Callable[[], Totals] = lambda: self.log.totals
        self.buffered: Callable[[], tuple[float, float] | None] = lambda: None
        self.course: Course | None = None
        self.reason: str | None = None
        self.collective_ms: float | None = None
        self.problem: str | None = None
        self.notes: list[str] = []
        self._name = name
        self._device = device
        self._started_at = datetime.now().astimezone().isoformat(timespec="seconds")
        self._started_ns = time.monotonic_ns()
        self._cores = environment.usable_cores()
        self._gpu = NvmlSampler.open()
        if device.pci_bus_id is not None:
            self._gpu.select(device.pci_bus_id)
        self._readings = Readings()
        host = HostSampler(os.getpid(), helper=self._gpu)
        samplers = [host, *([self._gpu] if device.kind == "gpu" else [])]
        self._publisher = Publisher(name, device.kind.upper(), self._readings.latest)
        self._sampler = SamplerThread(samplers, self._readings, _after_poll(self, after_poll))
        self._sampler.poll()
        self._lock = threading.Lock()
        self._session: Session | None = None

    @property
    def _device_waits(self) -> bool:
        if self._waits_for_device is not None:
            return self._waits_for_device
        return self._device.kind == "cpu" and not jax_is_at_work()

    def summary(self, since: Totals | None = None, since_ns: int | None = None) -> JobSummary:
        """Return the figures so far.

        Args:
            since: only of what came after these totals.
            since_ns: from when on the device's utilization is taken; by default from the beginning.
        """
        self._sampler.poll()
        begin_ns = self._started_ns if since_ns is None else since_ns
        return self._figures(self.log.totals.since(since or Totals()), begin_ns)

    def _figures(self, totals: Totals, since_ns: int) -> JobSummary:
        used = self._readings.utilization(since_ns, self._cores, self._device.kind == "gpu")
        return summarise(totals, used, self.reason, self._device_waits)

    def tell(self) -> None:
        """Tell of the job as it stands (`monitoring.publishing`), once a second and never oftener."""
        if self._publisher.is_due:
            totals = self.progress()
            self._publisher.publish(totals, self._figures(totals, self._started_ns), self.buffered())

    def drop(self) -> None:
        """End the watching of what turned out to be no training; nothing is left of it."""
        self._sampler.close()
        self._gpu.close()
        self._publisher.withdraw()

    def finish(self, reason: str | None, out: Path | None) -> tuple[Session, Path | None]:
        """End the watching, and write the session; a second call gives the first one's session.

        Args:
            reason: what ended the job, where it did not end by itself.
            out: the folder in which the session's own folder is made; None keeps no file.

        Returns:
            The session, and the folder that it was saved in; None where it could not be, which a note of it says.
        """
        with self._lock:
            if self._session is not None:
                return self._session, None
            self._gpu.wait_until_open(_NVML_OPENS_WITHIN_S)
            self._sampler.close()
            self._gpu.close()
            session = self._session = self._build(reason)
        folder = None if out is None else self._saved(session, out)
        self._publisher.end(self._figures(self.log.totals, self._started_ns), folder)
        return self._session, folder

    def _saved(self, session: Session, out: Path) -> Path | None:
        """Save the session in a folder of its own; return that, and None where it could not be."""
        try:
            folder = make_folder(out, session.scenario.name)
            save(session, folder)
        except PipelineBenchError as error:
            self.problem = error.message
            self._session = session.model_copy(update={"notes": (*session.notes, error.message)})
            return None
        return folder

    def _build(self, reason: str | None) -> Session:
        scenario = _scenario(self._name)
        rows = self.log.rows()
        warmup = min(int(np.searchsorted(np.cumsum(rows.count), WARMUP_STEPS)) + 1, len(rows.count) // 2)
        most = int(rows.count.max(initial=1))
        if reason is not None:
            self.notes.append(reason)
        if self._sampler.problem is not None:
            self.notes.append(f"the sampler failed at least once: {line_of(self._sampler.problem)}")
        if most > 1:
            self.notes.append(
                f"the job's {int(rows.count.sum())} steps are kept as {len(rows.count)} rows, each the mean of "
                f"up to {most} steps in a row"
            )
        trial = self._trial(reason, warmup)
        described = environment.describe(self._gpu.accelerator)
        rank = ranks.of_training(os.environ)
        host = None if rank is None else rank.host().model_copy(update={"collective_ms": self.collective_ms})
        return Session(
            started_at=self._started_at,
            command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            scenario=scenario,
            environment=environment.seen_by_tensorflow(described, [self._device]),
            notes=tuple(self.notes),
            trials=(trial,),
            results=(self._result(scenario, trial, int(rows.count[warmup:].sum())),),
            watched=True,
            host=host,
            wall_time=None if self.course is None else self.course.wall_time(),
        )

    def _trial(self, reason: str | None, warmup: int) -> TrialRecord:
        rows = self.log.rows()
        steps, first_step_s, begin_ns = None, None, self._started_ns
        if rows.count.size:
            steps = TrialSteps(
                start_ns=Series.pack(rows.start_ns),
                end_ns=Series.pack(rows.end_ns),
                wait_ns=None if rows.wait_ns is None else Series.pack(rows.wait_ns),
                loss=Series.pack(np.full(rows.count.size, np.nan)),
            )
            first_step_s = (int(rows.end_ns[0]) - self._started_ns) / 1e9
            begin_ns = int(rows.start_ns[0])
        return TrialRecord(
            index=0,
            variant=VARIANT,
            repeat=0,
            # What was measured of a job is good up to where it ended, however that came about.
            status="failed" if steps is None else "ok",
            reason=reason or ("no step of the job was seen" if steps is None else None),
            started_ns=self._started_ns,
            ended_ns=time.monotonic_ns(),
            first_step_s=first_step_s,
            warmup_steps=warmup,
            steps=steps,
            device=self._device,
            phases=(PhaseMark(name="train", at_ns=begin_ns),),
            samples=tracks(self._readings.all()),
        )

    def _result(self, scenario: Scenario, trial: TrialRecord, steps: int) -> Result:
        """Return the job's figures: there is no ceiling, and nobody said how many samples a step takes."""
        none, gone = Estimate(reason=_NO_CEILING), trial.reason
        common: dict[str, Any] = {
            "variant": VARIANT,
            "backend": OWN,
            "status": trial.status,
            "host_slowdown_ms": none,
            "host_slowdown_share": none,
            "ceiling_ms": none,
            "missing": _MISSING,
        }
        if trial.steps is None:
            return Result(
                **common,
                reason=gone,
                step_ms=StepTime(reason=gone),
                input_wait_ms=Estimate(reason=self.reason or gone),
                input_wait_share=Estimate(reason=self.reason or gone),
                accelerator_utilization=none,
                device_utilization=DeviceUtilization(reason=gone),
                speedup=Speedup(reason=gone),
                verdict=Verdict(kind="not-measured", text=f"was not measured: {gone}."),
            )
        (run,) = measured.of(scenario, [trial], self._cores)[VARIANT].values()
        step = step_time([run])
        wait_ms = share = None
        reason, bound = self.reason or "no wait was measured", ""
        if run.mean_wait_ms is not None:
            share = min(1.0, run.mean_wait_ms / run.mean_ms)
            wait_ms, reason = share * run.mean_ms, str(step.reason)
            bound = f"; it is at most {units.fraction(1 - share)}, 1 - input wait" if self._device_waits else ""
        return Result(
            **common,
            trials=1,
            steps=steps,
            warmup_steps=(trial.warmup_steps,),
            step_ms=step,
            input_wait_ms=Estimate(value=wait_ms, reason=reason),
            input_wait_share=Estimate(value=share, reason=reason),
            accelerator_utilization=Estimate(reason=f"{_NO_CEILING}{bound}"),
            device_utilization=device_utilization([run], self._cores),
            speedup=Speedup(over=VARIANT, reason="this is the variant that the others are compared with"),
            against_fastest=Speedup(over=VARIANT, reason="this is the fastest variant"),
            verdict=verdicts.judge_watched(step.mean, wait_ms, share, steps, reason, self._device_waits),
        )


def _after_poll(record: JobRecord, first: Callable[[], None] | None) -> Callable[[], None]:
    """Return what is done after a poll: what is asked for, then what tells of the job, as long as there is one."""
    reference = weakref.ref(record)

    def done() -> None:
        if first is not None:
            first()
        alive = reference()
        if alive is not None:
            with suppress(Exception):  # who looks sees nothing new; the job goes on
                alive.tell()

    return done


def _scenario(name: str) -> Scenario:
    own = Component(kind=OWN)
    variant = Variant(name=VARIANT, backend=OWN, source=own, model=own, loop=own, run=Run(repeats=1), ceiling=_CEILING)
    return Scenario(name=name, question="How long does this job wait for its input?", variants=(variant,))


def write_line(figures: JobSummary, name: str, folder: Path | None = None, problem: str | None = None) -> None:
    """Write the figures as a line to stdout, and where the session lies, or why there is none."""
    where = f"; session in {folder}" if folder is not None else f"; no session: {problem}" if problem else ""
    sys.stdout.write(f"{name}: {figures.line}{where}\n")
