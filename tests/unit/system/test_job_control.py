"""Ctrl-Z, `bg` and `fg` while a live screen is drawn: the terminal is the shell's meanwhile."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from pipeline_bench.system.job_control import HIDE_CURSOR, SHOW_CURSOR
from tests.shell import STOPPED

_PROGRAM = """
import os, signal, time
from rich.console import Console
from pipeline_bench.cli.running import interruptible
from pipeline_bench.system import job_control
from pipeline_bench.ui.live import LiveView
with interruptible(), LiveView(Console(force_terminal=True)) as view:
    view.preparing("before")
    os.kill(os.getpid(), signal.SIGTSTP)
    view.preparing("after")
    while job_control.in_background():
        time.sleep(0.02)
    view.preparing("later")
"""


@pytest.mark.parametrize("way", ["fg", "bg"])
def test_a_stopped_live_screen_gives_the_terminal_to_the_shell(way: str) -> None:
    in_a_terminal = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-m', 'tests.shell', *sys.argv[1:]]))"
    command = [sys.executable, "-c", in_a_terminal, way, sys.executable, "-c", _PROGRAM]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=100)
    before, _, rest = ended.stdout.partition(STOPPED)
    in_background, _, after = rest.partition(b"(fg)") if way == "bg" else (b"", b"", rest)
    assert before.index(HIDE_CURSOR) < before.index(b"before") < before.index(SHOW_CURSOR)
    assert not in_background, "nothing is drawn there"
    shown = b"later" if way == "bg" else b"after"
    drawn = after[: after.index(shown)]
    assert HIDE_CURSOR in drawn
    assert not re.search(rb"\x1b\[\d*[AK]", drawn), "what the shell wrote is not drawn over"
    assert after.index(shown) < after.index(SHOW_CURSOR)
