"""Several hosts: ``compare`` and ``run`` as one of the ranks, ``pipeline-bench merge`` and ``pipeline-bench plan``."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import pipeline_bench
from pipeline_bench.cli.options import INTERRUPTED, STDOUT, Details, JsonTo, Presentation, SavedSession
from pipeline_bench.cli.output import write
from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.system.files import matching
from pipeline_bench.text import NAME, REASON, one_line, units

if TYPE_CHECKING:
    from pipeline_bench.hosts.ranks import Rank
    from pipeline_bench.model.trial import TrialRecord
    from pipeline_bench.run.outcome import Outcome
    from pipeline_bench.scenario import Scenario


_BATCH_SHELL = "this looks like the shell of sbatch, which is rank 0 without others"


def folder_of(rank: Rank, out: Path) -> Path:
    """Make the folder of a rank in ``--out``.

    Raises:
        UsageError: it is there already, or cannot be made.
    """
    folder = out / rank.folder
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(
            f"--out {out}: {folder} is there already, of another run, or of another process with the same rank.",
            "Give each run of the ranks an --out of its own, and each process a rank of its own.",
        ) from None
    except OSError as error:
        raise UsageError(f"--out {out}: {folder} cannot be made: {error.strerror}.", "Choose another --out.") from None
    return folder


def folder_of_trainings(environment: Mapping[str, str], out: Path) -> Path:
    """Return the folder for the sessions of a command, which is started whatever is there.

    That of a rank is a new one: where one of an earlier run is there, or Slurm has restarted the job, those of all
    ranks are in ``again-1`` of ``--out``, and so on. Also a rank that saves nothing makes one, so that all agree.
    """
    from pipeline_bench.hosts import ranks

    rank = ranks.of_training(environment)
    if rank is None:
        shell = ranks.find_rank(environment)
        if shell is not None and ranks.is_batch_shell(shell, environment):
            _say(f"{_BATCH_SHELL}: it is measured as the only one; start every rank with srun to measure them all")
        return out
    first = ranks.restarts(environment)
    for number in itertools.count(first):
        folder = (out / f"again-{number}" if number else out) / rank.folder
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.is_dir():
                continue
        except OSError:
            pass
        break  # where none can be made, what saves a session there says why
    if number:
        of_another = f"{out} has a folder of another run, or process, of this rank"
        why = "the job was restarted" if number == first else of_another
        _say(
            f"rank {rank.number}: {why}: its sessions go to {folder}; at the end: pipeline-bench merge {folder.parent}"
        )
    return folder


def _say(line: str) -> None:
    with suppress(OSError):  # nobody reads it
        typer.echo(f"pipeline-bench: {line}", err=True)


def refuse_contradiction(environment: Mapping[str, str]) -> None:
    """Refuse to measure alone beside others that do so as well, each as if it was the only one.

    Raises:
        UsageError: the variables of what started this process contradict each other.
    """
    from pipeline_bench.hosts.ranks import contradiction, find_rank

    if find_rank(environment) is None and (found := contradiction(environment)) is not None:
        raise UsageError(
            f"{found}: there is no such rank.",
            "Start every rank with srun or mpirun, or unset these variables to measure this host alone.",
        )


def refuse_goal(precision: str | None, budget_s: float | None) -> None:
    """Refuse what each rank would end on by itself.

    Raises:
        UsageError: it was given.
    """
    if precision is not None or budget_s is not None:
        raise UsageError(
            "--precision and --budget were given to several hosts, which all have to run the same trials.",
            "Give --repeats instead.",
        )


def refuse_shown(shown: Presentation, out: Path) -> None:
    """Refuse what one rank cannot show, since the session is that of all.

    Raises:
        UsageError: it was given.
    """
    wanted = {"--json": shown.json_to is not None, "--details": shown.details, "--open": shown.open_page}
    if given := [option for option, is_given in wanted.items() if is_given]:
        raise UsageError(
            f"{' and '.join(given)} cannot be given to a rank: the session is that of all of them.",
            f"Give --json or --details to what makes it when all ranks have ended: pipeline-bench merge {out}",
        )


def compare_as_rank(rank: Rank, scenario: Scenario, out: Path, *, expose_servers: bool) -> int:
    """Run one rank's part, and return its exit code; its session lies in a folder of its own in ``--out``."""
    from pipeline_bench.analysis.copies import with_host_ceilings_asked_for
    from pipeline_bench.cli.running import interruptible
    from pipeline_bench.environment import tensorflow_version
    from pipeline_bench.hosts import ranks
    from pipeline_bench.hosts.rendezvous import Meeting, gone_s
    from pipeline_bench.model.session import SESSION_FILE
    from pipeline_bench.run.comparison import compare, without_unavailable
    from pipeline_bench.run.observer import Observer
    from pipeline_bench.ui.plain import PlainView

    # Before the common plan is made: a trial is known to the other ranks by its place there.
    scenario = with_host_ceilings_asked_for(without_unavailable(scenario, expose_servers=expose_servers))
    folder = folder_of(rank, out)

    def notify(line: str) -> None:
        typer.echo(f"pipeline-bench, rank {rank.number} of {rank.size}: {line}", err=True)

    if ranks.is_batch_shell(rank, os.environ):
        notify(f"{_BATCH_SHELL}; start every rank with srun, or unset SLURM_PROCID to measure this host alone")
    slots = ranks.slots(scenario, rank.size)
    on_ray = rank.launcher == "ray"  # its session is fetched from there
    fingerprint = ranks.fingerprint(scenario, rank.size, (pipeline_bench.__version__, tensorflow_version()))
    try:
        meeting = Meeting(out, rank, slots, notify, gone_s(scenario), fingerprint=fingerprint)
    except UsageError:
        with suppress(OSError):
            folder.rmdir()  # else it was in the way of the next run
        raise
    if (problem := clock_problem(meeting.clock_offset_s)) is not None:
        notify(problem)
    with interruptible(), closing(meeting):
        outcome = compare(
            ranks.of_rank(scenario, rank.size, rank.number),
            folder,
            PlainView(sys.stderr, None if on_ray else folder) if rank.number == 0 else Observer(),
            expose_servers=expose_servers,
            host=rank.host(meeting.clock_offset_s),
            gate=meeting,
        )
        outcome = _keep(outcome, to_stdout=not on_ray)
    if rank.number > 0 and (problem := first_problem(outcome.session.trials)) is not None:  # rank 0 shows each trial
        notify(problem)
    if outcome.unsaved is not None:
        why = f"the session is on stdout; to merge it, save it as {folder / SESSION_FILE}"
        notify(outcome.unsaved if on_ray else why)
    elif not on_ray:
        notify(f"session in {folder}; when all ranks have ended: pipeline-bench merge {out}")
    return INTERRUPTED if outcome.interrupted else 0 if outcome.all_ok else 1


