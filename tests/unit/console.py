"""What a terminal without colours shows of something rich can print, and streams that take nothing."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.console import Console, RenderableType


class Terminal(io.StringIO):
    """A terminal's stream: what is typed there, or shown."""

    def isatty(self) -> bool:
        return True


@contextmanager
def unread() -> Iterator[TextIO]:
    """A stream into a pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield stream


@contextmanager
def full_pipe(*, blocking: bool) -> Iterator[TextIO]:
    """A stream into a pipe that is full, and whose reader does not read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, blocking)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield stream
    os.close(reader)


def printed(what: RenderableType, width: int = 80) -> str:
    """Return the text, line by line as on a terminal so wide."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, _environ={})
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def words(what: RenderableType, width: int = 80) -> str:
    """Return the words on that terminal, whatever lines they stand on."""
    return " ".join(printed(what, width).split())
