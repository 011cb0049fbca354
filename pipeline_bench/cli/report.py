"""``pipeline-bench report``: render a saved session again, in another form."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline_bench.cli.completion import session_words
from pipeline_bench.cli.output import Output, form_of, write
from pipeline_bench.cli.running import Details


class Format(StrEnum):
    """What a session can be rendered as."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    HTML = "html"
    CSV = "csv"
    JSON = "json"
    TRACE = "trace"


_ENDINGS = {
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".md": Format.MARKDOWN,
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".txt": Format.TERMINAL,
}


def report(
    session: Annotated[
        Path,
        typer.Argument(
            help="A session.json, the folder that holds it, or last, last~1 … of `pipeline-bench sessions`.",
            autocompletion=session_words,
        ),
    ],
    form: Annotated[
        Format | None,
        typer.Option(
            "--format", "-f", help="What to render it as; by default what FILE's name ends in, else terminal."
        ),
    ] = None,
    output: Output = None,
    details: Details = False,
) -> None:
    """Render a saved session again: the terminal's table, HTML, Markdown, CSV, its JSON, or a trace for Perfetto."""
    from pipeline_bench.errors import UsageError

    chosen = form or form_of(output, _ENDINGS, Format.TERMINAL)
    if chosen is Format.HTML and output is None and sys.stdout.isatty():
        raise UsageError("-f html: a page of 2 MB is not for a terminal.", "Give it a file: -o report.html.")
    write(_render(session, chosen, output, details or output is not None), output)


def _render(path: Path, form: Format, output: Path | None, details: bool) -> str:
    from pipeline_bench.model.session import load
    from pipeline_bench.report import csv, markdown, trace

    session = load(path)
    match form:
        case Format.MARKDOWN:
            return markdown.render(session)
        case Format.HTML:
            from pipeline_bench.report import html  # its template engine is slower to import than the others together

            return html.render(session)
        case Format.CSV:
            return csv.render(session)
        case Format.JSON:
            return session.to_json()
        case Format.TRACE:
            return trace.render(session)
    from rich.console import Console

    from pipeline_bench.report import screen, terminal

    console = Console(highlight=False, no_color=output is not None or None)
    with console.capture() as capture:
        whole = terminal.render(session, None, console.width) if details else None
        console.print(whole or screen.render(session, console.width))
    return capture.get()
