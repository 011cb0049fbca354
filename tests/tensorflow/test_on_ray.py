"""Two nodes of Ray on this machine's loopback: one session of both, a node that is killed, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from pipeline_bench.model.session import SESSION_FILE, Session, load
from tests.integration.test_hosts import SCENARIO, see_both

pytest.importorskip("ray", reason='Ray is not installed: python -m pip install ".[ray]"')

LIMIT_S = 250
TIMED = SCENARIO.replace("steps = 60", "time_s = 2")
"""With a number of steps, one of two real trials may have ended before half of the other's: they have no rate then."""
MARK = "PIPELINE_BENCH_TEST_RUN"


class Run(NamedTuple):
    """`compare --on ray`, and the mark that all which it starts has in its environment."""

    program: subprocess.Popen[str]
    mark: str
    out: Path

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def session(self) -> Session:
        (file,) = self.out.glob(f"*/{SESSION_FILE}")
        return load(file)

    def wait_for_trial(self, words: str) -> None:
        assert self.program.stderr is not None
        for line in self.program.stderr:
            if words in line:
                return
        pytest.fail("it ended before that trial")


@contextmanager
def started(folder: Path, *options: str) -> Iterator[Run]:
    """Run it, and see that nothing is left of it."""
    (folder / "ranks.toml").write_text(TIMED)
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "pipeline_bench", "compare", str(folder / "ranks.toml"), "--hosts", "2"]
    program = subprocess.Popen(
        [*command, "--on", "ray", "--out", str(folder / "out"), *options],
        env={**os.environ, "RAY_ADDRESS": "local", MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = Run(program, mark, folder / "out")
    try:
        yield run
        deadline_s = time.monotonic() + 30
        while (left := run.processes()) and time.monotonic() < deadline_s:
            time.sleep(0.2)
        assert not left
    finally:
        for process in [*run.processes()]:
            with suppress(psutil.Error):
                process.kill()
        program.communicate()


def listening(run: Run) -> set[str]:
    """The addresses at which processes of the run listen."""
    found = set()
    for process in run.processes():
        with suppress(psutil.Error):
            found |= {each.laddr.ip for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN}
    return found


def test_two_nodes_run_the_same_trials_and_only_loopback_hears_of_it(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        run.wait_for_trial("tf_data, alone, repeat 1")
        heard = listening(run)
        said = run.program.communicate(timeout=LIMIT_S)
        assert run.program.returncode == 0, said
        assert heard
        assert heard <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
        session = run.session()
        see_both(session)
        assert session.hosts is not None
        assert {host.launcher for host in session.hosts.hosts} == {"ray"}


@pytest.mark.slow
def test_a_node_that_is_killed_is_named_and_the_other_goes_on(tmp_path: Path) -> None:
    with started(tmp_path, "--repeats", "6") as run:
        run.wait_for_trial("tf_data, alone, repeat 1")
        raylets = {number: raylet_of(run, number) for number in "01"}
        # With the first node's the whole cluster ends, and Ray places either rank there.
        (lost,) = [number for number, raylet in raylets.items() if "--head" not in raylet.cmdline()]
        lasting = "10"[int(lost)]
        raylets[lost].kill()
        run.program.communicate(timeout=LIMIT_S)
        assert run.program.returncode == 1
        session = run.session()
        assert any(note.startswith(f"rank {lost} was lost: ") for note in session.notes)
        status = {(record.variant, record.repeat): record for record in session.trials}
        assert status[f"tf_data, alone · rank {lasting}", 5].status == "ok"
        together = status[f"tf_data, 2 hosts · rank {lasting}", 5]
        assert together.status == "failed"
        assert f"rank {lost} is lost" in str(together.reason)


def raylet_of(run: Run, number: str) -> psutil.Process:
    """The process of Ray's on the node that a rank runs on."""
    (actor,) = [each for each in run.processes() if "PIPELINE_BENCH_RANK" in each.environ() and is_rank(each, number)]
    return next(each for each in actor.parents() if "raylet" in each.name())


def is_rank(process: psutil.Process, number: str) -> bool:
    """Whether it is the program of that rank, and no trial of it."""
    return process.environ()["PIPELINE_BENCH_RANK"] == number and any(
        "placed_rank" in part for part in process.cmdline()
    )


@pytest.mark.slow
def test_ctrl_c_leaves_what_was_measured_and_no_process(tmp_path: Path) -> None:
    with started(tmp_path, "--repeats", "5") as run:
        run.wait_for_trial("tf_data, alone, repeat 1")
        run.program.send_signal(signal.SIGINT)
        run.program.communicate(timeout=LIMIT_S)
        assert run.program.returncode == 130
        assert run.session().trials
