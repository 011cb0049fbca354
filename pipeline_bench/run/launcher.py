"""Starts a trial's process, reads its events, keeps its stderr, and ends it with everything that it started."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import psutil

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.events import Event, decode
from pipeline_bench.model.trial import FurtherTrial, Trial
from pipeline_bench.run.child import end_whole, start_module
from pipeline_bench.system import files, interrupts
from pipeline_bench.system.processes import module_command, queued_s, readable
from pipeline_bench.text import units
from pipeline_bench.worker.recorder import CLOSED_EXIT_CODE
from pipeline_bench.worker.server import MESSAGE_LIMIT_BYTES, NOT_BEGUN_EXIT_CODE

LauncherName = Literal["forkserver", "fresh", "reused"]

SERVER, TRIAL = "pipeline_bench.worker.server", "pipeline_bench.worker.main"
_READ_BYTES = 1 << 18
_SERVER_READY_S = 60.0
_SERVER_ANSWER_S = 20.0
_GONE_S = 5.0
_MARK = "PIPELINE_BENCH_SERVER"
"""The variable in the environment of a server and of all that it starts: which server that is."""


class Child:
    """A trial's process, its own session and process group, and the socket of its events and further requests."""

    heard = False
    """Whether the last `read` brought anything: a long event takes many reads until it is whole."""
    waits = False
    """Whether it has run its trial, and waits for a further one."""

    def __init__(self, pid: int, events: int, server: TrialServer) -> None:
        self.pid = pid
        self.launcher: LauncherName = server.name
        self._server = server
        self._events = events
        self._buffer = bytearray()
        self._open = True
        os.set_blocking(events, False)

    def read(self, timeout_s: float) -> list[Event]:
        """Wait up to `timeout_s` for events; an empty list when none came. `ended` turns true at the end of the pipe.

        Raises:
            ProtocolError: the child sent something that is no event.
        """
        self.heard = False
        if not self._open:
            return []
        if not readable(self._events, timeout_s):
            return []
        try:
            data = os.read(self._events, _READ_BYTES)
        except ConnectionError:  # it ended with a request that it had not read
            data = b""
        if not data:
            self._open = False
            return []
        self.heard = True
        self._buffer += data
        if b"\n" not in data:
            return []
        *lines, self._buffer = self._buffer.split(b"\n")
        return [decode(bytes(line)) for line in lines]

    def ask(self, trial: Trial, stderr: Path) -> None:
        """Ask for a further trial, of what the process has built; what it writes goes to that file from now on.

        Raises:
            OSError: it is gone.
        """
        request = FurtherTrial(trial=trial, stderr=str(stderr.absolute())).model_dump_json().encode() + b"\n"
        os.set_blocking(self._events, True)  # it reads at once
        try:
            while request:
                request = request[os.write(self._events, request) :]
        finally:
            os.set_blocking(self._events, False)
        self.waits, self.launcher = False, "reused"

    @property
    def ended(self) -> bool:
        """Whether the child has closed its end of the pipe, as it does when it ends."""
        return not self._open

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code, negative for a signal; None when it has not ended in time."""
        self._wait_until_in(self._server.exit_codes, timeout_s)
        return self._server.exit_codes.get(self.pid)

    def _wait_until_in(self, told: Container[int], timeout_s: float) -> None:
        waited = interrupts.Waited()
        while self.pid not in told and not self._server.lost:
            left_s = timeout_s - waited.seconds()
            if self._server.receive(min(left_s, interrupts.CHECK_EVERY_S)) is None and left_s <= 0:
                break

    @property
    def dead(self) -> bool:
        """Whether the process has ended, by itself or with its server; others may hold its pipe open."""
        return self.wait(0) is not None or self._server.lost

    def explain_end(self) -> str:
        """Return how the process ended, in words: ``was killed by SIGKILL (by hand, or because memory ran out)``."""
        code = self.wait(0)
        if code is None and self._server.lost:
            return f"was ended with the server that starts the trials, which {self._server.explain_end()}"
        return explain_exit(code)

    def kill(self) -> None:
        """Kill the process, its group and its descendants, also those that left the group."""
        reaped = self.wait(0) is not None
        if not reaped:
            end_whole(self.pid, reaped=False)
        # The server ends what is left of one that has ended; last, by itself, the process that removes shared memory.
        self._wait_until_in(self._server.cleared, _GONE_S)
        if reaped and self.pid not in self._server.cleared:
            end_whole(self.pid, reaped=True)

    def close(self) -> None:
        """End the process if it still runs, and close the pipe; safe to call twice."""
        if self._events < 0:
            return  # its number may be another process's by now
        self.kill()
        os.close(self._events)
        self._events = -1
        self._open = False


class TrialServer:
    """Has a process of its own start the trials; see `pipeline_bench.worker.server`.

    That process ends them, with all that they have started, also when this one is killed.
    """

    def __init__(self, log: Path, command: Sequence[str] = ()) -> None:
        """Start the server; without a command it imports TensorFlow while the caller goes on.

        Args:
            log: the file for what it writes to stderr.
            command: what each trial is a fresh process of; empty: each is a fork of the server.

        Raises:
            PipelineBenchError: it cannot be started.
        """
        self.name: LauncherName = "fresh" if command else "forkserver"
        self._log = log
        self._mark = secrets.token_hex(8)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # Unbuffered, so that a killed trial's last words are kept.
            variables = {"PYTHONUNBUFFERED": "1", _MARK: self._mark}
            with theirs, log.open("wb") as file:
                self._server = start_module(
                    SERVER, theirs.fileno(), *command, log=file, name="The server of the trials", variables=variables
                )
        except BaseException:
            self._control.close()
            raise
        self.exit_codes: dict[int, int] = {}
        self.cleared: set[int] = set()
        """The trials' processes that have ended, and left nothing."""
        self._ready = False
        self._asked = 0
        """How many trials it was asked to start."""
        self.lost = False
        """Whether it has closed its end of the socket, so has ended, or no longer answers."""

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._server.pid

    def wait_until_ready(self) -> str | None:
        """Wait for the import; return None when the server can start trials, else the reason why not.

        Raises:
            KeyboardInterrupt: the user interrupted.
        """
        if self._ready:
            return None
        for message in self._await(_SERVER_READY_S):
            self._ready = bool(message.get("ready"))
            return None if self._ready else str(message["refused"])
        tail = stderr_tail(self._log, lines=3)
        return f"the server ended: {tail}" if self.lost else "the server did not answer"

    def start(self, trial: Trial, stderr: Path, *, private_network: bool = False) -> Child:
        """Start the trial's process; what it writes to stdout and stderr goes to the file `stderr`.

        Args:
            trial: what it is asked to do.
            stderr: made where it is not there.
            private_network: give it a network of its own; see `system.private_network`.

        Raises:
            PipelineBenchError: what starts processes does not answer, then it is `lost`, or cannot start one.
            OSError: it is gone, then it is `lost`, or this process lacks a file.
        """
        ours, theirs = socket.socketpair()
        try:
            with stderr.open("ab") as log, tempfile.TemporaryFile() as request:  # appending: `trim` leaves no hole
                request.write(trial.model_dump_json().encode())
                request.seek(0)
                self._asked += 1
                message = json.dumps({"trial": self._asked, "private_network": private_network}).encode()
                self._send(message, [request.fileno(), theirs.fileno(), log.fileno()])
            return Child(self._started_pid(), ours.detach(), self)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    def _send(self, message: bytes, descriptors: Sequence[int]) -> None:
        try:
            socket.send_fds(self._control, [message], descriptors)
        except ConnectionError:
            self.lost = True
            raise

    def _started_pid(self) -> int:
        """Return the number of the process that was asked for last; what an interrupt left unread is of another one."""
        for message in self._await(_SERVER_ANSWER_S):
            if "started" in message and message["trial"] == self._asked:
                pid = int(message["started"])
                self.exit_codes.pop(pid, None)  # of an earlier process with the same number
                self.cleared.discard(pid)
                return pid
            if "failed" in message and message["trial"] == self._asked:
                raise PipelineBenchError(f"no process can be started: {message['failed']}")
        self.lost = True
        words = stderr_tail(self._log, lines=3)
        raise PipelineBenchError(f"the server of the trials does not answer{f': {words}' if words else ''}")

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the server's next message; None when it ended or sent nothing in time. The trials' ends are noted."""
        if not readable(self._control.fileno(), timeout_s):
            return None
        try:
            data = self._control.recv(MESSAGE_LIMIT_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            self.lost = True
            return None
        message: dict[str, Any] = json.loads(data)
        if "exited" in message:
            self.exit_codes[int(message["exited"])] = int(message["code"])
        if "cleared" in message:
            self.cleared.add(int(message["cleared"]))
        return message

    def explain_end(self) -> str:
        """Return how the server, which is lost, ended, in words."""
        try:
            return _ending(self._server.wait(_GONE_S))
        except subprocess.TimeoutExpired:
            return "does not answer"

    def _await(self, timeout_s: float) -> Iterator[dict[str, Any]]:
        """Yield the server's messages until the time is over or it is lost.

        Raises:
            KeyboardInterrupt: the user interrupted.
        """
        waited = interrupts.Waited(queued=lambda: queued_s(self.pid))
        while not self.lost and (left_s := timeout_s - waited.seconds()) > 0:
            interrupts.check()
            message = self.receive(min(left_s, interrupts.CHECK_EVERY_S))
            if message is not None:
                yield message

    def close(self) -> None:
        """End the server and its trials; safe to call twice."""
        if self._control.fileno() < 0:
            return
        with self._control, contextlib.suppress(OSError):  # it has ended
            self._control.send(json.dumps({"end": True}).encode(), socket.MSG_DONTWAIT)
        try:
            ended_well = self._server.wait(_GONE_S) == 0
        except subprocess.TimeoutExpired:
            ended_well = False
            self._server.kill()
            self._server.wait()
        if not ended_well:
            _end_marked(self._mark)
            files.sweep()


def fresh_launcher(log: Path) -> TrialServer:
    """Start a server that gives each trial a new interpreter.

    It is slower to start a trial by TensorFlow's import, and works everywhere.
    """
    return TrialServer(log, module_command(TRIAL, detached=True))  # the server's child, which that sees to


def best_launcher(log: Path) -> tuple[TrialServer, str | None]:
    """Start the server that forks where that is safe, else the one with fresh interpreters; return it and the reason.

    Raises:
        KeyboardInterrupt: the user interrupted; no server is left.
    """
    server = TrialServer(log)
    try:
        importlib.import_module("scipy.stats")  # the results need it, and the server imports TensorFlow meanwhile
        reason = server.wait_until_ready()
    except BaseException:
        server.close()
        raise
    if reason is None:
        return server, None
    server.close()
    return fresh_launcher(log.with_suffix(".fresh.stderr")), f"every trial starts a fresh interpreter: {reason}"


def _end_marked(mark: str) -> None:
    """Kill what a server that is lost has left: every process that has inherited its mark."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(_MARK) == mark:
                process.kill()


