"""``pipeline-bench diagnose``: the stage that starves a user's own pipeline, and fixes proven by measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline_bench.cli.running import STDOUT, Details, ExposeServers, OpenPage, check_export, positive, run_and_show

_LEAST_BUDGET_S, _MOST_BUDGET_S = 20.0, 86_400.0
"""The inspection and one round of trials take some 15 s; beyond a day it is a mistake in the unit."""


def diagnose(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE:FUNCTION", help="Your function that returns a tf.data pipeline: train.py:make_dataset."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:FUNCTION",
            help="Your function that returns a compiled Keras model, which then trains on the pipeline; without one "
            "the pipeline is only read.",
        ),
    ] = None,
    batch_arg: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Passed to the pipeline's function as its only argument."),
    ] = None,
    budget: Annotated[
        float,
        typer.Option(metavar="SECONDS", callback=positive, help="The most time to measure for, from 20 s on."),
    ] = 120.0,
    allow_reordering: Annotated[
        bool,
        typer.Option(
            "--allow-reordering",
            help="Also try what may change the order of the samples.",
        ),
    ] = False,
    allow_threads: Annotated[
        bool,
        typer.Option(
            "--allow-threads",
            help="Also try what runs your functions on several threads at once; the samples keep their order.",
        ),
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the session's folder is made.")] = Path("reports"),
    stall_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            callback=positive,
            help="How long an element may take before its trial counts as stalled.",
        ),
    ] = None,
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
) -> None:
    """Find the stage of your own pipeline that starves it, and try what helps; your files are never changed."""
    from rich.console import Console

    from pipeline_bench.diagnosis import variants
    from pipeline_bench.run.comparison import make_folder
    from pipeline_bench.run.diagnosis import run_diagnosis
    from pipeline_bench.tfdata.loading import parse

    _check_budget(budget)
    dataset = parse(target, batch_arg, "dataset")
    network = parse(model, None, "model") if model is not None else None
    check_export(json_to)
    # With the session on stdout, everything that is for a reader goes to stderr.
    console = Console(stderr=json_to == STDOUT, highlight=False)
    folder = make_folder(out, variants.scenario(dataset, network, budget, stall_timeout))
    code = run_and_show(
        lambda observer: run_diagnosis(
            dataset,
            network,
            folder,
            observer,
            budget_s=budget,
            allow_reordering=allow_reordering,
            allow_threads=allow_threads,
            stall_timeout_s=stall_timeout,
            expose_servers=expose_servers,
        ),
        folder,
        console,
        json_to,
        live=not no_live,
        open_page=open_page,
        details=details,
    )
    raise typer.Exit(code)


def _check_budget(budget_s: float) -> None:
    from pipeline_bench.errors import UsageError

    if not _LEAST_BUDGET_S <= budget_s <= _MOST_BUDGET_S:
        raise UsageError(
            f"--budget {budget_s:g}: it is from {_LEAST_BUDGET_S:g} to {_MOST_BUDGET_S:g} seconds.",
            "The default of 120 tries most fixes; a slow pipeline or a large model needs more.",
        )
