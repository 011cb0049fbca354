"""A fork server: imports TensorFlow once, then forks a process for each trial.

``python -m pipeline_bench.worker.server CONTROL_FD``. The import costs about two seconds a process; a fork has it for
nothing. A fork is as good as a fresh process only while the import really did nothing: no thread of its own and no
accelerator opened. The server checks both and otherwise refuses, and the parent falls back to fresh interpreters.

The control socket carries one JSON object a datagram. From the parent: a trial, with the descriptors of the event
pipe and of stderr. To the parent: ``ready`` or ``refused`` once, then ``started`` and ``exited`` for each trial.
When the parent goes, the socket closes, and the server takes its trials with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from pipeline_bench.trial import Trial
from pipeline_bench.worker import forking
from pipeline_bench.worker.channel import Channel
from pipeline_bench.worker.lifetime import die_with_parent, leave
from pipeline_bench.worker.main import run_trial

MESSAGE_LIMIT_BYTES = 1 << 20
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Ask the kernel to make this process the parent of descendants whose own parent has ended (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


class _Server:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}
        """The trials that run: process id to the trial's index."""
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Fork trials until the parent closes the socket."""
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
                if self._control in ready and not self._serve_one():
                    self._kill_all()
                    return

    def say(self, **message: Any) -> None:
        """Send a message; a parent that is gone is noticed at the next read."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.send(json.dumps(message).encode())

    def _serve_one(self) -> bool:
        request, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_LIMIT_BYTES, 2)
        if not request:
            return False
        pid = os.fork()
        if pid == 0:
            self._become_trial(request, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        index = int(json.loads(request)["index"])
        self._children[pid] = index
        self.say(started=pid, trial=index)
        return True

    def _become_trial(self, request: bytes, events: int, stderr: int) -> None:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            die_with_parent()
            os.dup2(stderr, 1)
            os.dup2(stderr, 2)
            self._control.close()
            os.set_inheritable(events, False)  # a program that the user's code starts is not to hold it open
            leave(run_trial(Trial.model_validate_json(request), Channel(events)))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)

    def _reap(self) -> None:
        for pid in list(self._children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                index = self._children.pop(pid)
                self._kill_orphans()
                self.say(exited=pid, code=os.waitstatus_to_exitcode(status), trial=index)

    def _kill_orphans(self) -> None:
        """Kill what a trial that has ended left behind; the kernel hands it to this process, see `adopt_orphans`.

        Of a whole tree it hands over the next generation when one is gone.
        """
        with contextlib.suppress(OSError):
            while orphans := self._descended() - set(self._children):
                for orphan in orphans:
                    os.kill(orphan, signal.SIGKILL)
                    os.waitpid(orphan, 0)

    @staticmethod
    def _descended() -> set[int]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
        return {int(child) for child in children}

    def _kill_all(self) -> None:
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._children.clear()
        self._kill_orphans()


def main() -> None:
    """Import, check, serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    die_with_parent()
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import numpy as np  # noqa: F401 - its BLAS may start threads, which survive a fork; only later ones count

    # Python 3.12 warns of any fork beside another thread; NumPy's BLAS has one and handles the fork itself.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    before = forking.threads()
    import tensorflow as tf  # noqa: F401 - the import is what a fork saves

    server = _Server(control)
    reason = forking.why_not_forkable(before)
    if reason:
        server.say(refused=reason)
        return
    server.say(ready=True)
    server.serve()


if __name__ == "__main__":
    main()