def explain_exit(code: int | None) -> str:
    """Return an exit code in words: ``was killed by SIGKILL (out of memory, or by hand)``."""
    if code is None:
        return "did not end"
    if code == CLOSED_EXIT_CODE:
        return "lost its connection: its code closed files that it did not open (os.closerange?)"
    if code == NOT_BEGUN_EXIT_CODE:
        return "could not start; its stderr has the reason"
    return _ending(code) + (" before its last step" if code >= 0 else "")


def _ending(code: int) -> str:
    """Return an exit code in words, with what a signal may come of."""
    hints = {-signal.SIGKILL: " (by hand, or because memory ran out)", -signal.SIGSEGV: " (a crash in native code)"}
    return units.ending(code) + hints.get(code, "")


_BEGINNING = re.compile(r'^  File "[^"]*worker/server\.py", line \d+ in _become_trial\n(?:  File .*\n?)*', re.MULTILINE)

_WAITING = re.compile(
    r'^(?:Current t|T)hread .*\n  File "[^"]*system/main_thread\.py".*\n(?:  File .*\n?)*\n?', re.MULTILINE
)
"""A thread that waits for the user's script to train, or behind that for the process to end."""

_OVERWRITTEN = re.compile("\x08+|[^\n]*\r(?=[^\r\n\x08])")
"""What a bar of progress has drawn over: on a terminal only its last state is seen."""

_TAIL_BYTES = 1 << 14


def stderr_tail(path: Path, lines: int = 20) -> str:
    """Return the last lines of a file, at most 16 KiB of it; empty when there is none.

    Stacks that faulthandler wrote begin with the innermost call: those in which every forked trial runs would be last.
    """
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    text = _BEGINNING.sub("", _WAITING.sub("", _OVERWRITTEN.sub("", text)))
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
