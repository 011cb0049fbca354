"""A process that is asked one thing, and answers in lines."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

import psutil

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system import interrupts
from pipeline_bench.text import safe, units

_READ_BYTES = 1 << 16
_ENDS_WITHIN_S = 5.0
"""A process that has answered gets so long to end by itself."""


class AnsweringProcess:
    """Runs ``COMMAND FD``: a request on stdin, the answer in lines to the file descriptor FD.

    What it writes to stdout and stderr is kept as its last words. It is the leader of a session of its own, so that
    Ctrl-C in the terminal is for this program alone; leaving the block ends it with all that it started.
    """

    def __init__(self, command: Sequence[str], request: str = "", environment: Mapping[str, str] | None = None) -> None:
        """Start the process.

        Args:
            command: as `module_command` gives it.
            request: what it reads from stdin.
            environment: variables beside those that this process has.

        Raises:
            PipelineBenchError: no process can be started.
        """
        try:
            self._start(command, request, environment)
        except OSError as error:
            raise cannot_start("A process", error) from error

    def _start(self, command: Sequence[str], request: str, environment: Mapping[str, str] | None) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the process runs
        self._answers, theirs = os.pipe()
        try:
            with tempfile.TemporaryFile() as stdin:
                stdin.write(request.encode())
                stdin.seek(0)
                self._process = subprocess.Popen(
                    [*command, str(theirs)],
                    stdin=stdin,
                    stdout=self._log,
                    stderr=self._log,
                    pass_fds=[theirs],
                    start_new_session=True,
                    env={**os.environ, **(environment or {})},
                )
        except BaseException:
            os.close(self._answers)
            self._log.close()
            raise
        finally:
            os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process; at once where the block raised."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if kind else _ENDS_WITHIN_S)
        if self._process.poll() is None:
            end_whole(self._process.pid)
        else:  # its process id may be another's by now, that of its group is not while one of it is left
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._answers)
        self._log.seek(0)
        self._words = safe(self._log.read().decode(errors="replace"))
        self._log.close()

    def lines(self, limit_s: float | None = None) -> Iterator[bytes]:
        """Yield each line of the answer as it comes, until the process closes its end; the last may lack its newline.

        Raises:
            TimeoutError: it took longer than `limit_s` seconds.
            KeyboardInterrupt: the user interrupted.
        """
        ends_s = None if limit_s is None else time.monotonic() + limit_s
        rest = b""
        while True:
            interrupts.check()
            if ends_s is not None and time.monotonic() > ends_s:
                raise TimeoutError
            if not select.select([self._answers], [], [], interrupts.CHECK_EVERY_S)[0]:
                continue
            piece = os.read(self._answers, _READ_BYTES)
            if not piece:
                break
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
        if rest:
            yield rest

    @property
    def exit_code(self) -> int:
        """The exit code, negative for a signal, once the block has ended."""
        return int(self._process.returncode)

    @property
    def words(self) -> str:
        """What it wrote to stdout and stderr, once the block has ended."""
        return self._words

    @property
    def ending(self) -> str:
        """How it ended, in words, once the block has ended: ``was killed by SIGSEGV``, ``ended with exit code 1``."""
        code = self.exit_code
        return f"was killed by {units.signal_name(-code)}" if code < 0 else f"ended with exit code {code}"


def cannot_start(what: str, error: OSError) -> PipelineBenchError:
    """Return the error that says that a process cannot be started, and why.

    Args:
        what: the process: ``The server of the trials``.
        error: the system's reason.
    """
    return PipelineBenchError(
        f"{what} cannot be started: {error.strerror or error}.",
        "Free some memory or room in TMPDIR, or raise the limit of processes that `ulimit -u` shows.",
    )


def end_whole(pid: int) -> None:
    """Kill the leader of a process group, its group and its descendants, also those that left the group."""
    with contextlib.suppress(psutil.Error):
        for descendant in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                descendant.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
