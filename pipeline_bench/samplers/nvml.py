"""The device as NVIDIA's driver reports it, read in a process of its own (`nvml_reader`): NVML may hang or crash."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import IO, Any, Literal

from pipeline_bench.environment import Accelerator
from pipeline_bench.samplers import Reading, Sampler
from pipeline_bench.samplers.nvml_metrics import RATES, UTILIZATION, explain_all
from pipeline_bench.system import files, interrupts
from pipeline_bench.system.forks import ForkedLock
from pipeline_bench.system.processes import module_command, readable
from pipeline_bench.text import units

STOPPED = "NVML stopped answering"
_CLOSED = "the program closed what NVML's process answers through"
_lost: list[object] = []
_UNANSWERED = "NVML had not answered when the trial ended"
_MODULE = "pipeline_bench.samplers.nvml_reader"
_READ_BYTES = 1 << 16
# It is no child of this process, which may be a user's: what waits for all of its own, os.wait(), never sees it. A
# subshell that its own parent leaves behind starts it, and writes its number and its end. Where this process is the
# one that orphans are given to, the first one of a container for one, that subshell is its child all the same.
_DETACHED = '{ "$@" >/dev/null & echo $!; wait $!; echo $?; } &'
_SIGNALLED = 128
"""What a shell adds to the signal that ended a command."""

Ask = Literal["open", "select", "begin", "poll", "outdated poll"]
"""What an answer is outstanding for; an outdated poll was asked for before the trial that runs now began."""


@dataclass(frozen=True)
class Timeouts:
    """How long things may take, in seconds."""

    opening_s: float = 20.0
    """Until the GPUs are listed: nvmlInit takes seconds on a machine with many, and where no driver is kept loaded."""
    answer_s: float = 5.0
    """Until any other answer."""
    poll_s: float = 0.02
    """How long a poll waits for its own answer; one that comes later is taken up by a later poll."""
    end_s: float = 0.5
    """Until the process has ended, once it is asked to."""


_LIMITS = Timeouts()
_KILLED_S = 5.0
"""Until a killed process is gone: at once, but beside other work, or where a driver holds it."""


class NvmlSampler(Sampler):
    """Reads one GPU through NVML, in a process that is started by `open` and ends with `close`, or with this one.

    An NVML that does not answer in time, or whose process ends, is a reason like any other, and stays one.
    `accelerator` and `wait_until_open` wait for NVML to be open. Any thread may call.
    """

    def __init__(self, limits: Timeouts = _LIMITS) -> None:
        """Make a sampler that was not opened: it has no GPU."""
        self._limits = limits
        self._lock = ForkedLock()
        self._reason: str | None = "NVML was not opened"
        self._device = Accelerator()
        self.cpu_s = 0.0
        """CPU time of the process up to its last answer, in seconds."""
        self._closed = False
        self.pid: int | None = None
        """The number of the process, None when there is none any more."""
        self._group = 0
        self._told: IO[bytes] | None = None
        """What the subshell writes, see `_DETACHED`."""
        self._ended: str | None = None
        """How the process ended, in words, once that is known."""
        self._connection: socket.socket | None = None
        self._files: tuple[tuple[int, int] | None, ...] = ()
        """What both of these are of, see `files.identity`."""
        self._owner = os.getpid()
        self._buffer = b""
        self._pending: deque[Ask] = deque()
        self._waited = interrupts.Waited()
        self._readings: list[Reading] = []
        self._seen: set[str] = set()
        """The metrics that had a value in this trial, and those whose absence was explained."""
        self._explained: set[str] = set()
        self._utilization_source = RATES.source

    @classmethod
    def open(cls, limits: Timeouts = _LIMITS) -> NvmlSampler:
        """Start the process and return at once; it lists the GPUs and selects the first visible one meanwhile."""
        sampler = cls(limits)
        sampler._start()
        return sampler

    @property
    def accelerator(self) -> Accelerator:
        """The GPU that is sampled, or the first there is, as `environment.describe` takes it."""
        self.wait_until_open()
        return replace(self._device, reason=self._reason)

    def wait_until_open(self, timeout_s: float = math.inf) -> bool:
        """Wait until NVML is open and the GPU is selected, or cannot be; return whether that is known in time."""
        deadline_ns = time.monotonic_ns() + timeout_s * 1e9
        with self._lock:
            while self._running and ("open" in self._pending or "select" in self._pending):
                left_s = (deadline_ns - time.monotonic_ns()) / 1e9
                if left_s <= 0:
                    return False
                interrupts.check()
                self._receive(min(left_s, self._patience_s(), interrupts.CHECK_EVERY_S))
                self._lose_patience()
        return True

    def select(self, pci_bus_id: str | None) -> None:
        """Choose the GPU to sample and begin; where there is no such one, `poll` gives the reason for each metric.

        Args:
            pci_bus_id: as TensorFlow or NVML writes it; None for the first visible (see `nvml_metrics.first_visible`).
        """
        with self._lock:
            self._forget_trial()
            self._ask("select", pci_bus_id=pci_bus_id)

    def begin(self, both: bool = False) -> None:
        """Start a trial: drop what was read before now, and let absent metrics be explained anew.

        Args:
            both: read the utilization by both of NVML's instruments.
        """
        with self._lock:
            self._forget_trial()
            self._ask("begin", both=both)

    def poll(self) -> list[Reading]:
        """Return every value that has come since the last call, and once a trial why a metric cannot be read."""
        with self._lock:
            if self._closed:
                return []
            self._exchange()
            return self._come() + ([] if self._reason is None else self._explain(self._reason))

    def end(self) -> list[Reading]:
        """End a trial: what has come late, and a reason for each metric that NVML still owes the trial."""
        with self._lock:
            self._receive(0.0)
            readings = self._come()
            if self._reason is not None:
                return readings + self._explain(self._reason)
            if "poll" in self._pending:
                self._explained |= self._seen
                readings += self._explain(_UNANSWERED)
            return readings

    def close(self) -> None:
        """End the process; safe to call twice. `poll` returns nothing afterwards."""
        with self._lock:
            is_open = "open" not in self._pending
            if not is_open:
                self._reason = "NVML had not answered when it was closed"
            self._closed = True
            self._end(self._limits.end_s if is_open else 0.0)  # before that it does not see that it shall end

    def _come(self) -> list[Reading]:
        """Return the readings that have come since the last call."""
        readings, self._readings = self._readings, []
        for reading in readings:
            (self._seen if reading.reason is None else self._explained).add(reading.metric)
            if reading.metric == UTILIZATION:
                self._utilization_source = reading.source
        return readings

    def _explain(self, reason: str) -> list[Reading]:
        return explain_all(reason, self._utilization_source, self._explained, time.monotonic_ns())

    # --- the process -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        try:
            self._connection, theirs = socket.socketpair()
            with theirs:
                command = module_command(_MODULE, theirs.fileno(), os.getpid(), detached=True)
                starter = subprocess.Popen(
                    ["/bin/sh", "-c", _DETACHED, "sh", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,  # so that a line is read when it has come, and no other with it
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C in the terminal is not for it
                )
                starter.wait()
            self._told, self._group = starter.stdout, starter.pid
            assert self._told is not None
            self._files = tuple(files.identity(each.fileno()) for each in (self._connection, self._told))
            self.pid = int(self._told.readline())
        except (OSError, ValueError) as error:  # a shell that cannot start it says no number
            self._reason = f"NVML's process could not be started: {getattr(error, 'strerror', None) or error}"
            if self._connection is not None:
                self._connection.close()
            return
        self._reason = None
        self._expect("open")

    @property
    def _running(self) -> bool:
        """Whether there is a process that answers us; a fork of ours has the same socket, and leaves it alone."""
        return self.pid is not None and self._owner == os.getpid() and self._is_connected

    @property
    def _is_connected(self) -> bool:
        """Whether both files are those that were opened: a job may close them, and have others by their numbers."""
        if self._connection is None or self._told is None:
            return False
        if tuple(files.identity(each.fileno()) for each in (self._connection, self._told)) == self._files:
            return True
        _lost.append((self._connection, self._told))  # which would be closed when they go
        self.pid, self._connection, self._told, self._reason = None, None, None, _CLOSED
        return False

    def _lose(self, reason: str, grace_s: float = 0.0) -> None:
        """NVML gives nothing any more."""
        self._reason = reason
        self._end(grace_s)

    def _end(self, grace_s: float) -> None:
        """End the process: ask it to, wait so long, kill it. What the kernel does not let go at once is left to it."""
        if not self._running:
            return
        pid, self.pid = self.pid, None
        connection, self._connection = self._connection, None
        assert pid is not None
        assert connection is not None
        assert self._told is not None
        self._pending.clear()
        with connection, self._told:
            try:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
                self._wait(grace_s)
            finally:
                if self._ended is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                    self._wait(_KILLED_S)
        if self._ended is not None:
            with contextlib.suppress(ChildProcessError):  # the subshell, where that is ours, see `_DETACHED`
                os.waitpid(-self._group, 0)

    def _wait(self, timeout_s: float) -> str | None:
        """Return how the process ended, in words; None where it has not within the time."""
        assert self._told is not None
        if self._ended is None and readable(self._told.fileno(), timeout_s):
            self._ended = _in_words(self._told.readline())
        return self._ended

    # --- requests and answers ----------------------------------------------------------------------------------------

    def _ask(self, ask: Ask, **arguments: Any) -> None:
        if self._running:
            assert self._connection is not None
            self._expect(ask)
            self._connection.settimeout(0.0)
            with contextlib.suppress(OSError):  # it has ended, as will be seen where its answer is read
                self._connection.sendall(json.dumps({"ask": ask, **arguments}).encode() + b"\n")

    def _expect(self, ask: Ask) -> None:
        if not self._pending:
            self._waited.restart()
        self._pending.append(ask)

    def _forget_trial(self) -> None:
        self._explained.clear()
        self._seen.clear()
        self._readings.clear()
        self._pending = deque("outdated poll" if ask == "poll" else ask for ask in self._pending)

    def _exchange(self) -> None:
        """Ask for readings where none are outstanding, and take up what has come within `Timeouts.poll_s`."""
        self._receive(0.0)
        if "poll" not in self._pending:
            self._ask("poll")
        deadline_ns = time.monotonic_ns() + round(self._limits.poll_s * 1e9)
        while "poll" in self._pending and (left_ns := deadline_ns - time.monotonic_ns()) > 0:
            self._receive(left_ns / 1e9)
        self._lose_patience()

    def _patience_s(self) -> float:
        """Return how much longer the answer that is due may take; 0 or less when it has taken too long."""
        limit_s = self._limits.opening_s if self._pending[0] == "open" else self._limits.answer_s
        return limit_s - self._waited.seconds()

    def _lose_patience(self) -> None:
        if self._running and self._pending and self._patience_s() <= 0:
            self._lose(STOPPED)

    def _receive(self, timeout_s: float) -> None:
        """Take up what the process has sent, or sends within the time."""
        if not self._running:
            return
        assert self._connection is not None
        try:
            self._connection.settimeout(max(0.0, timeout_s))
            data = self._connection.recv(_READ_BYTES)
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            data = b""
        if not data:
            self._lose(self._wait(self._limits.end_s) or STOPPED)
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if not self._running:
                return
            try:
                self._take_up(json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError):
                self._lose("NVML's process gave an answer that cannot be read")
                return

    def _take_up(self, answer: dict[str, Any]) -> None:
        """Take up one answer.

        Raises:
            KeyError, TypeError, IndexError: it is none.
        """
        ask = self._pending.popleft()
        self._waited.restart()
        self.cpu_s = answer["cpu_s"]
        if ask == "poll":
            self._readings += [Reading(**reading) for reading in answer["readings"]]
        elif ask in ("open", "select"):
            self._device = Accelerator(answer["name"], answer["driver"])
            if answer["reason"] is not None:
                self._lose(answer["reason"], self._limits.end_s)


def _in_words(status: bytes) -> str:
    """Return how a process ended, from the exit status that a shell gives."""
    if not status.strip():
        return "NVML's process has ended"
    code = int(status)
    return f"NVML's process {units.ending(_SIGNALLED - code if code > _SIGNALLED else code)}"
