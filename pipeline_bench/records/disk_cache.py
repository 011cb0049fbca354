"""A folder on disk for what a trial caches; it goes with the trial, or at the latest with the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from pipeline_bench import units
from pipeline_bench.errors import PipelineBenchError

_PREFIX = "pipeline-bench-cache-"


class CacheFolder:
    """A temporary folder that is locked while its trial lives: one without a lock is what a killed trial left.

    Args:
        needed_bytes: how much will be written there.

    Raises:
        PipelineBenchError: the disk has too little room, or the folder cannot be made.
    """

    def __init__(self, needed_bytes: int) -> None:
        root = Path(tempfile.gettempdir())
        for left in root.glob(f"{_PREFIX}*"):
            _remove_orphaned(left)
        try:
            free_bytes = shutil.disk_usage(root).free
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        except OSError as error:
            raise PipelineBenchError(
                f"No folder for temporary files can be made in {root}: {error.strerror}.",
                "Set TMPDIR to a folder that can be written to.",
            ) from error
        if needed_bytes > free_bytes:
            self.path.rmdir()
            raise PipelineBenchError(
                f"The decoded samples of an epoch take {units.size(needed_bytes)}, and the folder for temporary "
                f"files, {root}, has {units.size(free_bytes)} left.",
                "Set TMPDIR to a folder with more room, cache the records instead, or take fewer or smaller samples.",
            )
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove it with all that it holds; also while something still writes there, which then fails."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_orphaned(folder: Path) -> None:
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:  # another user's, or gone by now
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)
