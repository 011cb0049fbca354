"""Finding watched jobs: whose folder is trusted, who is alive, what is kept, and files that are none of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline_bench.model.job import HISTORY, JobStatus
from pipeline_bench.monitoring.publishing import Publisher
from pipeline_bench.monitoring.steps import Totals
from pipeline_bench.monitoring.summary import summarise
from pipeline_bench.run import watched_jobs
from pipeline_bench.run.watched_jobs import WatchedJob
from pipeline_bench.samplers import Reading
from pipeline_bench.system import user_folders

MS = 10**6
FIGURES = summarise(Totals(100, 400 * MS, 100, 100 * MS, 400 * MS), (12.0, "CPU time"), None)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's jobs: no other is looked into."""
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    monkeypatch.setattr(user_folders, "_runtime_places", lambda: iter([own / "jobs"]))
    return own / "jobs"


def publisher(latest: list[Reading] | None = None) -> Publisher:
    return Publisher("train.py", "CPU", lambda _metric: latest or [])


def the_job() -> WatchedJob:
    (job,), problems = watched_jobs.find_jobs()
    assert not problems
    return job


@pytest.mark.parametrize("end", ["end", "withdraw"])
def test_a_file_that_has_the_number_of_a_closed_lock_stays_open(folder: Path, tmp_path: Path, end: str) -> None:
    """A daemon closes all files that it has not opened; what it opens then has their numbers."""
    job = publisher()
    assert job._path is not None
    descriptor, _ = watched_jobs._held[watched_jobs._lock_of(job._path)]
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_WRONLY)
    os.dup2(other, descriptor)
    if end == "end":
        job.end(FIGURES, folder)
    else:
        job.withdraw()
    os.write(descriptor, b"whole")
    os.close(descriptor)
    os.close(other)
    assert (tmp_path / "other").read_bytes() == b"whole"


def test_a_job_is_found_while_it_runs_and_after_it_has_ended(folder: Path) -> None:
    job = publisher()
    assert watched_jobs.find_jobs() == ([], [])
    job.publish(Totals(100, 400 * MS, 100, 100 * MS, 400 * MS), FIGURES, (2, 8))
    running = the_job()
    assert (running.state, running.status.steps, running.status.step_ms) == ("running", 100, 4.0)
    assert (running.status.input_wait_share, running.status.buffered) == (0.25, (2, 8))
    assert running.status.verdict == "severely input-bound"
    job.publish(Totals(110, 500 * MS, 110, 200 * MS, 500 * MS), FIGURES, (0, 8))
    assert the_job().status.step_ms == 10.0, "of the last second"
    job.end(FIGURES, folder)
    ended = the_job()
    assert (ended.state, ended.status.folder) == ("ended", str(folder))
    whole = ended.status.step_ms, ended.status.input_wait_share, ended.status.device_percent
    assert whole == (4.0, 0.25, 12.0), "of the whole job, as its line says"
    assert oct(folder.stat().st_mode)[-3:] == "700"


def test_the_history_has_a_second_each_with_gaps_and_an_end() -> None:
    job, totals = publisher(), Totals()
    for second in range(HISTORY + 10):
        new = 0 if second % 2 else 1
        totals = Totals(*(sum(pair) for pair in zip(totals, (new, new * MS, new, 0, new * MS), strict=True)))
        job.publish(totals, FIGURES, None)
    status = the_job().status
    assert len(status.step_history) == HISTORY
    assert status.step_history[-2:] == (1.0, None)
    assert status.step_ms == 1.0


def test_the_cpu_of_a_job_without_a_gpu_is_its_time_over_the_cores() -> None:
    latest = [Reading("cpu_seconds", "psutil", at * 10**9, float(at)) for at in (1, 2, 3)]
    job = publisher(latest)
    job.publish(Totals(), FIGURES, None)
    assert the_job().status.device_percent == pytest.approx(100 / len(os.sched_getaffinity(0)), rel=0.01)


LIVES = """
import sys, time
from pipeline_bench.system import user_folders
from pathlib import Path
folder = Path(sys.argv[1])
user_folders._runtime_places = lambda: iter([folder])
from tests.unit.run.test_watched_jobs import FIGURES, publisher
from pipeline_bench.monitoring.steps import Totals
job = publisher()
job.publish(Totals(), FIGURES, None)
print("told", flush=True)
time.sleep(60)
"""


