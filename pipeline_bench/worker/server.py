"""Starts a process for each trial, and ends all that the trials have started when the program itself is gone.

``python -m pipeline_bench.worker.server CONTROL_FD [COMMAND …]``. With a command, each trial is a fresh process of that
command. Without one the server imports TensorFlow once, about two seconds, and each trial is a fork of it. A fork is as
good as a fresh process only while the import really did nothing: no thread of its own and no accelerator opened. The
server checks both and otherwise refuses, and the program starts another server, with a command.

The control socket carries one JSON object a datagram. From the program: ``trial``, its number, and ``private_network``,
with three descriptors: a file that holds the trial, the event pipe, and the file for stdout and stderr; at last
``end``. To the program: ``ready`` or ``refused`` once, then for each trial ``started`` or ``failed``, ``exited``, and
``cleared`` when it has left nothing.
When the program is gone, however it ended, the socket closes: the server then kills its trials and every process that
they have left.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from pipeline_bench.system import files, private_network
from pipeline_bench.system.processes import (
    CLEANED_WITHIN_S,
    adopt_orphans,
    end_with_parent,
    outlive_parent,
    quick_imports,
    removes_shared_memory,
    thread_starts,
    threads,
    why_not_forkable,
)

MESSAGE_LIMIT_BYTES = 1 << 16
DESCRIPTORS = 3
_LOOK_EVERY_S = 0.01
_UNLOCKED_WITHIN_S, _SWEEP_EVERY_S = 2.0, 0.1
NOT_BEGUN_EXIT_CODE = 70
"""Of a trial's process that could not begin; what stopped it is on its stderr."""


class _Server:
    def __init__(self, control: socket.socket, command: Sequence[str]) -> None:
        self._control = control
        self._command = command
        self._pid = os.getpid()
        self._children: dict[int, int] = {}
        """The trials that run: process id to the trial's number."""
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Start trials until the program closes the socket, or tells this process to end."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._wake_read in ready:
                    os.read(self._wake_read, 4096)
                    self._reap()
                if self._control in ready and (end := self._serve_one()) is not None:
                    self._kill_all()
                    _sweep_after(end)
                    return

    def send(self, **message: Any) -> None:
        """Send a message; a program that is gone is noticed at the next read."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.send(json.dumps(message).encode())

    def _serve_one(self) -> Literal["asked", "gone"] | None:
        """Do what the program asks next; return why this process is to end, if it is."""
        try:
            message, descriptors, _, _ = socket.recv_fds(
                self._control, MESSAGE_LIMIT_BYTES, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:  # it ended with messages that it had not read
            return "gone"
        if not message:
            return "gone"
        request: dict[str, Any] = json.loads(message)
        if "end" in request:
            return "asked"
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or as many processes as are allowed
            self.send(failed=str(error), trial=request["trial"])
        else:
            if pid == 0:
                self._become_trial(request, *descriptors)
            self._children[pid] = request["trial"]
            self.send(started=pid, trial=request["trial"])
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def _become_trial(self, request: dict[str, Any], trial: int, events: int, stderr: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.dup2(stderr, 1)
            os.dup2(stderr, 2)
            self._control.close()
            if request["private_network"]:
                private_network.enter()
            end_with_parent(self._pid)  # after the namespaces: a change of privileges undoes it
            if self._command:
                os.dup2(trial, 0)
                os.set_inheritable(events, True)
                os.execv(self._command[0], [*self._command, str(events)])  # noqa: S606 - no shell is involved
            self._run_trial(trial, events)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(NOT_BEGUN_EXIT_CODE)

    def _run_trial(self, trial: int, events: int) -> NoReturn:
        from pipeline_bench.model.trial import Trial
        from pipeline_bench.worker.main import run_trial
        from pipeline_bench.worker.recorder import Channel

        os.set_inheritable(events, False)  # a program that the user's code starts is not to hold it open
        with os.fdopen(trial, "rb") as file:
            request = file.read()
        run_trial(Trial.model_validate_json(request), Channel(events))

    def _reap(self) -> None:
        for pid in list(self._children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                number = self._children.pop(pid)
                self.send(exited=pid, code=os.waitstatus_to_exitcode(status), trial=number)
                self._kill_orphans()
                files.sweep()
                self.send(cleared=pid)

    def _kill_orphans(self) -> None:
        """Kill what a trial that has ended left behind; the kernel hands it to this process, see `adopt_orphans`.

        Of a whole tree it hands over the next generation when one is gone. Another user's it may not kill.
        """
        refused: set[int] = set()
        with contextlib.suppress(OSError):
            while orphans := self._descended() - set(self._children) - refused:
                last = {orphan for orphan in orphans if removes_shared_memory(orphan)}
                for orphan in orphans - last or last:
                    try:
                        if orphan not in last or not _ends(orphan):
                            os.kill(orphan, signal.SIGKILL)
                            os.waitpid(orphan, 0)
                    except OSError:
                        refused.add(orphan)

    @staticmethod
    def _descended() -> set[int]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
        return {int(child) for child in children}

    def _kill_all(self) -> None:
        for pid in self._children:
            with contextlib.suppress(OSError):  # what may not be killed is not waited for
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self._children.clear()
        self._kill_orphans()


def _sweep_after(end: Literal["asked", "gone"]) -> None:
    """Remove the folders whose process is gone, and wait for those of the program if it is.

    The kernel may end the lock of a killed program's folder later than its socket, and than the program itself.
    """
    end_s = time.monotonic() + (_UNLOCKED_WITHIN_S if end == "gone" else 0)
    while not files.sweep() and time.monotonic() < end_s:
        time.sleep(_SWEEP_EVERY_S)


def _ends(pid: int) -> bool:
    """Wait for a child to end by itself; whether it did in time."""
    end_s = time.monotonic() + CLEANED_WITHIN_S
    while time.monotonic() < end_s:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(_LOOK_EVERY_S)
    return False


def _import_everything() -> str | None:
    """Import what a forked trial needs; return why this process must not be forked then, None where it may be."""
    import numpy as np  # noqa: F401 - its BLAS may start threads, which survive a fork; only later ones count

    # Python 3.12 warns of any fork beside another thread; NumPy's BLAS has one and handles the fork itself.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    before = threads()
    with quick_imports(), thread_starts() as started_by:
        import tensorflow as tf  # noqa: F401 - the import is what a fork saves

        import pipeline_bench.worker.main  # noqa: F401
        from pipeline_bench import plugins

        for group in plugins.GROUPS:  # this package's are imported: a tenth of a second that no trial pays
            plugins.names(group)

    return why_not_forkable(before, started_by)


def main() -> None:
    """Import, check, serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    command = sys.argv[2:]
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reason = None if command else _import_everything()
    server = _Server(control, command)
    if reason is not None:
        server.send(refused=reason)
        return
    outlive_parent()  # from here on the closed socket says that the program is gone
    server.send(ready=True)
    server.serve()


if __name__ == "__main__":
    main()
