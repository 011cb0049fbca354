"""The commands that measure: ``pipeline-bench compare``, ``diagnose``, ``run`` and ``selftest``."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shlex
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_bench.cli.options import (
    Details,
    ExposeServers,
    JsonTo,
    NoLive,
    OpenPage,
    Out,
    Presentation,
    backend_names,
    scenario_names,
    seconds,
    setting_keys,
)
from pipeline_bench.cli.output import wrapped
from pipeline_bench.errors import UsageError
from pipeline_bench.system.files import takes_output
from pipeline_bench.text import safe

if TYPE_CHECKING:
    from pipeline_bench.model.result import Precision
    from pipeline_bench.scenario import Scenario


def compare(
    scenario: Annotated[
        str | None,
        typer.Argument(
            help="A shipped scenario's name (see `pipeline-bench scenarios`) or a path to a TOML file. By default the "
            "job of the 2017 tutorial: two_layer if TensorFlow uses a GPU, else tutorial, on an emulated accelerator.",
            show_default=False,
            autocompletion=scenario_names,
        ),
    ] = None,
    backends: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B",
            help="Only the variants of these backends; a backend that the scenario lacks is added. Repeatable.",
            autocompletion=backend_names,
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps per trial.")] = None,
    time: Annotated[float | None, seconds("Seconds of training per trial, its first step left out.")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Trials per variant, interleaved.")] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="2%",
            help="Add repeats until every speed-up is known within ±2 %, or until --budget is spent. From 0.1% to 50%.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        seconds(
            "Maximum time for rounds, from the first trial on: 60 by default, 600 with --precision; two always run."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set any key of the scenario: source.batch_size=32. Repeatable.",
            autocompletion=setting_keys,
        ),
    ] = None,
    out: Out = Path("reports"),
    json_to: JsonTo = None,
    no_live: NoLive = False,
    open_page: OpenPage = False,
    details: Details = False,
    expose_servers: ExposeServers = False,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="Seed of the weights and the batches.")] = None,
    stall_timeout: Annotated[
        float | None,
        seconds("A trial without progress for so long counts as stalled; by default what the scenario says, else 60."),
    ] = None,
    log_placement: Annotated[
        bool, typer.Option("--log-placement", help="Report which op ran on which device.")
    ] = False,
    hosts: Annotated[
        int | None,
        typer.Option(min=2, help="Run it on each of N nodes alone, then on 2 … N at once; needs --on."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="ray[://HOST:PORT]",
            help="Where the --hosts are. ray: the cluster of RAY_ADDRESS, else of this machine, else one that is "
            "started for the run.",
        ),
    ] = None,
) -> None:
    """Train one model with every variant of a scenario; show times, waits and utilization side by side."""
    from pipeline_bench.analysis.precision import check
    from pipeline_bench.cli.hosts import (
        compare_as_rank,
        compare_on_ray,
        refuse_contradiction,
        refuse_goal,
        refuse_shown,
    )
    from pipeline_bench.cli.running import run_and_show
    from pipeline_bench.hosts.ranks import find_rank
    from pipeline_bench.run.comparison import compare as run_comparison
    from pipeline_bench.run.machine import MainJob, choose

    options = {"steps": steps, "time_s": time, "repeats": repeats, "seed": seed, "stall_timeout_s": stall_timeout}
    given = {key: value for key, value in options.items() if value is not None}
    goal = _goal(precision, budget, given, settings or [])
    job = MainJob(scenario) if scenario is not None else choose()
    resolved = job.noted(_load(job.scenario, given, settings or [], backends))
    resolved = _logging_placement(resolved) if log_placement else resolved
    shown = Presentation(not no_live, details or log_placement, open_page, json_to)
    if hosts is not None or on is not None:
        refuse_goal(precision, budget)
        raise typer.Exit(compare_on_ray(resolved, hosts, on, out, shown, expose_servers=expose_servers))
    refuse_contradiction(os.environ)
    if (rank := find_rank(os.environ)) is not None:
        refuse_goal(precision, budget)
        refuse_shown(dataclasses.replace(shown, details=details), out)
        raise typer.Exit(compare_as_rank(rank, resolved, out, expose_servers=expose_servers))
    if goal is not None and goal.goal is not None:
        check(resolved)
    code = run_and_show(
        lambda folder, view: run_comparison(resolved, folder, view, precision=goal, expose_servers=expose_servers),
        resolved,
        out,
        shown,
        first=job.note,
    )
    raise typer.Exit(code)


def _goal(
    precision: str | None, budget_s: float | None, given: dict[str, float], settings: list[str]
) -> Precision | None:
    """Return until when rounds are added; None where the plan is fixed by its length."""
    from pipeline_bench.analysis.goal import length_keys, parse_goal, until_decided

    if precision is not None:
        return parse_goal(precision, budget_s)
    options = [f"--{key.removeprefix('run.').removesuffix('_s')}" for key in length_keys(given, [])]
    return until_decided(budget_s, [*options, *length_keys({}, settings)])


def _logging_placement(scenario: Scenario) -> Scenario:
    """Return every variant asked for its placement; ceilings too, since they share their variants' runtime."""
    placed = [(each, each.runtime.model_copy(update={"log_placement": True})) for each in scenario.variants]
    variants = tuple(variant.model_copy(update={"runtime": runtime}) for variant, runtime in placed)
    return scenario.model_copy(update={"variants": variants})


