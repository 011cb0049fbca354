"""``pipeline-bench scenarios``: list the shipped ones, or check one and print it as resolved."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Annotated

import typer

from pipeline_bench.cli.completion import scenario_names

_MINUTES_FROM_S = 120.0


def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]",
            show_default=False,
            help="A shipped scenario's name or a path to a TOML file.",
            autocompletion=scenario_names,
        ),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of a scenario file, for editors.")
    ] = False,
) -> None:
    """List the scenarios; or check one whole and print it as resolved, every default filled in."""
    if schema:
        from pipeline_bench.scenario.files import json_schema

        typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    elif name is not None:
        from pipeline_bench.scenario.files import to_toml
        from pipeline_bench.scenario.load import load

        typer.echo(to_toml(load(name)), nl=False)
    else:
        _list()


def _list() -> None:
    """A line for each: cut to a terminal's width, whole for a script."""
    from pipeline_bench.scenario.files import shipped
    from pipeline_bench.scenario.load import load

    found = [load(name) for name in shipped()]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    longest = max(len(each.name) for each in found)
    for each in found:
        line = f"{each.name:{longest}}  {_about(each.usual_duration_s):>7}  {each.question}"
        typer.echo(line if room is None or len(line) <= room else f"{line[: room - 1]}…")
    typer.echo("\nRun one: pipeline-bench compare NAME. The durations are of two idle cores.")
    typer.echo("All of one, with its variants: pipeline-bench scenarios NAME.")


def _about(duration_s: float | None) -> str:
    if duration_s is None:
        return "–"
    return f"{duration_s:.0f} s" if duration_s < _MINUTES_FROM_S else f"{duration_s / 60:.0f} min"
