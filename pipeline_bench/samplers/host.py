"""The host: what a trial's processes use, what the whole machine's CPU does meanwhile, and what a CPU quota takes.

A value that is a text is the reason why there is none.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from pipeline_bench import environment
from pipeline_bench.samplers import HelperProcess, Reading, Sampler

MACHINE_METRICS = MACHINE_CPU, OTHER_CPU, STEAL = "machine_cpu_percent", "other_cpu_percent", "steal_percent"
THROTTLED = "cpu_throttled_seconds"
NO_COUNTER = "no control group here counts the time that a CPU quota took"
_TRIAL_UNKNOWN = "the trial's own CPU time cannot be read, so the others' is not known"

_ALL_THREADS_EVERY = 5
"""Looks for children: each thread's list is a file, and a job may have hundreds of threads, few of which start any."""

# The field of `cpu.stat` in version 2 and in version 1 of control groups, and how many of its units are a second
# (the kernel's Documentation/admin-guide/cgroup-v2.rst and Documentation/scheduler/sched-bwc.rst).
_THROTTLED_FIELDS = {"throttled_usec": 1e6, "throttled_time": 1e9}


class _ProcessMetric(NamedTuple):
    """How a metric of a process is read, in the unit its name says.

    Attributes:
        read: reads it.
        cumulative: whether it counts from the process' start.
        inherited: whether a process that has waited for the end of a child then has the child's, too.
    """

    read: Callable[[psutil.Process], float]
    cumulative: bool = True
    inherited: bool = False


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _io_counters(process: psutil.Process) -> Any:
    # psutil has no such method under a kernel that keeps no such counters; AttributeError is then the reason.
    return getattr(process, "io_counters")()  # noqa: B009 - mypy must not judge it by the system it runs on


PROCESS_METRICS = {
    "cpu_seconds": _ProcessMetric(_cpu_seconds),
    "memory_bytes": _ProcessMetric(lambda process: process.memory_info().rss, cumulative=False),
    "threads": _ProcessMetric(lambda process: process.num_threads(), cumulative=False),
    # `wait_task_zombie` adds a child's I/O to its parent's (kernel/exit.c).
    "read_bytes": _ProcessMetric(lambda process: _io_counters(process).read_bytes, inherited=True),
    "write_bytes": _ProcessMetric(lambda process: _io_counters(process).write_bytes, inherited=True),
}