def _load(name: str, given: dict[str, float], settings: list[str], backends: list[str] | None) -> Scenario:
    from pipeline_bench.scenario.load import load

    if {"steps", "time_s"} <= given.keys():
        raise UsageError("--steps and --time were both given.", "A trial ends after one or the other: give only one.")
    given_names = ",".join(backends or ())
    wanted = [part.strip() for part in given_names.split(",") if part.strip()]
    if backends and not wanted:
        raise UsageError(f"--backends {given_names!r} names none.", "Write for example --backends feed_dict,tf_data.")
    return load(name, settings, wanted, run=given)


def diagnose(
    target: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT|FILE:FUNCTION",
            help="Your script, train.py, or its module, package.train; it runs up to its training. Or your function "
            "that returns a tf.data pipeline: train.py:make_dataset.",
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- ARGS…", help="The script's own arguments: -- --epochs 3.")
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module, run as by python -m.")] = False,
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="N|LINE|NAME",
            help="The script's dataset to measure: its variable, its line, or its number in the report's list. By "
            "default the one that the script trains on.",
        ),
    ] = None,
    training: Annotated[
        str | None,
        typer.Option(
            metavar="N|LINE",
            help="The script's training to measure: which call of fit, from 1, or the line of a fit or a loop. By "
            "default the first. Those before it are run whole, each time.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:FUNCTION",
            help="Your function that returns a compiled Keras model, to train on the pipeline. Without a model the "
            "pipeline is only read.",
        ),
    ] = None,
    batch_arg: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Call FUNCTION with this number as its only argument: make_dataset(64)."),
    ] = None,
    budget: Annotated[float, typer.Option(metavar="SECONDS", help="Maximum time to measure; at least 20 s.")] = 120.0,
    allow_reordering: Annotated[
        bool,
        typer.Option(
            "--allow-reordering",
            help="Also try fixes that may change the order of the samples.",
        ),
    ] = False,
    allow_threads: Annotated[
        bool,
        typer.Option(
            "--allow-threads",
            help="Also try fixes that run your functions on several threads at once; the samples keep their order.",
        ),
    ] = False,
    data_service: Annotated[
        str | None,
        typer.Option(
            metavar="grpc://HOST:PORT",
            help="Dispatcher of a running tf.data service: also try to have its workers run the stages that need no "
            "Python.",
        ),
    ] = None,
    out: Out = Path("reports"),
    stall_timeout: Annotated[
        float | None,
        seconds("A trial without progress for so long counts as stalled; by default half of --budget, at least 10."),
    ] = None,
    json_to: JsonTo = None,
    no_live: NoLive = False,
    open_page: OpenPage = False,
    details: Details = False,
    expose_servers: ExposeServers = False,
) -> None:
    """Find the stage of your own pipeline that slows the training, and try fixes.

    Your files are not edited, but a script is run up to its training several times: what it writes happens again.
    """
    from pipeline_bench.cli.running import run_and_show
    from pipeline_bench.diagnosis import variants
    from pipeline_bench.model.diagnosis import Diagnosis
    from pipeline_bench.run.diagnosis import check_budget, refuse_one_of_several_workers, run_diagnosis
    from pipeline_bench.system.files import is_python
    from pipeline_bench.tfdata.service_cluster import address
    from pipeline_bench.user_code.targets import is_script, parse, parse_script

    check_budget(budget, "--budget")
    if module and (is_python(target) or not is_script(target)):
        raise UsageError(f"-m {target}: it is not the name of a module.", "Write -m package.train, or leave out -m.")
    if is_script(target):
        refuse_one_of_several_workers("env -u TF_CONFIG pipeline-bench diagnose …")
        made, network = parse_script(target, arguments or (), model, batch_arg, dataset, training), None
    else:
        _refuse_script_options(target, arguments, dataset, training)
        made = parse(target, batch_arg, "dataset")
        network = parse(model, None, "model") if model is not None else None
    asked = Diagnosis(
        target=made,
        model=network,
        allow_reordering=allow_reordering,
        allow_threads=allow_threads,
        data_service=None if data_service is None else address(data_service),
        budget_s=budget,
    )
    scenario = variants.scenario(asked, stall_timeout)
    code = run_and_show(
        lambda folder, view: run_diagnosis(asked, scenario, folder, view, expose_servers=expose_servers),
        scenario,
        out,
        Presentation(not no_live, details, open_page, json_to),
    )
    raise typer.Exit(code)


