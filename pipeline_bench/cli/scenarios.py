"""``pipeline-bench scenarios``: list the shipped ones, or check one and print it as resolved."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]", show_default=False, help="A shipped scenario's name or a path to a TOML file."
        ),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of a scenario file, for editors.")
    ] = False,
) -> None:
    """List the scenarios; or check one whole and print it as resolved, every default filled in."""
    if schema:
        from pipeline_bench.scenario.schema import json_schema

        typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    elif name is not None:
        from pipeline_bench.scenario.file import load
        from pipeline_bench.scenario.toml import to_toml

        typer.echo(to_toml(load(name)), nl=False)
    else:
        _list()


def _list() -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from pipeline_bench.scenario.file import load
    from pipeline_bench.scenario.shipped import shipped

    table = Table("scenario", "question", "variants", box=None, pad_edge=False, padding=(0, 2, 1, 0))
    table.columns[0].no_wrap = True
    for name in shipped():
        scenario = load(name)
        # Text, not str: a bracket in a name is no markup.
        table.add_row(
            Text(name), Text(scenario.question), Text("\n".join(variant.name for variant in scenario.variants))
        )
    console = Console()
    console.print(table)
    console.print("Run one with: pipeline-bench compare SCENARIO", highlight=False)
