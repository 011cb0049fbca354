"""Measurements of pipeline-bench itself; each module is a command, ``python -m benchmarks.<name>``."""

import json
from pathlib import Path
from typing import Any


def kept(file: Path) -> list[dict[str, Any]]:
    """Return the runs that a file holds, a line each; none where there is no file, and none of a line that was cut."""
    lines = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def keep(run: dict[str, Any], file: Path, lines: list[dict[str, Any]]) -> None:
    """Add a run to the file and to the lines of it."""
    lines.append(run)
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(run) + "\n")
