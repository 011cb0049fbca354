"""A warm interpreter: it has imported the program, and forks itself for each command line that it is asked to run.

A fresh process takes half a second to import; a fork takes milliseconds. ``python -m tests.campaign.warm`` reads a
request a line from stdin, and answers each with the exit code (None: it hung) and the peak of its memory. In the fork
no process can be started, as under a limit of their number, so that no command line begins to measure.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pipeline_bench import cli
from pipeline_bench.run import (
    comparison,  # noqa: F401 - the commands import them when they run
    diagnosis,  # noqa: F401 - the commands import them when they run
)
from tests.campaign.outcome import Outcome
from tests.campaign.processes import ROOT, own_folders, text_of
from tests.unit import sessions
from tests.unit.test_hostile_text import every_view

LIMIT_S = 60.0
_MOST_BYTES = 16 << 30
"""Of memory, for the fork alone: a bomb is to end it and not the machine."""


class Warm:
    """Asks a warm interpreter of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaign.warm"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        folder: Path,
        arguments: Sequence[str],
        allowed: tuple[int, ...],
        environment: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Outcome:
        """Run a command line in the folder; return what came of it.

        Args:
            folder: the try's, which exists.
            arguments: the command line.
            allowed: its documented exit codes.
            environment: variables beside those of this process.
            more: other fields of the outcome.
        """
        (folder / "tmp").mkdir(exist_ok=True)
        variables = {**own_folders(folder), **(environment or {})}
        request = {"arguments": list(arguments), "folder": str(folder), "environment": variables}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        texts = text_of(folder / "stdout"), text_of(folder / "stderr")
        found = Outcome(" ".join(arguments), answer["code"], allowed, *texts, **more)
        found.leftovers = tuple(path.name for path in (folder / "tmp").glob("pipeline-bench*"))
        found.memory_kb = answer["memory_kb"]
        return found

    def close(self) -> None:
        """End the interpreter."""
        self._process.communicate()


def serve() -> None:
    """Answer requests until stdin ends."""
    every_view(sessions.normal())  # what it imports and compiles, the forks need not
    for line in sys.stdin:
        request = json.loads(line)
        sys.stdout.flush()
        if (pid := os.fork()) == 0:
            _run(request)
        code, memory_kb = _wait(pid)
        sys.stdout.write(json.dumps({"code": code, "memory_kb": memory_kb}) + "\n")
        sys.stdout.flush()


def _wait(pid: int) -> tuple[int | None, int]:
    ends_s = time.monotonic() + LIMIT_S
    while time.monotonic() < ends_s:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _, _, usage = os.wait4(pid, 0)
    return None, usage.ru_maxrss


def _run(request: dict[str, Any]) -> NoReturn:
    code: object = 70
    try:
        _prepare(request)
        cli.main(request["arguments"])
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 70)


def _prepare(request: dict[str, Any]) -> None:
    os.setsid()
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
    subprocess.Popen = _refuse  # type: ignore[assignment, misc]


def _refuse(*_: object, **__: object) -> NoReturn:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


if __name__ == "__main__":
    serve()
