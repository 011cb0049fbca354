"""`pipeline-bench run`: the command's streams, signals and exit code; the user's sitecustomize; what is not seen."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench import cli
from pipeline_bench.injection import command as commands
from pipeline_bench.injection import command_summary
from pipeline_bench.model import session as saved
from pipeline_bench.samplers.nvml import NvmlSampler
from tests.processes import wait_for
from tests.unit import sessions
from tests.unit.console import full_pipe, unread


def start(folder: Path, *command: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline_bench", "run", "--", *command],
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def python(folder: Path, code: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    (folder / "program.py").write_text(code)
    return start(folder, sys.executable, "program.py", env=env)


def ended(program: subprocess.Popen[str], given: str = "") -> tuple[int, str, str]:
    out, err = program.communicate(given, timeout=60)
    return program.returncode, out, err


@pytest.fixture
def run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command as `start` does, but from the test's own process, which need not import all again."""
    monkeypatch.chdir(tmp_path)

    def run(*command: str, path: str = "") -> tuple[int, str, str]:
        if path:
            monkeypatch.setenv("PYTHONPATH", path)
        return cli.run(["run", "--", *command]), *capfd.readouterr()

    return run


def sent_until_it_ends(program: subprocess.Popen[Any], number: int) -> int:
    """Its exit code, of a signal that it was started to ignore: it loses it until it waits for its command."""

    def is_over_after_another() -> bool:
        program.send_signal(number)
        return program.poll() is not None

    wait_for(is_over_after_another)
    return program.returncode


def test_streams_arguments_and_the_exit_code_are_the_commands(tmp_path: Path) -> None:
    code, out, err = ended(
        start(tmp_path, "sh", "-c", 'read line; echo "$line $1"; exit 3', "sh", "--epochs"), "hello\n"
    )
    assert (code, out) == (3, "hello --epochs\n")
    assert "no training was found: the command failed with exit code 3; no Python process was seen to" in err
    assert "whole command: " in err


def test_a_command_that_cannot_be_started_exits_as_in_a_shell(tmp_path: Path, run_here: Any) -> None:
    code, _, err = run_here("there-is-no-such-command")
    assert (code, err) == (127, "Error: there-is-no-such-command cannot be started: No such file or directory.\n")
    (tmp_path / "text").write_text("text")
    assert run_here("./text")[0] == 126


@pytest.mark.slow
def test_a_script_whose_interpreter_is_not_there_is_not_said_to_be_missing_itself(
    tmp_path: Path, run_here: Any
) -> None:
    """As where an editor has put a carriage return at the end of its first line."""
    (tmp_path / "job.sh").write_text("#!/bin/sh\r\nexit 5\r\n", newline="")
    (tmp_path / "job.sh").chmod(0o755)
    code, _, err = run_here("./job.sh")
    assert (code, err.partition(": ")[2]) == (
        127,
        "./job.sh cannot be started: the interpreter that its first line names is not there.\n",
    )


def test_a_python_script_in_place_of_a_command_is_told_the_command(tmp_path: Path, run_here: Any) -> None:
    """As `diagnose` takes one."""
    (tmp_path / "train.py").touch()
    code, _, err = run_here("train.py", "--epochs", "3")
    hint = "it is no command; write `pipeline-bench run -- python train.py --epochs 3`.\n"
    assert (code, err) == (127, f"Error: train.py cannot be started: {hint}")


@pytest.mark.slow
def test_a_script_without_an_interpreters_name_is_the_shells_as_for_nohup(tmp_path: Path, run_here: Any) -> None:
    (tmp_path / "job.sh").write_text('echo "$1"; exit 5\n')
    (tmp_path / "job.sh").chmod(0o755)
    assert run_here("./job.sh", "given")[:2] == (5, "given\n")


@pytest.mark.slow
def test_the_command_has_the_files_that_it_would_be_given(tmp_path: Path) -> None:
    """As the `<(…)` of a shell."""
    command = f"{shlex.quote(sys.executable)} -m pipeline_bench run -- cat <(echo given)"
    done = subprocess.run(
        ["bash", "-c", command], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "given\n")


@pytest.mark.parametrize(
    "full", [partial(Path("/dev/full").open, "w"), pytest.param(unread, marks=pytest.mark.slow)], ids=["disk", "unread"]
)
def test_the_exit_code_is_the_commands_also_where_nothing_can_be_told(tmp_path: Path, full: Any) -> None:
    arguments = [sys.executable, "-m", "pipeline_bench", "run", "--", "sh", "-c", "exit 4"]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    with full() as stderr:
        done = subprocess.run(arguments, check=False, cwd=tmp_path, stderr=stderr, timeout=60, env=buffered)
    assert done.returncode == 4


