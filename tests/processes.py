"""Waits for what processes come to, and for their ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")

_LOOK_EVERY_S = 0.02


def runs(process: int | psutil.Process) -> bool:
    """Whether a process has not come to its end yet: a zombie has, although nobody has asked for it."""
    try:
        known = psutil.Process(process) if isinstance(process, int) else process
        return bool(known.is_running() and known.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for(look: Callable[[], T], limit_s: float = 60.0) -> T:
    """Look until there is something other than 0, and return it."""
    ends_s = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < ends_s, f"it did not come within {limit_s:g} s"
        time.sleep(_LOOK_EVERY_S)
    return found


def wait_until_gone(*pids: int, limit_s: float = 60.0) -> None:
    """See that processes end: the kernel ends one that was killed in its own time. What is left then is killed."""
    assert pids
    assert all(pids)
    ends_s = time.monotonic() + limit_s
    while (left := [pid for pid in pids if runs(pid)]) and time.monotonic() < ends_s:
        time.sleep(_LOOK_EVERY_S)
    for pid in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()
    assert not left, f"still there: {left}"
