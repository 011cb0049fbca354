"""Several hosts: ``compare`` and ``run`` as one of the ranks, and ``pipeline-bench merge``."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_bench.cli.options import Details, JsonTo

if TYPE_CHECKING:
    from pipeline_bench.hosts.ranks import Rank
    from pipeline_bench.scenario import Scenario


def folder_of(rank: Rank, out: Path) -> Path:
    """Make the folder of a rank in ``--out``.

    Raises:
        UsageError: it holds something, or cannot be made.
    """
    from pipeline_bench.errors import UsageError

    folder = out / rank.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"--out {out}: {folder} cannot be made: {error.strerror}.", "Choose another --out.") from None
    if held:
        raise UsageError(f"--out {out}: {folder} is not empty.", "Give each run of the ranks an --out of its own.")
    return folder


def refuse_goal(precision: str | None, budget_s: float | None) -> None:
    """Refuse what each rank would end on by itself.

    Raises:
        UsageError: it was given.
    """
    from pipeline_bench.errors import UsageError

    if precision is not None or budget_s is not None:
        raise UsageError(
            "--precision and --budget were given to one of several ranks, which all have to run the same trials.",
            "Give --repeats instead.",
        )


def compare_as_rank(rank: Rank, scenario: Scenario, out: Path, *, expose_servers: bool) -> int:
    """Run one rank's part, and return its exit code; its session lies in a folder of its own in ``--out``."""
    from pipeline_bench.cli.running import interruptible
    from pipeline_bench.hosts import formations
    from pipeline_bench.hosts.together import Meeting
    from pipeline_bench.run.comparison import compare
    from pipeline_bench.run.observer import Observer
    from pipeline_bench.ui.plain import PlainView

    folder = folder_of(rank, out)

    def tell(line: str) -> None:
        typer.echo(f"pipeline-bench, rank {rank.number} of {rank.size}: {line}", err=True)

    slots = formations.slots(scenario, rank.size)
    with interruptible(), closing(Meeting(out, rank, slots, tell)) as meeting:
        outcome = compare(
            formations.of_rank(scenario, rank.size, rank.number),
            folder,
            PlainView(sys.stderr, folder) if rank.number == 0 else Observer(),
            expose_servers=expose_servers,
            host=rank.host(meeting.clock_offset_s),
            gate=meeting,
        )
    tell(f"session in {folder}; when all ranks have ended: pipeline-bench merge {out}")
    return 130 if outcome.interrupted else 0 if outcome.all_ok else 1


def merge(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What --out named: it holds rank-000 and the others.")],
    json_to: JsonTo = None,
    details: Details = False,
) -> None:
    """Make one session of those that the ranks under srun or mpirun left in DIR, and show it; it is kept in DIR."""
    from rich.console import Console

    from pipeline_bench.cli.options import STDOUT, Presentation
    from pipeline_bench.cli.running import check_export, deliver
    from pipeline_bench.hosts import merge as merging
    from pipeline_bench.model.session import save
    from pipeline_bench.run.comparison import Outcome

    check_export(json_to)
    session = merging.merge(merging.read(folder))
    save(session, folder)
    console = Console(stderr=json_to == STDOUT, highlight=False)
    shown = Presentation(live=False, details=details, open_page=False, json_to=json_to)
    _, problems = deliver(Outcome(session, folder, interrupted=False), console, shown)
    if problems or (session.hosts is not None and session.hosts.missing):
        raise typer.Exit(1)
