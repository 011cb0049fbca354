"""The user's own folders: for what can be made again, for what is remembered, and for what runs now."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

_USER_FOLDERS = {"cache": ("XDG_CACHE_HOME", "~/.cache"), "state": ("XDG_STATE_HOME", "~/.local/state")}


def user_folder(kind: Literal["cache", "state"]) -> Path:
    """Return this program's folder among the user's: for what can be made again, or for what is remembered.

    Raises:
        RuntimeError: there is no home folder, as in a container with a number of its own and without `HOME`.
    """
    variable, default = _USER_FOLDERS[kind]
    given = os.environ.get(variable) or default
    try:
        return Path(given).expanduser().absolute() / "pipeline-bench"
    except RuntimeError as error:
        raise RuntimeError(f"the home folder in {given} is not known") from error


RUN_VARIABLE = "PIPELINE_BENCH_RUN"
"""The environment variable that names the folder in which each watched process leaves its record."""
_RUNTIME_NAME = "pipeline-bench"


def runtime_folder_to_write() -> Path | None:
    """Return the folder, made if need be; None where there is no place for one that is this user's alone."""
    for folder in _runtime_places():
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if distrust(folder) is None:
            return folder
    return None


def runtime_folders() -> list[Path]:
    """Return every such folder that is there: a job may have been given another environment than who looks for it."""
    return [folder for folder in _runtime_places() if os.path.lexists(folder)]


def distrust(folder: Path) -> str | None:
    """Return why a folder is not to be trusted, as a clause; None where it is this user's alone.

    A link is not followed: whoever made it says where it leads.
    """
    try:
        status = folder.lstat()
    except OSError as error:
        return f"it cannot be checked: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return "it is no folder"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_mode & 0o077:
        return f"others may use it (its mode is {stat.S_IMODE(status.st_mode):o}, and 700 is needed)"
    return None


def _runtime_places() -> Iterator[Path]:
    """Yield where the folder may be, the best first: the system's folders for this, then those for temporary files."""
    user = os.geteuid()
    own = [os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}"]
    for root in dict.fromkeys(Path(name) for name in own if Path(name).is_absolute()):
        if distrust(root) is None:
            yield root / _RUNTIME_NAME
    others = ["/tmp"]  # noqa: S108 - the folder in it is checked
    with contextlib.suppress(OSError):  # none can be written to
        others.append(tempfile.gettempdir())
    for root in dict.fromkeys(map(Path, others)):
        yield root / f"{_RUNTIME_NAME}-{user}"
