"""The program as a process: what a signal to it, its server or its trial leaves, and what it exits with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pipeline_bench.model.session import kept_sessions
from tests.integration.program import ROOT, session_of, start, started
from tests.processes import wait_for, wait_until_gone

INTERRUPTED = 130


def trial_of(folder: Path, script: str) -> int:
    """The process of a script's trial, once there is one."""
    return wait_for(lambda: started(folder, "trial", script))


def line(program: subprocess.Popen[str], words: str) -> str:
    """Read what the program prints up to the line with these words."""
    assert program.stdout is not None
    return next(text for text in program.stdout if words in text)


@pytest.mark.parametrize(
    ("number", "times"),
    [(signal.SIGINT, 20), *(pytest.param(each, 1, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGHUP))],
)
def test_signals_save_what_was_measured_and_leave_no_process(
    tmp_path: Path, number: signal.Signals, times: int
) -> None:
    """Also one after the other, while the reports are written."""
    program = start(tmp_path, "ok", "silent", "never")
    line(program, "ok, repeat 1/1: ok")
    trial = trial_of(tmp_path, "silent")
    (kept,) = kept_sessions(tmp_path / "reports")
    assert kept.measuring
    family = psutil.Process(program.pid).children(recursive=True)
    for _ in range(times):
        if program.poll() is None:
            program.send_signal(number)
        with_a_pause(0.02)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == INTERRUPTED
    assert "Traceback" not in errors
    assert [record.status for record in session_of(tmp_path).trials] == ["ok", "interrupted"]
    assert not kept.measuring
    (folder,) = (tmp_path / "reports").iterdir()
    assert {"report.md", "report.html"} <= {path.name for path in folder.iterdir()}
    assert trial in [process.pid for process in family]
    for process in family:
        wait_until_gone(process.pid)


def test_a_disk_that_is_full_from_the_start_leaves_no_folder_without_a_session(tmp_path: Path) -> None:
    arguments = ["prlimit", "--fsize=0", sys.executable, "-m", "pipeline_bench", "compare", "two_layer", "--out", "out"]
    done = subprocess.run(arguments, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "session.json cannot be written: File too large." in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("scripts", [("ok", "silent"), ("silent", "never")], ids=["between lines", "before any line"])
def test_without_a_reader_the_run_ends_with_what_was_measured_saved(tmp_path: Path, scripts: tuple[str, str]) -> None:
    program = start(tmp_path, *scripts)
    trial_of(tmp_path, "silent")
    assert program.stdout is not None
    program.stdout.close()  # as `head` does, while a trial runs that says nothing for long
    program.wait(timeout=60)
    assert program.stderr is not None
    with program.stderr:
        assert "Traceback" not in program.stderr.read()
    assert program.returncode == 128 + signal.SIGPIPE
    assert session_of(tmp_path).trials[-1].status == "interrupted"
    (folder,) = (tmp_path / "reports").iterdir()
    assert (folder / "report.html").exists()


def with_a_pause(seconds: float) -> None:
    signal.sigtimedwait([], seconds)


@pytest.mark.slow
def test_neither_being_stopped_nor_a_closed_terminal_under_nohup_ends_anything(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup leaves it to the program
    try:
        program = start(tmp_path, "long")
    finally:
        signal.signal(signal.SIGHUP, before)
    trial_of(tmp_path, "long")
    program.send_signal(signal.SIGSTOP)
    with_a_pause(1.0)
    program.send_signal(signal.SIGCONT)
    program.send_signal(signal.SIGHUP)
    program.communicate(timeout=60)
    assert program.returncode == 0
    assert [record.status for record in session_of(tmp_path).trials] == ["ok", "ok"]


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGQUIT, marks=pytest.mark.slow)])
def test_a_program_that_is_killed_leaves_its_ended_trials_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    program = start(tmp_path, "ok", "daemon silent")
    line(program, "ok, repeat 1/1: ok")
    processes = [wait_for(lambda: started(tmp_path, "daemon")), trial_of(tmp_path, "silent")]
    processes += [each.pid for each in psutil.Process(program.pid).children(recursive=True)]
    program.send_signal(number)
    program.communicate(timeout=60)
    assert program.returncode == -number
    for process in processes:
        wait_until_gone(process)
    assert [record.status for record in session_of(tmp_path).trials] == ["ok"]


SLOWLY_KILLED = """
import os, sys, time
from pathlib import Path
from tests.integration.program import scripted_launcher
from pipeline_bench.system.files import ScratchFolder

launcher = scripted_launcher(Path(sys.argv[1]))
assert launcher.wait_until_ready() is None
print(launcher.pid, ScratchFolder().path, flush=True)
os.close(launcher._control.fileno())
time.sleep(0.5)
os.kill(os.getpid(), 9)
"""


def test_the_server_removes_a_folder_whose_lock_ends_later_than_its_socket(tmp_path: Path) -> None:
    """The kernel closes what a killed program had open in an order of its own, and may do something else in between."""
    ran = subprocess.run(
        [sys.executable, "-c", SLOWLY_KILLED, str(tmp_path / "stderr")],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    server, folder = ran.stdout.split()
    wait_until_gone(int(server))
    assert not Path(folder).exists()


@pytest.mark.slow
def test_a_session_goes_on_without_the_server_that_is_killed(tmp_path: Path) -> None:
    program = start(tmp_path, "daemon silent", "ok")
    daemon = wait_for(lambda: started(tmp_path, "daemon"))
    server = psutil.Process(trial_of(tmp_path, "silent")).ppid()
    os.kill(server, signal.SIGKILL)
    output, _ = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "the server that starts the trials was lost" in output
    assert [record.status for record in session_of(tmp_path).trials] == ["failed", "ok", "ok"]
    wait_until_gone(daemon)
