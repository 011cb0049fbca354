"""Where a command's text goes: to stdout, to a file, or compressed to a file that ends in .gz."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Where to write it, gzipped where it ends in .gz; or stdout."),
]
"""The option of every command that renders something."""


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
