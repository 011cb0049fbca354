"""The lessons' exercises as TensorFlow really runs them, and a lesson played in a terminal as a new user would."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from pipeline_bench.lessons import queue_runner, queue_that_blocks

TIMEOUT_S = 120


def test_the_fourth_dequeue_blocks_and_gets_what_is_enqueued_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three samples were enqueued, so three come out; the fourth waits, and so does a fifth until somebody enqueues."""
    monkeypatch.setattr(queue_that_blocks, "PATIENCE_MS", 500)
    monkeypatch.setattr(queue_that_blocks, "LOOK_AFTER_S", 0.2)
    measured = queue_that_blocks.fill_once_and_dequeue()
    assert measured["outcomes"] == ["succeeded", "succeeded", "succeeded", "blocked"]
    assert measured["waited"]
    assert measured["got"] == 7.0


@pytest.fixture(scope="module")
def runner() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_runner, "RERUNS", 3)
        return queue_runner.many_runs()


def test_ten_dequeues_evaluate_the_data_op_three_times(runner: dict[str, Any]) -> None:
    """Ten of six samples an evaluation need two; the third is the runner working ahead, and it cannot finish.

    After ten dequeues at most 10 + 3 samples have left the runner's hand. Two evaluations are 12 of them, so both are
    done and the third begins; it would be whole at 18, so there is no fourth. What is read right after the tenth
    dequeue may be 2: the runner is a thread of its own, and may not have begun the third yet.
    """
    assert set(runner["settled"]) == {3}
    assert set(runner["at_once"]) <= {2, 3}


def test_elements_that_do_not_fit_wait_and_are_not_dropped(runner: dict[str, Any]) -> None:
    assert runner["first"]["samples"] == list(range(10))
    assert runner["rerun"]["samples"] == list(range(20))


def test_why_a_rerun_may_show_four(runner: dict[str, Any]) -> None:
    """Ten more dequeues in the same session: 20 + 3 samples left the runner's hand, three evaluations are 18 of them,
    and the fourth, whole at 24, is in progress. Or two threads: with 12 of 13 samples in, each holds a third."""
    assert runner["rerun"]["settled"] == 3
    assert runner["rerun"]["in_all"] == 4
    assert runner["two_threads"]["settled"] == 4


@pytest.mark.slow
def test_a_new_user_plays_a_lesson_in_a_terminal_of_80_columns() -> None:
    with terminal(["lesson", "queue_that_blocks"], typed="b\n\nq\n") as (shown, code):
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r", "\n")
    assert code == 0
    assert "You said: three, and the fourth does not return." in plain
    assert "as you predicted" in plain
    assert "Enter goes on with queue_runner, q leaves:" in plain
    assert max(len(line) for line in plain.splitlines()) <= 80
    assert "Traceback" not in plain


@contextmanager
def terminal(arguments: list[str], typed: str) -> Iterator[tuple[str, int]]:
    """Run the program in a terminal of 80 columns; yield what it showed, and its code.

    Args:
        arguments: of the program.
        typed: lines, each of which the reader types when asked: what is typed before is none of an answer.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    child = subprocess.Popen(
        [sys.executable, "-m", "pipeline_bench", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        shown = b""
        answers = typed.splitlines(keepends=True)
        with suppress(OSError):  # EIO: the child has closed its side
            while piece := os.read(ours, 1 << 16):
                shown += piece
                if answers and re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown).endswith(b": "):
                    time.sleep(0.2)  # the program has asked, and forgets what came before
                    os.write(ours, answers.pop(0).encode())
        yield shown.decode(errors="replace"), child.wait(TIMEOUT_S)
    finally:
        child.kill()
        child.wait()
        os.close(ours)
