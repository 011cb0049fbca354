"""Publishes the figures of a running job in a file of its own, once a second, from the sampler's thread.

A lock beside the file is held for as long as the job lives: it goes with the process, however that ends. A process'
number may be another's by then, or another container's. Nothing that fails here reaches the job.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from pipeline_bench import environment
from pipeline_bench.model.job import HISTORY, JobStatus
from pipeline_bench.monitoring.steps import Totals
from pipeline_bench.monitoring.summary import JobSummary
from pipeline_bench.run import watched_jobs
from pipeline_bench.run.trial_log import used_percent
from pipeline_bench.samplers import Reading
from pipeline_bench.samplers.host import MACHINE_CPU
from pipeline_bench.samplers.nvml_metrics import UTILIZATION
from pipeline_bench.system import user_folders

_PERIOD_NS = 10**9
Latest = Callable[[str], list[Reading]]
"""Gives the latest readings of a metric, oldest first."""


class Publisher:
    """Publishes the figures of one job until `end`.

    Args:
        name: of the job.
        device: ``CPU`` or ``GPU``.
        latest: the samplers' latest readings of a metric.
    """

    def __init__(self, name: str, device: str, latest: Latest) -> None:
        run = os.environ.get(user_folders.RUN_VARIABLE, "")
        self._status = JobStatus(name=name, pid=os.getpid(), run=run, started_s=time.time(), device=device)
        self._latest = latest
        self._cores = environment.usable_cores()
        self._histories: dict[str, deque[float | None]] = {
            name: deque(maxlen=HISTORY) for name in ("step", "wait", "device", "host")
        }
        self._published_ns = self._step_ns = time.monotonic_ns()
        self._published = Totals()
        self._path: Path | None = None
        try:
            self._open()
        except OSError:
            self._path = None

    def _open(self) -> None:
        folder = user_folders.runtime_folder_to_write()
        if folder is None:
            return
        watched_jobs.sweep(folder)
        path = folder / f"{secrets.token_hex(8)}{watched_jobs.ENDING}"
        watched_jobs.hold(path)
        self._path = path

    @property
    def is_due(self) -> bool:
        """Whether a second has gone since it last published something."""
        return self._path is not None and time.monotonic_ns() - self._published_ns >= _PERIOD_NS

    def publish(self, totals: Totals, figures: JobSummary, buffered: tuple[float, float] | None) -> None:
        """Publish the last second.

        Args:
            totals: of all steps so far.
            figures: of the same.
            buffered: how many batches are ready, and how many there can be; None where it is not known.
        """
        now_ns = time.monotonic_ns()
        since_ns, self._published_ns = self._published_ns, now_ns
        new, self._published = totals.since(self._published), totals
        if new.steps > 0:
            self._step_ns = now_ns
        device = self._device_percent(since_ns)
        self._keep(
            step=new.step_ms if new.steps > 0 else None,
            wait=_percent(new.wait_share) if new.steps > 0 else None,
            device=device,
            host=_mean(self._latest(MACHINE_CPU), since_ns),
        )
        self._write(
            steps=totals.steps,
            memory_bytes=_last(self._latest("memory_bytes")),
            buffered=buffered,
            idle_s=(now_ns - self._step_ns) / 1e9,
            **_verdict(figures),
        )

    def end(self, figures: JobSummary, folder: Path | None) -> None:
        """Publish the figures of the whole job, and that it has ended; safe to call twice."""
        if (path := self._path) is None:
            return
        self._write(
            steps=figures.steps,
            step_ms=figures.step_ms,
            input_wait_share=figures.input_wait_share,
            device_percent=figures.device_utilization_percent,
            ended=True,
            folder=None if folder is None else str(folder.absolute()),
            **_verdict(figures),
        )
        self._let_go(path)

    def withdraw(self) -> None:
        """Remove what was published, and publish nothing any more; safe to call twice."""
        if self._path is None or self._status.pid != os.getpid():
            return
        watched_jobs.remove(self._path)
        self._let_go(self._path)

    def _let_go(self, path: Path) -> None:
        self._path = None
        watched_jobs.release(path)

    def _keep(self, **values: float | None) -> None:
        """Take one more second into the histories, and the newest figures into the status."""
        for name, value in values.items():
            self._histories[name].append(None if value is None else round(value, 2))
        step, wait = self._newest("step"), self._newest("wait")
        self._status = self._status.model_copy(
            update={
                **{f"{name}_history": tuple(kept) for name, kept in self._histories.items()},
                "step_ms": step,
                "input_wait_share": None if wait is None else wait / 100,
                "device_percent": values["device"],
                "host_percent": values["host"],
            }
        )

    def _newest(self, name: str) -> float | None:
        return next((value for value in reversed(self._histories[name]) if value is not None), None)

    def _device_percent(self, since_ns: int) -> float | None:
        if self._status.device != "CPU":
            return _mean(self._latest(UTILIZATION), since_ns)
        return used_percent(self._latest("cpu_seconds"), self._cores)

    def _write(self, **update: Any) -> None:
        """Replace the file; a fork of the job has no file of its own, and leaves its parent's alone."""
        self._status = self._status.model_copy(update=update)
        if self._path is None or self._status.pid != os.getpid():
            return
        new = self._path.with_suffix(".part")
        try:
            # Whole or not at all for who reads; nothing is lost where a machine that crashes loses it.
            new.write_text(self._status.model_dump_json(), encoding="utf-8", errors="replace")
            new.replace(self._path)
        except OSError:  # the disk is full, the folder is gone: who looks sees that nothing new comes
            new.unlink(missing_ok=True)


def _verdict(figures: JobSummary) -> dict[str, str]:
    severity = "severe" if figures.verdict.severe else "bound" if figures.verdict.kind == "input-bound" else "none"
    return {"verdict": figures.verdict_name, "severity": severity, "line": figures.line}


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _mean(readings: list[Reading], since_ns: int) -> float | None:
    values = [each.value for each in readings if each.value is not None and each.at_ns > since_ns]
    return fmean(values) if values else None


def _last(readings: list[Reading]) -> float | None:
    return next((each.value for each in reversed(readings) if each.value is not None), None)
