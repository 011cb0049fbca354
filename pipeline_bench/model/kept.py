"""The sessions that were kept in a folder, newest first, and the words ``last`` and ``last~2`` for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipeline_bench.errors import SessionError

REPORTS = Path("reports")
"""Where commands keep their sessions by default, each in a folder of its own."""
SESSION_FILE = "session.json"
_LAST = re.compile(r"last(?:~(\d{1,6}))?")
_HEAD_BYTES = 4096
_BEGAN = re.compile(rb'"started_at": "([^"]{1,64})"')


@dataclass(frozen=True)
class Kept:
    """A session's folder, and when it was begun as its file says it."""

    folder: Path
    began: datetime


def sessions(folder: Path = REPORTS) -> list[Kept]:
    """Return the sessions of a folder, the newest first; what does not say when it began is none.

    Only the head of each file is read.
    """
    found = [Kept(file.parent, began) for file in folder.glob(f"*/{SESSION_FILE}") if (began := _began(file))]
    return sorted(found, key=lambda each: (each.began, each.folder.name), reverse=True)


def find(path: Path | str) -> Path:
    """Return the path itself, or the folder that ``last`` or ``last~N`` stands for where no file has that name.

    Raises:
        SessionError: fewer were kept.
    """
    word = _LAST.fullmatch(str(path))
    if word is None or Path(path).exists():
        return Path(path)
    number, found = int(word[1] or 0), sessions()
    if number < len(found):
        return found[number].folder
    raise SessionError(
        f"There is no session {path}: the folder {REPORTS} here holds {len(found) or 'none'}.",
        "`pipeline-bench sessions` lists them; give the path of one that was kept elsewhere.",
    )


def _began(file: Path) -> datetime | None:
    try:
        if not file.is_file():  # reading a pipe may never end
            return None
        with file.open("rb") as opened:
            said = _BEGAN.search(opened.read(_HEAD_BYTES))
        return datetime.fromisoformat(said[1].decode()).astimezone() if said else None
    except (OSError, ValueError, OverflowError):
        return None
