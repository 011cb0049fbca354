"""Where a command's text goes: to stdout, to a file, or compressed to a file that ends in .gz."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

STDOUT = Path("-")
_Form = TypeVar("_Form", bound=StrEnum)


def _file(output: Path | None) -> Path | None:
    return None if output == STDOUT else output


Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE|-",
        callback=_file,
        help="Where to write it, gzipped where it ends in .gz; by default, and as -, stdout.",
    ),
]
"""The option of every command that renders something."""


def form_of(output: Path | None, endings: Mapping[str, _Form], default: _Form) -> _Form:
    """Return the format that a file's name asks for; the default for stdout and for a name without an ending.

    Raises:
        UsageError: the name ends in something else.
    """
    from pipeline_bench.errors import UsageError

    ending = Path(output.name.removesuffix(".gz")).suffix if output is not None else ""
    if not ending:
        return default
    if ending.lower() not in endings:
        allowed = ", ".join(endings)
        raise UsageError(
            f"--output {output}: what to write is not told by {ending}.",
            f"Let the name end in one of {allowed}, or say what it is with --format.",
        )
    return endings[ending.lower()]


def write(text: str, output: Path | None) -> None:
    """Write to the file, or to stdout where there is none.

    Raises:
        UsageError: the file cannot be written.
    """
    import gzip

    from pipeline_bench.errors import UsageError

    if output is None:
        typer.echo(text, nl=False)
        return
    content = text.encode("utf-8", errors="replace")
    if output.suffix == ".gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)  # no time: the same session, the same file
    try:
        output.write_bytes(content)
    except OSError as error:
        raise UsageError(f"--output {output} cannot be written: {error.strerror}.", "Choose another file.") from None
