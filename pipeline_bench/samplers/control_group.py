"""How long the CPU quota of a control group has kept this process, and a trial that it starts, from running."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

THROTTLED = "cpu_throttled_seconds"
SOURCE = "control group"

# The field of `cpu.stat` in version 2 and in version 1 of control groups, and how many of its units are a second
# (the kernel's Documentation/admin-guide/cgroup-v2.rst and Documentation/scheduler/sched-bwc.rst).
_FIELDS = {"throttled_usec": 1e6, "throttled_time": 1e9}

NO_COUNTER = "no control group here counts the time that a CPU quota took"


class Throttling:
    """Reads `cpu_throttled_seconds`: cumulative, and summed over the cores on which the group had to wait.

    A group counts what its own quota took, so those above it are read as well.
    """

    def __init__(self, groups: Iterable[Path]) -> None:
        files = dict.fromkeys(group / "cpu.stat" for group in groups)
        self._files = [file for file in files if _throttled_s(file) is not None]

    def poll(self) -> float | str:
        """Seconds until now, or the reason why they are not known."""
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
            case [name, value] if name in _FIELDS and value.isdigit():
                return int(value) / _FIELDS[name]
    return None