def test_a_job_that_was_killed_is_told_apart_by_its_lock_and_not_by_its_number(folder: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", LIVES, str(folder)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"told\n"
        assert the_job().state == "running"
        os.kill(child.pid, signal.SIGSTOP)
        assert the_job().state == "running"
        (file,) = folder.glob(f"*{watched_jobs.ENDING}")
        os.utime(file, (time.time() - 60,) * 2)
        assert the_job().is_late
    finally:
        child.kill()
        child.communicate()
    gone = the_job()
    assert (gone.state, gone.status.pid) == ("gone", child.pid)


def test_a_fork_leaves_the_file_of_its_parent_alone() -> None:
    job = publisher()
    job.publish(Totals(), FIGURES, None)
    pid = os.fork()
    if not pid:
        job.end(FIGURES, None)
        os._exit(0)
    os.waitpid(pid, 0)
    assert the_job().state == "running"


def test_what_ended_long_ago_is_removed_and_what_is_too_much(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_jobs, "KEPT_JOBS", 3)
    folder.mkdir(mode=0o700)
    for number in range(6):
        file = folder / f"{number}{watched_jobs.ENDING}"
        file.write_text(JobStatus(name="job", pid=number, started_s=number, device="CPU", ended=True).model_dump_json())
        (folder / f"{number}.lock").touch()
        at = time.time() - (2 * watched_jobs.KEPT_S if number == 5 else 10 * number)
        for path in (file, folder / f"{number}.lock"):
            os.utime(path, (at, at))
    found, _ = watched_jobs.find_jobs()
    assert [job.status.pid for job in found] == [2, 1, 0]
    assert len(list(folder.iterdir())) == 6


@pytest.mark.parametrize("closed", [False, True])
def test_the_files_of_jobs_that_ended_in_a_process_are_removed_there_as_well(
    folder: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    monkeypatch.setattr(watched_jobs, "KEPT_JOBS", 0)
    lives, ends = publisher(), publisher()
    for job in (lives, ends):
        job.publish(Totals(), FIGURES, None)
    if closed:  # as a daemon does, which is no reason to keep them
        assert ends._path is not None
        os.close(watched_jobs._held[watched_jobs._lock_of(ends._path)][0])
    ends.end(FIGURES, None)
    publisher()
    assert [job.status.ended for job in watched_jobs.find_jobs()[0]] == [False]
    assert len(list(folder.glob("*.lock"))) == 2, "of the job that lives, and of the newest"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"name": "a"}',
        "\udc80",
        '{"name": "a", "pid": 1, "started_s": 1e999, "device": "CPU"}',
        '{"name": "a", "pid": 1, "started_s": 1, "device": "CPU", "wait_history": [' + "1," * 5000 + "1]}",
        " " * 10**6,
    ],
)
def test_a_file_that_is_none_of_ours_is_passed_over(folder: Path, content: str) -> None:
    publisher().publish(Totals(), FIGURES, None)
    (folder / f"other{watched_jobs.ENDING}").write_text(content, encoding="utf-8", errors="surrogateescape")
    os.mkfifo(folder / f"pipe{watched_jobs.ENDING}")
    (folder / f"link{watched_jobs.ENDING}").symlink_to("/dev/zero")
    assert the_job().status.name == "train.py"


def test_text_of_a_job_steers_no_terminal_and_a_newer_version_may_tell_more(folder: Path) -> None:
    publisher().publish(Totals(), FIGURES, None)
    (file,) = folder.glob(f"*{watched_jobs.ENDING}")
    file.write_text('{"name": "a\\u001b[2J\\u202eb", "pid": 1, "started_s": 1, "device": "CPU", "colour": "new"}')
    assert the_job().status.name == "a\N{REPLACEMENT CHARACTER}b"


def test_a_folder_that_others_can_use_is_left_alone_and_nothing_is_told_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(mode=0o700)
    folder.chmod(0o755)
    job = publisher()
    job.publish(Totals(), FIGURES, None)
    job.end(FIGURES, None)
    assert list(folder.iterdir()) == []
    (problem,) = watched_jobs.find_jobs()[1]
    assert "others may use it (its mode is 755, and 700 is needed)" in problem
    folder.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "it belongs to another user" in watched_jobs.find_jobs()[1][0]


def test_a_link_in_the_folders_place_is_not_followed(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    publisher().publish(Totals(), FIGURES, None)
    assert list(elsewhere.iterdir()) == []
    assert "it is no folder" in watched_jobs.find_jobs()[1][0]


def test_a_folder_that_takes_nothing_more_does_not_disturb_the_job(folder: Path) -> None:
    job = publisher()
    job.publish(Totals(), FIGURES, None)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    job.publish(Totals(1, MS, 1, 0, MS), FIGURES, None)
    job.end(FIGURES, None)
