"""What the parts of a lesson measure: an exercise in a child with a deadline, a comparison in a temporary folder."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from pipeline_bench import process, units
from pipeline_bench.comparison import compare
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.lessons import Compare, Run
from pipeline_bench.observer import Observer
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.session import Session

_COMMAND = (sys.executable, "-m", "pipeline_bench.worker.exercise")
_READ_BYTES = 1 << 16
_ENDED_S = 5.0
_WORDS_KEPT = 300


def measure(part: Run | Compare, observer: Observer) -> Any:
    """Carry out what a part of a lesson measures: the mapping of its exercise, or the session of its comparison.

    Raises:
        PipelineBenchError: it failed, in one line.
        KeyboardInterrupt: the reader has seen enough; everything that it started is ended.
    """
    return exercise(part) if isinstance(part, Run) else compared(part, observer)


def exercise(part: Run, command: tuple[str, ...] = _COMMAND) -> dict[str, Any]:
    """Execute the exercise in a child, which is ended with all that it started when it is done or its time is over.

    Args:
        part: what to execute.
        command: starts the child; the number of the pipe for the answer is added.

    Raises:
        PipelineBenchError: it raised, ended without a word, or took longer than its deadline.
    """
    function = f"{part.exercise.__module__}.{part.exercise.__qualname__}"
    reading, writing = os.pipe()
    try:
        with tempfile.TemporaryFile() as log:
            try:
                child = _start(part, command, writing, log)
            finally:
                os.close(writing)
            try:
                line = _line(reading, part.deadline_s)
            finally:
                _end(child)
            log.seek(0)
            words = units.one_line(log.read().decode(errors="replace")[-_WORDS_KEPT:])
    finally:
        os.close(reading)
    if line is None:
        raise PipelineBenchError(f"{function} was ended: it took longer than {units.seconds(part.deadline_s)}.")
    answer: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
    if "failed" in answer:
        raise PipelineBenchError(f"{function} failed: {units.one_line(str(answer['failed']), _WORDS_KEPT)}")
    if "result" not in answer:
        raise PipelineBenchError(f"{function} {_ending(child.returncode)}{f': {words}' if words else '.'}")
    result: dict[str, Any] = answer["result"]
    return result


def compared(part: Compare, observer: Observer) -> Session:
    """Run the comparison; its folder is removed, the session has what the lesson tells.

    Raises:
        PipelineBenchError: the scenario is not valid here, or no trial of it went through.
        KeyboardInterrupt: it was interrupted.
    """
    document = part.document() if callable(part.document) else part.document
    scenario = resolve(document, where="the lesson's scenario", default_name="lesson")
    with tempfile.TemporaryDirectory(prefix="pipeline-bench-", ignore_cleanup_errors=True) as folder:
        outcome = compare(scenario, Path(folder), observer, command="pipeline-bench lesson")
    if outcome.interrupted:
        raise KeyboardInterrupt
    trials = outcome.session.trials
    if not any(trial.status == "ok" for trial in trials):
        reason = units.one_line(trials[0].reason or trials[0].status, _WORDS_KEPT) if trials else "none was started"
        raise PipelineBenchError(f"No trial of the comparison went through: {reason}")
    return outcome.session


def _start(part: Run, command: tuple[str, ...], writing: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [*command, str(writing)],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        pass_fds=[writing],
        start_new_session=True,  # Ctrl-C is for the parent, which then ends the child
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    request = {
        "module": part.exercise.__module__,
        "function": part.exercise.__qualname__,
        "arguments": dict(part.arguments),
    }
    assert child.stdin is not None
    with suppress(BrokenPipeError), child.stdin as stdin:
        stdin.write(json.dumps(request).encode())
    return child


def _line(reading: int, deadline_s: float) -> bytes | None:
    """What the child wrote until it closed the pipe or a line was whole; None where the time was over first."""
    ends_s = time.monotonic() + deadline_s
    data = b""
    while not data.endswith(b"\n"):
        if not select.select([reading], [], [], max(0.0, ends_s - time.monotonic()))[0]:
            return None
        piece = os.read(reading, _READ_BYTES)
        if not piece:
            break
        data += piece
    return data


def _end(child: subprocess.Popen[bytes]) -> None:
    """Give a child that has answered the time to end, and kill what is left of its process group."""
    if not sys.exc_info()[0]:
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.5)
    if child.poll() is None:
        process.end_whole(child.pid)
    else:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait(_ENDED_S)


def _ending(code: int) -> str:
    return process.explain_exit(code) if code < 0 else f"ended with exit code {code} and no answer"
