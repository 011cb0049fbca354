"""Several hosts: ``compare`` and ``run`` as one of the ranks, and ``pipeline-bench merge``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_bench.cli.options import INTERRUPTED, Details, JsonTo

if TYPE_CHECKING:
    from pipeline_bench.cli.options import Presentation
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
            "--precision and --budget were given to several hosts, which all have to run the same trials.",
            "Give --repeats instead.",
        )


def compare_as_rank(rank: Rank, scenario: Scenario, out: Path, *, expose_servers: bool) -> int:
    """Run one rank's part, and return its exit code; its session lies in a folder of its own in ``--out``."""
    from pipeline_bench.cli.running import interruptible
    from pipeline_bench.hosts import ranks
    from pipeline_bench.hosts.together import Meeting, gone_s
    from pipeline_bench.run.comparison import compare
    from pipeline_bench.run.observer import Observer
    from pipeline_bench.ui.plain import PlainView

    folder = folder_of(rank, out)

    def tell(line: str) -> None:
        typer.echo(f"pipeline-bench, rank {rank.number} of {rank.size}: {line}", err=True)

    slots = ranks.slots(scenario, rank.size)
    on_ray = rank.launcher == "ray"  # its session is fetched from there
    with interruptible(), closing(Meeting(out, rank, slots, tell, gone_s(scenario))) as meeting:
        outcome = compare(
            ranks.of_rank(scenario, rank.size, rank.number),
            folder,
            PlainView(sys.stderr, None if on_ray else folder) if rank.number == 0 else Observer(),
            expose_servers=expose_servers,
            host=rank.host(meeting.clock_offset_s),
            gate=meeting,
        )
    if not on_ray:
        tell(f"session in {folder}; when all ranks have ended: pipeline-bench merge {out}")
    return 130 if outcome.interrupted else 0 if outcome.all_ok else 1


def compare_on_ray(
    scenario: Scenario, hosts: int | None, where: str | None, out: Path, shown: Presentation, *, expose_servers: bool
) -> int:
    """Run a scenario on several nodes of Ray's, show their one session, and return the exit code.

    Raises:
        UsageError: the options do not fit, or Ray is not there.
    """
    from pipeline_bench.cli.running import check_export, interruptible
    from pipeline_bench.errors import UsageError
    from pipeline_bench.hosts import on_ray
    from pipeline_bench.model.session_folders import make_folder

    if hosts is None or where is None or not (where == "ray" or where.startswith("ray://")):
        raise UsageError(
            f"--hosts {hosts or 'was left out'}, --on {where or 'was left out'}.",
            "Give both: --hosts 4 --on ray://HOST:PORT",
        )
    check_export(shown.json_to)
    folder = make_folder(out, scenario.name)
    ended, code = on_ray.Ended({}, {}), 0
    with interruptible():
        try:
            address = None if where == "ray" else where
            ended = on_ray.run(scenario, hosts, address, folder, _tell, expose_servers=expose_servers)
        except KeyboardInterrupt:
            code = INTERRUPTED
        finally:
            if not any(folder.iterdir()):
                folder.rmdir()
    if not folder.exists():
        _tell("nothing was measured")
        return code or 1
    return max(code, _merge(folder, shown, ended.lost, ended.ahead_s))


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def merge(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder given with --out: it holds rank-000 and the others.")
    ],
    json_to: JsonTo = None,
    details: Details = False,
) -> None:
    """Merge the sessions that ranks under srun or mpirun left in DIR into one; save it in DIR and show it."""
    from pipeline_bench.cli.options import Presentation
    from pipeline_bench.cli.running import check_export

    check_export(json_to)
    code = _merge(folder, Presentation(live=False, details=details, open_page=False, json_to=json_to))
    if code:
        raise typer.Exit(code)


def _merge(
    folder: Path, shown: Presentation, lost: Mapping[int, str] | None = None, ahead_s: Mapping[int, float] | None = None
) -> int:
    """Make one session of those in a folder, save and show it; return the exit code.

    Args:
        folder: of the run.
        shown: how.
        lost: by rank why it did not end by itself, where that was seen.
        ahead_s: by rank how far its clock is ahead, where one machine asked them all.
    """
    from rich.console import Console

    from pipeline_bench.cli.options import STDOUT
    from pipeline_bench.cli.running import deliver
    from pipeline_bench.hosts import merge as merging
    from pipeline_bench.model.session import save
    from pipeline_bench.run.comparison import Outcome

    session = merging.merge(merging.read(folder), lost or {}, ahead_s or {})
    save(session, folder)
    console = Console(stderr=shown.json_to == STDOUT, highlight=False)
    _, problems = deliver(Outcome(session, folder, interrupted=False), console, shown)
    return 1 if problems or lost or (session.hosts is not None and session.hosts.missing) else 0
