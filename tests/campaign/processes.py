"""The program as real processes: started so that all it starts can be found, watched to its end, and looked after."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.campaign.outcome import Outcome

ROOT = Path(__file__).parents[2]
MARK = "PIPELINE_BENCH_CAMPAIGN"
"""The variable in the environment of all that a try starts: which try that is."""
SCRIPTED = ("-m", "tests.campaign.scripted")
"""The program with trials that follow a script; see tests/integration/scripted_child.py."""
REAL = ("-m", "pipeline_bench")
GONE_S = 10.0
LIMIT_S = 90.0


def own_folders(folder: Path) -> dict[str, str]:
    """The environment of a try whose files for a while, caches and last selftest are its own."""
    variables = {"TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state"}
    return {variable: str(folder / name) for variable, name in variables.items()}


class Program:
    """The program, running; what it writes goes to files in the try's folder."""

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str | bytes],
        module: Sequence[str] = REAL,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Start it in a session of its own.

        Args:
            folder: the try's, which exists.
            arguments: its command line.
            module: which program.
            environment: variables beside those of this process.
            options: of `subprocess.Popen`.
        """
        self.folder = folder
        self.mark = f"{os.getpid()}:{folder}"
        self.what = " ".join(map(_shown, arguments))
        (folder / "tmp").mkdir(exist_ok=True)
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        paths = {"PYTHONPATH": str(ROOT), **own_folders(folder)}
        self.process = subprocess.Popen(
            [sys.executable, *module, *arguments],
            **{
                "cwd": folder,
                "stdin": subprocess.DEVNULL,
                "stdout": self._stdout.open("wb"),
                "stderr": self._stderr.open("wb"),
                "start_new_session": True,
                "env": {**os.environ, **paths, MARK: self.mark, **(environment or {})},
                **options,
            },
        )

    def wait_for(self, words: str, limit_s: float = 40.0) -> None:
        """Wait until it has said these words, or has ended."""
        ends_s = time.monotonic() + limit_s
        while words not in text_of(self._stdout) + text_of(self._stderr):  # with --json - what is told goes to stderr
            if self.process.poll() is not None or time.monotonic() > ends_s:
                return
            time.sleep(0.005)

    def server(self) -> int:
        """The process that starts its trials; 0 where there is none yet."""
        return next(iter(_children(self.process.pid, "pipeline_bench.worker.server")), 0)

    def trial(self) -> int:
        """The process of its running trial; 0 where there is none."""
        server = self.server()
        return next(iter(_children(server)), 0) if server else 0

    def outcome(self, limit_s: float = LIMIT_S, **more: Any) -> Outcome:
        """Wait for its end and for that of all that it started; return what it left."""
        try:
            code: int | None = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        left = tuple(survivors(self.mark))
        texts = text_of(self._stdout), text_of(self._stderr)
        found = Outcome(self.what, code, stdout=texts[0], stderr=texts[1], processes=left, **more)
        found.leftovers = self._left(code)
        return found

    def _left(self, code: int | None) -> tuple[str, ...]:
        leftovers = sorted(path.name for path in (self.folder / "tmp").glob("pipeline-bench*"))
        if code is not None and code >= 0:  # a process that is killed cannot clear up behind itself
            leftovers += sorted(path.name for path in self.folder.rglob(".*.part"))
        return tuple(leftovers)


def survivors(mark: str, spared: Sequence[int] = (), within_s: float = GONE_S) -> list[str]:
    """Wait for the end of all that carries the mark; kill what is still there after that time and return its commands.

    Args:
        mark: of a try.
        spared: processes that may go on.
        within_s: how long to wait.
    """
    ends_s = time.monotonic() + within_s
    while (left := list(_marked(mark, spared))) and time.monotonic() < ends_s:
        time.sleep(0.1)
    commands = []
    for process in left:
        with contextlib.suppress(psutil.Error):
            commands.append(f"{process.status()} {' '.join(process.cmdline())[:150]}")
            process.kill()
    return commands


def _marked(mark: str, spared: Sequence[int]) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            marked = process.pid not in spared and process.environ().get(MARK) == mark
            if marked and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _children(pid: int, word: str = "") -> list[int]:
    try:
        found = psutil.Process(pid).children()
    except psutil.Error:
        return []
    chosen = []
    for child in found:
        with contextlib.suppress(psutil.Error):
            if not word or word in child.cmdline():
                chosen.append(child.pid)
    return chosen


def send(pid: int, name: str) -> None:
    """Send a signal to a process that may be gone, and never to all processes."""
    if pid > 0 and psutil.pid_exists(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, getattr(signal, name))


def text_of(path: Path) -> str:
    """Return what a file holds; nothing where it is not there."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _shown(argument: str | bytes) -> str:
    return argument if isinstance(argument, str) else argument.decode(errors="replace")
