"""Where a command's text goes: to stdout, whose failures are kept apart from those of other files, or to a file."""

from __future__ import annotations

import gzip
import io
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar

import typer

from pipeline_bench.errors import UsageError
from pipeline_bench.system.files import write_atomically
from pipeline_bench.text import safe

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from pipeline_bench.model.diagnosis import CodeChange


class Format(StrEnum):
    """A format of a command's output: its name, and the endings of a file's name that ask for it."""

    endings: tuple[str, ...]

    def __new__(cls, name: str, *endings: str) -> Self:
        """Make a member of the name that is typed and stored; its endings are kept beside it."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.endings = endings
        return member


_Form = TypeVar("_Form", bound=Format)
PATCH = "fix.patch"
"""Beside a saved session if a fix has a diff."""


def wrapped(line: str, stream: TextIO) -> str:
    """Return a line for a file as it is; for a terminal that is too narrow for it, broken between words."""
    if not stream.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return textwrap.fill(line, columns, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


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


class _RawStderr(_Raw):
    """As of stderr: what it does not take is lost, because nobody reads it any more, and the work goes on."""

    def write(self, data: Any) -> int:
        written: int | None = None  # a full pipe that does not block takes nothing, and that is no error
        with suppress(OSError):
            written = io.FileIO.write(self, data)
        return memoryview(data).nbytes if written is None else written


def named(stream: TextIO) -> TextIO:
    """Return a stream to the same file whose writes raise `StdoutError`; the stream itself where it is no file."""
    return _onto(stream, _Raw)


def lenient(stream: TextIO) -> TextIO:
    """Return a stream to the same file whose writes never fail; the stream itself where it is no file."""
    return _onto(stream, _RawStderr)


def _onto(stream: TextIO, kind: type[_Raw]) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        raw = kind(stream)
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


def form_of(output: Path | None, forms: type[_Form]) -> _Form:
    """Return the format that a file's name asks for; the terminal's for stdout and for a name without an ending.

    Raises:
        UsageError: the name ends in something else.
    """
    endings = {ending: form for form in forms for ending in form.endings}
    ending = Path(output.name.removesuffix(".gz")).suffix if output is not None else ""
    if not ending:
        return forms("terminal")
    if ending.lower() not in endings:
        raise UsageError(
            f"--output {output}: the ending {ending} names no format.",
            f"Let the name end in one of {', '.join(endings)}, or give --format.",
        )
    return endings[ending.lower()]


def write(text: str, output: Path | None, option: str = "--output") -> None:
    """Write to the file, which the option names, whole or not at all, or to stdout where there is none.

    Raises:
        UsageError: the file cannot be written.
    """
    if output is None:
        typer.echo(text, nl=False)
        return
    content = text.encode("utf-8", errors="replace")
    if output.suffix == ".gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)  # no time: the same session, the same file
    try:
        write_atomically(output, content)
    except OSError as error:
        raise UsageError(f"{option} {output} cannot be written: {error.strerror}.", "Choose another file.") from None


def as_text(render: Callable[[int], RenderableType], output: Path | None) -> str:
    """Return what `render` makes for the terminal's width, as the text for `write`: in a file characters alone."""
    from rich.console import Console

    console = Console(highlight=False)
    if output is not None:
        plain, width = io.StringIO(), console.width
        console = Console(file=plain, width=width, force_terminal=False, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(render(console.width))
    return capture.get()


def terminal_lines(output: Path | None = None) -> int:
    """Return how many lines the terminal has; of a file, of a pipe, and where it is not known, those of most."""
    return shutil.get_terminal_size().lines if output is None else 24


def where_to_find(
    folder: Path, code: CodeChange | None, written: Collection[str], *, saved: bool = True
) -> Iterator[Text]:
    """Yield where the page is, and the command that applies the patch from where the user stands.

    Args:
        folder: of the session.
        code: the code to write that the report shows, see `report.diagnosis.code`.
        written: the names of the files beside it.
        saved: whether the session is there itself.
    """
    from rich.text import Text

    from pipeline_bench.model.session import PAGE

    if PAGE in written:
        yield Text.assemble("Page: ", ((folder / PAGE).absolute().as_uri(), "bold"))
    elif saved:
        yield Text.assemble("Session saved in ", (safe(str(folder)), "bold"))
    if PATCH in written and code is not None and code.root is not None:
        here, patch = Path(code.root) == Path.cwd(), folder / PATCH
        command = ["git", "apply", str(patch)] if here else ["git", "-C", code.root, "apply", str(patch.absolute())]
        yield Text.assemble("Patch: ", (safe(shlex.join(command)), "bold"))