def test_a_record_that_cannot_be_read_does_not_cost_the_exit_code(run_here: Any) -> None:
    code, _, err = run_here("sh", "-c", 'mkdir "$PIPELINE_BENCH_RUN/7.problem"; exit 4')
    assert code == 4
    assert "cannot be started" not in err


def test_a_command_runs_also_in_a_folder_that_was_removed(tmp_path: Path) -> None:
    command = f'rmdir ../gone; exec {shlex.quote(sys.executable)} -P -m pipeline_bench run -- sh -c "exit 4"'
    (tmp_path / "gone").mkdir()
    done = subprocess.run(["sh", "-c", command], check=False, cwd=tmp_path / "gone", timeout=60)
    assert done.returncode == 4


def test_without_any_folder_for_temporary_files_that_is_said_and_not_that_the_command_is_missing(
    tmp_path: Path,
) -> None:
    """Where no byte can be written, Python finds no folder for them at all."""
    arguments = ["prlimit", "--fsize=0", sys.executable, "-m", "pipeline_bench", "run", "--", "sh", "-c", "exit 4"]
    done = subprocess.run(arguments, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("Error: ")) == (1, 1)
    assert done.stderr.startswith("Error: No folder for temporary files can be made")


def test_a_command_that_a_signal_ends_has_the_code_of_a_shell(run_here: Any) -> None:
    code, _, err = run_here("sh", "-c", "kill -KILL $$")
    assert code == 128 + signal.SIGKILL
    assert "no training was found: SIGKILL ended the command before a training was recorded" in err


@pytest.mark.slow
def test_an_interrupt_that_ends_the_command_ends_the_loop_of_a_shell_around_it(tmp_path: Path) -> None:
    run = shlex.join([sys.executable, "-m", "pipeline_bench", "run", "--", "sh", "-c", "kill -INT 0; exec sleep 60"])
    loop = ["bash", "-c", f"for each in 1 2; do {run}; echo after; done"]
    done = subprocess.run(
        loop, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60, start_new_session=True
    )
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")
    assert "SIGINT ended the command" in done.stderr


ALONE = [f"SIG{name}" for name in ("TERM", "HUP", "USR1", "USR2", "ALRM", "XCPU", "RTMIN", "INT", "QUIT")]


def test_the_command_ignores_what_the_caller_ignores_and_has_its_locale(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "LANG" and not name.startswith("LC_")}
    command = ["run", "--", "cat", "/proc/self/environ", "/proc/self/status"]
    started = ["env", "--ignore-signal=CHLD", sys.executable, "-m", "pipeline_bench", *command]
    done = subprocess.run(started, env=env, cwd=tmp_path, capture_output=True, check=True)
    (ignored,) = re.findall(rb"SigIgn:\t(\w+)", done.stdout)
    # Who was started by `posix_spawn`, as by subprocess from Python 3.13 on, ignores two signals that are glibc's own.
    assert int(ignored, 16) & ~(0b11 << 31) == 1 << signal.SIGCHLD - 1
    assert b"LC_" not in done.stdout


@pytest.mark.slow
def test_a_stderr_that_nobody_reads_is_waited_for_some_seconds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline_bench", "run", "--", "sh", "-c", "exit 3"]
    with full_pipe(blocking=True) as stderr:
        assert subprocess.run(command, cwd=tmp_path, stderr=stderr, timeout=60, check=False).returncode == 3


def test_a_signal_reaches_the_command_which_decides(tmp_path: Path) -> None:
    code = f"""
import os, signal, time
for name in {ALONE}:
    signal.signal(signal.Signals[name], lambda number, _: print(signal.Signals(number).name, flush=True))
signal.signal(signal.Signals[{ALONE[-1]!r}], lambda *_: os._exit(7))
print("ready", flush=True)
while True:  # of a signal between Python's last look for one and the sleep, it learns behind the sleep
    time.sleep(0.1)
"""
    program = python(tmp_path, code)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    for name in ALONE[:-1]:
        program.send_signal(signal.Signals[name])
        assert program.stdout.readline() == f"{name}\n"
    program.send_signal(signal.Signals[ALONE[-1]])
    assert ended(program)[0] == 7


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGQUIT, marks=pytest.mark.slow)])
def test_a_signal_that_is_ignored_reaches_a_command_that_has_a_handler(tmp_path: Path, number: int) -> None:
    """As where a script's shell has started `run` in its background."""
    own = f"import os, signal; signal.signal({int(number)}, lambda *_: os._exit(7)); print('ready', flush=True)"
    program = subprocess.Popen(
        [sys.executable, "-m", "pipeline_bench", "run", "--", sys.executable, "-c", f"{own}; signal.pause()"],
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN),  # noqa: PLW1509 - no thread runs yet
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"ready\n"
    assert sent_until_it_ends(program, number) == 7
    program.stdout.close()


