"""Runs a command with the watching put into its Python processes, and keeps what its trainings waited for."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import BaseModel

from pipeline_bench import environment
from pipeline_bench.injection import OUT_VARIABLE, PACKAGE_VARIABLE
from pipeline_bench.model.job import WallTime
from pipeline_bench.monitoring.sampling import Readings, SamplerThread
from pipeline_bench.run import jobs
from pipeline_bench.samplers.host import HostSampler
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.system import job_control
from pipeline_bench.system.files import RUN_VARIABLE, ScratchFolder, remove_own
from pipeline_bench.text import Text

SITE = Path(__file__).with_name("site")
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""What a shell exits with where it cannot start a command (POSIX, Shell Command Language, 2.8.2)."""
_LOOKS_EVERY_S = 0.5
"""For the command's end, should a thread of a library's have taken the signal of that."""
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


class WatchedTraining(BaseModel):
    """One training that was seen: a call of `fit`, or a loop over a dataset."""

    name: Text
    steps: int
    input_wait_share: float | None
    verdict: Text
    line: Text
    folder: Path | None
    unsaved: Text | None = None
    """Why its session could not be saved."""
    on_tf_data: bool = True
    """Whether `pipeline-bench diagnose` knows its kind of input."""
    trains: bool = True
    """False of a loop that only reads, beside something that trains."""
    time: WallTime | None = None
    remarks: tuple[Text, ...] = ()
    number: int | None = None
    """Of a `fit`: which of the process it is, from 1."""
    seconds: float = 0.0
    """How long its steps took in all."""

    @property
    def waited_s(self) -> float:
        """How long they waited for their input in all; 0 where that is not known."""
        return self.seconds * (self.input_wait_share or 0.0)

    @property
    def selector(self) -> str:
        """What ``diagnose --training`` takes for it: the number of a `fit`, the line of a loop."""
        return str(self.number) if self.number is not None else self.name.partition(",")[0].rpartition(":")[2]


class ProcessRecord(BaseModel):
    """What one Python process of the command leaves, and replaces while it trains."""

    pid: int
    program: Text
    executable: Text
    trainings: tuple[WatchedTraining, ...]
    more: int
    problem: Text | None
    unwatched_loops: tuple[Text, ...] = ()
    """The lines of loops that came when as many as a process measures were measured: ``train.py:31``."""
    ended: bool = True
    """Whether its last word: else it was killed, or left by `os._exit`."""
    command: tuple[Text, ...] = ()
    """What started it, as `sys.orig_argv` has it; empty where a diagnosis could not start it so."""
    folder: Path | None = None
    """Where it was started."""


@dataclass(frozen=True)
class EndedCommand:
    """A command that was run.

    Attributes:
        code: its exit code, 128 + the signal's number where a signal ended it, as a shell has it.
        seconds: how long it ran.
        records: of its Python processes that imported a framework, in the order of their numbers.
        problems: why others could not be watched.
        gpu_percent: the GPU's utilization meanwhile, 0 to 100, and the source of that; None without a GPU.
        unrecorded: the last report of each training whose process was killed, or trains still, and has no record of it;
            a line each.
        cpu_percent: CPU time of the command with all that it started, over wall time and cores, 0 to 100.
        running: the numbers of the processes that train still, as one that a script leaves in the background.
        by_interrupt: whether SIGINT ended it.
        after_s: how long it ran on after its last training; 0 if that is not known, as of a loop.
    """

    code: int
    seconds: float
    records: tuple[ProcessRecord, ...]
    problems: tuple[str, ...]
    unrecorded: tuple[str, ...]
    gpu_percent: tuple[float | None, str | None]
    cpu_percent: float | None
    running: frozenset[int] = frozenset()
    by_interrupt: bool = False
    after_s: float = 0.0


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
        gpu = NvmlSampler.open()  # whose process would keep what is held back below
        started_ns = time.monotonic_ns()
        with job_control.keys_held() as mask:  # for `_wait` to take them, also what the command sends at once
            try:
                child = _started(command, environment_of(os.environ, scratch.path, out), mask)
            except BaseException:
                gpu.close()
                raise
            pass_on_to(child)
            readings = Readings()
            sampler = SamplerThread([HostSampler(child.pid, helper=gpu), gpu], readings)
            code = _wait(child)
        ended_ns = time.monotonic_ns()
        sampler.close()
        gpu.close()
        cores = environment.usable_cores()
        records, seen = tuple(_records(scratch.path)), jobs.of_run(str(scratch.path))
        return EndedCommand(
            code=code if code >= 0 else 128 - code,
            seconds=(ended_ns - started_ns) / 1e9,
            after_s=_after_s(records, ended_ns),
            records=records,
            problems=tuple(_problems(scratch.path)),
            unrecorded=tuple(_unrecorded(seen, {each.pid for each in records if each.trainings})),
            gpu_percent=readings.utilization(started_ns, cores, gpu=True),
            cpu_percent=readings.utilization(started_ns, cores, gpu=False)[0],
            running=frozenset(job.status.pid for job in seen if job.state == "running"),
            by_interrupt=code == -signal.SIGINT,
        )


