"""Keeps a trial's steps in preallocated arrays and ships them now and then from a thread of its own.

The training thread only appends numbers. The shipping thread wakes a few times a second, sends what is new, and is
also the trial's own watch: when neither a step nor a phase has come for the stall timeout, it says where things stand.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from array import array
from collections.abc import Callable, Sequence
from pathlib import PurePath

import numpy as np

from pipeline_bench.events import Phase, QueueState, Stack, Stalled, Steps
from pipeline_bench.scenario import Run
from pipeline_bench.series import Series
from pipeline_bench.worker.channel import Channel

SHIP_EVERY_S = 0.25
_BLOCK_STEPS = 4096
_FRAMES_KEPT = 12

QueueSizes = Callable[[], Sequence[QueueState]]


class Recorder:
    """The steps of one trial, its phase, and the thread that tells the parent of both."""

    def __init__(self, channel: Channel, run: Run, has_wait: bool = True) -> None:
        self._channel = channel
        self._run = run
        self.has_wait = has_wait
        self._start_ns, self._end_ns, self._wait_ns = (array("q", bytes(8 * _BLOCK_STEPS)) for _ in range(3))
        self._loss = array("d", bytes(8 * _BLOCK_STEPS))
        self._steps = 0
        self._shipped = 0
        self._last_steps = run.steps or sys.maxsize
        self._length_ns = sys.maxsize if run.time_s is None else round(run.time_s * 1e9)
        self._phase = "start"
        self._alive_ns = time.monotonic_ns()
        self._stall_sent = False
        self._ended = threading.Event()
        self.queue_sizes: QueueSizes = tuple
        self._thread = threading.Thread(target=self._keep_shipping, name="pipeline-bench recorder", daemon=True)

    def start(self) -> None:
        """Start the shipping thread."""
        self._thread.start()

    def phase(self, name: str) -> None:
        """Say that a part of the trial begins."""
        self._phase = name
        self._alive_ns = time.monotonic_ns()
        self._channel.send(Phase(name=name, at_ns=self._alive_ns))

    def record(self, start_ns: int, end_ns: int, wait_ns: int, loss: float) -> bool:
        """Append a step; False when it was the last one. See `loops.StepRecorder`."""
        i = self._steps
        if i == len(self._loss):
            self._grow()
        self._start_ns[i] = start_ns
        self._end_ns[i] = end_ns
        self._wait_ns[i] = wait_ns
        self._loss[i] = loss
        self._steps = i + 1
        return i + 1 < self._last_steps and end_ns - self._start_ns[0] < self._length_ns

    def finish(self) -> None:
        """Ship what is left and end the thread."""
        self._ended.set()
        self._thread.join()
        self._ship()

    def _grow(self) -> None:
        for column in (self._start_ns, self._end_ns, self._wait_ns, self._loss):
            column.frombytes(bytes(8 * len(column)))

    def _keep_shipping(self) -> None:
        while not self._ended.wait(SHIP_EVERY_S):
            self._ship()
            self._watch()

    def _ship(self) -> None:
        first, end = self._shipped, self._steps
        if first == end:
            return
        start, stop, wait = (
            Series.pack(np.array(column[first:end], dtype=np.int64))
            for column in (self._start_ns, self._end_ns, self._wait_ns)
        )
        loss = Series.pack(np.array(self._loss[first:end], dtype=np.float64))
        self._channel.send(
            Steps(first=first, start_ns=start, end_ns=stop, wait_ns=wait if self.has_wait else None, loss=loss)
        )
        self._shipped = end

    def _watch(self) -> None:
        newest_ns = max(self._alive_ns, self._end_ns[self._steps - 1] if self._steps else 0)
        if self._stall_sent or time.monotonic_ns() - newest_ns < self._run.stall_timeout_s * 1e9:
            return
        self._stall_sent = True
        stacks = thread_stacks()
        self._channel.send(
            Stalled(phase=self._phase, steps=self._steps, queues=tuple(self.queue_sizes()), stacks=stacks)
        )


def thread_stacks() -> tuple[Stack, ...]:
    """Where every Python thread but the calling one stands, the main thread first."""
    frames = sys._current_frames()
    own = threading.get_ident()
    threads = sorted(threading.enumerate(), key=lambda thread: thread is not threading.main_thread())
    return tuple(
        Stack(
            thread=thread.name,
            frames=tuple(
                f"{_short(frame.filename)}:{frame.lineno} in {frame.name}"
                for frame in traceback.extract_stack(frames[thread.ident])[-_FRAMES_KEPT:]
            ),
        )
        for thread in threads
        if thread.ident in frames and thread.ident != own
    )


def _short(filename: str) -> str:
    """A file's path inside its installation, or its last three parts."""
    _, marker, inside = filename.rpartition("/site-packages/")
    return inside if marker else "/".join(PurePath(filename).parts[-3:])