SENDS_TO_GROUP = """
import os, signal, sys, time
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
os.killpg(0, signal.SIGINT)
time.sleep(0.5)  # a second one would have come by now
sys.exit(8 + len(seen))
"""
STARTS_LATE = """
import subprocess, sys, time
class Late(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        time.sleep(0.7)  # as on a busy machine: meanwhile the command runs
subprocess.Popen = Late
from pipeline_bench.cli import main
main()
"""


def test_what_the_command_sends_to_its_process_group_does_not_come_back_to_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_LATE, "run", "--", sys.executable, "-c", SENDS_TO_GROUP]
    assert subprocess.run(command, check=False, cwd=tmp_path, timeout=60, start_new_session=True).returncode == 9


def test_a_signal_that_may_not_be_sent_to_the_command_does_not_end_the_waiting_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As to what `sudo` runs."""

    def refused(child: subprocess.Popen[bytes], number: int) -> None:
        raise PermissionError(number, child.pid)

    monkeypatch.setattr(subprocess.Popen, "send_signal", refused)
    code = "kill -TERM $PPID; kill -INT $PPID; (kill -INT $PPID); sleep 0.1; exit 4"
    with commands.signals_passed_on() as pass_on_to:
        assert commands.run(["sh", "-c", code], tmp_path, pass_on_to).code == 4


@pytest.mark.slow
def test_the_exit_code_is_the_commands_also_where_the_ends_of_children_are_ignored(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pipeline_bench", "run", "--", "sh", "-c", "sleep 0.1; exit 4"],
        check=False,
        cwd=tmp_path,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert done.returncode == 4


def test_a_signal_that_comes_as_the_command_starts_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_command = subprocess.Popen

    def start_and_be_signalled(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        child = start_command(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)  # the caller does not have the process yet
        return child

    monkeypatch.setattr(subprocess, "Popen", start_and_be_signalled)
    with commands.signals_passed_on() as pass_on_to:
        assert commands.run(["sleep", "60"], tmp_path, pass_on_to).code == 128 + signal.SIGTERM


def test_the_command_holds_no_signal_back_and_what_is_started_beside_it_hears_of_its_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that does not hear of the end of what it started waits for ever."""
    hears: list[bool] = []
    open_sampler = NvmlSampler.open

    def opened() -> Any:
        hears.append(signal.SIGCHLD not in signal.pthread_sigmask(signal.SIG_BLOCK, []))
        return open_sampler()

    monkeypatch.setattr(NvmlSampler, "open", opened)
    own = "import signal, sys; sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    with commands.signals_passed_on() as pass_on_to:
        assert commands.run([sys.executable, "-c", own], tmp_path, pass_on_to).code == 0
    assert hears == [True]


@pytest.mark.slow
def test_no_other_thread_of_it_takes_a_keys_signal_whose_sender_is_then_not_known(tmp_path: Path) -> None:
    """As those that NumPy starts for its sums, while `run` does something else than wait."""
    code, out, _ = ended(start(tmp_path, "sh", "-c", "cd /proc/$PPID/task; grep -H SigBlk */status | grep -v ^$PPID/"))
    held = [int(line.split()[-1], 16) for line in out.splitlines()]
    assert code in {0, 1}, "1 without another thread"
    assert all(mask >> (signal.SIGINT - 1) & 1 for mask in held), out


@pytest.mark.parametrize("sender", ["the terminal", pytest.param("another process", marks=pytest.mark.slow)])
def test_an_interrupt_in_the_foreground_of_a_terminal_reaches_the_command_once(tmp_path: Path, sender: str) -> None:
    code = """
import signal, sys, time
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
print("ready", flush=True)
until = time.monotonic() + 30
while not seen and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.5)  # a second one would have come by now
sys.exit(8 + len(seen))
"""
    (tmp_path / "program.py").write_text(code)
    master, own = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-m", "pipeline_bench", "run", sys.executable, "program.py"],
        cwd=tmp_path,
        preexec_fn=lambda: os.login_tty(own),  # noqa: PLW1509 - no thread runs yet
    )
    os.close(own)
    drawn = b""
    while b"ready" not in drawn:
        drawn += os.read(master, 1024)
    if sender == "the terminal":
        os.write(master, b"\x03")
    else:
        program.send_signal(signal.SIGINT)
    assert program.wait(60) == 9
    os.close(master)


