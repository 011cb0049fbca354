"""What every part of a trace is made of: where an event goes, and the form of a slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Event = dict[str, Any]
Stamps = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """Where a trial's events go: its process, its two threads, and the session's first stamp.

    Numbers of threads are unique in the file, because some viewers know a thread by its number alone.
    """

    pid: int
    zero_ns: int

    @property
    def steps(self) -> Event:
        return {"pid": self.pid, "tid": self.pid * 10 + 1}

    @property
    def phases(self) -> Event:
        return {"pid": self.pid, "tid": self.pid * 10 + 2}

    def us(self, at_ns: int) -> float:
        """A stamp on the trace's time line. A float of microseconds holds nanoseconds for some 100 days."""
        return (at_ns - self.zero_ns) / 1000


def complete(name: str, category: str, ts: float, took_ns: int, thread: Event, args: Event | None = None) -> Event:
    """A complete event, which a viewer draws as a slice; `ts` in µs on the trace's time line."""
    event = {"ph": "X", "name": name, "cat": category, **thread, "ts": ts, "dur": took_ns / 1000}
    return {**event, "args": args} if args else event