def _refuse_script_options(target: str, arguments: list[str] | None, dataset: str | None, training: str | None) -> None:
    if arguments:
        raise UsageError(
            f"{target} takes no arguments of a command line: {' '.join(arguments)}.",
            "They go with a whole script: pipeline-bench diagnose train.py -- --epochs 3.",
        )
    for option, given in (("--dataset", dataset), ("--training", training)):
        if given is not None:
            raise UsageError(
                f"{target} makes one dataset: {option} goes with a whole script.",
                f"Write pipeline-bench diagnose train.py {option} {given}, or name the function that makes it.",
            )


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="The command with its arguments: -- python train.py.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the sessions, one for each training.")] = Path("reports"),
) -> None:
    """Run a command unchanged; at its end, report how long its trainings waited for input. Keeps its exit code."""
    from pipeline_bench.cli.hosts import folder_of_trainings
    from pipeline_bench.injection import command as commands

    with commands.signals_passed_on() as pass_on_to:
        try:
            ended = commands.run(command, folder_of_trainings(os.environ, out), pass_on_to)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            of_its_own = missing and shutil.which(command[0]) is not None
            why = "the interpreter that its first line names is not there" if of_its_own else error.strerror
            if not of_its_own and command[0].endswith(".py") and Path(command[0]).is_file():
                why = f"it is no command; write `pipeline-bench run -- python {safe(shlex.join(command))}`"
            typer.echo(f"Error: {safe(command[0])} cannot be started: {why}.", err=True)
            raise typer.Exit(commands.NOT_FOUND if missing else commands.NOT_EXECUTABLE) from None
        from pipeline_bench.injection import command_summary  # which is imported while the command runs

        with suppress(OSError):  # stderr is full, or nobody reads it: the exit code is the command's all the same
            said = [
                wrapped(f"pipeline-bench: {safe(line)}", sys.stderr) for line in command_summary.lines(ended, command)
            ]
            if following := command_summary.next_command(ended):  # in one piece, to be copied
                said.append(f"pipeline-bench: next: {safe(following)}")
            for line in itertools.takewhile(lambda _: takes_output(sys.stderr), said):  # somebody reads it
                typer.echo(line, err=True)
    if ended.by_interrupt:  # by an exit code, a shell would go on with its loop, or with the next line of its script
        commands.end_by(signal.SIGINT)
    raise typer.Exit(ended.code)


def selftest(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Half a minute instead of two, with fewer checks; an NVIDIA GPU adds one, instead of eight."
        ),
    ] = False,
    out: Out = Path("reports"),
    json_to: JsonTo = None,
    no_live: NoLive = False,
    open_page: OpenPage = False,
) -> None:
    """Plant known delays, measure them, and report the error of the program on this machine."""
    from pipeline_bench.cli.running import run_and_show
    from pipeline_bench.selftest.run import planned, run

    with planned(quick) as plan:
        code = run_and_show(
            lambda folder, view: run(plan, folder, view),
            plan.scenario,
            out,
            Presentation(not no_live, False, open_page, json_to),
        )
    raise typer.Exit(code)
