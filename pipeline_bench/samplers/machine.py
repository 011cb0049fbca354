"""The whole machine's CPU between two polls: how busy it was, what other processes took, what a hypervisor kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

MACHINE_CPU = "machine_cpu_percent"
OTHER_CPU = "other_cpu_percent"
STEAL = "steal_percent"
METRICS = (MACHINE_CPU, OTHER_CPU, STEAL)

_UNREADABLE = "the system's CPU times cannot be read"
_NO_STEAL = "this system does not count the time that a hypervisor gave to others"
_TRIAL_UNKNOWN = "the trial's own CPU time cannot be read, so the others' is not known"


@dataclass(frozen=True)
class _CpuTimes:
    """Seconds since the machine started, over all cores; `busy_s` includes what was stolen."""

    busy_s: float
    stolen_s: float | None
    all_s: float


class MachineCpu:
    """Reads the machine's CPU times, all metrics over all cores since the last poll, 0 to 100.

    `machine_cpu_percent` is what was not idle, `steal_percent` the part of it that a hypervisor gave to others, and
    `other_cpu_percent` what is left of it without the trial's process and without the profiler itself. What processes
    that the trial started used counts as others'.
    """

    def __init__(self, profiler_cpu_s: Callable[[], float] | None = None) -> None:
        """Begin to read.

        Args:
            profiler_cpu_s: CPU seconds of the profiler without the trial's process; by default this process's.
        """
        self._profiler_cpu_s = profiler_cpu_s or time.process_time
        # Kept here because psutil.cpu_percent keeps it for each calling thread, and answers 0.0 to a new one.
        self._then = _cpu_times()
        self._ours_s: float | None = None
        self._owed_s = 0.0

    def poll(self, trial_cpu_s: float | None) -> dict[str, float | str]:
        """Each metric's value, or the reason why there is none; a metric with nothing new is left out.

        Args:
            trial_cpu_s: the trial's CPU seconds until now; None where they are not known.
        """
        then, now = self._then, _cpu_times()
        if now is None or then is None:
            self._then = now
            return dict.fromkeys(METRICS, _UNREADABLE)
        all_s = now.all_s - then.all_s
        if all_s <= 0:  # within one tick of the kernel's counter: nothing new yet
            return {}
        self._then = now
        busy_s = now.busy_s - then.busy_s
        found: dict[str, float | str] = {MACHINE_CPU: _percent(busy_s, all_s), STEAL: _NO_STEAL}
        stolen_s = 0.0
        if now.stolen_s is not None and then.stolen_s is not None:
            stolen_s = now.stolen_s - then.stolen_s
            found[STEAL] = _percent(stolen_s, all_s)
        others_s = self._others(busy_s - stolen_s, trial_cpu_s)
        if others_s is not None:
            found[OTHER_CPU] = _percent(others_s, all_s)
        elif trial_cpu_s is None:
            found[OTHER_CPU] = _TRIAL_UNKNOWN
        return found

    def _others(self, busy_s: float, trial_cpu_s: float | None) -> float | None:
        """Seconds of other processes since the last poll.

        The machine's counter moves in ticks and the trial's does not, so that a short interval may come out below 0;
        that is taken off the next ones, or the mean of many would be too high.
        """
        before_s, self._ours_s = self._ours_s, None if trial_cpu_s is None else trial_cpu_s + self._profiler_cpu_s()
        if before_s is None or self._ours_s is None:
            return None
        others_s = self._owed_s + busy_s - (self._ours_s - before_s)
        self._owed_s = min(0.0, others_s)
        return max(0.0, others_s)


def _cpu_times() -> _CpuTimes | None:
    """None where they cannot be read."""
    try:
        times = psutil.cpu_times()
    except (psutil.Error, OSError, RuntimeError):
        return None
    seconds: dict[str, float] = times._asdict()
    # The kernel counts a guest's time in the user's as well.
    total_s = sum(seconds.values()) - seconds.get("guest", 0.0) - seconds.get("guest_nice", 0.0)
    return _CpuTimes(total_s - seconds["idle"] - seconds.get("iowait", 0.0), seconds.get("steal"), total_s)


def _percent(part_s: float, all_s: float) -> float:
    return min(100.0, max(0.0, 100 * part_s / all_s))
