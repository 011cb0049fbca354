"""The server of the trials: when it tells that one has ended, and what it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_bench.system.processes import readable
from pipeline_bench.worker.server import _Server


class Ends:
    """A server without a trial, and the program's end of its socket."""

    def __init__(self) -> None:
        self.program, self._control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server = _Server(self._control, ())

    def close(self) -> None:
        self.program.close()
        self._control.close()
        os.close(self.server._wake_read)
        os.close(self.server._wake_write)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def test_how_a_trial_ended_is_told_before_what_it_left_is_ended(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """That may take longer than the program waits for an exit code."""
    told: list[bool] = []
    monkeypatch.setattr(ends.server, "_kill_orphans", lambda: told.append(readable(ends.program.fileno(), 0)))
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    ends.server._children[pid] = 7
    ends.server._reap()
    assert told == [True]
    messages = [json.loads(ends.program.recv(4096)) for _ in range(2)]
    assert messages == [{"exited": pid, "code": 3, "trial": 7}, {"cleared": pid}]


@pytest.mark.parametrize("unread", [False, True])
def test_what_trials_left_is_ended_also_when_the_program_ended_with_messages_unread(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, unread: bool
) -> None:
    """As one that is killed just as a trial has ended: the kernel then resets the connection."""
    trial, left = (os.posix_spawnp("sleep", ["sleep", "1000"], os.environ) for _ in range(2))
    entry = Path(f"/proc/{left}")
    # Not every child of this process: other tests have some.
    monkeypatch.setattr(_Server, "_descended", staticmethod(lambda: {left} if entry.exists() else set()))
    monkeypatch.setattr("pipeline_bench.worker.server._UNLOCKED_WITHIN_S", 0)  # nor their folders
    ends.server._children[trial] = 7
    if unread:
        ends.server.send(started=trial, trial=7)
    ends.program.close()
    before = signal.getsignal(signal.SIGCHLD)
    try:
        ends.server.serve()
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
    for pid in (trial, left):
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@pytest.mark.parametrize("trial", [False, True])
def test_a_process_that_may_not_be_killed_keeps_no_other_alive(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, trial: bool
) -> None:
    """As a setuid program, which is another user's: the first that is to be killed."""
    running = {os.posix_spawnp("sleep", ["sleep", "1000"], os.environ) for _ in range(4)}
    kill, refused = os.kill, set[int]()

    def may_kill(pid: int, number: int) -> None:
        if not refused or pid in refused:
            refused.add(pid)
            raise PermissionError(1, "Operation not permitted")
        kill(pid, number)
        running.remove(pid)

    monkeypatch.setattr(os, "kill", may_kill)
    monkeypatch.setattr(_Server, "_descended", staticmethod(lambda: set(running)))
    if trial:
        first = next(iter(running))
        ends.server._children[first] = 0
    try:
        ends.server._kill_all()
        assert running == refused
    finally:
        for pid in running:
            kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
