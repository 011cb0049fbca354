"""The folder that a session gets of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from pipeline_bench.errors import UsageError


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
