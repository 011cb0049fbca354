"""The trials' server without TensorFlow: a trial speaks the events by the script that its variant's name is.

Names: ``ok`` (steps of 1 ms by its own account), ``crash`` (SIGSEGV), ``exit`` (code 3, words on stderr), ``raise``
(says that it failed), ``silent`` (steps, then nothing), ``stall`` (reports a stall of its own), ``garbage`` (no event
at all), ``until FILE`` (goes on until there is one), ``family`` (starts a grandchild in a session of its own, and is
stopped), ``held`` and ``orphan`` (start a grandchild that holds the pipe, then hang, or are killed), ``daemon`` and
``daemon silent`` (start a process that leaves session and parent behind, then go through, or hang), ``reusable`` (goes
through, and does what it is asked further), ``once raise`` and ``once stall`` (as ``reusable`` in a process of their
own, and in one that has run another trial as ``raise`` and ``silent``). A name that begins with ``on gpu`` goes
through, and says that its model is on one.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np

from pipeline_bench.model import Series
from pipeline_bench.model.events import (
    Device,
    Done,
    Evaluated,
    Failed,
    Hello,
    Phase,
    QueueState,
    Stack,
    Stalled,
    Steps,
)
from pipeline_bench.model.trial import FurtherTrial, Trial
from pipeline_bench.system.processes import leave
from pipeline_bench.worker import server
from pipeline_bench.worker.recorder import Channel

STEPS = 60
RANKS_MEET_IN = "SCRIPTED_RANKS_MEET_IN"
"""The variable with the folder in which two ranks meet."""


def steps(first: int, count: int) -> Steps:
    start_ns = time.monotonic_ns() + np.arange(count, dtype=np.int64) * 1_000_000
    return Steps(
        first=first,
        start_ns=Series.pack(start_ns),
        end_ns=Series.pack(start_ns + 1_000_000),
        wait_ns=Series.pack(np.full(count, 250_000, dtype=np.int64)),
        loss=Series.pack(np.linspace(1, 0.5, count)),
    )


def go_on(script: str) -> None:
    """Be in the middle of the steps: for 3 s, until there is a file, or until the other rank's trial is there too."""
    if script == "long":
        time.sleep(3)
    if script.startswith("until "):
        wait_for(Path(script.removeprefix("until ")).exists)
    if script.endswith(" hosts"):
        folder = Path(os.environ[RANKS_MEET_IN])
        (folder / f"{os.getpid()}.begun").touch()
        wait_for(lambda: len(list(folder.glob("*.begun"))) % 2 == 0)  # those of the rounds before are there too
        time.sleep(0.2)


def wait_for(look: Callable[[], bool]) -> None:
    while not look():
        time.sleep(0.02)


def start_daemon() -> None:
    """Start a process as daemons do, by a parent of its own that ends; tell its number on stderr."""
    code = (
        "import os, subprocess, sys\n"
        "daemon = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print('daemon', daemon.pid, file=sys.stderr)\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def hang(script: str, channel: Channel) -> None:
    channel.send(steps(0, 5))
    if script == "stall":
        queue = QueueState(name="input_queue", size=0, capacity=5)
        stack = Stack(thread="MainThread", frames=("a.py:1 in main", "tensorflow/x.py:2 in run"))
        channel.send(Stalled(phase="train", steps=5, queues=(queue,), stacks=(stack,)))
    if script == "family":
        grandchild = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        sys.stderr.write(f"grandchild {grandchild.pid}\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1000)


def run(script: str, events: int) -> None:
    """Do what the script says; `events` is the pipe's descriptor."""
    faulthandler.register(signal.SIGUSR1)
    channel = Channel(events)
    channel.send(Hello(pid=os.getpid(), at_ns=time.monotonic_ns()))
    channel.send(Phase(name="train", at_ns=time.monotonic_ns()))
    on_gpu = script.startswith("on gpu")
    channel.send(Device(kind="gpu", name="Test GPU") if on_gpu else Device(kind="cpu", name="CPU:0"))
    sys.stderr.write(f"trial {os.getpid()}\n")
    sys.stderr.flush()
    sys.stdout.write("a library's noise on stdout\n")
    sys.stdout.flush()
    if script.startswith("daemon"):
        start_daemon()
    match script:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            sys.stderr.write("these are my last words\n")
            sys.stderr.flush()
            os._exit(3)
        case "raise":
            channel.send(steps(0, 5))
            channel.send(Failed(error="ValueError: planted"))
            sys.exit(1)
        case "silent" | "stall" | "family" | "daemon silent":
            hang(script, channel)
        case "held":
            subprocess.Popen(["sleep", "1000"], pass_fds=[events])
            hang(script, channel)
        case "orphan":
            subprocess.Popen(["sleep", "3"], pass_fds=[events])
            os.kill(os.getpid(), signal.SIGKILL)
        case "garbage":
            os.write(events, b"this is no event\n")
            time.sleep(1000)
        case _:
            channel.send(Evaluated(when="before", accuracy=0.5))
            channel.send(steps(0, STEPS // 2))
            go_on(script)
            channel.send(steps(STEPS // 2, STEPS // 2))
            channel.send(Evaluated(when="after", accuracy=0.9))
            is_reusable = script.startswith(("reusable", "once"))
            channel.send(Done(at_ns=time.monotonic_ns(), reusable=is_reusable))
            if is_reusable and (request := channel.receive()) is not None:
                further = FurtherTrial.model_validate_json(request).trial.variant.name
                run({"once raise": "raise", "once stall": "silent"}.get(further, further), events)


def serve(run: Callable[[Trial, int], None]) -> None:
    """Be the trials' server, with this in place of TensorFlow's trial; it is given the descriptor of the events."""

    class ScriptedServer(server._Server):
        def _run_trial(self, trial: int, events: int) -> NoReturn:
            os.set_inheritable(events, False)
            with os.fdopen(trial, "rb") as file:
                wanted = Trial.model_validate_json(file.read())
            try:
                run(wanted, events)
            except SystemExit as ended:
                leave(not ended.code)
            leave(True)

    server._Server = ScriptedServer  # type: ignore[misc]
    server._import_everything = lambda: None
    server.main()


if __name__ == "__main__":
    serve(lambda trial, events: run(trial.variant.name, events))
