"""``pipeline-bench sessions``: what was measured, the newest first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline_bench.model.kept import Kept

_SHOWN = 20


def sessions(
    folder: Annotated[Path, typer.Argument(help="Where the sessions were kept: what --out named.")] = Path("reports"),
    every: Annotated[bool, typer.Option("--all", help=f"All of them, not only the newest {_SHOWN}.")] = False,
) -> None:
    """List what was measured, newest first; `last`, `last~1` … name these sessions to report and diff."""
    from rich.console import Console

    from pipeline_bench.model import kept
    from pipeline_bench.text import safe
    from pipeline_bench.text.units import count

    found = kept.sessions(folder)
    console = Console(highlight=False)
    if not found:
        console.print(f"No session is kept in {safe(str(folder))}.", markup=False)
        return
    shown = found if every else found[:_SHOWN]
    console.print(_table(shown, words=folder == kept.REPORTS))
    if left := len(found) - len(shown):
        console.print(f"{count(left, 'older session')} not shown: --all shows every one.")


def _table(shown: list[Kept], words: bool) -> Table:
    """A block of lines for each session, beside the word that names it where it is one of those that words name."""
    from rich.table import Table
    from rich.text import Text

    from pipeline_bench.text import safe

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for number, each in enumerate(shown):
        command, scenario, said = _told(each)
        word = ("last" if number == 0 else f"last~{number}") if words else ""
        head = Text.assemble((f"{each.began:%Y-%m-%d %H:%M}  ", "dim"), (scenario, "bold"), (f"  {command}", "dim"))
        table.add_row(Text(word), Text("\n").join([head, Text(said), Text(safe(str(each.folder)), "dim")]))
    return table


def _told(each: Kept) -> tuple[str, str, str]:
    """The session's command, its scenario, and what it comes to; of a damaged one what is wrong with it."""
    from pipeline_bench.analysis.speedups import conclude
    from pipeline_bench.errors import SessionError
    from pipeline_bench.model.session import load
    from pipeline_bench.report import diagnosis_words

    try:
        session = load(each.folder)
    except SessionError as error:
        return "", "", error.message
    found = session.diagnosis
    said = conclude(session) if found is None else diagnosis_words.headline(session, found)
    return session.command, session.scenario.name, said
