"""Processes that a trial starts beside itself: forked or fresh, heard by a pipe, watched, and ended with the trial.

The trial forks them while it has one thread, and TensorFlow is imported but not used; where that cannot be, each is a
fresh interpreter. They end with the trial, however it ends: the kernel kills them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system.processes import end_with_parent, module_command
from pipeline_bench.text import units

_LABELS = {"ps": "the parameter server", "dispatcher": "the dispatcher of the tf.data service"}
_ENDED_WITHIN_S = 1.0
_LOOK_EVERY_S = 0.02


class Broke(NamedTuple):
    """A process failed, and why."""

    error: str


class Process:
    """One process of a cluster, and the pipe to it."""

    def __init__(self, job: str, index: int, pid: int, connection: Any) -> None:
        self.job = job
        self.index = index
        self.pid = pid
        self.connection = connection
        self.over = False
        """Whether it has done all it had to, and may end."""
        self.exit_code: int | None = None
        self.stopped_s: float | None = None
        """Since when it is stopped, ``time.monotonic``; None of one that is not."""

    @property
    def label(self) -> str:
        """The process as a reader names it."""
        return _LABELS.get(self.job) or f"{self.job} {self.index}"

    def look(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        while self.exit_code is None:
            try:
                done, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                break
            if not done:
                break
            self._note(status)
        return self.exit_code

    def _note(self, status: int) -> None:
        if os.WIFSTOPPED(status):
            self.stopped_s = time.monotonic()
        elif os.WIFCONTINUED(status):
            self.stopped_s = None
        else:
            self.exit_code = os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """Kill the process if it still runs, and reap it; safe to call twice."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.connection.close()


def start(
    job: str, index: int, others: Sequence[Process], run: Callable[[Any], None] | str, inherited: Sequence[int] = ()
) -> Process:
    """Start a process.

    Args:
        job: what it is.
        index: which of them.
        others: those that were started before; it must not hold their pipes.
        run: what a fork runs, with its end of the pipe; or the module that a fresh interpreter runs, which is given the
            descriptor of that end as its argument.
        inherited: the file descriptors that a fresh interpreter is to have as well.
    """
    ours, theirs = Pipe()
    others_pipes = [ours, *(process.connection for process in others)]
    pid = _spawn(run, theirs, inherited) if isinstance(run, str) else _fork(run, theirs, others_pipes)
    theirs.close()
    return Process(job, index, pid, ours)


def _fork(run: Callable[[Any], None], theirs: Any, not_theirs: Sequence[Any]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        for connection in not_theirs:
            connection.close()
        end_with_parent(parent)
        run(theirs)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(70)


def _spawn(module: str, theirs: Any, others: Sequence[int]) -> int:
    inherited = [theirs.fileno(), *others]
    for descriptor in inherited:
        os.set_inheritable(descriptor, True)
    command = module_command(module, theirs.fileno())
    try:
        return os.posix_spawn(command[0], command, os.environ)
    finally:
        for descriptor in inherited:
            os.set_inheritable(descriptor, False)


def hear(processes: Sequence[Process]) -> Iterator[tuple[Process, Any]]:
    """Wait until a process says something; every message that has come.

    Raises:
        PipelineBenchError: a process failed, was killed, or ended before it should.
    """
    by_connection = {process.connection: process for process in processes if not process.over}
    for ready in wait(list(by_connection)):
        assert isinstance(ready, Connection)
        process = by_connection[ready]
        try:
            message = ready.recv()
        except (EOFError, ConnectionResetError):
            raise PipelineBenchError(why_ended(processes, process)) from None
        if isinstance(message, Broke):
            raise PipelineBenchError(why_ended(processes, process, message.error))
        yield process, message


def why_ended(processes: Sequence[Process], first: Process, error: str = "") -> str:
    """Return why a process ended before it should: one that was killed takes others down with it, and comes first.

    Args:
        processes: all of them.
        first: the one that was noticed.
        error: what it said itself, if anything.
    """
    deadline = time.monotonic() + _ENDED_WITHIN_S
    while (
        not (killed := [process for process in processes if (process.look() or 0) < 0]) and time.monotonic() < deadline
    ):
        if not error and first.look() is not None:
            break
        time.sleep(_LOOK_EVERY_S)
    if killed:
        return f"{killed[0].label} {units.ending(killed[0].exit_code or 0)}"
    if error:
        return f"{first.label} failed: {error}"
    code = first.look()
    return f"{first.label} {'closed its pipe' if code is None else units.ending(code)}"
