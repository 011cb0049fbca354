"""stdout, whose failures are told from those of every other file: a full disk behind ``> report.txt`` is no bug."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO


class StdoutError(OSError):
    """stdout cannot be written, and not because its reader has left: the disk is full, or the terminal is gone."""


class _Raw(io.FileIO):
    """The file itself, below every buffer that typer or rich may put upon it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.fileno(), "w", closefd=False)
        self._stream = stream  # which closes the file when it goes

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError as error:
            raise StdoutError(error.errno, error.strerror) from error


def named(stream: TextIO) -> TextIO:
    """Return a stream to the same file whose writes raise `StdoutError`; the stream itself where it is no file."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        raw = _Raw(stream)
    except OSError:  # it writes to memory, or was closed
        return stream
    buffer: Any = io.BufferedWriter(raw) if isinstance(stream.buffer, io.BufferedWriter) else raw  # not with python -u
    return io.TextIOWrapper(
        buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def silence() -> None:
    """Give the interpreter somewhere to flush to when it ends: the file or the pipe takes nothing more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