def test_a_training_whose_folder_is_no_utf8_gets_its_page(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    saved.save(sessions.normal(), folder)
    training = {"of": "a.py", "number": 1, "steps": 9, "input_wait_share": None, "verdict": "", "line": "9 steps"}
    trainings = [{**training, "folder": str(folder)}]
    record = {"pid": 7, "program": "a.py", "executable": "python", "trainings": trainings, "more": 0, "problem": None}
    (tmp_path / "record").write_text(json.dumps(record))
    command = ["sh", "-c", f'cp {tmp_path}/record "$PIPELINE_BENCH_RUN/7.json"']
    with commands.signals_passed_on() as pass_on_to:
        told = command_summary.lines(commands.run(command, tmp_path, pass_on_to), command)
    assert told[0].endswith("caf%E9/report.html")
    assert (folder / "report.html").exists()


PATH_AND_MODULE = "import sys; print(sys.path, sys.modules['sitecustomize'].__file__)"


def test_the_users_own_sitecustomize_runs_and_the_path_is_as_without(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('theirs')\n")
    env = {"PYTHONPATH": str(own)}
    _, out, _ = ended(python(tmp_path, PATH_AND_MODULE, env=env))
    plain = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    assert plain.stdout.startswith("theirs\n")
    assert out == "theirs\n" + plain.stdout  # the first is of the program that runs the command


def test_an_error_in_the_users_sitecustomize_is_told_as_python_does(tmp_path: Path, run_here: Any) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import not_there\n")
    code, out, err = run_here(sys.executable, "-c", "print('goes on')", path=str(own))
    assert (code, out) == (0, "goes on\n")
    assert "not_there" in err


def fake_keras(folder: Path, body: str = "") -> str:
    """The folder of a module of that name, whose `fit` says what it was called with."""
    package = folder / "site"
    package.mkdir()
    methods = "".join(f"    def {name}(self, *a, **k): pass\n" for name in ("evaluate", "predict"))
    (package / "keras.py").write_text(
        f"{body}\nclass Model:\n    def fit(self, x=None, callbacks=None): print('fit', x, callbacks)\n{methods}"
    )
    return str(package)


def test_what_goes_wrong_in_the_watching_leaves_the_program_alone(tmp_path: Path, run_here: Any) -> None:
    """That module is no Keras whose trainings can be watched: it has no callbacks."""
    program = "import keras\nkeras.Model().fit(5)\nprint(keras.__loader__)"
    code, out, err = run_here(sys.executable, "-c", program, path=fake_keras(tmp_path))
    assert code == 0
    assert out.startswith("fit 5 None\n<_frozen_importlib_external.SourceFileLoader")
    assert re.search(r"not watched: .*AttributeError: .*'keras'.* has no attribute", err)


@pytest.mark.slow
def test_a_program_that_clears_its_environment_imports_as_without(tmp_path: Path, run_here: Any) -> None:
    program = "import os\nos.environ.clear()\nimport keras\nprint('on')"
    code, out, err = run_here(sys.executable, "-c", program, path=fake_keras(tmp_path))
    assert (code, out) == (0, "on\n")
    assert "Traceback" not in err
    assert "not watched: " in err


def test_an_older_python_of_the_command_can_run_what_is_put_into_it() -> None:
    """It tells its user of a `sitecustomize` that is none to it, at every start."""
    source = (commands.SITE / "sitecustomize.py").read_text()
    ast.parse(source, feature_version=(3, 6))
    assert "from __future__" not in source  # `annotations` came with 3.7


def test_a_module_that_cannot_be_imported_fails_as_without(tmp_path: Path, run_here: Any) -> None:
    code, _, err = run_here(sys.executable, "-c", "import keras", path=fake_keras(tmp_path, "import not_there"))
    assert code == 1
    assert "ModuleNotFoundError: No module named 'not_there'" in err
    before = err.partition("no training was found")[0]
    assert "pipeline_bench" not in before.replace("pipeline_bench/injection/site", "")


def test_a_python_that_leaves_the_watching_out_is_named(run_here: Any) -> None:
    assert "no training was found: Python was started with -I" in run_here(sys.executable, "-I", "-c", "pass")[2]


def test_another_python_environment_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    env = {"PYTHONPATH": f"{commands.SITE}{os.pathsep}{fake_keras(tmp_path)}"}
    env["PIPELINE_BENCH_RUN"] = str(tmp_path / "folder")
    env["PIPELINE_BENCH_RUN_PACKAGE"] = f"/another/prefix{os.pathsep}/nowhere"
    # Without the packages of this environment, as another one may be.
    subprocess.run(
        [sys.executable, "-S", "-c", "import sitecustomize, keras"], cwd=tmp_path, env={**os.environ, **env}, check=True
    )
    (problem,) = (tmp_path / "folder").glob("*.problem")
    assert "No module named 'pipeline_bench'" in problem.read_text()