def _after_s(records: Sequence[ProcessRecord], ended_ns: int) -> float:
    """Return how long the command ran on behind the last `fit` of its processes; 0 where a loop trained, too."""
    trainings = [each for record in records for each in record.trainings]
    ends_ns = [each.time.end_ns for each in trainings if each.time is not None]
    return (ended_ns - max(ends_ns)) / 1e9 if ends_ns and len(ends_ns) == len(trainings) else 0.0


def _started(command: Sequence[str], environment: Mapping[str, str], mask: Collection[int]) -> subprocess.Popen[bytes]:
    """Start a command with what this process was given: also the files of `<(…)` in a shell, or of a launcher's.

    Args:
        command: the program and its arguments.
        environment: all of it.
        mask: the signals that are held back in the command, which are not those held back here.

    Raises:
        OSError: the program cannot be started.
    """

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        set_mask = partial(signal.pthread_sigmask, signal.SIG_SETMASK, mask)  # takes no lock, and so cannot hang
        return subprocess.Popen(arguments, env=environment, close_fds=False, preexec_fn=set_mask)  # noqa: PLW1509

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
            continue
        by_a_process = sent.si_code <= 0  # as SI_FROMUSER of Linux has it
        if by_a_process and sent.si_pid != child.pid:
            _send(child, sent.si_signo)
    return child.wait()


def _send(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(PermissionError):  # it runs as another user, as by sudo: this one goes on to wait for it
        child.send_signal(number)


def _problems(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.problem")):
        with suppress(OSError):
            yield path.read_text(errors="replace")


def _unrecorded(seen: Sequence[jobs.WatchedJob], recorded: Collection[int]) -> Iterator[str]:
    """Yield the last report of each training that did not end and of whose process no record has trainings."""
    for job in seen:
        if job.state != "ended" and job.status.steps and job.status.pid not in recorded:
            how = "was killed" if job.state == "gone" else "still trains"
            yield f"{job.status.name}, process {job.status.pid}, {how}; its last report: {job.status.line}"


def environment_of(own: Mapping[str, str], folder: Path, out: Path) -> dict[str, str]:
    """Return the command's environment: the caller's, and what has its Python processes watched.

    Args:
        own: the caller's.
        folder: where each watched process leaves its record.
        out: where sessions go.
    """
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
    kept = {n: signal.signal(n, h) for n, h in handlers.items() if signal.getsignal(n) is not signal.SIG_IGN}
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # the system would keep no exit code of the command
        kept[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return kept


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


def _records(folder: Path) -> Iterator[ProcessRecord]:
    for path in sorted(folder.glob("*.json"), key=lambda path: (len(path.name), path.name)):  # 999 before 1000
        try:
            # Not by pydantic's own reader of JSON, which refuses a path that is no UTF-8.
            yield ProcessRecord.model_validate(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            continue
