"""The command ``pipeline-bench selftest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline_bench.cli.options import JsonTo, NoLive, OpenPage, Out, Presentation


def selftest(
    quick: Annotated[bool, typer.Option("--quick", help="Half a minute in place of two; plants less.")] = False,
    out: Out = Path("reports"),
    json_to: JsonTo = None,
    no_live: NoLive = False,
    open_page: OpenPage = False,
) -> None:
    """Plant what is known, measure it, and say how far the program may be believed on this machine."""
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
