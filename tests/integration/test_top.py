"""`pipeline-bench top`, and the bar of `data make`, on a terminal, which is at the end as it was before."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pipeline_bench.cli import run
from pipeline_bench.cli.saved import _quit_within

LIMIT_S = 60.0


@contextmanager
def started(folder: Path, terminal: int, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run it; whatever the test comes to, it has ended then."""
    with subprocess.Popen(
        [sys.executable, "-m", "pipeline_bench", *arguments],
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder), "TERM": "xterm"},
        preexec_fn=lambda: os.login_tty(terminal),  # noqa: PLW1509 - no threads here
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def shown_until(master: int, text: bytes) -> bytes:
    shown, until_s = b"", time.monotonic() + LIMIT_S
    while text not in shown and time.monotonic() < until_s:
        if select.select([master], [], [], 1.0)[0]:
            shown += os.read(master, 65536)
    return shown


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Return both ends of a terminal: the one that draws it, and the program's."""
    ends = pty.openpty()
    yield ends
    for end in ends:
        with suppress(OSError):  # the test has closed it
            os.close(end)


@pytest.mark.parametrize(
    "ends", ["q", *(pytest.param(name, marks=pytest.mark.slow) for name in ("INT", "TERM")), "Ctrl-\\"]
)
def test_on_a_terminal_it_runs_until_it_is_ended_and_leaves_the_terminal_as_it_was(
    tmp_path: Path, terminal: tuple[int, int], ends: str
) -> None:
    master, own = terminal
    before = termios.tcgetattr(own)
    with started(tmp_path, own, "top") as program:
        assert b"q ends" in shown_until(master, b"q ends")  # beside jobs of this machine too, more than have room
        assert termios.tcgetattr(own) != before
        if ends in ("q", "Ctrl-\\"):
            os.write(master, b"q" if ends == "q" else b"\x1c")
        else:
            program.send_signal(getattr(signal, f"SIG{ends}"))
        assert b"\x1b[?1049l" in shown_until(master, b"\x1b[?1049l")  # the screen from before
        assert program.wait(LIMIT_S) == (-signal.SIGQUIT if ends == "Ctrl-\\" else 0)
    assert termios.tcgetattr(own) == before


@pytest.mark.parametrize("ends", [pytest.param("TERM", marks=pytest.mark.slow), "a closed terminal"])
def test_data_that_is_being_made_is_interrupted_as_by_an_interrupt(
    tmp_path: Path, terminal: tuple[int, int], ends: str
) -> None:
    master, own = terminal
    asked = ("data", "make", "csv", "--out", str(tmp_path / "made"), "--size", "900MB")
    with started(tmp_path, own, *asked) as program:
        assert b"making" in shown_until(master, b"making")
        if ends == "TERM":
            program.send_signal(signal.SIGTERM)
            assert b"\x1b[?25h" in shown_until(master, b"\x1b[?25h")
        else:
            os.close(own)
            os.close(master)
        assert program.wait(LIMIT_S) == 130


def test_it_ends_with_its_terminal_also_where_that_goes_while_it_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    master, own = pty.openpty()
    with os.fdopen(own, encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        monkeypatch.setattr(sys, "stdout", file)
        assert not _quit_within(0)
        os.close(master)
        assert _quit_within(0)


@pytest.mark.parametrize("arguments", [(), ("--once",)])
def test_without_a_terminal_it_is_a_listing(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert run(["top", *arguments]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.endswith("\n")
