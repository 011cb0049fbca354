"""The screen of the watched jobs: it fits, at every size, and says how each job stands."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from pipeline_bench.model.job import JobStatus
from pipeline_bench.run.watched_jobs import WatchedJob
from pipeline_bench.ui.jobs import listing, screen
from tests.unit.console import printed


def job(state: Literal["running", "ended", "gone"] = "running", silent_s: float = 0.5, **given: Any) -> WatchedJob:
    fields: dict[str, Any] = {
        "name": "train.py",
        "pid": 42,
        "started_s": 0.0,
        "device": "GPU",
        "steps": 12_345,
        "step_ms": 26.4,
        "input_wait_share": 0.73,
        "device_percent": 22.0,
        "host_percent": 91.0,
        "memory_bytes": 1.5 * 2**30,
        "buffered": (2, 8),
        "verdict": "severely input-bound",
        "severity": "severe",
        "line": "12345 steps of 26.4 ms",
        "step_history": (20.0, None, 40.0),
        "wait_history": (10.0, None, 100.0),
        "device_history": (0.0, 50.0, 100.0),
        "host_history": (100.0, 100.0, 100.0),
    }
    return WatchedJob(JobStatus(**{**fields, **given}), state, silent_s)


def drawn(jobs: list[WatchedJob], width: int, height: int, problems: tuple[str, ...] = ()) -> list[str]:
    text = printed(screen(jobs, problems, width, height, "12:00:00"), width)
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (40, 10), (20, 4)])
@pytest.mark.parametrize("count", [0, 1, 3, 12, 50])
def test_the_screen_is_never_larger_than_the_terminal(size: tuple[int, int], count: int) -> None:
    lines = drawn([job(name="名前 " * 30, silent_s=10**6) for _ in range(count)], *size)
    assert len(lines) <= size[1]
    assert all(len(line) <= size[0] for line in lines)


@pytest.mark.parametrize(("width", "more"), [(80, []), (160, ["91 %", "2/8"])])
def test_a_running_job_has_its_figures_and_its_last_seconds_side_by_side(width: int, more: list[str]) -> None:
    lines = drawn([job()], width, 24)
    for text in ("train.py", "12,345", "26.4", "73 %", "22 %", "1.50 GiB", "severely input-bound", *more):
        assert text in lines[2]
    history = lines[3]
    assert history.split() == ["step", "▅", "█", "wait", "▁", "█", "GPU", "▁▅█", "host", "███"]


def test_what_has_ended_is_told_after_what_runs_without_its_history() -> None:
    lines = drawn([job(), job("ended", verdict="not input-bound"), job("gone")], 80, 24)
    assert lines[0].startswith("pipeline-bench top  1 watched job running, 2 ended")
    assert lines[4].startswith("✓ train.py")
    assert lines[4].endswith("not input-bound")
    assert lines[5].endswith("killed")


def test_a_job_that_is_stopped_or_takes_no_step_says_so() -> None:
    lines = drawn([job(silent_s=65.0), job(idle_s=65.0)], 80, 24)
    assert lines[2].endswith("silent for 1:05")
    assert lines[4].endswith("no step for 1:05")


def test_of_more_jobs_than_lines_the_rest_is_counted() -> None:
    lines = drawn([job() for _ in range(50)], 80, 24)
    assert len(lines) == 24
    assert lines[-1] == "q ends; … 29 more: `pipeline-bench top --once` lists all"


def test_a_problem_is_told_below() -> None:
    assert drawn([], 80, 24, ("/tmp/x is left alone",))[-1] == "/tmp/x is left alone"


def test_the_listing_has_a_whole_line_a_job() -> None:
    first, second, third = listing([job(name="a" * 200), job("ended", folder="/r/1")], ["a problem"])
    assert first.startswith("a" * 200 + ", process 42, running: 12345 steps of 26.4 ms; now 26.4 ms, input wait 73 %")
    assert first.endswith("GPU 22 %, host 91 %, memory 1.50 GiB, buffer 2 of 8")
    assert second == "train.py, process 42, ended: 12345 steps of 26.4 ms; session in /r/1"
    assert third == "a problem"
    assert next(listing([], [])).startswith("No watched job was found")


@pytest.mark.parametrize("width", range(40, 131, 5))
def test_no_figure_is_cut(width: int) -> None:
    """Steps of 12,345 that are cut are 1,234 steps."""
    whole = {"12,345", "12.3M", "26.4", "73", "22", "91", "1.50", "GiB", "%", "1000/1000"}
    for steps in (12_345, 12_345_678):
        head, line, *_ = drawn([job(steps=steps, buffered=(1000, 1000), verdict="ok")], width, 24)[1:]
        assert "ms/step" in head
        assert {*line.split()[2:-1]} <= whole
