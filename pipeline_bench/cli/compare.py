"""``pipeline-bench compare``: train the same model under every variant of a scenario, and say what limits each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_bench.cli.completion import backend_names, scenario_names, setting_keys
from pipeline_bench.cli.running import STDOUT, Details, ExposeServers, OpenPage, check_export, positive, run_and_show

if TYPE_CHECKING:
    from pipeline_bench.model.result import Precision
    from pipeline_bench.scenario import Scenario


def compare(
    scenario: Annotated[
        str | None,
        typer.Argument(
            help="A shipped scenario's name (see `pipeline-bench scenarios`) or a path to a TOML file. By default the "
            "2017 tutorial's job: two_layer where TensorFlow uses a GPU, else tutorial, on an emulated accelerator.",
            show_default=False,
            autocompletion=scenario_names,
        ),
    ] = None,
    backends: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Only the variants of these backends; a missing one is added.",
            autocompletion=backend_names,
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps per trial.")] = None,
    time: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", callback=positive, help="Seconds of training per trial, in place of --steps."),
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
        typer.Option(
            metavar="SECONDS",
            callback=positive,
            help="The most time for rounds: 60 by default, 600 with --precision.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any key of the scenario, dotted: source.batch_size=32. Repeatable.",
            autocompletion=setting_keys,
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
    open_page: OpenPage = False,
    details: Details = False,
    expose_servers: ExposeServers = False,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="Seed of the weights and the batches.")] = None,
    stall_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", callback=positive, help="How long a step may take before its trial counts as stalled."
        ),
    ] = None,
    log_placement: Annotated[
        bool, typer.Option("--log-placement", help="Say in the report which op ran on which device.")
    ] = False,
) -> None:
    """Train one model under every variant of a scenario; show time, waits and utilization side by side."""
    from pipeline_bench.run.main_job import MainJob, choose

    given = {"steps": steps, "time_s": time, "repeats": repeats, "seed": seed, "stall_timeout_s": stall_timeout}
    goal = _goal(precision, budget, given, settings or [])
    job = MainJob(scenario) if scenario is not None else choose()
    resolved = job.noted(_load(job.scenario, given, settings or [], backends))
    resolved = _logging_placement(resolved) if log_placement else resolved
    options = {
        "live": not no_live,
        "open_page": open_page,
        "details": details or log_placement,
        "expose_servers": expose_servers,
    }
    raise typer.Exit(_run(resolved, out, json_to, goal=goal, first=job.note, **options))


def _run(
    scenario: Scenario,
    out: Path,
    json_to: str | None,
    *,
    goal: Precision | None,
    first: str | None,
    live: bool,
    open_page: bool,
    details: bool,
    expose_servers: bool,
) -> int:
    """Run, show, export, after the `first` line if any; the exit code says whether every trial went through."""
    from rich.console import Console

    from pipeline_bench.analysis.precision import check
    from pipeline_bench.run.comparison import compare as run_comparison
    from pipeline_bench.run.comparison import make_folder

    if goal is not None and goal.goal is not None:
        check(scenario)
    check_export(json_to)
    # With the session on stdout, everything that is for a reader goes to stderr.
    console = Console(stderr=json_to == STDOUT, highlight=False)
    folder = make_folder(out, scenario)
    if first is not None:
        console.print(first)
    return run_and_show(
        lambda observer: run_comparison(scenario, folder, observer, precision=goal, expose_servers=expose_servers),
        folder,
        console,
        json_to,
        live=live,
        open_page=open_page,
        details=details,
    )


def _goal(
    precision: str | None, budget_s: float | None, given: dict[str, float | None], settings: list[str]
) -> Precision | None:
    """Return until when rounds are added; None where the plan is fixed by its length."""
    from pipeline_bench.analysis.precision import fixing, until_decided, wanted
    from pipeline_bench.errors import UsageError

    if precision is not None:
        return wanted(precision, budget_s)
    fixed = fixing({key: value for key, value in given.items() if value is not None}, settings)
    if not fixed:
        return until_decided(budget_s)
    if budget_s is not None:
        raise UsageError(
            f"--budget was given beside {' and '.join(fixed)}, by which the length is fixed.",
            "Leave out one of the two; with --precision 2% both count.",
        )
    return None


def _logging_placement(scenario: Scenario) -> Scenario:
    """Every variant asked for its placement; ceilings too, since they share their variants' runtime."""
    variants = [
        variant.model_copy(update={"runtime": variant.runtime.model_copy(update={"log_placement": True})})
        for variant in scenario.variants
    ]
    return scenario.model_copy(update={"variants": tuple(variants)})


def _load(name: str, given: dict[str, float | None], settings: list[str], backends: str | None) -> Scenario:
    from pipeline_bench.errors import UsageError
    from pipeline_bench.scenario.load import load

    if given["steps"] is not None and given["time_s"] is not None:
        raise UsageError("--steps and --time were both given.", "A trial ends after one or the other: give only one.")
    wanted = [part.strip() for part in backends.split(",") if part.strip()] if backends is not None else []
    if backends is not None and not wanted:
        raise UsageError(f"--backends {backends!r} names none.", "Write for example --backends feed_dict,tf_data.")
    return load(name, settings, wanted, run={key: value for key, value in given.items() if value is not None})
