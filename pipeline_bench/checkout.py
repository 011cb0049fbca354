"""The folder that a patch of a user's file starts from: the file's repository, as ``git apply`` wants it."""

from __future__ import annotations

from pathlib import Path


def named(file: str, here: Path) -> tuple[str, str]:
    """Return the folder that a file is patched from, and the file's path from there, both without links.

    Args:
        file: the user's, which exists.
        here: the working folder, which is where the patch starts from for a file below it without a repository.
    """
    path = Path(file).resolve()
    folder = next((above for above in path.parents if (above / ".git").exists()), None)
    if folder is None:
        folder = here.resolve() if path.is_relative_to(here.resolve()) else path.parent
    return str(folder), path.relative_to(folder).as_posix()
