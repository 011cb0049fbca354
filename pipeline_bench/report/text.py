"""Session → the end screen as plain text, for ``print(session)`` and whatever else has no colours."""

from __future__ import annotations

import io
import shutil

from rich.console import Console

from pipeline_bench.model.session import Session
from pipeline_bench.report import screen


def render(session: Session) -> str:
    """Return the end screen for a terminal as wide as this one, without its last line end."""
    width = shutil.get_terminal_size((100, 24)).columns
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, _environ={})
    with console.capture() as capture:
        console.print(screen.render(session, width))
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))
