"""The host: CPU time, memory and I/O of one trial's processes, and what the whole machine's CPU did meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from pipeline_bench import environment
from pipeline_bench.samplers import HelperProcess, Reading, Sampler, control_group
from pipeline_bench.samplers.children import Children
from pipeline_bench.samplers.control_group import Throttling
from pipeline_bench.samplers.machine import MachineCpu

SOURCE = "psutil"


@dataclass(frozen=True)
class _ProcessMetric:
    """A metric of the process, in the unit its name says."""

    metric: str
    read: Callable[[psutil.Process], float]
    cumulative: bool = True


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _io_counters(process: psutil.Process) -> Any:
    # The method is missing where the system keeps no such counters (macOS); AttributeError is then the reason.
    return getattr(process, "io_counters")()  # noqa: B009 - mypy must not judge it by the system it runs on


_METRICS = (
    _ProcessMetric("cpu_seconds", _cpu_seconds),
    _ProcessMetric("memory_bytes", lambda process: process.memory_info().rss, cumulative=False),
    _ProcessMetric("threads", lambda process: process.num_threads(), cumulative=False),
    _ProcessMetric("read_bytes", lambda process: _io_counters(process).read_bytes),
    _ProcessMetric("write_bytes", lambda process: _io_counters(process).write_bytes),
)


class HostSampler(Sampler):
    """Reads a process with those it started (`_METRICS`), the machine's CPU and the control group's throttling.

    `cpu_seconds` is cumulative, user plus system, all threads; `read_bytes` and `write_bytes` are cumulative and count
    what reached the storage, not what the page cache served. See `MachineCpu` and `Throttling` for the others. A poll
    reads a handful of files, never the list of all processes.
    """

    def __init__(
        self, pid: int, clock_ns: Callable[[], int] = time.monotonic_ns, helper: HelperProcess | None = None
    ) -> None:
        """Begin to read.

        Args:
            pid: of the process; this one's own where a job is watched from within.
            clock_ns: the clock that readings are stamped with, in nanoseconds.
            helper: a process of the profiler's own, which counts as the profiler.
        """
        self._clock_ns = clock_ns
        self._helper = helper
        self._watches_itself = pid == os.getpid()
        self._explained: set[str] = set()
        self._gone: str | None = None
        self._process: psutil.Process | None = None
        try:
            self._process = psutil.Process(pid)
        except psutil.Error as error:
            self._gone = _explain(error)
        self._children = Children(pid)
        self._machine = MachineCpu(self._profiler_cpu_s)
        self._throttling = Throttling(environment.control_groups("cpu"))

    def poll(self) -> list[Reading]:
        """Every value now; a metric that cannot be read, or the process that has ended, gives its reason once."""
        now_ns = self._clock_ns()
        readings = self._poll_process(self._process, now_ns) if self._process is not None else []
        if self._gone is not None:
            for metric in _METRICS:
                readings += self._reason_once(metric.metric, self._gone, now_ns)
        cpu_seconds = next((reading.value for reading in readings if reading.metric == "cpu_seconds"), None)
        for name, value in self._machine.poll(cpu_seconds).items():
            readings += self._reading(name, SOURCE, value, now_ns)
        return readings + self._reading(control_group.THROTTLED, control_group.SOURCE, self._throttling.poll(), now_ns)

    def close(self) -> None:
        """Forget the process; safe to call twice. `poll` then reads the machine alone."""
        self._process = None

    def _profiler_cpu_s(self) -> float:
        """CPU seconds of the profiler, without the process that is read."""
        own_s = 0.0 if self._watches_itself else time.process_time()
        return own_s + (self._helper.cpu_s if self._helper is not None else 0.0)

    def _poll_process(self, process: psutil.Process, now_ns: int) -> list[Reading]:
        readings: list[Reading] = []
        self._children.find(without=self._helper.pid if self._helper is not None else None)
        try:
            with process.oneshot():
                # A process that has ended and is not reaped yet answers with zeros, which were not measured.
                if process.status() == psutil.STATUS_ZOMBIE:
                    raise psutil.ZombieProcess(process.pid)
                for metric in _METRICS:
                    readings += self._poll_metric(metric, process, now_ns)
        except psutil.NoSuchProcess as error:  # ZombieProcess is one
            self._process = None
            self._gone = _explain(error)
        except (psutil.Error, OSError) as error:
            self._gone = _explain(error)
        return readings

    def _poll_metric(self, metric: _ProcessMetric, process: psutil.Process, now_ns: int) -> list[Reading]:
        try:
            value = float(metric.read(process)) + self._children.sum(metric.metric, metric.read, metric.cumulative)
        except psutil.NoSuchProcess:
            raise
        except AttributeError:
            return self._reason_once(metric.metric, "this system keeps no such counter of a process", now_ns)
        except (psutil.Error, OSError) as error:
            return self._reason_once(metric.metric, _explain(error), now_ns)
        return [Reading(metric.metric, SOURCE, now_ns, value)]

    def _reading(self, metric: str, source: str, value: float | str, now_ns: int) -> list[Reading]:
        """A value, or a reason that is given once."""
        if isinstance(value, str):
            return self._reason_once(metric, value, now_ns, source)
        return [Reading(metric, source, now_ns, value)]

    def _reason_once(self, metric: str, reason: str, now_ns: int, source: str = SOURCE) -> list[Reading]:
        if metric in self._explained:
            return []
        self._explained.add(metric)
        return [Reading(metric, source, now_ns, reason=reason)]


def _explain(error: Exception) -> str:
    if isinstance(error, psutil.NoSuchProcess):
        return "the process has ended"
    if isinstance(error, psutil.AccessDenied | PermissionError):
        return "the system refused: no permission to read the process"
    return " ".join(str(error).split()) or type(error).__name__
