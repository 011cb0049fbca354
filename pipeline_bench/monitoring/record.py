"""One job as it is watched: its steps, its device, and the session that is kept of it."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np

from pipeline_bench import environment
from pipeline_bench.analysis.results import summarise
from pipeline_bench.comparison import make_folder
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.events import Device
from pipeline_bench.model.result import Estimate, Result, WorkCheck
from pipeline_bench.model.series import Series
from pipeline_bench.model.session import Session, save
from pipeline_bench.model.trial import PhaseMark, Trial, TrialRecord, TrialStatus, TrialSteps
from pipeline_bench.monitoring.figures import JobSummary, summary, verdict
from pipeline_bench.monitoring.sampling import Readings, SamplerThread
from pipeline_bench.monitoring.steps import StepLog, Totals
from pipeline_bench.samplers.host import HostSampler
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Component, Run, Scenario, Variant
from pipeline_bench.text import units
from pipeline_bench.trial_log import TrialLog

VARIANT = "job"
OWN = "own"
"""The kind of every part of a watched job: none of them is a plug-in."""
_CEILING = "the model alone"
_NO_CEILING = "a job that is watched from within has no ceiling beside it"
_WARMUP_STEPS = 10
"""At most: the first steps trace and compile, and find a full buffer."""
_NVML_OPENS_WITHIN_S = 2.0
"""Waited for only when the job ends: it may be shorter than the opening takes, and is not to be held up by it."""


class JobRecord:
    """Gathers what a job shows of itself, from its own threads; nothing that goes wrong in here may disturb it.

    Attributes:
        log: the job's steps.
        reason: why waits are not measured, where they are not.
        problem: why the session could not be saved, where it could not.
        notes: for the session's reader.
    """

    def __init__(
        self, name: str, device: Device, also: Callable[[], None] | None = None, *, waits_for_device: bool = False
    ) -> None:
        """Begin to watch.

        Args:
            name: the job's, for a reader.
            device: that TensorFlow works on.
            also: called in the sampler's thread after each poll.
            waits_for_device: whether each step of the loop ends with the device's work on it, so that the device is
                idle while the next one waits. A CPU's does.
        """
        self._bounded = waits_for_device or device.kind == "cpu"
        self.log = StepLog()
        self.reason: str | None = None
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
        self._sampler = SamplerThread(samplers, self._readings, also)
        self._sampler.poll()
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._measured_steps = 0

    def summary(self, since: Totals | None = None, since_ns: int | None = None) -> JobSummary:
        """The figures so far.

        Args:
            since: only of what came after these totals.
            since_ns: from when on the device's utilization is taken; by default from the beginning.
        """
        self._sampler.poll()
        begin_ns = self._started_ns if since_ns is None else since_ns
        used = self._readings.utilization(begin_ns, self._cores, self._device.kind == "gpu")
        return summary(self.log.totals.since(since or Totals()), used, self.reason, self._bounded)

    def finish(self, status: TrialStatus, reason: str | None, out: Path | None) -> tuple[Session, Path | None]:
        """End the watching, and write the session; a second call gives the first one's session.

        Returns:
            The session, and the folder that it was saved in; None where it could not be, which a note of it says.
        """
        with self._lock:
            if self._session is not None:
                return self._session, None
            self._gpu.wait_until_open(_NVML_OPENS_WITHIN_S)
            self._sampler.close()
            self._gpu.close()
            session = self._session = self._build(status, reason)
        if out is None:
            return session, None
        try:
            folder = make_folder(out, session.scenario)
            save(session, folder)
        except PipelineBenchError as error:
            self.problem = error.message
            self._session = session.model_copy(update={"notes": (*session.notes, error.message)})
            return self._session, None
        return session, folder

    def _build(self, status: TrialStatus, reason: str | None) -> Session:
        scenario = _scenario(self._name)
        trial = self._trial(scenario, status, reason)
        described = environment.describe(self._gpu.accelerator)
        return Session(
            started_at=self._started_at,
            command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            scenario=scenario,
            environment=environment.seen_by_tensorflow(described, [self._device]),
            notes=tuple(self.notes),
            trials=(trial,),
            results=tuple(self._told(result) for result in summarise(scenario, (trial,), self._cores)),
            watched=True,
        )

    def _trial(self, scenario: Scenario, status: TrialStatus, reason: str | None) -> TrialRecord:
        rows = self.log.rows()
        count = len(rows.start_ns)
        if reason is not None:
            self.notes.append(reason)
        if count and int(rows.count.max()) > 1:
            self.notes.append(
                f"the job's {int(rows.count.sum())} steps are kept as {count} rows, each the mean of "
                f"up to {int(rows.count.max())} steps in a row"
            )
        warmup = min(int(np.searchsorted(np.cumsum(rows.count), _WARMUP_STEPS)) + 1, count // 2)
        self._measured_steps = int(rows.count[warmup:].sum())
        readings = TrialLog(Trial(index=0, repeat=0, variant=scenario.variants[0]), self._started_ns)
        readings.readings = self._readings.all()
        first_ns = int(rows.end_ns[0]) if count else None
        return TrialRecord(
            index=0,
            variant=VARIANT,
            repeat=0,
            # What was measured of a job is good up to where it ended, however that came about.
            status="ok" if count > warmup else status if status != "ok" else "failed",
            reason=reason or (None if count else "no step of the job was seen"),
            started_ns=self._started_ns,
            ended_ns=time.monotonic_ns(),
            first_step_s=None if first_ns is None else (first_ns - self._started_ns) / 1e9,
            warmup_steps=warmup,
            steps=TrialSteps(
                start_ns=Series.pack(rows.start_ns),
                end_ns=Series.pack(rows.end_ns),
                wait_ns=None if rows.wait_ns is None else Series.pack(rows.wait_ns),
                loss=Series.pack(np.full(count, np.nan)),
            )
            if count
            else None,
            device=self._device,
            phases=(PhaseMark(name="train", at_ns=int(rows.start_ns[0]) if count else self._started_ns),),
            samples=readings.tracks(),
        )

    def _told(self, result: Result) -> Result:
        """A result in the words of a job: there is no ceiling, and nobody said how many samples a step takes."""
        share, wait = result.input_wait_share, result.input_wait_ms
        if share.value is None:
            share = wait = Estimate(reason=self.reason or share.reason)
        at_most = (
            ""
            if share.value is None or not self._bounded
            else f"; it is at most {units.fraction(1 - share.value)}, 1 - input wait"
        )
        none = Estimate(reason=_NO_CEILING)
        mean_ms, steps = result.step_ms.mean, self._measured_steps
        judged = verdict(mean_ms, wait.value, share.value, steps, share.reason, self._bounded)
        return result.model_copy(
            update={
                "steps": self._measured_steps,
                "input_wait_ms": wait,
                "input_wait_share": share,
                "host_slowdown_ms": none,
                "host_slowdown_share": none,
                "ceiling_ms": none,
                "accelerator_utilization": Estimate(reason=f"{_NO_CEILING}{at_most}"),
                "samples_per_second": None,
                "samples_per_second_ci95": None,
                "missing": {
                    "samples_per_second": "how many samples a step takes is not known of a watched job",
                    "loss": "a watched job's loss is left to its own records",
                    "accuracy": "a watched job's accuracy is left to its own records",
                },
                "work": WorkCheck(),
                "verdict": judged if result.trials else result.verdict,
            }
        )


def _scenario(name: str) -> Scenario:
    own = Component(kind=OWN)
    variant = Variant(name=VARIANT, backend=OWN, source=own, model=own, loop=own, run=Run(repeats=1), ceiling=_CEILING)
    return Scenario(name=name, question="How long does this job wait for its input?", variants=(variant,))
