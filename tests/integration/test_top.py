"""`pipeline-bench top` on a terminal: a screen of its own until a key is pressed, and the terminal as it was."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

LIMIT_S = 60.0


def start(folder: Path, *arguments: str, terminal: int | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline_bench", "top", *arguments],
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder), "TERM": "xterm"},
        stdin=terminal,
        stdout=subprocess.PIPE if terminal is None else terminal,
        stderr=subprocess.STDOUT if terminal is None else terminal,
        start_new_session=terminal is not None,
    )


def shown_until(master: int, text: bytes) -> bytes:
    shown, until_s = b"", time.monotonic() + LIMIT_S
    while text not in shown and time.monotonic() < until_s:
        if select.select([master], [], [], 1.0)[0]:
            shown += os.read(master, 65536)
    return shown


@pytest.mark.parametrize("ends", ["q", "INT", "TERM"])
def test_on_a_terminal_it_runs_until_it_is_ended_and_leaves_the_terminal_as_it_was(tmp_path: Path, ends: str) -> None:
    master, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    program = start(tmp_path, terminal=terminal)
    assert b"q ends" in shown_until(master, b"q ends")  # beside jobs of this machine too, more than there is room for
    assert termios.tcgetattr(terminal) != before
    if ends == "q":
        os.write(master, b"q")
    else:
        program.send_signal(getattr(signal, f"SIG{ends}"))
    assert b"\x1b[?1049l" in shown_until(master, b"\x1b[?1049l")  # the screen from before
    assert program.wait(LIMIT_S) == 0
    assert termios.tcgetattr(terminal) == before
    os.close(master)
    os.close(terminal)


@pytest.mark.parametrize("arguments", [(), ("--once",)])
def test_without_a_terminal_it_is_a_listing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    program = start(tmp_path, *arguments)
    out, _ = program.communicate(timeout=LIMIT_S)
    assert program.returncode == 0
    assert b"\x1b" not in out
    assert out.endswith(b"\n")
