"""Whether a process that has imported TensorFlow may still be forked: while the import left nothing behind."""

from __future__ import annotations

import contextlib
from pathlib import Path


def why_not_forkable(threads_before: int) -> str | None:
    """Say what importing TensorFlow left behind that a fork would break; None when it left nothing.

    Args:
        threads_before: as `threads` gave it before the import.
    """
    more = threads() - threads_before
    if more > 0:
        return f"importing TensorFlow started {more} threads"
    opened = [target for target in _open_files() if target.startswith(("/dev/nvidia", "/dev/dri", "/dev/kfd"))]
    if opened:
        return f"importing TensorFlow opened {opened[0]}"
    return None


def threads() -> int:
    """How many threads this process has, also those that Python does not know of."""
    return len(list(Path("/proc/self/task").iterdir()))


def _open_files() -> list[str]:
    targets = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            targets.append(str(entry.readlink()))
    return targets
