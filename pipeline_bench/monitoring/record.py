"""One job as it is watched: its steps, what its device and host do meanwhile, and the session that is kept of it."""

from __future__ import annotations

import functools
import os
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from pipeline_bench import environment
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.hosts import ranks
from pipeline_bench.model import Series
from pipeline_bench.model.events import Device
from pipeline_bench.model.job import WHY_EAGER, Eager
from pipeline_bench.model.result import Result
from pipeline_bench.model.selftest import last_selftest
from pipeline_bench.model.session import Session, make_folder, save
from pipeline_bench.model.trial import PhaseMark, TrialRecord, TrialSteps
from pipeline_bench.monitoring import collectives
from pipeline_bench.monitoring.epochs import Passes
from pipeline_bench.monitoring.fit import Course
from pipeline_bench.monitoring.page_faults import PageFaults
from pipeline_bench.monitoring.publishing import Publisher
from pipeline_bench.monitoring.sampling import Readings, SamplerThread, jax_is_at_work
from pipeline_bench.monitoring.steps import StepLog, StepRows, Totals
from pipeline_bench.monitoring.summary import OWN, VARIANT, JobSummary, disturbed_note, of_result, result_of, summarise
from pipeline_bench.run.trial_log import tracks
from pipeline_bench.samplers.host import HostSampler
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Component, Run, Scenario, Variant
from pipeline_bench.system.files import clock_offset_s
from pipeline_bench.system.forks import ForkedLock
from pipeline_bench.system.processes import allowed_cpus
from pipeline_bench.text import line_of, units

_CEILING = "the model alone"
WARMUP_STEPS, WARMUP_SHARE = 10, 0.1
"""At most, of a job's steps: the first ones trace and compile, and find a full buffer. A short job has few to lose."""
LEAST_STEPS = 3
"""A loop that took fewer batches than this looked at an example, and is no training."""
_KEEP_EVERY_NS, _KEEP_SHARE, _KEEP_AT_FIRST_NS = 10**9, 0.005, 10**8
_EAGER = "its steps run as eager code, op by op from Python: {why}. As graphs they usually take less time"
_EAGER_SHARE = 0.5
"""Which is mentioned where they compute for this part of their time."""
_CUT_OFF = "the job had not ended when this was written: it runs still, or was killed"
_NVML_OPENS_WITHIN_S = 2.0
"""Waited for only when the job ends: it may be shorter than the opening takes, and is not to be held up by it."""
_accelerators: dict[str | None, environment.Accelerator] = {}
"""What NVML said of the GPU at a PCI address, or of the machine's first, to an earlier training of this process."""


@dataclass(frozen=True)
class SavedJob:
    """What was kept of a job last.

    Attributes:
        figures: those of the session's result, which its page shows: warm-up and disturbed steps are left out.
        folder: where the session was saved; None where it was not to be, or, by `unsaved`, could not be.
        remarks: the session's notes that are worth a line beside the figures.
    """

    session: Session
    figures: JobSummary
    folder: Path | None
    unsaved: str | None = None
    remarks: tuple[str, ...] = ()


