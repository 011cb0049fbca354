"""The child's end of the event pipe."""

from __future__ import annotations

import os
import threading

from pipeline_bench.model.events import Event, encode

CLOSED_EXIT_CODE = 71
"""Of a process whose own code has closed the pipe."""


class Channel:
    """Writes events to a file descriptor; safe to use from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pipe = _identity(descriptor)
        self._lock = threading.Lock()

    def send(self, event: Event) -> None:
        """Write one event whole. When the parent is gone the trial has no reader left, and the process ends.

        It also ends where the user's code has closed the pipe, as recipes for daemons do with every file that is open:
        its number may be a file of theirs by now.
        """
        data = memoryview(encode(event))
        with self._lock:
            if _identity(self._descriptor) != self._pipe:
                os._exit(CLOSED_EXIT_CODE)
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BrokenPipeError:
                    os._exit(1)


def _identity(descriptor: int) -> tuple[int, int] | None:
    """The device and the inode of an open file; None of a closed one."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino
