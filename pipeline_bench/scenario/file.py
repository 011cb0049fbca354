"""Reads a scenario: the defaults, the file over them, the command line's values over both."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_bench.errors import ScenarioError
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.scenario import overrides as cli_values
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.scenario.shipped import DEFAULT_SCENARIO, default_document, locate, read, shipped


def load(
    name_or_path: str = DEFAULT_SCENARIO,
    overrides: Sequence[str] = (),
    backends: Sequence[str] = (),
    run: Mapping[str, Any] | None = None,
) -> Scenario:
    """Read, override, check and resolve a scenario.

    Args:
        name_or_path: a shipped scenario's name or the path of a TOML file.
        overrides: ``KEY=VALUE`` with a dotted key; the value is TOML, or else a bare string. A variant is addressed
            by its position or its name: ``variants.0.options.threads=4``.
        backends: keep the variants of these backends only; one that no variant has is added with its default options.
        run: values of ``run`` that hold for every variant, whatever the file says.

    Raises:
        ScenarioError: with the file, the key, what was given and what is allowed.
    """
    path = locate(name_or_path)
    document = read(path)
    where = str(path) if path not in shipped().values() else f"scenario {path.stem!r}"
    as_written = copy.deepcopy(document)
    notes = cli_values.apply_all(document, overrides, default_document()["variants"])
    cli_values.force_run(document, run or {})
    scenario = resolve(document, where=where, default_name=path.stem, backends=backends)
    scenario = scenario.model_copy(update={"notes": (*scenario.notes, *notes)})
    if overrides or run or backends:
        scenario = scenario.model_copy(update={"usual_duration_s": None})
    return _with_figures_of_the_same_job(scenario, as_written, where) if overrides else scenario


def _with_figures_of_the_same_job(scenario: Scenario, as_written: Mapping[str, Any], where: str) -> Scenario:
    """Leave out the published figures of variants that the overrides have turned into another job."""
    if scenario.published is None:
        return scenario
    try:
        written = {variant.name: variant for variant in resolve(as_written, where).variants}
    except ScenarioError:  # the file is only valid with the overrides: nobody published figures for it as it stands
        written = {}
    now = {variant.name: variant for variant in scenario.variants}
    figures = scenario.published.figures
    kept = tuple(
        figure
        for figure in figures
        if figure.variant not in now  # left out by the user, and not shown either way
        or (figure.variant in written and _job(now[figure.variant]) == _job(written[figure.variant]))
    )
    if kept == figures:
        return scenario
    note = "published figures are left out where --set makes another job than the author's"
    published = scenario.published.model_copy(update={"figures": kept})
    return scenario.model_copy(update={"published": published, "notes": (*scenario.notes, note)})


def _job(variant: Variant) -> tuple[object, ...]:
    """What an author's figure was measured with; how long and how often it ran is scaled for."""
    return (variant.backend, variant.options, variant.source, variant.model, variant.loop)
