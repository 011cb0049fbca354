"""What a terminal without colours shows of something rich can print."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def printed(what: RenderableType, width: int = 80) -> str:
    """Return the text, line by line as on a terminal so wide."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, _environ={})
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def words(what: RenderableType, width: int = 80) -> str:
    """Return the words on that terminal, whatever lines they stand on."""
    return " ".join(printed(what, width).split())
