"""The child's end of the event pipe."""

from __future__ import annotations

import os
import threading

from pipeline_bench.events import Event, encode


class Channel:
    """Writes events to a file descriptor; safe to use from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, event: Event) -> None:
        """Write one event whole. When the parent is gone the trial has no reader left, and the process ends."""
        data = memoryview(encode(event))
        with self._lock:
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BrokenPipeError:
                    os._exit(1)
