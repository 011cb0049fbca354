"""Starts the children of this program, asks one for a call of a function, and ends them with all that they started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import psutil

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system import files, interrupts
from pipeline_bench.system.processes import CLEANED_WITHIN_S, module_command, queued_s, readable, removes_shared_memory
from pipeline_bench.text import safe, units

_READ_BYTES = 1 << 16
_ENDS_WITHIN_S = 5.0
"""A process that has answered gets so long to end by itself."""


@dataclass(frozen=True)
class Answer:
    """What came of a call: a result, or `failed`, or neither where the process ended before it answered."""

    result: Any = None
    failed: str = ""
    """What the function raised, in one line."""
    limit_s: float | None = None
    """What the call was given."""
    timed_out: bool = False
    exit_code: int = 0
    """Negative for a signal."""
    words: str = ""
    """What the process wrote to stdout and stderr."""

    @property
    def ending(self) -> str:
        """How the process ended, in words: ``was killed by SIGSEGV``, ``ended with exit code 1``."""
        return units.ending(self.exit_code)

    @property
    def why(self) -> str:
        """Why there is no result, for the end of a sentence; empty where there is one."""
        if self.result is not None:
            return ""
        if self.timed_out:  # its end is this program's own
            return f"it took longer than {self.limit_s:g} s"
        return self.failed or f"the process {self.ending}"


def call(
    function: Callable[..., Any],
    arguments: Mapping[str, Any] | None = None,
    *,
    limit_s: float | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> Answer:
    """Call a function of this program in a process of its own, which is ended with all that it started.

    The process is the leader of a session of its own, so that Ctrl-C in the terminal is for this program alone.

    Args:
        function: at the top level of its module; gives a mapping, a model or None. See `worker.call`.
        arguments: its own, by name, as JSON carries them.
        limit_s: the process is ended after so many seconds.
        progress: takes what the function reports; it is then called with `report` as well.

    Raises:
        PipelineBenchError: no process can be started.
        KeyboardInterrupt: the user interrupted.
    """
    message: dict[str, Any] = {}
    timed_out = False
    request = _request(function, arguments, reports=progress is not None)
    with tempfile.TemporaryFile() as log, _asked(request, log) as (process, answers):
        try:
            for line in _lines(process, answers, limit_s):
                message = _decoded(line)
                if "progress" not in message:
                    break
                if progress is not None:
                    progress(message["progress"])
        except TimeoutError:
            timed_out = True
        _end(process, 0 if timed_out else _ENDS_WITHIN_S)
        log.seek(0)
        words = safe(log.read().decode(errors="replace"))
    return Answer(message.get("result"), message.get("failed", ""), limit_s, timed_out, process.returncode, words)


@contextlib.contextmanager
def beside(
    function: Callable[..., Any], arguments: Mapping[str, Any] | None = None, *, begins_within_s: float
) -> Iterator[None]:
    """Run a function of this program in a process of its own until the block ends.

    Args:
        function: as `call` has it; it reports, and has begun when it does so first.
        arguments: its own, by name.
        begins_within_s: the longest until then.

    Raises:
        PipelineBenchError: it did not begin, with its own reason.
    """
    request = _request(function, arguments, reports=True)
    with tempfile.TemporaryFile() as log, _asked(request, log) as (process, answers):
        message: dict[str, Any] = {}
        with contextlib.suppress(TimeoutError):
            message = _decoded(next(_lines(process, answers, begins_within_s), b""))
        if "progress" not in message:
            raise PipelineBenchError(message.get("failed") or f"{function.__name__} did not begin.")
        yield
        _end(process, 0)


def _request(function: Callable[..., Any], arguments: Mapping[str, Any] | None, *, reports: bool) -> str:
    """Return what `worker.call` is asked."""
    name = {"module": function.__module__, "function": function.__qualname__}
    return json.dumps({**name, "arguments": dict(arguments or {}), "reports": reports})


@contextlib.contextmanager
def _asked(request: str, log: IO[bytes]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start the process and give it with the descriptor of its answers; end it at once where the block raises."""
    answers, theirs = os.pipe()
    try:
        try:
            with tempfile.TemporaryFile() as stdin:
                stdin.write(request.encode())
                stdin.seek(0)
                process = start_module("pipeline_bench.worker.call", theirs, log=log, stdin=stdin, name="A process")
        finally:
            os.close(theirs)
        try:
            yield process, answers
        except BaseException:
            _end(process, 0)
            raise
    finally:
        os.close(answers)


def _end(process: subprocess.Popen[bytes], within_s: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(within_s)
    end_whole(process.pid, reaped=process.poll() is not None)
    process.wait()
    files.sweep()


def _lines(process: subprocess.Popen[bytes], answers: int, limit_s: float | None) -> Iterator[bytes]:
    """Yield each line as it comes, until the process closes its end; the last may lack its newline.

    Raises:
        TimeoutError: it took longer than `limit_s` seconds, without what it waited for a core.
    """
    waited, rest = interrupts.Waited(queued=lambda: queued_s(process.pid)), b""
    while True:
        interrupts.check()
        if limit_s is not None and waited.seconds() > limit_s:
            raise TimeoutError
        if not readable(answers, interrupts.CHECK_EVERY_S):
            continue
        piece = os.read(answers, _READ_BYTES)
        if not piece:
            break
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _decoded(line: bytes) -> dict[str, Any]:
    """Return a message; an empty one of a line that the process did not write whole."""
    try:
        message: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return message


def start_module(
    module: str,
    descriptor: int,
    *arguments: str,
    log: IO[bytes],
    name: str,
    stdin: IO[bytes] | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a module of this program in a new interpreter and a new session; it ends with this process.

    Args:
        module: runs as ``__main__``; its arguments are the descriptor and `arguments`.
        descriptor: of a pipe or a socket, which it inherits.
        arguments: those behind the descriptor.
        log: takes what it writes to stdout and stderr.
        name: the process, for a message: ``The server of the trials``.
        stdin: what it reads; None: nothing.
        variables: of its environment, beside those that this process has.

    Raises:
        PipelineBenchError: no process can be started.
    """
    try:
        return subprocess.Popen(
            module_command(module, descriptor, *arguments),
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=log,
            stderr=log,
            pass_fds=[descriptor],
            start_new_session=True,
            env={**os.environ, **(variables or {})},
        )
    except OSError as error:
        raise PipelineBenchError(
            f"{name} cannot be started: {error.strerror or error}.",
            "Free some memory or room in TMPDIR, or raise the limit of processes that `ulimit -u` shows.",
        ) from error


def end_whole(pid: int, *, reaped: bool) -> None:
    """Kill the leader of a process group, its group and its descendants, also those that left the group.

    Args:
        pid: of the leader.
        reaped: whether it has been: its id may be another's by now, and what is left of its group alone is killed.
    """
    if not reaped:
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(pid)
            family = leader.children(recursive=True)
            last = [descendant for descendant in family if removes_shared_memory(descendant.pid)]
            for one in (leader, *family):
                if one not in last:
                    with contextlib.suppress(psutil.Error):
                        one.kill()
            psutil.wait_procs(last, timeout=CLEANED_WITHIN_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
