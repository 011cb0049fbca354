"""``pipeline-bench report``: render a saved session again, in another form."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """What a session can be rendered as."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


def report(
    session: Annotated[Path, typer.Argument(help="A session.json, or the folder that holds it.")],
    form: Annotated[Format, typer.Option("--format", "-f", help="What to render it as.")] = Format.TERMINAL,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; stdout by default.")
    ] = None,
) -> None:
    """Render a saved session again: the table of the terminal, Markdown for a pull request, CSV, or its JSON."""
    from pipeline_bench.errors import UsageError

    text = _render(session, form, output)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output} cannot be written: {error.strerror}.", "Choose another file.") from None


def _render(path: Path, form: Format, output: Path | None) -> str:
    from pipeline_bench.report import csv, markdown
    from pipeline_bench.session import load

    session = load(path)
    match form:
        case Format.MARKDOWN:
            return markdown.render(session)
        case Format.CSV:
            return csv.render(session)
        case Format.JSON:
            return session.to_json()
    from rich.console import Console

    from pipeline_bench.report import terminal

    console = Console(highlight=False, no_color=output is not None or None)
    with console.capture() as capture:
        console.print(terminal.render(session, path if path.is_dir() else path.parent, console.width))
    return capture.get()
