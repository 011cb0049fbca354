"""``pipeline-bench compare``: train the same model under every variant of a scenario, and say what limits each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipeline_bench.scenario import Scenario


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
    steps: Annotated[int | None, typer.Option(min=1, help="Steps a trial.")] = None,
    time: Annotated[
        float | None, typer.Option(metavar="SECONDS", callback=_positive, help="Seconds a trial, in place of steps.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Trials a variant.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of the scenario, dotted: source.batch_size=32. Repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the session's folder is made.")] = Path("reports"),
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help="Also write the session there; - is stdout, alone.")
    ] = None,
    no_live: Annotated[bool, typer.Option("--no-live", help="Plain lines in place of the live screen.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="Of the weights and the batches.")] = None,
    stall_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", callback=_positive, help="How long a step may take before its trial counts as stalled."),
    ] = None,
) -> None:
    """Train one model under every variant of a scenario; show time, waits and utilization side by side."""
    given = {"steps": steps, "time_s": time, "repeats": repeats, "seed": seed, "stall_timeout_s": stall_timeout}
    resolved = _load(scenario, given, settings or [], backends)
    raise NotImplementedError(f"running {resolved.name} into {out}, {json_to}, {no_live}")


def _load(name: str, given: dict[str, float | None], settings: list[str], backends: str | None) -> Scenario:
    from pipeline_bench.errors import UsageError
    from pipeline_bench.scenario_file import load

    if given["steps"] is not None and given["time_s"] is not None:
        raise UsageError("--steps and --time were both given.", "A trial ends after one or the other: give only one.")
    wanted = [part.strip() for part in backends.split(",") if part.strip()] if backends is not None else []
    if backends is not None and not wanted:
        raise UsageError(f"--backends {backends!r} names none.", "Write for example --backends feed_dict,tf_data.")
    return load(name, settings, wanted, run={key: value for key, value in given.items() if value is not None})
