"""Locks that the forks of a job find free: a thread of the job's that held one is not in the fork."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class ForkedLock:
    """A lock that one thread may take several times; in a fork nobody holds it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def acquire(self, blocking: bool = True) -> bool:
        """Take it; False where another thread has it, and it was not to be waited for."""
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


_locks: weakref.WeakSet[ForkedLock] = weakref.WeakSet()


def _renew() -> None:
    for lock in _locks:
        lock._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)