class HostSampler(Sampler):
    """Reads a process with those it started (`PROCESS_METRICS`), the machine's CPU and the control group's throttling.

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
        except (psutil.Error, OSError) as error:
            self._gone = _explain(error)
        self._children = Children(pid)
        self._most: dict[str, float] = {}
        """Of each metric that a parent inherits the most so far."""
        self._machine = MachineCpu(self._profiler_cpu_s, pid)
        self._throttling = Throttling(environment.control_groups("cpu"))

    def poll(self) -> list[Reading]:
        """Return every value now; what cannot be read, or the process that has ended, gives its reason once."""
        now_ns = self._clock_ns()
        values = self._poll_process()
        cpu_s = values.get("cpu_seconds")
        values |= self._machine.poll(cpu_s if isinstance(cpu_s, float) else None)
        values[THROTTLED] = self._throttling.poll()
        readings = []
        for metric, value in values.items():
            source = "control group" if metric == THROTTLED else "psutil"
            if not isinstance(value, str):
                readings.append(Reading(metric, source, now_ns, value))
            elif metric not in self._explained:
                self._explained.add(metric)
                readings.append(Reading(metric, source, now_ns, reason=value))
        return readings

    def _profiler_cpu_s(self) -> float:
        """Return the CPU seconds of the profiler, without the process that is read."""
        own_s = 0.0 if self._watches_itself else time.process_time()
        return own_s + (self._helper.cpu_s if self._helper is not None else 0.0)

    def _poll_process(self) -> dict[str, float | str]:
        values: dict[str, float | str] = {}
        if self._process is None:
            assert self._gone is not None
            return dict.fromkeys(PROCESS_METRICS, self._gone)
        self._children.find(without=self._helper.pid if self._helper is not None else None)
        try:
            with self._process.oneshot():
                # A process that has ended and is not reaped yet answers with zeros, which were not measured.
                if self._process.status() == psutil.STATUS_ZOMBIE:
                    raise psutil.ZombieProcess(self._process.pid)
                for metric in PROCESS_METRICS:
                    values[metric] = self._poll_metric(metric, self._process)
        except (psutil.Error, OSError) as error:
            if isinstance(error, psutil.NoSuchProcess):  # ZombieProcess is one
                self._process, self._gone = None, _explain(error)
            return dict.fromkeys(PROCESS_METRICS, _explain(error)) | values
        return values

    def _poll_metric(self, metric: str, process: psutil.Process) -> float | str:
        read, cumulative, inherited = PROCESS_METRICS[metric]
        try:
            value = float(read(process)) + self._children.sum(metric, read, cumulative and not inherited)
            if inherited:  # what a child had is nobody's from its end until its parent has waited for that
                value = self._most[metric] = max(value, self._most.get(metric, 0.0))
            return value
        except psutil.NoSuchProcess:
            raise
        except AttributeError:
            return "this system keeps no such counter of a process"
        except (psutil.Error, OSError) as error:
            return _explain(error)


def _explain(error: Exception) -> str:
    if isinstance(error, psutil.NoSuchProcess):
        return "the process has ended"
    if isinstance(error, psutil.AccessDenied | PermissionError):
        return "the system refused: no permission to read the process"
    return " ".join(str(error).split()) or type(error).__name__


class Children:
    """The processes that one process and its children started, found by the kernel's own lists, one of each thread.

    Where the kernel keeps no such lists, none is found: a list of all the machine's processes would cost a poll more
    than all else.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # By process, which is its number and when it began: a number may be given to another process.
        self._running: set[psutil.Process] = set()
        self._last: dict[str, dict[psutil.Process, float]] = {}
        self._ended: dict[str, float] = {}
        """The sum of what was last read of those that have ended, by metric: a job may start any number of them."""
        self._looks = itertools.count()
        self._starters: dict[int, list[int]] = {}
        """Of each process its main thread, and the others that had children when all were looked at."""

    def find(self, without: int | None = None) -> None:
        """Find those that run now, all but the process of that number."""
        if next(self._looks) % _ALL_THREADS_EVERY == 0:
            self._starters.clear()
        running: set[psutil.Process] = set()
        waiting, seen = self._started_by(self._pid), {without}
        while waiting:
            pid = waiting.pop()
            if pid in seen:
                continue
            seen.add(pid)
            try:
                running.add(psutil.Process(pid))
            except (psutil.Error, OSError):  # it has just ended, or this process may open no more files
                continue
            waiting += self._started_by(pid)
        # What is on no list any more, because its parent has ended, is one of them all the same.
        self._running = running | {process for process in self._running - running if _may_run(process)}

    def sum(self, metric: str, read: Callable[[psutil.Process], float], cumulative: bool) -> float:
        """Return the metric of all of them; of a cumulative one those that have ended keep what was last read."""
        now = {}
        for process in self._running:
            try:
                now[process] = float(read(process))
            except (psutil.Error, OSError):  # likewise
                continue
        if not cumulative:
            return sum(now.values())
        last = self._last.setdefault(metric, {})
        last |= now
        ended = [last.pop(process) for process in last.keys() - self._running]
        self._ended[metric] = self._ended.get(metric, 0.0) + sum(ended)
        return self._ended[metric] + sum(last.values())

    def _started_by(self, pid: int) -> list[int]:
        """Return the children of a process; one of a thread that had none before may be missing for some looks."""
        if pid not in self._starters:
            self._starters[pid] = [thread for thread in _threads(pid) if thread == pid or _started_in(pid, thread)]
        return [child for thread in self._starters[pid] for child in _started_in(pid, thread)]


def _may_run(process: psutil.Process) -> bool:
    """Return whether a process runs still, as far as that can be known."""
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return True


