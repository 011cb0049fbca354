"""Starts a trial's process, reads its events, keeps its stderr, and ends it with everything that it started."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Literal

import psutil

from pipeline_bench import units
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.events import Event, decode
from pipeline_bench.trial import Trial
from pipeline_bench.worker.channel import CLOSED_EXIT_CODE

LauncherName = Literal["forkserver", "fresh"]

_READ_BYTES = 1 << 18
_SERVER_READY_S = 60.0
_SERVER_ANSWER_S = 20.0
_GONE_S = 5.0


class Child(ABC):
    """A trial's process, its own session and process group, and the pipe of its events."""

    def __init__(self, pid: int, events: int, launcher: LauncherName) -> None:
        self.pid = pid
        self.launcher: LauncherName = launcher
        self._events = events
        self._buffer = b""
        self._open = True
        os.set_blocking(events, False)

    def read(self, timeout_s: float) -> list[Event]:
        """Wait up to `timeout_s` for events; an empty list when none came. `ended` turns true at the end of the pipe.

        Raises:
            ProtocolError: the child sent something that is no event.
        """
        if not self._open:
            return []
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            if not selector.select(max(0.0, timeout_s)):
                return []
        data = os.read(self._events, _READ_BYTES)
        if not data:
            self._open = False
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [decode(line) for line in lines]

    @property
    def ended(self) -> bool:
        """Whether the child has closed its end of the pipe, as it does when it ends."""
        return not self._open

    @abstractmethod
    def wait(self, timeout_s: float) -> int | None:
        """The exit code, negative for a signal; None when it has not ended in time."""

    def kill(self) -> None:
        """Kill the process, its group and its descendants, also those that left the group."""
        end_whole(self.pid)

    def close(self) -> None:
        """End the process if it still runs, and close the pipe; safe to call twice."""
        if self._events < 0:
            return  # its number may be another process's by now
        self.kill()
        self.wait(_GONE_S)
        os.close(self._events)
        self._events = -1
        self._open = False


class Launcher(ABC):
    """Starts trials."""

    name: LauncherName

    @abstractmethod
    def start(self, trial: Trial, stderr: Path) -> Child:
        """Start the trial's process; what it writes to stdout and stderr goes to the file `stderr`."""

    def close(self) -> None:  # noqa: B027 - most launchers keep nothing running
        """End what the launcher keeps running; safe to call twice."""


