"""Ends of processes in words, the tail of a stderr file, and the choice of a launcher."""

from __future__ import annotations

import errno
import gc
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.events import Event, Failed
from pipeline_bench.model.trial import plan
from pipeline_bench.run import launcher
from pipeline_bench.run.child import call
from pipeline_bench.run.launcher import TrialServer, best_launcher, explain_exit, stderr_tail, trim
from tests.unit.records import scenario


def _open_files() -> Counter[str]:
    """Return what this process has open, by name and by how many descriptors; what only garbage holds is closed.

    Not what is read of processes, which a thread of an earlier test may do meanwhile.
    """
    gc.collect()
    names: Counter[str] = Counter()
    for file in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # of the listing itself
            names[str(file.readlink())] += 1
    return Counter({name: count for name, count in names.items() if not name.startswith("/proc/")})


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exit code 0"), (3, "exit code 3"), (-9, "SIGKILL"), (-63, "signal 63"), (None, "did not end")],
)
def test_an_exit_code_is_put_in_words(code: int | None, words: str) -> None:
    assert words in explain_exit(code)


def test_the_tail_of_a_long_file_is_its_end(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    path.write_text("".join(f"line {i}\n" for i in range(100_000)))
    assert stderr_tail(path, lines=2) == "line 99998\nline 99999"


def test_of_a_bar_of_progress_the_last_state_is_kept(tmp_path: Path) -> None:
    drawn = "before\r\n1/2 ━ 0s 9ms/step\b\b\b\b\r2/2 ━ 1s 7ms/step\b\b\n 0%|\r50%|#\r99%|##\rlast"
    (tmp_path / "log").write_bytes(drawn.encode())
    assert stderr_tail(tmp_path / "log").splitlines() == ["before", "2/2 ━ 1s 7ms/step", "last"]
    (tmp_path / "log").write_bytes(b" 0%|\r50%|#\r")
    assert stderr_tail(tmp_path / "log").splitlines() == ["50%|#"]


def test_of_a_stack_the_calls_in_which_every_trial_runs_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        'Current thread 0x1 (most recent call first):\n  File "train.py", line 3 in hang\n'
        '  File "/x/pipeline_bench/worker/main.py", line 36 in run_trial\n'
        '  File "/x/pipeline_bench/worker/server.py", line 111 in _become_trial\n'
        '  File "/x/pipeline_bench/worker/server.py", line 67 in serve\n  File "<frozen runpy>", line 88 in _run_code\n'
        "Thread 0x2 (most recent call first):\n"
    )
    assert stderr_tail(tmp_path / "log", lines=3).splitlines() == [
        '  File "train.py", line 3 in hang',
        '  File "/x/pipeline_bench/worker/main.py", line 36 in run_trial',
        "Thread 0x2 (most recent call first):",
    ]


def test_a_thread_that_only_waits_for_the_users_script_is_left_out_of_stacks(tmp_path: Path) -> None:
    waits = '  File "/x/pipeline_bench/system/main_thread.py", line 9 in park\n  File "train.py", line 3 in <module>\n'
    of_step = 'Current thread 0x2 (most recent call first):\n  File "train.py", line 7 in step\n'
    (tmp_path / "log").write_text(f"before\nThread 0x1 (most recent call first):\n{waits}\n{of_step}")
    assert stderr_tail(tmp_path / "log").splitlines() == ["before", *of_step.splitlines()]