class JobRecord:
    """Gathers what a job shows of itself, from its own threads; nothing that goes wrong in here may disturb it.

    Attributes:
        log: the job's steps.
        reason: why waits are not measured, where they are not.
        withheld: why those that were measured are not the training's, where they are not; no figure is of them then.
        diagnosable: whether `pipeline-bench diagnose` knows what the job takes its batches from.
        problem: why the session could not be saved, where it could not.
        notes: for the session's reader.
        remarks: the same, of what is worth a line beside the figures.
        eager: why its steps run as eager code; None where they are graphs, or that is not known.
        so_far: gives all steps so far, those too that are not in the log yet, and the course likewise; called in the
            sampler's thread.
        course: of a training that has epochs, or passes; the session keeps it.
        kept: what was saved last.
        on_kept: called when something was, in whichever thread did it.
        buffered: gives how many batches are ready and how many there can be, in the same thread; None: not known.
    """

    def __init__(
        self,
        name: str,
        device: Device,
        out: Path | None = None,
        after_poll: Callable[[], None] | None = None,
        *,
        waits_for_device: bool | None = None,
    ) -> None:
        """Begin to watch.

        Args:
            name: the job's, for a reader.
            device: that the job trains on.
            out: the folder in which the session's own folder is made; None keeps no file.
            after_poll: called in the sampler's thread after each poll.
            waits_for_device: whether each step of the loop ends with the device's work on it, so that the device is
                idle while the next one waits; None: where it is a CPU and JAX is not at work.
        """
        self._waits_for_device = waits_for_device
        self._jax_worked = False
        """Whether JAX was seen at work: as Python ends, it may close its devices before this job ends."""
        self._readings = Readings()
        self.log = StepLog(stops=self._readings.stops)
        self.so_far: Callable[[], tuple[StepLog, Course | Passes | None]] = lambda: (self.log, self.course)
        self.buffered: Callable[[], tuple[float, float] | None] = lambda: None
        self.course: Course | Passes | None = None
        self.reason: str | None = None
        self.withheld: str | None = None
        self.diagnosable = True
        self.problem: str | None = None
        self.notes: list[str] = []
        self.remarks: list[str] = []
        self.eager: Eager | None = None
        self._page_faults: PageFaults | None = None  # from when it is seen to train
        self._of_steps: tuple[str, ...] = ()  # remarks of the session that was built last
        self.kept: SavedJob | None = None
        self.on_kept: Callable[[], None] = lambda: None
        self._out = out
        self._folder: Path | None = None
        self._clock_offset_s: float | None = None
        self._last_selftest = functools.cache(last_selftest)  # read once, and not with each saving
        self._pid = os.getpid()
        self._keep_ns, self._keep_cost_ns = time.monotonic_ns() + _KEEP_EVERY_NS, 0
        self._name = name
        self._device = device
        self._started_at = datetime.now().astimezone().isoformat(timespec="seconds")
        self._started_ns = time.monotonic_ns()
        self._cores, self._allowed_cpus = environment.usable_cores(), allowed_cpus()
        # Starting its process and waiting for it takes 0.1 s and more, of each fit of a job that has hundreds.
        self._gpu = NvmlSampler() if device.kind == "cpu" and None in _accelerators else NvmlSampler.open()
        if device.pci_bus_id is not None:
            self._gpu.select(device.pci_bus_id)
        host = HostSampler(os.getpid(), helper=self._gpu)
        samplers = [host, *([self._gpu] if device.kind == "gpu" else [])]
        self._publisher = Publisher(name, device.kind.upper(), self._readings.latest)
        self._sampler = SamplerThread(samplers, self._readings, _after_poll(self, after_poll))
        self._sampler.poll()
        self._lock = ForkedLock()
        self._session: Session | None = None

    @property
    def _device_waits(self) -> bool:
        if self._waits_for_device is not None:
            return self._waits_for_device
        return self._device.kind == "cpu" and not (self._jax_worked or jax_is_at_work())

    def summary(self, since: Totals | None = None, since_ns: int | None = None) -> JobSummary:
        """Return the figures so far, of all steps but the first; of a job that has ended, those of its session.

        Args:
            since: only of what came after these totals.
            since_ns: from when on the device's utilization is taken; by default from the beginning.
        """
        if self._session is not None and self.kept is not None and since is None:
            return self.kept.figures
        self._sampler.poll()
        return self._figures(self.log, self.log.totals.since(since or Totals()), since_ns)

    def _figures(self, log: StepLog, totals: Totals, since_ns: int | None = None) -> JobSummary:
        """Return the figures of these totals, and of the device from then on, a GPU's during the log's steps alone."""
        gpu = self._device.kind == "gpu"
        rows = log.rows(since_ns, first=False) if gpu else None
        begin_ns = self._started_ns if since_ns is None else since_ns
        used = self._readings.utilization(begin_ns, self._cores, gpu, rows)
        reason = self.withheld or self.reason
        return summarise(self._judged(totals), used, reason, self._device_waits, self.diagnosable)

    def _judged(self, totals: Totals) -> Totals:
        """Return sums without the waits that are not the training's."""
        return totals if self.withheld is None else totals._replace(waits=0, wait_ns=0, waited_ns=0)

    def publish(self) -> None:
        """Publish the figures so far (`monitoring.publishing`), at most once a second."""
        self._jax_worked = self._jax_worked or jax_is_at_work()
        is_due = self._publisher.is_due
        log, _ = self.so_far() if is_due or self._page_faults is None else (self.log, None)
        if self._page_faults is None and log.totals.steps >= LEAST_STEPS:
            self._page_faults = PageFaults()
        if is_due:
            totals = self._judged(log.totals)
            self._publisher.publish(totals, self._figures(log, totals), self.buffered())

    def keep(self) -> None:
        """Save the session as it stands, at most once a second: a job that is killed has no other.

        That takes 5 ms after a thousand steps and 100 ms with as many as are kept. It is done less often where it would
        come to more than `_KEEP_SHARE` of the job's time.
        """
        if self._out is None or not self._keep_is_due or not self._lock.acquire(blocking=False):
            return
        try:
            log, course = self.so_far()
            if self._session is not None or log.totals.steps < LEAST_STEPS:
                return
            began_ns = time.thread_time_ns()
            self._save(*self._build(log, course, _CUT_OFF), log.totals)
            self._keep_ns = time.monotonic_ns() + _KEEP_EVERY_NS
        finally:
            self._lock.release()
        self.on_kept()
        self._keep_cost_ns += time.thread_time_ns() - began_ns

    def drop(self) -> None:
        """End the watching of what turned out to be no training; nothing is left of it."""
        self._sampler.close()
        self._gpu.close()
        self._publisher.withdraw()

    @property
    def _keep_is_due(self) -> bool:
        now_ns = time.monotonic_ns()
        allowed_ns = _KEEP_AT_FIRST_NS + _KEEP_SHARE * (now_ns - self._started_ns)
        return now_ns >= self._keep_ns and self._keep_cost_ns <= allowed_ns

    def finish(self, reason: str | None) -> SavedJob:
        """End the watching, and write the session; a second call gives what the first one did.

        Args:
            reason: what ended the job, where it did not end by itself.
        """
        with self._lock:
            if self._session is not None and self.kept is not None:
                return self.kept
            if self._device.pci_bus_id not in _accelerators and self._gpu.wait_until_open(_NVML_OPENS_WITHIN_S):
                _accelerators[self._device.pci_bus_id] = self._gpu.accelerator
            self._sampler.close()
            self._gpu.close()
            collectives.read(settled=True)
            self._session, steps = self._build(self.log, self.course, reason)
            kept = self._save(self._session, steps, self.log.totals)
        self._publisher.end(kept.figures, kept.folder)
        self.on_kept()
        return kept

    def _save(self, session: Session, steps: int, totals: Totals) -> SavedJob:
        """Save the session of so many steps in the folder that is its own; where that fails a note of it says so."""
        figures = of_result(session.results[0], steps, self._device_waits)
        if figures.input_wait_share is None:  # as it is of the session where that of a single step is missing
            figures = self._figures(self.log, totals)
        if self._pid != os.getpid():  # a fork of the job has one of its own
            self._pid, self._folder = os.getpid(), None
        folder = None
        try:
            if self._out is not None:
                if self._folder is None:
                    self._folder = make_folder(self._out, session.scenario.name)
                    with suppress(OSError):
                        self._clock_offset_s = clock_offset_s(self._folder)
                if session.host is not None:
                    host = session.host.model_copy(update={"clock_offset_s": self._clock_offset_s})
                    session = session.model_copy(update={"host": host})
                save(session, self._folder)
                folder = self._folder
        except PipelineBenchError as error:
            self.problem = error.message
            session = session.model_copy(update={"notes": (*session.notes, error.message)})
        unsaved = None if folder is not None else self.problem
        self.kept = kept = SavedJob(session, figures, folder, unsaved, (*self.remarks, *self._of_steps))
        return kept

    def _build(self, log: StepLog, course: Course | Passes | None, reason: str | None) -> tuple[Session, int]:
        """Return the session as it stands, and of how many steps it is, warm-up left out."""
        scenario = _scenario(self._name)
        rows, notes = log.rows(), [*self.notes, *self.remarks]
        if self.withheld is not None:
            rows, course = replace(rows, wait_ns=None), None
        ended = np.cumsum(rows.count)
        most_steps = min(WARMUP_STEPS, WARMUP_SHARE * int(rows.count.sum()))
        warmup = min(int(np.searchsorted(ended, most_steps)) + 1, len(rows.count) // 2)
        most = int(np.max(rows.count, initial=1))
        if reason is not None:
            notes.append(reason)
        if log.left_out:
            stopped_s = sum(to_ns - from_ns for from_ns, to_ns in self._readings.stops) / 1e9
            notes.append(
                f"the job was stopped for {units.seconds(stopped_s)}, as by Ctrl-Z or a paused container, "
                "or something held Python's lock without computing: "
                f"{units.count(log.left_out, 'step')} under way then are left out"
            )
        if self._sampler.problem is not None:
            notes.append(f"the sampler failed at least once: {line_of(self._sampler.problem)}")
        if most > 1:
            notes.append(
                f"the job's {int(rows.count.sum())} steps are kept as {len(rows.count)} rows, each the mean of "
                f"up to {most} steps in a row"
            )
        trial = self._trial(rows, reason, warmup)
        asked = _accelerators.get(self._device.pci_bus_id)
        described = environment.describe(self._gpu.accelerator if asked is None else asked)
        checked = self._last_selftest(described.driver, described.cpu, described.gpu)
        rank = ranks.of_training(os.environ)
        collective_ms = collectives.step_ms(rows, warmup)
        of_training = {"collective_ms": collective_ms, "pid": os.getpid()}
        host = None if rank is None else rank.host().model_copy(update=of_training)
        steps = int(rows.count[warmup:].sum())
        why = self.withheld or self.reason
        result = result_of(scenario, trial, self._cores, checked, why, self._device_waits, self.diagnosable)
        if (disturbed := disturbed_note(trial, steps, result)) is not None:
            notes.append(disturbed)
        self._of_steps = self._remarks_of(result)
        notes += self._of_steps
        session = Session(
            started_at=self._started_at,
            command=environment.command_line(),
            scenario=scenario,
            environment=environment.seen_by_tensorflow(described, [self._device]),
            notes=tuple(notes),
            trials=(trial,),
            results=(result,),
            watched=True,
            checked=checked,
            host=host,
            wall_time=None if course is None else course.wall_time(),
        )
        return session, steps

    def _remarks_of(self, result: Result) -> tuple[str, ...]:
        """Return why its steps run in eager code, where they compute for long enough, and what their memory takes."""
        found = () if self._page_faults is None else self._page_faults.remarks()
        if self.eager is None or (result.input_wait_share.value or 0.0) > _EAGER_SHARE:
            return found
        return (_EAGER.format(why=WHY_EAGER[self.eager]), *found)

    def _trial(self, rows: StepRows, reason: str | None, warmup: int) -> TrialRecord:
        steps, first_step_s, begin_ns = None, None, self._started_ns
        if rows.count.size:
            steps = TrialSteps(
                start_ns=Series.pack(rows.start_ns),
                end_ns=Series.pack(rows.end_ns),
                wait_ns=None if rows.wait_ns is None else Series.pack(rows.wait_ns),
                loss=Series.pack(np.full(rows.count.size, np.nan)),
                steps=Series.pack(rows.count) if (rows.count > 1).any() else None,
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
            allowed_cpus=self._allowed_cpus,
            phases=(PhaseMark(name="train", at_ns=begin_ns),),
            samples=tracks(self._readings.all()),
        )


def _after_poll(record: JobRecord, first: Callable[[], None] | None) -> Callable[[], None]:
    """Return what is done after a poll: what is asked for, then the report of the job, as long as there is one."""
    reference = weakref.ref(record)

    def done() -> None:
        if first is not None:
            first()
        collectives.read(settled=False)
        if (alive := reference()) is not None:
            with suppress(Exception):  # who looks sees nothing new; the job goes on
                alive.publish()
            alive.keep()

    return done


def _scenario(name: str) -> Scenario:
    own = Component(kind=OWN)
    variant = Variant(name=VARIANT, backend=OWN, source=own, model=own, loop=own, run=Run(repeats=1), ceiling=_CEILING)
    return Scenario(name=name, question="How long does this job wait for its input?", variants=(variant,))


def write_line(figures: JobSummary, name: str, folder: Path | None = None, problem: str | None = None) -> None:
    """Write the figures as a line to stdout, and where the session lies, or why there is none."""
    where = f"; session in {folder}" if folder is not None else f"; no session: {problem}" if problem else ""
    with suppress(Exception):  # a full disk, a closed stream: that is no reason to end a training
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(f"{name}: {figures.line}{where}\n".encode(encoding, "replace").decode(encoding))