def _keep(outcome: Outcome, *, to_stdout: bool) -> Outcome:
    """Save a session that could not be once more, or write it to stdout; return the outcome as it then is."""
    from pipeline_bench.cli.running import give, save_again
    from pipeline_bench.system import interrupts

    with interrupts.deferred():
        outcome = save_again(outcome)
        if outcome.unsaved is not None and to_stdout:  # nobody is asked: several ranks may have one terminal
            give(outcome)
    return outcome


def clock_problem(ahead_s: float) -> str | None:
    """Return why `merge` may refuse a rank whose clock is so far ahead of the shared folder's; None: it may not."""
    from pipeline_bench.hosts.comparable import MOST_CLOCKS_APART_S

    if abs(ahead_s) <= MOST_CLOCKS_APART_S:
        return None
    off = f"{units.seconds(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'} that of the shared folder"
    return f"the clock here is {off}: merge refuses ranks whose clocks differ by as much; have them set by NTP"


def first_problem(trials: Sequence[TrialRecord]) -> str | None:
    """Return how many trials did not end well, and why the first did not; None where all did."""
    unwell = [trial for trial in trials if trial.status != "ok"]
    if not unwell:
        return None
    why = one_line(unwell[0].reason or unwell[0].status, REASON)
    return f"{len(unwell)} of {len(trials)} trials did not end well; the first: {why}"


def compare_on_ray(
    scenario: Scenario, hosts: int | None, where: str | None, out: Path, shown: Presentation, *, expose_servers: bool
) -> int:
    """Run a scenario on several nodes of Ray's, show their one session, and return the exit code.

    Raises:
        UsageError: the options do not fit, or Ray is not there.
    """
    from pipeline_bench.cli.running import check_export, interruptible
    from pipeline_bench.hosts import on_ray
    from pipeline_bench.model.session import make_folder

    if hosts is None or where is None or not (where == "ray" or where.startswith("ray://")):
        given = " ".join([*([f"--hosts {hosts}"] if hosts else []), *([f"--on {where}"] if where else [])])
        raise UsageError(
            f"{given}: a run on several hosts needs --hosts N and --on ray.",
            "Such as --hosts 4 --on ray, or --hosts 4 --on ray://HOST:PORT",
        )
    check_export(shown.json_to)
    folder = make_folder(out, scenario.name)
    code, notify = 0, partial(typer.echo, err=True)
    with interruptible():
        try:
            address = None if where == "ray" else where
            on_ray.run(scenario, hosts, address, folder, notify, expose_servers=expose_servers)
        except KeyboardInterrupt:
            code = INTERRUPTED
        finally:
            if not matching(folder, "rank-*"):
                shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        notify("nothing was measured")
        return code or 1
    return max(code, _merge(folder, shown))