def test_a_flooded_file_keeps_its_end_while_it_is_written_on(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    with path.open("ab", buffering=0) as writer:  # as a trial's process holds it
        writer.write(b"x" * 200_000 + b"the last words\n")
        trim(path, limit_bytes=100_000)
        writer.write(b"said after it\n")
    assert path.stat().st_size < 100_000
    assert stderr_tail(path, lines=2).endswith("the last words\nsaid after it")


def test_a_file_below_the_limit_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    path.write_bytes(b"a few words\n")
    trim(path, limit_bytes=100)
    trim(tmp_path / "missing", limit_bytes=100)
    assert path.read_bytes() == b"a few words\n"


def test_the_tail_survives_bytes_that_are_no_text_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    path.write_bytes(b"\xff\xfe broken\n")
    assert "broken" in stderr_tail(path)
    assert stderr_tail(tmp_path / "none") == ""


def test_events_that_come_in_pieces_are_put_together(tmp_path: Path) -> None:
    """The child writes half a line, waits, writes the rest: one event, whole."""
    script = (
        "import os, sys, time; fd = int(sys.argv[1]); sys.stdin.read();"
        """os.write(fd, b'{"event": "phase", "na'); time.sleep(0.2); os.write(fd, b'me": "train", "at_ns": 5}\\n')"""
    )
    trial = plan(scenario("feed_dict"))[0]
    with closing(TrialServer(tmp_path / "log", (sys.executable, "-c", script))) as server:
        child = server.start(trial, tmp_path / "stderr")
        events = []
        while not child.ended:
            events += child.read(10)
        child.close()
    assert [event.event for event in events] == ["phase"]


def test_an_event_of_many_megabytes_arrives_whole_and_bounded(tmp_path: Path) -> None:
    """Its parts count as heard, so that nobody takes the child for one that hangs."""
    script = (
        "import json, os, sys; fd = int(sys.argv[1]); sys.stdin.read();"
        "line = json.dumps({'event': 'failed', 'error': 'x' * 30_000_000}).encode() + b'\\n'\n"
        "while line: line = line[os.write(fd, line):]"
    )
    trial = plan(scenario("feed_dict"))[0]
    events: list[Event] = []
    parts = 0
    with closing(TrialServer(tmp_path / "log", (sys.executable, "-c", script))) as server:
        child = server.start(trial, tmp_path / "stderr")
        while not child.ended:
            found = child.read(10)
            parts += child.heard and not found
            events += found
        child.close()
    (failed,) = events
    assert isinstance(failed, Failed)
    assert 1000 < len(failed.error) < 100_000
    assert parts > 1


def test_the_number_of_a_process_that_has_been_reaped_may_be_anothers(tmp_path: Path) -> None:
    trial = plan(scenario("feed_dict"))[0]
    with (
        closing(TrialServer(tmp_path / "log", (sys.executable, "-c", ""))) as server,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as another,
    ):
        child = server.start(trial, tmp_path / "stderr")
        assert child.wait(60) is not None
        server.exit_codes[another.pid], child.pid = 0, another.pid
        server.cleared.add(another.pid)
        child.close()
        assert another.communicate(b"\n")
    assert another.returncode == 0


def test_what_a_trial_that_ended_had_shared_is_removed(tmp_path: Path) -> None:
    """As a loader whose worker holds on to it: the process that removes it ends behind the worker."""
    script = (
        "import os, subprocess, sys; from multiprocessing import resource_tracker, shared_memory; sys.stdin.read()\n"
        "blocks = [shared_memory.SharedMemory(create=True, size=8) for _ in range(50)]\n"
        f"open({str(tmp_path / 'names')!r}, 'w').write(' '.join(each.name for each in blocks))\n"
        "held = [resource_tracker.getfd()]\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], pass_fds=held, close_fds=True)\n"
        "os._exit(1)"
    )
    trial = plan(scenario("feed_dict"))[0]
    with closing(TrialServer(tmp_path / "log", (sys.executable, "-c", script))) as server:
        child = server.start(trial, tmp_path / "stderr")
        assert child.wait(60) == 1
        child.close()
    names = (tmp_path / "names").read_text().split()
    assert len(names) == 50
    assert not [name for name in names if Path("/dev/shm", name.lstrip("/")).exists()]


@pytest.mark.parametrize("command", [(sys.executable, "-c", "import sys; sys.stdin.read()"), ("/no/such/program",)])
def test_a_closed_child_leaves_no_file_descriptor(tmp_path: Path, command: tuple[str, ...]) -> None:
    trial = plan(scenario("feed_dict"))[0]
    before = _open_files()
    with closing(TrialServer(tmp_path / "log", command)) as server:
        for _ in range(3):
            server.start(trial, tmp_path / "stderr").close()
    assert not _open_files() - before


def test_a_start_that_was_interrupted_is_not_taken_for_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(TrialServer(tmp_path / "log", (sys.executable, "-c", ""))) as server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, monkeypatch.context() as patch:
            patch.setattr(server, "_control", ours)
            patch.setattr(server, "_asked", 2)
            for number in (1, 2):
                theirs.send(json.dumps({"started": 100 + number, "trial": number}).encode())
            assert server._started_pid() == 102


def test_a_server_is_lost_where_it_is_gone_or_silent_not_where_it_cannot_start_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "_SERVER_ANSWER_S", 0.1)
    trial = plan(scenario("feed_dict"))[0]
    with closing(TrialServer(tmp_path / "log", (sys.executable, "-c", ""))) as server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, monkeypatch.context() as patch:
            patch.setattr(server, "_control", ours)
            theirs.send(json.dumps({"failed": "[Errno 11] no more processes", "trial": 1}).encode())
            with pytest.raises(PipelineBenchError, match=r"no process can be started: .* no more processes"):
                server.start(trial, tmp_path / "stderr")
            with pytest.raises(FileNotFoundError):
                server.start(trial, tmp_path / "no such folder" / "stderr")
            assert not server.lost
            with pytest.raises(PipelineBenchError, match="does not answer"):
                server.start(trial, tmp_path / "stderr")
            assert server.lost
            server.lost = False
            theirs.close()
            with pytest.raises(ConnectionError):
                server.start(trial, tmp_path / "stderr")
            assert server.lost


def test_a_server_that_cannot_import_is_replaced_by_fresh_interpreters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "tensorflow"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('planted: a broken wheel')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *(path for path in sys.path if path)]))
    chosen, reason = best_launcher(tmp_path / "log")
    chosen.close()
    assert chosen.name == "fresh"
    assert "planted: a broken wheel" in (reason or "")


NOT_INSTALLED = """
import sys
class Hidden:
    def find_spec(name, path=None, target=None):
        if name == "pipeline_bench" and {checkout!r} not in sys.path:
            raise ModuleNotFoundError("No module named 'pipeline_bench'")
sys.path[:] = [each for each in sys.path if each != {checkout!r}]
sys.meta_path.insert(0, Hidden)
"""


def test_a_checkout_that_is_not_installed_has_trials_in_fresh_interpreters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = Path(launcher.__file__).parents[2]
    if checkout.name == "site-packages":
        pytest.skip("the package lies beside what it needs")
    (tmp_path / "sitecustomize.py").write_text(NOT_INSTALLED.format(checkout=str(checkout)))
    monkeypatch.setattr(launcher, "TrialServer", lambda _, command: command)
    command: Any = launcher.fresh_launcher(tmp_path / "log")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        [*command, "9"], input="{}", cwd=checkout, env=variables, capture_output=True, text=True, check=False
    )
    assert "validation errors for Trial" in ended.stderr, "it reads what it is to do"


def test_where_no_process_can_be_started_one_message_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    before = _open_files()
    with pytest.raises(PipelineBenchError, match="The server of the trials cannot be started: Resource temporarily"):
        TrialServer(tmp_path / "server.stderr")
    with pytest.raises(PipelineBenchError, match="A process cannot be started: Resource temporarily"):
        call(os.getcwd)
    assert not _open_files() - before
