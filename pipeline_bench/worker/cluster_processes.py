"""The processes of a between_graph trial: the parameter server and the workers, started, heard, watched, ended.

The trial forks them while it has one thread, and TensorFlow is imported but not used; where that cannot be, each is a
fresh interpreter. They end with the trial, however it ends: the kernel kills them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Literal, NamedTuple

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.events import Device, QueueState, Stack
from pipeline_bench.scenario import Variant
from pipeline_bench.system.processes import end_with_parent, module_command, thread_count, why_not_forkable
from pipeline_bench.text import units

JobName = Literal["ps", "worker"]
Addresses = dict[str, list[str]]
"""Host and port of every process, by job: a `ClusterSpec`'s argument."""

FRESH_MODULE = "pipeline_bench.worker.cluster_worker"
_ENDED_WITHIN_S = 1.0
_LOOK_EVERY_S = 0.02


class Assignment(NamedTuple):
    """What a process is sent first. `tickets`: the file descriptor of the steps still to be taken; -1: none."""

    job: JobName
    number: int
    variant: Variant
    tickets: int


class Order(NamedTuple):
    """What the trial tells a worker: begin to train, take no further step, or give the accuracy."""

    order: Literal["go", "stop", "evaluate"]


class Listening(NamedTuple):
    """A process has TensorFlow, and a port for its server."""

    port: int


class Ready(NamedTuple):
    """A worker is built and, of worker 0, the variables are set; `accuracy` is then the one before training."""

    device: Device
    accuracy: float | None
    waits: bool
    """Whether there is an input to wait for."""
    shows_samples: bool
    values_per_sample: int


class WorkerStep(NamedTuple):
    """A step of one worker; times in ns of ``time.monotonic_ns``. `digest` as `sample_audit.digest` has it, if any."""

    start_ns: int
    end_ns: int
    wait_ns: int
    loss: float
    digest: tuple[float, ...] = ()


class StepsTaken(NamedTuple):
    """Steps of a worker, all that ended by `until_ns`, and how full its queues were then."""

    steps: tuple[WorkerStep, ...]
    until_ns: float
    queues: tuple[QueueState, ...] = ()
    stacks: tuple[Stack, ...] = ()
    """Where its threads stand, once it has taken no step for long."""


class Trained(NamedTuple):
    """A worker takes no further step, and has ended its input."""


class Accuracy(NamedTuple):
    """The accuracy now; None of a model that has none."""

    value: float | None


class Broke(NamedTuple):
    """A process failed, and why."""

    error: str


class Process:
    """One process of a cluster, and the pipe to it."""

    def __init__(self, job: JobName, index: int, pid: int, connection: Any) -> None:
        self.job: JobName = job
        self.index = index
        self.pid = pid
        self.connection = connection
        self.over = False
        """Whether it has done all it had to, and may end."""
        self.exit_code: int | None = None

    @property
    def label(self) -> str:
        """The process as a reader names it."""
        return f"worker {self.index}" if self.job == "worker" else "the parameter server"

    def look(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        if self.exit_code is None:
            with contextlib.suppress(ChildProcessError):
                done, status = os.waitpid(self.pid, os.WNOHANG)
                self.exit_code = os.waitstatus_to_exitcode(status) if done else None
        return self.exit_code

    def end(self) -> None:
        """Kill the process if it still runs, and reap it; safe to call twice."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.connection.close()


def can_fork() -> bool:
    """Whether this process can fork the processes with TensorFlow in them: imported, here if need be, and not used."""
    if "tensorflow" in sys.modules:  # then the fork server has looked
        return True
    import numpy as np  # noqa: F401 - its BLAS may start threads, which survive a fork; only later ones count

    before = thread_count()
    import tensorflow as tf  # noqa: F401 - one import for all processes

    return why_not_forkable(before) is None


def start(
    job: JobName, index: int, others: Sequence[Process], tickets: int, run: Callable[[Any], None] | None
) -> Process:
    """Start a process's process.

    Args:
        job: what it is.
        index: which of them.
        others: those that were started before; it must not hold their pipes.
        tickets: a file descriptor that it inherits; -1: none.
        run: what a fork runs, with its end of the pipe; None: a fresh interpreter runs `FRESH_MODULE`.
    """
    ours, theirs = Pipe()
    others_pipes = [ours, *(process.connection for process in others)]
    pid = _spawn(theirs, tickets) if run is None else _fork(run, theirs, others_pipes)
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


def _spawn(theirs: Any, tickets: int) -> int:
    inherited = [descriptor for descriptor in (theirs.fileno(), tickets) if descriptor >= 0]
    for descriptor in inherited:
        os.set_inheritable(descriptor, True)
    command = module_command(FRESH_MODULE, theirs.fileno())
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
    """Why a process ended before it should: one that was killed takes others down with it, and comes first.

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
        return f"{killed[0].label} was killed by {units.signal_name(-(killed[0].exit_code or 0))}"
    if error:
        return f"{first.label} failed: {error}"
    code = first.look()
    return f"{first.label} closed its pipe" if code is None else f"{first.label} ended with exit code {code}"
