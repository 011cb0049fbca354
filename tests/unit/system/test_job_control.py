"""Ctrl-Z, `bg` and `fg` while a live screen is drawn: the terminal is the shell's meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pipeline_bench.system.job_control import SHOW_CURSOR
from tests.shell import STOPPED

_HIDE_CURSOR = b"\x1b[?25l"
"""DECTCEM, "reset"."""
_PROGRAM = """
import os, signal, time
from rich.console import Console
from pipeline_bench.cli.data import _progress
from pipeline_bench.cli.running import interruptible
from pipeline_bench.lessons.play import _shown_while
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset
from pipeline_bench.system import job_control
from pipeline_bench.ui.live import LiveView

def shown():
    console = Console(force_terminal=True)
    if {screen!r} == "comparison":
        with LiveView(console) as view:
            yield view.preparing
    elif {screen!r} == "lesson":
        with _shown_while(console, "doing") as observer:
            yield observer.preparing
    else:
        with _progress(SyntheticDataset("csv", 9999, 1, 8)) as report:
            yield lambda words: report(int(words))

with interruptible():
    for show in shown():
        show("1111")
        os.kill(os.getpid(), signal.SIGTSTP)
        show("2222")
        while job_control.in_background():
            time.sleep(0.02)
        show("3333")
"""
_AFTERWARDS = re.compile(b"2222|3333")


@pytest.mark.parametrize(
    ("way", "screen"),
    [
        ("fg", "comparison"),
        ("bg", "data make"),
        pytest.param("fg", "lesson", marks=pytest.mark.slow),
        pytest.param("fg", "data make", marks=pytest.mark.slow),
        pytest.param("bg", "comparison", marks=pytest.mark.slow),
        pytest.param("bg", "lesson", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_live_screen_gives_the_terminal_to_the_shell(way: str, screen: str) -> None:
    program = _PROGRAM.format(screen=screen)
    in_a_terminal = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-m', 'tests.shell', *sys.argv[1:]]))"
    command = [sys.executable, "-c", in_a_terminal, way, sys.executable, "-c", program]
    environment = {**os.environ, "TERM": "xterm"}
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=100, env=environment
    )
    before, _, rest = ended.stdout.partition(STOPPED)
    in_background, _, after = rest.partition(b"(fg)") if way == "bg" else (b"", b"", rest)
    assert before.index(_HIDE_CURSOR) < before.rindex(SHOW_CURSOR)
    assert not in_background, "nothing is drawn there"
    shown = _AFTERWARDS.search(after)
    assert shown is not None
    drawn = after[: shown.start()]
    assert _HIDE_CURSOR in drawn
    assert not re.search(rb"\x1b\[\d*[AK]", drawn), "what the shell wrote is not drawn over"
    assert after.rindex(SHOW_CURSOR) > shown.start()
