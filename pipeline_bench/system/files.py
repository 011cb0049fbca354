"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the file in one step: a reader sees what was there before or all of the new content, never a part.

    What is not a regular file, a pipe or a device, is written to as it is. A link keeps pointing where it did.

    Args:
        path: in a folder that exists.
        content: text is written as UTF-8.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    data = content.encode("utf-8", errors="replace") if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name[:32]}-{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
