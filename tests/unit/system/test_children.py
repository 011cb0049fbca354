"""Processes beside a trial as they are started afresh: what they say, and why they ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path

import psutil
import pytest

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system import children
from pipeline_bench.system.children import Process
from tests.processes import wait_for

ROOT = Path(__file__).parents[3]
ECHO = "tests.unit.system.echo_process"
Start = Callable[..., list[Process]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a parameter server and a worker for each further word, which says what it does."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    started: list[Process] = []

    def start_all(*words: str) -> list[Process]:
        for number, word in enumerate(words):
            job = "worker" if number else "ps"
            process = children.start(job, max(0, number - 1), started, ECHO)
            started.append(process)
            process.connection.send(word)
        return started

    yield start_all
    for process in started:
        process.end()


def hear_all(started: list[Process], messages: int) -> dict[str, object]:
    heard: dict[str, object] = {}
    while len(heard) < messages:
        heard |= {process.label: message for process, message in children.hear(started)}
    return heard


def test_every_task_is_heard_by_its_name(start: Start) -> None:
    said = f"a child of {os.getpid()}"
    heard = hear_all(start("say", "say", "say"), 3)
    assert heard == {"the parameter server": said, "worker 0": said, "worker 1": said}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("wait", "wait", "kill"), "worker 1 was killed by SIGKILL"),
        (("wait", "exit"), "worker 0 ended with exit code 3"),
        (("wait", "break"), "worker 0 failed: the file is gone"),
        (("kill", "break"), "the parameter server was killed by SIGKILL"),
    ],
)
def test_a_task_that_ends_too_early_is_an_error_with_the_first_cause(
    start: Start, words: tuple[str, ...], reason: str
) -> None:
    started = start(*words)
    with pytest.raises(PipelineBenchError) as ended:
        hear_all(started, len(words) + 1)
    assert ended.value.message == reason


def test_a_task_that_is_over_may_end(start: Start) -> None:
    started = start("say", "exit")
    started[1].over = True
    assert set(hear_all(started, 1)) == {"the parameter server"}


FROM_A_THREAD = """
import subprocess, sys, threading, time
from pipeline_bench.system.processes import module_command
descriptor, module = int(sys.argv[1]), sys.argv[2]
start = lambda: subprocess.Popen(module_command(module, descriptor), pass_fds=[descriptor])
thread = threading.Thread(target=start)
thread.start()
thread.join()
print("the thread has ended", flush=True)
time.sleep(120)
"""


def test_a_process_that_a_thread_started_ends_with_the_parent_and_not_with_the_thread() -> None:
    ours, theirs = Pipe()
    command = [sys.executable, "-c", FROM_A_THREAD, str(theirs.fileno()), ECHO]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        ours,
        subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment
        ) as parent,
    ):
        theirs.close()
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"the thread has ended\n"
        ours.send("say")
        assert ours.recv() == f"a child of {parent.pid}"
        parent.kill()
        parent.wait()
        assert ours.poll(60), "the child still holds its end of the pipe"
        with pytest.raises((EOFError, ConnectionResetError)):
            ours.recv()


FORKED = """
import os, signal
from pipeline_bench.system.processes import end_with_parent
end_with_parent(os.getppid(), thread=1)
forked = os.fork()
if not forked:
    os.kill(os.getpid(), signal.SIGURG)
    sum(range(10))
    os._exit(7)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))
"""


def test_a_signal_of_urgent_data_does_not_end_what_such_a_process_forks() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", FORKED], env=environment, check=False).returncode == 7


def test_the_end_leaves_no_process(start: Start) -> None:
    started = start("wait", "wait")
    pids = [process.pid for process in started]
    for process in started:
        process.end()
        process.end()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert [process.exit_code for process in started] == [-9, -9]


def test_a_process_that_is_stopped_is_told_from_one_that_runs(start: Start) -> None:
    process = start("wait")[0]
    os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: process.look() is None and process.stopped_s is not None)
    os.kill(process.pid, signal.SIGCONT)
    wait_for(lambda: process.look() is None and process.stopped_s is None)
