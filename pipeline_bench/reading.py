"""Reads a file that anybody may have given, and no more of it than a file of its kind has."""

from __future__ import annotations

import stat
from pathlib import Path

from pipeline_bench.text import units

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def whole_file(path: Path, limit_bytes: int) -> str:
    """Return the text of a regular file; a device or a pipe is not even opened, since reading one may never end.

    Raises:
        OSError: it is not there, or may not be read.
        ValueError: it is no regular file, is larger, or is not UTF-8; the message is a clause: ``it is a pipe …``.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "something else")
        raise ValueError(f"it is {kind}, and not a file")
    if status.st_size > limit_bytes:  # before any of it is read
        raise _too_large(limit_bytes)
    return at_most(path, limit_bytes)


def at_most(path: Path, limit_bytes: int) -> str:
    """Return the text of a file, which may be a pipe, as that of ``<(...)`` is.

    Raises:
        OSError: it is not there, or may not be read.
        ValueError: it holds more, or is not UTF-8; the message is a clause.
    """
    with path.open("rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise _too_large(limit_bytes)
    try:
        return content.decode("utf-8-sig")  # some editors open a file with a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8 text, from byte {error.start:,} on") from None


def _too_large(limit_bytes: int) -> ValueError:
    return ValueError(f"it holds more than {units.size(limit_bytes)}")


def why(error: OSError | ValueError) -> str:
    """Return why a file could not be read, as a clause."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