class FreshLauncher(Launcher):
    """A new interpreter for each trial. Slower to start by TensorFlow's import, and works everywhere."""

    name: LauncherName = "fresh"

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "pipeline_bench.worker.main")) -> None:
        self._command = command

    def start(self, trial: Trial, stderr: Path) -> Child:
        read, write = os.pipe()
        try:
            with stderr.open("ab") as log:  # appending, so that `trim` leaves no hole
                process = subprocess.Popen(
                    [*self._command, str(write)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=[write],
                    start_new_session=True,
                    env=_environment(),
                )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(trial.model_dump_json().encode())
        return _FreshChild(process, read)


class _FreshChild(Child):
    def __init__(self, process: subprocess.Popen[bytes], events: int) -> None:
        super().__init__(process.pid, events, "fresh")
        self._process = process

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None


class ForkServerLauncher(Launcher):
    """Forks each trial from a process that has TensorFlow imported already; see `pipeline_bench.worker.server`."""

    name: LauncherName = "forkserver"

    def __init__(self, log: Path) -> None:
        """Start the server; it imports TensorFlow while the caller goes on.

        Args:
            log: the file for what TensorFlow writes while it is imported.
        """
        self._log = log
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with log.open("wb") as file, theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "pipeline_bench.worker.server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=_environment(),
            )
        self.exit_codes: dict[int, int] = {}
        self._ready = False

    def wait_until_ready(self) -> str | None:
        """Wait for the import; None when the server can fork, else the reason why not."""
        if self._ready:
            return None
        message = self.receive(_SERVER_READY_S)
        self._ready = bool(message and message.get("ready"))
        if self._ready:
            return None
        tail = stderr_tail(self._log, lines=3)
        return str(message["refused"]) if message and "refused" in message else f"the fork server ended: {tail}"

    def start(self, trial: Trial, stderr: Path) -> Child:
        read, write = os.pipe()
        try:
            with stderr.open("ab") as log:
                socket.send_fds(self._control, [trial.model_dump_json().encode()], [write, log.fileno()])
            return _ForkedChild(self._started_pid(trial.index), read, self)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)

    def _started_pid(self, index: int) -> int:
        deadline = time.monotonic() + _SERVER_ANSWER_S
        while (message := self.receive(deadline - time.monotonic())) is not None:
            if "started" in message and message["trial"] == index:
                self.exit_codes.pop(int(message["started"]), None)  # of an earlier process with the same number
                return int(message["started"])
        raise PipelineBenchError(f"The fork server does not answer; its last words: {stderr_tail(self._log, lines=3)}")

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The server's next message; exit codes are noted on the way. None when it ended or said nothing in time."""
        self._control.settimeout(max(0.001, timeout_s))
        try:
            data = self._control.recv(1 << 16)
        except (TimeoutError, ConnectionError):
            return None
        if not data:
            return None
        message: dict[str, Any] = json.loads(data)
        if "exited" in message:
            self.exit_codes[int(message["exited"])] = int(message["code"])
        return message

    def close(self) -> None:
        self._control.close()
        try:
            self._server.wait(_GONE_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()


class _ForkedChild(Child):
    def __init__(self, pid: int, events: int, server: ForkServerLauncher) -> None:
        super().__init__(pid, events, "forkserver")
        self._server = server

    def wait(self, timeout_s: float) -> int | None:
        deadline = time.monotonic() + timeout_s
        while self.pid not in self._server.exit_codes:
            if self._server.receive(deadline - time.monotonic()) is None:
                break
        return self._server.exit_codes.get(self.pid)


def best_launcher(log: Path, prefer: LauncherName = "forkserver") -> tuple[Launcher, str | None]:
    """The fork server where this platform has what it needs, else fresh interpreters and the reason."""
    if prefer == "fresh":
        return FreshLauncher(), None
    if sys.platform != "linux":
        return FreshLauncher(), f"every trial starts a fresh interpreter: forking is not safe on {sys.platform}"
    server = ForkServerLauncher(log)
    reason = server.wait_until_ready()
    if reason is None:
        return server, None
    server.close()
    return FreshLauncher(), f"every trial starts a fresh interpreter: {reason}"


def end_whole(pid: int) -> None:
    """Kill the leader of a process group, its group and its descendants, also those that left the group."""
    with contextlib.suppress(psutil.Error):
        for descendant in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                descendant.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def explain_exit(code: int | None) -> str:
    """An exit code in words: ``was killed by SIGKILL (out of memory, or by hand)``."""
    if code is None:
        return "did not end"
    if code == CLOSED_EXIT_CODE:
        return "could not be heard any more: the code in it closed files that it did not open (os.closerange?)"
    if code >= 0:
        return f"ended with exit code {code} before its last step"
    name = units.signal_name(-code)
    hint = {"SIGKILL": " (by hand, or because memory ran out)", "SIGSEGV": " (a crash in native code)"}.get(name, "")
    return f"was killed by {name}{hint}"


def stderr_tail(path: Path, lines: int = 20, limit_bytes: int = 16384) -> str:
    """The last lines of a file, at most `limit_bytes` of it; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit_bytes))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def trim(path: Path, limit_bytes: int = 1 << 26) -> None:
    """Shorten a file that a process appends to without end to its last 64 KiB, once it is larger than `limit_bytes`."""
    with contextlib.suppress(OSError):
        if path.stat().st_size <= limit_bytes:
            return
        with path.open("r+b") as file:
            file.seek(-(1 << 16), os.SEEK_END)
            tail = file.read()
            file.truncate(0)
        with path.open("ab") as file:
            file.write(b"(what was written before is not kept)\n" + tail)


def _environment() -> dict[str, str]:
    """The caller's environment, with output unbuffered so that a killed trial's last words are kept."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}