def _threads(pid: int) -> list[int]:
    try:
        return [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - a quarter of the time
    except OSError:
        return []


def _started_in(pid: int, thread: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as listed:  # noqa: PTH123 - likewise
            return [int(child) for child in listed.read().split()]
    except OSError:
        return []


@dataclass(frozen=True)
class _CpuTimes:
    """Seconds since the machine started, over all cores or some of them; `busy_s` includes what was stolen."""

    busy_s: float
    stolen_s: float
    all_s: float

    @classmethod
    def now(cls, cpus: Collection[int]) -> _CpuTimes | None:
        """Return those of now, of these CPUs or, if there are none, of all; None where they cannot be read."""
        try:
            each = psutil.cpu_times(percpu=True) if cpus else [psutil.cpu_times()]
            times = [each[cpu]._asdict() for cpu in cpus] or [each[0]._asdict()]
        except (psutil.Error, OSError, RuntimeError, IndexError):  # the last where a CPU is gone
            return None
        seconds: dict[str, float] = {name: sum(one[name] for one in times) for name in times[0]}
        # The kernel counts a guest's time in the user's as well.
        total_s = sum(seconds.values()) - seconds.get("guest", 0.0) - seconds.get("guest_nice", 0.0)
        return cls(total_s - seconds["idle"] - seconds.get("iowait", 0.0), seconds["steal"], total_s)


def _cpus_of(pid: int) -> frozenset[int]:
    """Return the CPUs that a process may run on where these are known and not all of the machine's; else none.

    The kernel's list of CPUs has no place for one that is off, so that a number is a place only if none is.
    """
    try:
        allowed = frozenset(os.sched_getaffinity(pid))
        all_cpus = os.sysconf("SC_NPROCESSORS_CONF")
        is_part = len(allowed) < all_cpus and max(allowed) < all_cpus
        return allowed if is_part and len(psutil.cpu_times(percpu=True)) == all_cpus else frozenset()
    except (psutil.Error, OSError, RuntimeError):
        return frozenset()


class MachineCpu:
    """Reads the machine's CPU times, all metrics over all cores since the last poll, 0 to 100.

    Where a process may run on some cores only (`taskset`, `docker --cpuset-cpus`, what a scheduler gave a job), over
    these: the others' work takes nothing from it, and their idle time gives it nothing.

    `machine_cpu_percent` is what was not idle, `steal_percent` the part of it that a hypervisor gave to others, and
    `other_cpu_percent` what is left of it without the trial's processes and without the profiler itself.
    """

    def __init__(self, profiler_cpu_s: Callable[[], float], pid: int = 0) -> None:
        """Begin to read.

        Args:
            profiler_cpu_s: gives the CPU seconds of the profiler without the trial's process.
            pid: of the process whose cores they are; 0 for this one.
        """
        self._profiler_cpu_s = profiler_cpu_s
        self._cpus = _cpus_of(pid)
        # Kept here because psutil.cpu_percent keeps it for each calling thread, and answers 0.0 to a new one.
        self._then = _CpuTimes.now(self._cpus)
        self._ours_s: float | None = None
        self._owed_s = 0.0

    def poll(self, trial_cpu_s: float | None) -> dict[str, float | str]:
        """Return each metric's value, or the reason why there is none; a metric with nothing new is left out.

        Args:
            trial_cpu_s: the trial's CPU seconds until now; None where they are not known.
        """
        then, now = self._then, _CpuTimes.now(self._cpus)
        if now is None or then is None:
            self._then = now
            return dict.fromkeys(MACHINE_METRICS, "the system's CPU times cannot be read")
        all_s = now.all_s - then.all_s
        if all_s < 0:  # the counters began anew, or a CPU is gone with its own
            self._then, self._ours_s, self._owed_s = now, None, 0.0
        if all_s <= 0:  # within one tick of the kernel's counter: nothing new yet
            return {}
        self._then = now
        busy_s, stolen_s = now.busy_s - then.busy_s, now.stolen_s - then.stolen_s
        others_s = self._others(busy_s - stolen_s, trial_cpu_s)
        seconds: dict[str, float | str | None] = {MACHINE_CPU: busy_s, STEAL: stolen_s}
        seconds[OTHER_CPU] = _TRIAL_UNKNOWN if trial_cpu_s is None else others_s
        return {
            metric: value if isinstance(value, str) else min(100.0, max(0.0, 100 * value / all_s))
            for metric, value in seconds.items()
            if value is not None
        }

    def _others(self, busy_s: float, trial_cpu_s: float | None) -> float | None:
        """Return the seconds of other processes since the last poll.

        The machine's counter moves in ticks and the trial's does not, so that a short interval may come out below 0;
        that is taken off the next ones, or the mean of many would be too high.
        """
        before_s, self._ours_s = self._ours_s, None if trial_cpu_s is None else trial_cpu_s + self._profiler_cpu_s()
        if before_s is None or self._ours_s is None:
            return None
        others_s = self._owed_s + busy_s - (self._ours_s - before_s)
        self._owed_s = min(0.0, others_s)
        return max(0.0, others_s)


class Throttling:
    """Reads how long the CPU quota of a control group has kept this process, and a trial it starts, from running.

    Cumulative, and summed over the CPUs on which the group had to wait, see `analysis.measured.throttled_cpus`. A group
    counts what its own quota took, so those above it are read as well.
    """

    def __init__(self, groups: Iterable[Path]) -> None:
        files = dict.fromkeys(group / "cpu.stat" for group in groups)
        self._files = [file for file in files if _throttled_s(file) is not None]

    def poll(self) -> float | str:
        """Return the seconds until now, or the reason why they are not known."""
        seconds = [_throttled_s(file) for file in self._files]
        known = [value for value in seconds if value is not None]
        return sum(known) if known and len(known) == len(seconds) else NO_COUNTER


def _throttled_s(file: Path) -> float | None:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        match line.split():
            case [name, value] if name in _THROTTLED_FIELDS and value.isdigit():
                return int(value) / _THROTTLED_FIELDS[name]
    return None
