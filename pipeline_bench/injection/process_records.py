"""What the record of a watched process has of each training: plain data, read as `command_result.WatchedTraining`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from json import dumps  # as it is now: a program may replace it
from pathlib import Path
from typing import Any

from pipeline_bench.injection.loop_locations import Loop
from pipeline_bench.injection.watched_loops import WatchedLoops

# Why something is not watched.
ASYNCHRONOUS = (
    "a tf.function, or eager code, that trains on a GPU on what no tf.data pipeline, DataLoader or grain gives it: its "
    "calls return before the GPU has finished, so the time between two steps cannot be taken for input wait"
)

SIGNATURE = (
    "a tf.function that trains and takes its batches from an iterator that its input_signature names, or that it was "
    "traced with before: nothing in its graph tells how long each batch was waited for"
)
_BY_BACKWARD = (
    "PyTorch, which trains on batches that no DataLoader gives it ({calls:,} calls of backward without one): how long "
    "it waits for them is not known"
)
_BACKWARD_CALLS = 30
"""From so many on they are a training, and no picture or two of what a model looks at."""
UNPATCHED = "a fit of a Keras that another library's import hook loaded: pipeline-bench could not patch it"
DETERMINISTIC = "a loop in a tf.function: where TensorFlow's ops are to be deterministic, its graphs may read no clock"

_BEGAN_NS = time.monotonic_ns()
_KERNEL, _NOTEBOOK = "ipykernel_launcher.py", "a notebook"
"""What runs the cells of a notebook, and what it is called here."""
_SHELLS = ("ipython", "ipython3")
"""What runs lines that are typed, or a script of such lines, in small letters."""


def of_fit(training: tuple[int, Any]) -> dict[str, Any] | None:
    """Return the entry of a call of `fit`, of its number and what watches it; None where nothing was kept."""
    number, monitor = training
    if monitor.kept is None:
        return None
    return {**_training(program(), monitor.kept), "number": number, "diagnosable": monitor.diagnosable}


def of_loop(where: Loop, loop: Any, only_reads: bool) -> dict[str, Any] | None:
    """Return the entry of a loop; None where nothing was kept.

    Args:
        where: its line, and which of that line's.
        loop: what watches it.
        only_reads: whether it trains nothing.
    """
    if loop.record.kept is None:
        return None
    place = {"line_number": where.line.number, "data_number": where.data_number}
    its_own = {**place, "diagnosable": loop.record.diagnosable, "trains": not only_reads}
    its_own["trains_on"] = getattr(loop, "is_cycled", False)
    if only_reads:  # what it took in all, and not what figures are of
        time = loop.passes.wall_time()
        spent_ns = sum(each.first_step_ns + each.steps_ns for each in time.epochs) if time is not None else 0
        its_own |= {"steps": loop.passes.taken, "seconds": spent_ns / 1e9}
    return {**_training(str(where.line), loop.record.kept, timed=not only_reads), **its_own}


def unseen(trainings: Sequence[dict[str, Any]], loops: WatchedLoops, tapes: bool) -> str | None:
    """Return what trains in this process and is not watched, where nothing that is watched trains; None: nothing does.

    Args:
        trainings: the entries of what is watched.
        loops: those of the process.
        tapes: whether eager code on a GPU entered a GradientTape.
    """
    if tapes and not trainings:
        return ASYNCHRONOUS
    trains = loops.unwatched or any(each.get("trains", True) for each in trainings)
    return None if trains or loops.unfed_backward < _BACKWARD_CALLS else _BY_BACKWARD.format(calls=loops.unfed_backward)


def program() -> str:
    """Return the name of the program's file, as the session is called."""
    file = Path(sys.argv[0]) if getattr(sys, "argv", None) and sys.argv[0] not in ("", "-c") else Path("python")
    name = file.parent.name or file.name if file.name == "__main__.py" else file.name  # of `python -m package`
    return _NOTEBOOK if name == _KERNEL else name


def command() -> tuple[str, ...]:
    """Return what started this process, as `diagnose` can start it again; empty for a notebook's kernel, or IPython."""
    given = sys.orig_argv
    module = given[given.index("-m") + 1 :][:1] if "-m" in given else []
    in_shell = any(Path(part).name.lower() in _SHELLS for part in (*given[:2], *module))
    return () if in_shell or program() == _NOTEBOOK else tuple(sys.orig_argv)


def variables() -> tuple[str, ...]:
    """Return the names of the variables that this process was started with; no values, which may be secrets."""
    with suppress(OSError):
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
        return tuple(sorted({each.partition(b"=")[0].decode(errors="replace") for each in given if b"=" in each}))
    return ()


def folder() -> str | None:
    """Return the working folder; None where it was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def _training(of: str, kept: Any, timed: bool = True) -> dict[str, Any]:
    figures, folder = kept.figures, kept.folder
    spent = kept.session.wall_time if timed else None
    return {
        "of": of,
        "steps": figures.steps,
        "seconds": figures.steps * (figures.step_ms or 0.0) / 1e3,
        "input_wait_share": figures.input_wait_share,
        "device_percent": figures.device_utilization_percent,
        "verdict": figures.verdict.kind,
        "cause": figures.verdict.cause,
        "line": figures.line,
        "folder": None if folder is None else str(folder),
        "unsaved": kept.unsaved,
        "remarks": kept.remarks,
        "time": spent and spent.model_dump(),
    }


def write(folder: Path, pid: int, record: dict[str, Any], *, is_fork: bool = False) -> None:
    """Write the record of this process, whole or not at all; what it became by `exec` has another one.

    Nothing is written of a fork that has nothing to tell: a DataLoader forks its workers anew for each epoch.

    Args:
        folder: where it goes; it is made again where a job has cleared the folder for temporary files.
        pid: the process's number.
        record: what is known.
        is_fork: whether the process is a fork of one that has a record.
    """
    if is_fork and not any(record[told] for told in ("trainings", "more", "unwatched_loops", "problem")):
        return
    path = folder / f"{pid}-{_BEGAN_NS}.json"
    part = path.with_suffix(f".{threading.get_ident()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        part.write_text(dumps({"pid": pid, "saved_s": time.time(), **record}), encoding="utf-8")
        part.replace(path)
