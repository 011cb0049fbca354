"""The options that several commands have, what the shell completes for them, and their checks."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline_bench.errors import PipelineBenchError

STDOUT = "-"
_MOST_S = 1e7
"""What a scenario's times are at most, `scenario.PositiveSeconds`."""
INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended: what a shell gives for SIGINT."""
UNREAD = 128 + signal.SIGPIPE
"""What a shell says of a program that SIGPIPE ended: its lines have no reader any more."""


@dataclass(frozen=True)
class Presentation:
    """How a command that measures shows its session, and where it writes it."""

    live: bool
    """Whether a screen is wanted in place of lines."""
    details: bool
    """Whether more than one screen is to be shown."""
    open_page: bool
    """Whether the page is to be shown in the browser at the end."""
    json_to: str | None
    """Where the session goes besides its folder: a file, `STDOUT`, or nowhere."""


def scenario_names(incomplete: str) -> list[str]:
    """Return the shipped scenarios that begin so; a path is the shell's to complete."""
    from pipeline_bench.scenario.files import shipped

    return [name for name in shipped() if name.startswith(incomplete)]


def lesson_names(incomplete: str) -> list[str]:
    """Return the lessons that begin so."""
    from pipeline_bench.lessons.reading import lessons

    return [each.name for each in lessons() if each.name.startswith(incomplete)]


def session_words(incomplete: str) -> list[str]:
    """Return ``last``, ``last~1`` …, as many as there are, and the folders of the sessions here."""
    from pipeline_bench.model.session import kept_sessions

    found = kept_sessions()
    ended = sum(not each.measuring for each in found)
    words = ["last" if number == 0 else f"last~{number}" for number in range(ended)]
    return [word for word in (*words, *(str(each.folder) for each in found)) if word.startswith(incomplete)]


def backend_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the list so far with each backend of the scenario behind it that is not in it yet."""
    before, comma, begun = incomplete.rpartition(",")
    names = dict.fromkeys(variant.backend for variant in _variants(context) if variant.backend != "ceiling")
    return [before + comma + name for name in names if name.startswith(begun) and name not in before.split(",")]


def setting_keys(context: typer.Context, incomplete: str) -> list[str]:
    """Return ``variants.NAME.`` for each variant of the scenario, and the names of its other tables."""
    from pipeline_bench.scenario.check import quoted

    keys = [
        *(f"{table}." for table in ("source", "model", "loop", "runtime", "run")),
        *(f"variants.{quoted(each.name)}." for each in _variants(context)),
    ]
    return [key for key in keys if key.startswith(incomplete)]


def _variants(context: typer.Context) -> tuple[Any, ...]:
    """Return the variants of the scenario on the command line; none where it is no scenario."""
    from pipeline_bench.scenario.files import DEFAULT_SCENARIO
    from pipeline_bench.scenario.load import load

    try:
        # Behind an option that still lacks its value the arguments are not taken for the command's own.
        given = context.args[0] if context.args else context.params.get("scenario")
        return load(given or DEFAULT_SCENARIO).variants
    except PipelineBenchError:
        return ()


def _positive(value: float | None) -> float | None:
    """Check an option that is a number of seconds.

    Raises:
        typer.BadParameter: it is none.
    """
    if value is not None and not 0 < value <= _MOST_S:
        raise typer.BadParameter(f"{value:g} is no number of seconds above 0 and up to {_MOST_S:,.0f}.")
    return value


def seconds(meaning: str) -> Any:
    """Return an option that takes a positive number of seconds."""
    return typer.Option(metavar="SECONDS", callback=_positive, help=meaning)


def show_help(context: typer.Context) -> None:
    """Show the help of a group of commands that was called without one of them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _file(output: Path | None) -> Path | None:
    return None if output == Path(STDOUT) else output


SavedSession = Annotated[
    Path,
    typer.Argument(
        help="A session.json, the folder that holds it, or last, last~1 … of `pipeline-bench sessions`.",
        autocompletion=session_words,
    ),
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder in which the session's folder is made.")]
JsonTo = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE|-",
        help="Also write the session to FILE; - writes it to stdout, and the report to stderr.",
    ),
]
NoLive = Annotated[bool, typer.Option("--no-live", help="Plain lines instead of the live screen.")]
ExposeServers = Annotated[
    bool,
    typer.Option(
        "--expose-servers",
        help="Run trials that need TensorFlow's servers (between_graph, tf.data service) in the machine's own network. "
        "Other machines can then reach the servers without a password. By default such a trial has its own network.",
    ),
]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page, report.html, in the browser at the end.")]
Details = Annotated[
    bool,
    typer.Option("--details", help="Show all of the report, instead of what fits the terminal. Files always have all."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE|-",
        callback=_file,
        help="The file to write, gzipped if its name ends in .gz. Default, and with -: stdout.",
    ),
]
FORMAT = typer.Option("--format", "-f", help="The format; by default from the end of FILE's name, else terminal.")
