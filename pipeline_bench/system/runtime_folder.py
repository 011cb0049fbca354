"""The folder in which this user's watched jobs tell of themselves, and which nobody else can write or read."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

RUN_VARIABLE = "PIPELINE_BENCH_RUN"
"""The environment variable that names the folder in which each watched process leaves its record."""
_NAME = "pipeline-bench"


def to_write() -> Path | None:
    """Return the folder, made if need be; None where there is no place for one that is this user's alone."""
    for folder in _places():
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if refusal(folder) is None:
            return folder
    return None


def to_read() -> list[Path]:
    """Return every such folder that is there: a job may have been given another environment than who looks for it."""
    return [folder for folder in _places() if os.path.lexists(folder)]


def refusal(folder: Path) -> str | None:
    """Return why a folder is not to be trusted, as a clause; None where it is this user's alone.

    A link is not followed: whoever made it says where it leads.
    """
    try:
        status = folder.lstat()
    except OSError as error:
        return f"it cannot be looked at: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return "it is no folder"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_mode & 0o077:
        return f"others may use it (its mode is {stat.S_IMODE(status.st_mode):o}, and 700 is needed)"
    return None


def _places() -> Iterator[Path]:
    """Yield where the folder may be, the best first: the system's folders for this, then those for temporary files."""
    user = os.geteuid()
    own = [os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}"]
    for root in dict.fromkeys(Path(name) for name in own if Path(name).is_absolute()):
        if refusal(root) is None:
            yield root / _NAME
    for root in dict.fromkeys([Path("/tmp"), Path(tempfile.gettempdir())]):  # noqa: S108 - the folder in it is checked
        yield root / f"{_NAME}-{user}"
