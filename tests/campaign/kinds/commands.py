"""Signals to the commands that `kills` leaves out, in a pipe and on a terminal, which has to be left as it was."""

from __future__ import annotations

import signal
import sys
import time
from random import Random
from typing import Any

from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import SOFT_SIGNALS, Outcome
from tests.campaign.processes import REAL, Program, send
from tests.campaign.terminal import Terminal
from tests.unit import sessions

COUNT = 40
WAITS = True
_DIAGNOSE_EVERY = 15
"""One in so many is a diagnosis, which takes longer."""
_HANG_UP = "the terminal is closed"
_STOP = "Ctrl-Z, then fg or bg"
_CTRL_Z, _CTRL_C = b"\x1a", b"\x03"
_STOPPED_S = 1.5
_LONG = ("top", "data", "lesson")
"""Commands that are ended after they were stopped."""
_COMMANDS: dict[str, tuple[list[str], str]] = {
    "data": (["data", "make", "csv", "--out", "made", "--size", "300MB"], "making"),
    "run": (["run", "--out", "reports", "--", "sh", "-c", "echo ready; sleep 0.5; exit 7"], "ready"),
    "top": (["top"], "q ends"),
    "report": (["report", "session.json", "-o", "report.html"], ""),
    "lesson": (["lesson", "queue_that_blocks"], "asked four times"),
    "diagnose": (["diagnose", "theirs.py:make", "--budget", "20", "--out", "reports"], "theirs.py"),
}
"""The command line of each, and what it says as soon as it does what it is to do."""
_ENDS = {"data": (0,), "run": (7,), "top": (), "report": (0,), "lesson": (0,), "diagnose": (0, 1)}
"""The exit codes of each where a signal comes too late."""
_PIPELINE = "import tensorflow as tf\n\ndef make():\n    return tf.data.Dataset.range(1000).repeat().batch(8)\n"


def plan(random: Random, number: int) -> Case:
    """Draw a command, where it runs, and the signals."""
    command = "diagnose" if number % _DIAGNOSE_EVERY == 0 else random.choice(("data", "run", "top", "report", "lesson"))
    terminal = command == "top" or random.random() < 0.5
    signals = [
        *SOFT_SIGNALS,
        "SIGQUIT",
        *([_HANG_UP, _STOP] if terminal else []),
        *(["SIGKILL"] if command != "run" else []),
    ]
    return {
        "command": command,
        "terminal": terminal,
        "moment": "start" if command == "report" else random.choice(("start", "runs", "runs")),
        "signal": random.choice(signals),
        "unbuffered": random.choice(("", "1")),
        "way": random.choice(("fg", "bg")),
        "delay_s": random.random() * (15.0 if command == "diagnose" else random.choice((0.05, 1.2))),
        "second": random.choice((None, None, "SIGINT", "SIGTERM")),
        "second_after_s": random.random() * random.choice((0.02, 1.0)),
    }


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Start the command, send the signals, and see what is left."""
    (bench.folder / "theirs.py").write_text(_PIPELINE, "utf-8")
    (bench.folder / "session.json").write_text(sessions.normal().to_json(), "utf-8")
    arguments, words = _COMMANDS[case["command"]]
    terminal = Terminal() if case["terminal"] else None
    more = ["--no-live"] if case["command"] == "diagnose" and not terminal else []
    options: dict[str, Any] = terminal.options if terminal else {}
    environment = {
        "XDG_RUNTIME_DIR": str(bench.folder),
        "TERM": "xterm",
        "PYTHONUNBUFFERED": case.get("unbuffered", ""),
    }
    shell = ("-m", "tests.shell", case["way"], sys.executable) if case["signal"] == _STOP else ()
    program = Program(bench.folder, [*arguments, *more], (*shell, *REAL), environment, **options)
    if case["moment"] == "runs":
        if terminal is not None:
            terminal.wait_for(words.encode(), program.process.poll)
        else:
            program.wait_for(words)
    time.sleep(case["delay_s"])
    if case["signal"] == _STOP and terminal is not None:
        _stop(case, terminal)
        case = {**case, "signal": None, "second": "SIGINT" if case["command"] in _LONG else None}
    else:
        _send(case, program, terminal)
    found = program.outcome(
        allowed=_allowed(case),
        folder=bench.folder / "reports" if case["command"] == "diagnose" else None,
        tells_all=False,
        shows_tracebacks=case["moment"] == "start",  # Python's own, of before any of this program ran
    )
    wrong = terminal.close() if terminal is not None else []
    if found.code != -signal.SIGKILL:
        found.more += wrong
    if case["command"] == "run" and found.code in (7, 128 + signal.SIGTERM, 128 + signal.SIGHUP):
        found.more += _untold(found, case)
    return [found]


def _stop(case: Case, terminal: Terminal) -> None:
    """Stop the command, which the shell has go on; end it where it does not end by itself."""
    terminal.type(_CTRL_Z)
    time.sleep(_STOPPED_S)
    if case["command"] in _LONG:
        terminal.type(_CTRL_C)


def _send(case: Case, program: Program, terminal: Terminal | None) -> None:
    for name, after_s in ((case["signal"], 0.0), (case["second"], case["second_after_s"])):
        time.sleep(after_s)
        if name == _HANG_UP and terminal is not None:
            terminal.hang_up()
        elif name is not None:
            send(program.process.pid, name)


def _untold(found: Outcome, case: Case) -> list[str]:
    """What `run` owes where it ended by itself: its last line."""
    told = case["terminal"] or "whole command: " in found.stderr
    return [] if told else ["the command's end was not told"]


def _allowed(case: Case) -> tuple[int, ...]:
    """The exit codes that are documented for what was done."""
    codes: tuple[int, ...] = _ENDS[case["command"]]
    for name in filter(None, (case["signal"], case["second"])):
        number = signal.SIGHUP if name == _HANG_UP else signal.Signals[name]
        if case["command"] == "run":  # the command's own end
            codes += (128 + number, -number)
        elif number in (signal.SIGQUIT, signal.SIGKILL):
            codes += (-number,)
        elif case["command"] == "top":
            codes += (0, 1) if name == _HANG_UP else (0,)  # its stdout is gone
        else:
            codes += (130,)
        if case["moment"] == "start":  # before any of this program ran; Python itself ends with 1
            codes += (-number, 256 - number, 1, 130, -signal.SIGINT)  # as Python ends where an import was interrupted
    return codes
