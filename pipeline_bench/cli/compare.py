"""``pipeline-bench compare``: train the same model under every variant of a scenario, and say what limits each."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline_bench.observer import Observer
    from pipeline_bench.scenario import Scenario
    from pipeline_bench.session import Precision, Session

STDOUT = "-"
TRIAL_FAILED = 1
INTERRUPTED = 130


def _positive(value: float | None) -> float | None:
    if value is not None and not 0 < value < float("inf"):
        raise typer.BadParameter(f"{value} is no positive number of seconds.")
    return value


def compare(
    scenario: Annotated[
        str, typer.Argument(help="A shipped scenario's name (see `pipeline-bench scenarios`) or a path to a TOML file.")
    ] = "two_layer",
    backends: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only the variants of these backends; a missing one is added.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps per trial.")] = None,
    time: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", callback=_positive, help="Seconds of training per trial, in place of --steps."),
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Trials per variant, interleaved.")] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="2%",
            help="Add repeats until every speed-up is known to ±2 %, or --budget is spent. From 0.1% to 50%.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", callback=_positive, help="The most time --precision may take; 600 by default."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any key of the scenario, dotted: source.batch_size=32. Repeatable."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the session's folder is made.")] = Path("reports"),
    json_to: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE|-",
            help="Also write the session to FILE; - writes it to stdout, and the report to stderr.",
        ),
    ] = None,
    no_live: Annotated[bool, typer.Option("--no-live", help="Plain lines in place of the live screen.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="Seed of the weights and the batches.")] = None,
    stall_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", callback=_positive, help="How long a step may take before its trial counts as stalled."
        ),
    ] = None,
) -> None:
    """Train one model under every variant of a scenario; show time, waits and utilization side by side."""
    given = {"steps": steps, "time_s": time, "repeats": repeats, "seed": seed, "stall_timeout_s": stall_timeout}
    goal = _goal(precision, budget)
    resolved = _load(scenario, given, settings or [], backends)
    raise typer.Exit(_run(resolved, out, json_to, live=not no_live, goal=goal))


def _run(scenario: Scenario, out: Path, json_to: str | None, live: bool, goal: Precision | None) -> int:
    """Run, show, export; the exit code says whether every trial went through."""
    from rich.console import Console

    from pipeline_bench.comparison import compare as run_comparison
    from pipeline_bench.comparison import make_folder
    from pipeline_bench.precision import check
    from pipeline_bench.report import html, markdown
    from pipeline_bench.report.terminal import render

    if goal is not None:
        check(scenario)
    _check_export(json_to)
    # With the session on stdout, everything that is for a reader goes to stderr.
    console = Console(stderr=json_to == STDOUT, highlight=False)
    folder = make_folder(out, scenario)
    with _interruptible(), _view(console, folder, live) as view:
        outcome = run_comparison(scenario, folder, view, precision=goal)
    if outcome.interrupted and not outcome.session.trials:
        shutil.rmtree(folder)
        console.print("Interrupted before the first trial; nothing was measured.")
        return INTERRUPTED
    for name, render_file in (("report.md", markdown.render), ("report.html", html.render)):
        with suppress(OSError):  # a rendering can be made again; see `pipeline-bench report`
            (folder / name).write_text(render_file(outcome.session), encoding="utf-8")
    _export(outcome.session, json_to)
    with suppress(OSError):  # the terminal may be gone; the session is saved
        console.print(render(outcome.session, folder, console.width))
    if outcome.interrupted:
        return INTERRUPTED
    return 0 if outcome.all_ok else TRIAL_FAILED


def _view(console: Console, folder: Path, live: bool) -> AbstractContextManager[Observer]:
    """The live screen on a terminal, plain lines elsewhere."""
    from pipeline_bench.ui.live import LiveView
    from pipeline_bench.ui.plain import PlainView

    if live and console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console)
    return nullcontext(PlainView(sys.stderr if console.stderr else sys.stdout, folder))


def _check_export(json_to: str | None) -> None:
    """See that the file for the session can be written before anything is measured, without touching what it holds."""
    from pipeline_bench.errors import UsageError

    if json_to is None or json_to == STDOUT:
        return
    path = Path(json_to)
    existed = path.exists()
    try:
        path.open("a", encoding="utf-8").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise UsageError(
            f"--json {json_to}: the file cannot be written: {error.strerror}.", "Choose another file, or - for stdout."
        ) from None


def _export(session: Session, json_to: str | None) -> None:
    from pipeline_bench.errors import SessionError

    if json_to is None:
        return
    try:
        if json_to == STDOUT:
            sys.stdout.write(session.to_json())
            sys.stdout.flush()
        else:
            Path(json_to).write_text(session.to_json(), encoding="utf-8")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise SessionError(
            f"--json {json_to} cannot be written: {error.strerror}.", "The session itself is saved in its folder."
        ) from None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end a session as Ctrl-C does: with what was measured saved."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _goal(precision: str | None, budget_s: float | None) -> Precision | None:
    from pipeline_bench.errors import UsageError
    from pipeline_bench.precision import wanted

    if precision is not None:
        return wanted(precision, budget_s)
    if budget_s is not None:
        raise UsageError(
            "--budget was given without --precision.",
            "It is the most time that --precision may take: add --precision 2%, or set the length with --repeats.",
        )
    return None


def _load(name: str, given: dict[str, float | None], settings: list[str], backends: str | None) -> Scenario:
    from pipeline_bench.errors import UsageError
    from pipeline_bench.scenario.file import load

    if given["steps"] is not None and given["time_s"] is not None:
        raise UsageError("--steps and --time were both given.", "A trial ends after one or the other: give only one.")
    wanted = [part.strip() for part in backends.split(",") if part.strip()] if backends is not None else []
    if backends is not None and not wanted:
        raise UsageError(f"--backends {backends!r} names none.", "Write for example --backends feed_dict,tf_data.")
    return load(name, settings, wanted, run={key: value for key, value in given.items() if value is not None})
