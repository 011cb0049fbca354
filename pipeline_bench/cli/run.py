"""``pipeline-bench run``: any command as it is, its trainings watched from within."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="The command with its arguments: -- python train.py.")
    ],
    out: Annotated[Path, typer.Option(help="Where each training's session gets a folder of its own.")] = Path(
        "reports"
    ),
) -> None:
    """Run a command unedited; say at its end how long its trainings waited for their input. Its exit code is kept."""
    from pipeline_bench.injection import command as commands
    from pipeline_bench.text import safe

    try:
        ended = commands.run(command, out)
    except OSError as error:
        typer.echo(f"Error: {safe(command[0])} cannot be started: {error.strerror}.", err=True)
        missing = isinstance(error, FileNotFoundError)
        raise typer.Exit(commands.NOT_FOUND if missing else commands.NOT_EXECUTABLE) from None
    for line in commands.lines(ended, command):
        typer.echo(f"pipeline-bench: {safe(line)}", err=True)
    raise typer.Exit(ended.code)
