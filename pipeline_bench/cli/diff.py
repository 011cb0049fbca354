"""``pipeline-bench diff``: hold two sessions against each other, and fail where one is worse than it may be."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_bench.cli.completion import session_words
from pipeline_bench.cli.output import Output, form_of, write

if TYPE_CHECKING:
    from pipeline_bench.model.difference import Difference

GATE_FAILED = 1


class DiffFormat(StrEnum):
    """What a difference can be rendered as."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"


_ENDINGS = {".md": DiffFormat.MARKDOWN, ".json": DiffFormat.JSON, ".txt": DiffFormat.TERMINAL}


def diff(
    before: Annotated[
        Path,
        typer.Argument(
            help="The session to compare with: a session.json, its folder, or last~1.", autocompletion=session_words
        ),
    ],
    after: Annotated[
        Path,
        typer.Argument(
            help="The session that is judged: a session.json, its folder, or last.", autocompletion=session_words
        ),
    ],
    fail_if_slower: Annotated[
        str | None,
        typer.Option(metavar="5%", help="Exit 1 where a variant's step time grew by more, and not by noise."),
    ] = None,
    fail_if_au_below: Annotated[
        str | None, typer.Option(metavar="0.9", help="Exit 1 where a variant of AFTER has a lower AU for certain.")
    ] = None,
    fail_if_undecided: Annotated[
        bool, typer.Option("--fail-if-undecided", help="Exit 1 also where the trials are too few to decide a gate.")
    ] = False,
    form: Annotated[
        DiffFormat | None,
        typer.Option(
            "--format", "-f", help="What to render it as; by default what FILE's name ends in, else terminal."
        ),
    ] = None,
    output: Output = None,
) -> None:
    """Say what changed between two sessions. Exit 0: no gate failed, 1: one did, 2: they cannot be compared."""
    from pipeline_bench.analysis.difference import between
    from pipeline_bench.analysis.gates import Limits
    from pipeline_bench.analysis.precision import share
    from pipeline_bench.model.kept import find
    from pipeline_bench.model.session import load

    chosen = form or form_of(output, _ENDINGS, DiffFormat.TERMINAL)
    # The largest slowdown that can be asked about is arbitrary; ten times as slow is no gate but a wish.
    slower = None if fail_if_slower is None else share(fail_if_slower, "--fail-if-slower", highest=10.0)
    au_below = (
        None if fail_if_au_below is None else share(fail_if_au_below, "--fail-if-au-below", examples=("90%", "0.9"))
    )
    difference = between(
        load(before),
        load(after),
        Limits(slower, au_below),
        strict=fail_if_undecided,
        paths=(str(find(before)), str(find(after))),
    )
    write(_render(difference, chosen, output), output)
    if difference.outcome == "failed":
        raise typer.Exit(GATE_FAILED)


def _render(difference: Difference, form: DiffFormat, output: Path | None) -> str:
    match form:
        case DiffFormat.MARKDOWN:
            from pipeline_bench.report import diff_markdown

            return diff_markdown.render(difference)
        case DiffFormat.JSON:
            return difference.to_json()
    from rich.console import Console

    from pipeline_bench.report import diff_terminal

    console = Console(highlight=False, no_color=output is not None or None)
    with console.capture() as capture:
        console.print(diff_terminal.render(difference, console.width))
    return capture.get()
