"""The folders that hold a session each: a new one, those that are there, and the words ``last`` and ``last~2``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipeline_bench.errors import SessionError, UsageError

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


def kept_sessions(folder: Path = REPORTS) -> list[Kept]:
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
    number, found = int(word[1] or 0), kept_sessions()
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


def make_folder(out: Path, name: str, now: Callable[[], datetime] = datetime.now) -> Path:
    """Make the session's own folder, ``<out>/<time>-<name>``.

    Raises:
        UsageError: it cannot be made there.
    """
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:60] or "scenario"
    stem = f"{now():%Y%m%d-%H%M%S}-{slug}"
    for number in range(100):
        folder = out / (stem if number == 0 else f"{stem}-{number + 1}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.is_dir():
                continue
            raise _in_the_way(out) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"--out {out}: the session's folder cannot be made: {reason}.", "Choose another --out."
            ) from None
        return folder
    raise UsageError(f"--out {out} holds a hundred sessions of this second.", "Choose another --out.")


def _in_the_way(out: Path) -> UsageError:
    for path in (out, *out.parents):
        if path.is_symlink() and not path.exists():
            return UsageError(
                f"--out {out}: {path} is a link that leads nowhere, to {path.readlink()}.",
                "Mend or remove the link, or choose another --out.",
            )
    return UsageError(f"--out {out}: a file is in the way.", "Choose a folder, or a path that does not exist.")
