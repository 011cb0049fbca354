"""The processes that a trial has started: what they use counts as the trial's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil


class Children:
    """The processes that the main threads of one process and of its children started, found by Linux' own lists.

    Elsewhere there are no such lists, and none is found: a list of all the machine's processes would cost a poll more
    than all else.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._running: dict[int, psutil.Process] = {}
        self._last: dict[tuple[str, psutil.Process], float] = {}

    def find(self, without: int | None = None) -> None:
        """See which there are now, all but the process of that number."""
        found: dict[int, psutil.Process] = {}
        waiting = _started_by(self._pid)
        while waiting:
            pid = waiting.pop()
            if pid == without:
                continue
            process = self._running.get(pid) or _process(pid)
            if process is not None and pid not in found:
                found[pid] = process
                waiting += _started_by(pid)
        self._running = found

    def sum(self, metric: str, read: Callable[[psutil.Process], float], cumulative: bool) -> float:
        """The metric of all of them; of a cumulative one those that have ended keep what was last read of them."""
        now = {}
        for process in self._running.values():
            try:
                now[metric, process] = float(read(process))
            except psutil.Error:  # it has just ended
                continue
        if not cumulative:
            return sum(now.values())
        self._last.update(now)
        return sum(value for (name, _), value in self._last.items() if name == metric)


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _started_by(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(child) for child in listed.split()]