def merge(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder given with --out: it holds rank-000 and the others.")
    ],
    json_to: JsonTo = None,
    details: Details = False,
) -> None:
    """Merge the sessions that ranks under srun or mpirun left in DIR into one; save it in DIR and show it."""
    from pipeline_bench.cli.running import check_export

    check_export(json_to)
    code = _merge(folder, Presentation(live=False, details=details, open_page=False, json_to=json_to))
    if code:
        raise typer.Exit(code)


def _merge(folder: Path, shown: Presentation) -> int:
    """Make one session of those in a folder, or of each training of `run`; save and show it; return the exit code."""
    from pipeline_bench.cli.running import deliver
    from pipeline_bench.hosts import merge as merging
    from pipeline_bench.hosts import rendezvous
    from pipeline_bench.model.session import save
    from pipeline_bench.run.outcome import Outcome
    from pipeline_bench.ui.console import PipedConsole

    found = merging.trainings(merging.read(folder))
    if len(found) > 1 and shown.json_to is not None:
        raise UsageError(
            f"--json takes one session, and the ranks left {len(found)} trainings in {folder}.",
            "Leave --json out: each training's session.json is saved in a folder of its own there.",
        )
    lost = rendezvous.lost(folder)
    console, code = PipedConsole(stderr=shown.json_to == STDOUT, highlight=False), 0
    for number, sessions in enumerate(found, start=1):
        beside = [each for group in found if group is not sessions for each in group]
        session = merging.merge(sessions, lost, beside)
        where = folder if len(found) == 1 else folder / f"training-{number}"
        try:
            where.mkdir(exist_ok=True)
            save(session, where)
        except (OSError, SessionError) as error:
            why = error.message if isinstance(error, SessionError) else f"{where} cannot be made: {error.strerror}."
            raise SessionError(
                why, "Free some space, or merge a copy of the folder; the ranks' sessions are as they were."
            ) from None
        outcome, problems = deliver(Outcome(session, where, interrupted=False), console, shown)
        if problems or lost or not outcome.all_ok or (session.hosts is not None and session.hosts.missing):
            code = 1
    return code


_STEP = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(us|µs|μs|ms|s)\s*")
_MS = {"us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3}
_LONGEST_MS = 3.6e6
_COUNTS = re.compile(r"\s*(\d{1,7})(?:\s*\.\.\s*(\d{1,7}))?\s*")
_MOST = 1_000_000


def step_ms(text: str) -> float:
    """Return the milliseconds of a step that was written as ``5ms``, ``0.005s`` or ``800us``.

    Raises:
        UsageError: it is no time, or has no unit.
    """
    match = _STEP.fullmatch(text)
    value_ms = float(match[1]) * _MS[match[2]] if match else 0.0
    if not 0 < value_ms <= _LONGEST_MS:
        raise UsageError(
            f"--accelerator-step {one_line(text, NAME)!r} is no time of a step.",
            "Give a number above 0 with its unit, an hour at most: 5ms, 0.005s or 800us.",
        )
    return value_ms


def counts(text: str, option: str) -> tuple[int, int]:
    """Return the ends of a range that was written as ``1..1000``, or as one number.

    Raises:
        UsageError: it is none.
    """
    match = _COUNTS.fullmatch(text)
    fewest, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= fewest <= most <= _MOST:
        raise UsageError(
            f"{option} {one_line(text, NAME)!r} is no range of numbers.",
            f"Give the fewest and the most, from 1 to {_MOST:,}: 1..1000, or one number: 8.",
        )
    return fewest, most


def plan(
    session: SavedSession,
    accelerator_step: Annotated[
        str | None,
        typer.Option(
            metavar="5ms", help="How long the accelerator takes for a step; by default as long as in the session."
        ),
    ] = None,
    hosts: Annotated[
        str,
        typer.Option(
            metavar="1..1000",
            help="Numbers of hosts to plan for, or of input workers if the session has them: a range, or one number.",
        ),
    ] = "1..64",
    accelerators: Annotated[
        int,
        typer.Option(
            min=1,
            max=10_000,
            help="Accelerators of each host; in a plan of input workers, those that all workers feed together.",
        ),
    ] = 1,
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Plan for this variant only; by default for all, the one that feeds best first.",
        ),
    ] = None,
    json_to: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE|-",
            help="Also write the plan to FILE; - writes it to stdout, and the text to stderr.",
        ),
    ] = None,
) -> None:
    """Compute how many hosts or input workers feed how many accelerators, from what a session measured of fewer."""
    from rich.console import Console

    from pipeline_bench.hosts import planning
    from pipeline_bench.model.session import find, load
    from pipeline_bench.report import plan as report

    wanted_ms = None if accelerator_step is None else step_ms(accelerator_step)
    request = planning.PlanRequest(wanted_ms, counts(hosts, "--hosts"), accelerators, variant)
    made = planning.plan(load(session), request, str(find(session)))
    if json_to is not None:  # before the text, whose reader may leave
        write(made.to_json(), None if json_to == STDOUT else Path(json_to), "--json")
    console = Console(stderr=json_to == STDOUT, highlight=False)
    console.print(report.render(made, console.width))
