"""The command ``pipeline-bench plan``: more hosts, or input workers, than were measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from pipeline_bench.cli.options import STDOUT, session_words

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
    from pipeline_bench.errors import UsageError
    from pipeline_bench.text import NAME, one_line

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
    from pipeline_bench.errors import UsageError
    from pipeline_bench.text import NAME, one_line

    match = _COUNTS.fullmatch(text)
    fewest, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= fewest <= most <= _MOST:
        raise UsageError(
            f"{option} {one_line(text, NAME)!r} is no range of numbers.",
            f"Give the fewest and the most, from 1 to {_MOST:,}: 1..1000, or one number: 8.",
        )
    return fewest, most


def plan(
    session: Annotated[
        Path,
        typer.Argument(
            help="A session.json, the folder that holds it, or last, last~1 … of `pipeline-bench sessions`.",
            autocompletion=session_words,
        ),
    ],
    accelerator_step: Annotated[
        str | None,
        typer.Option(
            metavar="5ms", help="How long the accelerator takes for a step; by default as long as in the session."
        ),
    ] = None,
    hosts: Annotated[
        str, typer.Option(metavar="1..1000", help="The fewest and the most hosts to plan for; or input workers.")
    ] = "1..64",
    accelerators: Annotated[
        int, typer.Option(min=1, max=10_000, help="Accelerators of each host; or that the input workers feed in all.")
    ] = 1,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plan for this one; by default the one that feeds best is first.")
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

    from pipeline_bench.cli.output import write
    from pipeline_bench.hosts import planning
    from pipeline_bench.model.session import load
    from pipeline_bench.model.session_folders import find
    from pipeline_bench.report import plan as report

    wanted_ms = None if accelerator_step is None else step_ms(accelerator_step)
    asked = planning.Asked(wanted_ms, counts(hosts, "--hosts"), accelerators, variant)
    made = planning.plan(load(session), asked, str(find(session)))
    console = Console(stderr=json_to == STDOUT, highlight=False)
    console.print(report.render(made, console.width))
    if json_to is not None:
        write(made.to_json(), None if json_to == STDOUT else Path(json_to))
