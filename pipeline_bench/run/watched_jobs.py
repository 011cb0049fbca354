"""Finds the watched jobs of this user, those that run and those that ended lately, by the files that they leave."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline_bench.model.job import JobStatus
from pipeline_bench.system import files, user_folders
from pipeline_bench.system.files import read_text

ENDING = ".job.json"
KEPT_S = 3600.0
"""How long the file of a job that has ended is kept."""
KEPT_JOBS = 50
"""How many of them, at most."""
LATE_S = 5.0
"""A job that has written nothing for this long, where it writes each second, is stopped, or does not get to it."""
_LARGEST_BYTES = 64 * 1024
_held: dict[Path, tuple[int, tuple[int, int] | None]] = {}
"""The locks of this process' own jobs, each with its descriptor and what that is of, as `files.identity` has it."""


@dataclass(frozen=True)
class WatchedJob:
    """A watched job that was found.

    Attributes:
        status: what it wrote last.
        state: ``gone`` where its process ended without a word: it was killed.
        silent_s: seconds since it wrote that.
    """

    status: JobStatus
    state: Literal["running", "ended", "gone"]
    silent_s: float

    @property
    def is_late(self) -> bool:
        """Whether it runs, and has written nothing for too long."""
        return self.state == "running" and self.silent_s > LATE_S


def find_jobs() -> tuple[list[WatchedJob], list[str]]:
    """Return the jobs, those that run first and the latest first, and why a folder could not be looked into."""
    jobs: list[WatchedJob] = []
    problems = []
    for folder in user_folders.runtime_folders():
        refused = user_folders.distrust(folder)
        if refused is not None:
            problems.append(f"{folder} is left alone: {refused}; set XDG_RUNTIME_DIR to a folder of your own")
            continue
        sweep(folder)
        jobs += _jobs(folder)
    jobs.sort(key=lambda job: (job.state != "running", -job.status.started_s))
    return jobs, problems


def of_run(run: str) -> list[WatchedJob]:
    """Return the jobs of one call of `pipeline-bench run`, as `find_jobs` does."""
    return [job for job in find_jobs()[0] if job.status.run == run]


def _jobs(folder: Path) -> Iterator[WatchedJob]:
    for path in _listed(folder, ENDING):
        alive = _is_locked(_lock_of(path))  # before the file is read, which says so where it has ended since
        try:
            status = JobStatus.model_validate_json(read_text(path, _LARGEST_BYTES, regular=True))
            silent_s = max(0.0, time.time() - path.stat().st_mtime)
        except (OSError, ValueError):
            continue
        state: Literal["running", "ended", "gone"] = "ended" if status.ended else "running" if alive else "gone"
        yield WatchedJob(status, state, silent_s)


def hold(path: Path) -> None:
    """Lock a new job's place until `release`, or until the process ends.

    The lock is the process' and not the descriptor's: a fork of the job does not keep it when the job is gone.

    Raises:
        OSError: the folder cannot be written.
    """
    lock = _lock_of(path)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _held[lock] = descriptor, files.identity(descriptor)


def release(path: Path) -> None:
    """Unlock the place of a job that has ended, so that its files are removed in time; safe to call twice."""
    descriptor, file = _held.pop(_lock_of(path), (-1, None))
    if file is not None and file == files.identity(descriptor):  # else a program has closed it
        os.close(descriptor)


def _lock_of(path: Path) -> Path:
    """Return the file whose lock a job holds while it lives."""
    return path.with_name(path.name.removesuffix(ENDING) + ".lock")


def sweep(folder: Path) -> None:
    """Remove the files of jobs that ended long ago, and of more than there is use for."""
    ended = []
    for lock in _listed(folder, ".lock"):
        with suppress(OSError):
            if not _is_locked(lock):
                ended.append((lock.stat().st_mtime, lock))
    ended.sort(reverse=True)
    for place, (_, lock) in enumerate(ended):
        path = lock.with_name(lock.name.removesuffix(".lock") + ENDING)
        if place >= KEPT_JOBS or _age_s(path, lock) > KEPT_S:
            remove(path)


def remove(path: Path) -> None:
    """Remove a job's files."""
    for file in (path, path.with_suffix(".part"), _lock_of(path)):
        with suppress(OSError):
            file.unlink()


def _age_s(*paths: Path) -> float:
    """Return how long ago the last of some files was written, in seconds."""
    times = [0.0]
    for path in paths:
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return time.time() - max(times)


def _listed(folder: Path, ending: str) -> list[Path]:
    """Return the regular files of a folder with that ending; none where it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            found = [each for each in entries if each.name.endswith(ending) and each.is_file(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(Path(each.path) for each in found)


def _is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file; no where there is none, or it cannot be opened."""
    if path in _held:  # to open it and close it again would give the lock up
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
