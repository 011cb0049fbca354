"""A lesson's reader at a terminal of their own, who types before they are asked."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ASKS = """
import sys
from rich.console import Console
from pipeline_bench.cli.lesson import asked
print("ready", flush=True)
sys.stderr.readline()  # until the test has typed too early
print(f"[{asked(Console(), 'asked: ')}]", flush=True)
"""


def test_what_was_typed_before_the_question_answers_nothing() -> None:
    terminal, theirs = pty.openpty()
    go, wait = os.pipe()
    command = [sys.executable, "-c", ASKS.replace("sys.stderr.readline()", f"__import__('os').read({go}, 1)")]
    child = subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, pass_fds=(go,))
    try:
        read_until(terminal, b"ready")
        os.write(terminal, b"too early\n")
        os.write(wait, b".")
        read_until(terminal, b"asked: ")
        os.write(terminal, b"in time\n")
        assert b"[in time]" in read_until(terminal, b"]")
        assert child.wait(timeout=30) == 0
    finally:
        child.kill()
        for descriptor in (terminal, theirs, go, wait):
            os.close(descriptor)


def read_until(terminal: int, words: bytes) -> bytes:
    shown = b""
    while words not in shown:
        shown += os.read(terminal, 1024)
    return shown
