"""Runs a command with the watching put into its Python processes; imports little, since the command waits for it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pipeline_bench.injection import OUT_VARIABLE, PACKAGE_VARIABLE
from pipeline_bench.system import job_control
from pipeline_bench.system.files import ScratchFolder, remove_own
from pipeline_bench.system.user_folders import RUN_VARIABLE

if TYPE_CHECKING:
    from pipeline_bench.injection.command_result import EndedCommand

SITE = Path(__file__).with_name("site")
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""What a shell exits with where it cannot start a command (POSIX, Shell Command Language, 2.8.2)."""
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
_LOOKS_EVERY_S = 0.5
"""For the command's end, should a thread of a library's have taken the signal of that."""
_PASSED_ON = (
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU, signal.SIGVTALRM),
    *(signal.SIGPROF, signal.SIGIO, signal.SIGPWR, signal.SIGSTKFLT, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)),
)
"""Those that a process sends to another, and that would else end this one and leave the command."""


def run(command: Sequence[str], out: Path, pass_on_to: Callable[[subprocess.Popen[bytes]], None]) -> EndedCommand:
    """Run a command to its end, with this process's terminal, streams and signals.

    Args:
        command: the program and its arguments.
        out: the folder in which each training's session gets a folder of its own.
        pass_on_to: is given the command's process; see `signals_passed_on`.

    Raises:
        OSError: the program cannot be started.
    """
    with ScratchFolder() as scratch:
        started_ns = time.monotonic_ns()
        # The keys for `_wait` to take them, also what the command sends at once.
        with _ends_kept() as ignored, job_control.keys_held() as mask:
            child = _started(command, environment_of(os.environ, scratch.path, out), mask, ignored)
            pass_on_to(child)
            # The command waits for none of what measures it, and at its end nobody waits for what tells of it.
            from pipeline_bench.injection import command_summary  # noqa: F401
            from pipeline_bench.injection.command_result import Observation

            observation = Observation(child.pid, started_ns)
            code = _wait(child)
        return observation.end(code, scratch.path)


def _started(
    command: Sequence[str], environment: Mapping[str, str], mask: Collection[int], ignores_ends: bool
) -> subprocess.Popen[bytes]:
    """Start a command with what this process was given: also the files of `<(…)` in a shell, or of a launcher's.

    Args:
        command: the program and its arguments.
        environment: all of it.
        mask: the signals that are held back in the command, which are not those held back here.
        ignores_ends: whether the command is to ignore SIGCHLD.

    Raises:
        OSError: the program cannot be started.
    """

    def restore() -> None:  # takes no lock, and so cannot hang
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if ignores_ends:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(arguments, env=environment, close_fds=False, preexec_fn=restore)  # noqa: PLW1509

    try:
        return start(*command)
    except OSError as error:
        program = shutil.which(command[0])
        if error.errno != errno.ENOEXEC or program is None:
            raise
        # A script without a first line that names its interpreter: the shell's, as for execvp(3), and so for nohup.
        return start("/bin/sh", program, *command[1:])


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for the command's end, and pass on what another process sent to this one alone, as `kill -INT` does.

    A signal's handler does not learn who sent it; `sigtimedwait` does. A key's, of the terminal, has reached the
    command already, and so has what that itself sent to its process group.

    Returns:
        What `subprocess.Popen.wait` does.
    """
    while child.poll() is None:
        sent = signal.sigtimedwait({*job_control.KEYS, signal.SIGCHLD}, _LOOKS_EVERY_S)
        if sent is None or sent.si_signo not in job_control.KEYS:
            _stop_with(child)
            continue
        by_a_process = sent.si_code <= 0  # as SI_FROMUSER of Linux has it
        if by_a_process and sent.si_pid != child.pid:
            _send(child, sent.si_signo)
    return child.wait()


def _stop_with(child: subprocess.Popen[bytes]) -> None:
    """Stop where the command stops itself in a terminal's foreground, which the shell then has; go on with it."""
    try:
        stopped = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG)
    except ChildProcessError:  # it has ended
        return
    if stopped is not None and job_control.in_foreground():
        os.kill(os.getpid(), signal.SIGSTOP)
        _send(child, signal.SIGCONT)


def _send(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(PermissionError):  # it runs as another user, as by sudo: this one goes on to wait for it
        child.send_signal(number)


def environment_of(own: Mapping[str, str], folder: Path, out: Path) -> dict[str, str]:
    """Return the command's environment: the caller's, and what has its Python processes watched.

    Args:
        own: the caller's.
        folder: where each watched process leaves its record.
        out: where sessions go.
    """
    set_by_python = _of_python(own)
    own = {name: value for name, value in own.items() if name not in set_by_python}
    # An empty entry would put the working directory on the path, where it was not.
    path = os.pathsep.join(part for part in (str(SITE), own.get("PYTHONPATH", "")) if part)
    package = os.pathsep.join((sys.prefix, str(Path(__file__).parents[2])))
    with suppress(OSError):  # the working directory was removed: no session can be kept below it
        out = out.absolute()
    return {
        **own,
        "PYTHONPATH": path,
        RUN_VARIABLE: str(folder),
        OUT_VARIABLE: str(out),
        PACKAGE_VARIABLE: package,
    }


def _of_python(own: Mapping[str, str]) -> Collection[str]:
    """Return the variables that Python itself has set: LC_CTYPE, where no locale is (PEP 538)."""
    if own.get("LC_CTYPE") not in _COERCED:
        return ()
    with suppress(OSError):
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
        return () if any(each.startswith(b"LC_CTYPE=") for each in given) else ("LC_CTYPE",)
    return ()


def end_by(number: int) -> None:
    """End this process by a signal, with what it has printed."""
    remove_own()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it may be full, closed, or none
            stream.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _handled(handlers: Mapping[int, Any]) -> dict[int, Any]:
    """Set the handlers; return those before."""
    # Who ignores a signal, as nohup does a HUP, means the command to ignore it as well.
    return {n: signal.signal(n, h) for n, h in handlers.items() if signal.getsignal(n) is not signal.SIG_IGN}


@contextmanager
def _ends_kept() -> Iterator[bool]:
    """Have the system keep the command's exit code in the block; yield whether it would not, as SIGCHLD is ignored."""
    ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield ignored
    finally:
        if ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@contextmanager
def signals_passed_on() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Pass signals on to the command, but INT and QUIT where a terminal's keys send them to it as well.

    From the command's start on, `run` knows by their sender whether keys sent them (`_wait`); before that, they are
    taken for a key's in the foreground of a terminal.

    Once the command has ended they change nothing, so that a late one costs neither the lines about the command
    nor its exit code; only QUIT ends this process at once.

    Yields a function that is given the command's process once it runs; a signal that came before is passed on then.
    """
    children: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for child in children:
            _send(child, number)
        if not children:
            early.append(number)

    def pass_on_to(child: subprocess.Popen[bytes]) -> None:
        children.append(child)
        for number in early:
            _send(child, number)

    def pass_on_key(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGQUIT and children and all(child.returncode is not None for child in children):
            end_by(number)
        if not job_control.in_foreground():
            pass_on(number, frame)

    # Functions, and not SIG_IGN, which the command would inherit.
    handlers: dict[int, Any] = {**dict.fromkeys(job_control.KEYS, pass_on_key), **dict.fromkeys(_PASSED_ON, pass_on)}
    kept = _handled(handlers)
    try:
        yield pass_on_to
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
