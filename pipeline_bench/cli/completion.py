"""What the shell completes: scenarios, what of them can be named, the words for kept sessions."""

from __future__ import annotations

import json
import re
from typing import Any

import typer

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def scenario_names(incomplete: str) -> list[str]:
    """Return the shipped scenarios that begin so; a path is the shell's to complete."""
    from pipeline_bench.scenario.files import shipped

    return [name for name in shipped() if name.startswith(incomplete)]


def lesson_names(incomplete: str) -> list[str]:
    """Return the lessons that begin so."""
    from pipeline_bench.lessons.engine import lessons

    return [each.name for each in lessons() if each.name.startswith(incomplete)]


def session_words(incomplete: str) -> list[str]:
    """Return ``last``, ``last~1`` …, as many as there are, and the folders of the sessions here."""
    from pipeline_bench.model import kept

    found = kept.sessions()
    words = ["last" if number == 0 else f"last~{number}" for number in range(len(found))]
    return [word for word in (*words, *(str(each.folder) for each in found)) if word.startswith(incomplete)]


def backend_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the list so far with each backend of the scenario behind it that is not in it yet."""
    before, comma, begun = incomplete.rpartition(",")
    names = dict.fromkeys(variant.backend for variant in _variants(context) if variant.backend != "ceiling")
    return [before + comma + name for name in names if name.startswith(begun) and name not in before.split(",")]


def setting_keys(context: typer.Context, incomplete: str) -> list[str]:
    """Return ``variants.NAME.`` for each variant of the scenario, and the names of its other tables."""
    names = [each.name if _BARE_KEY.fullmatch(each.name) else json.dumps(each.name) for each in _variants(context)]
    keys = [
        *(f"{table}." for table in ("source", "model", "loop", "runtime", "run")),
        *(f"variants.{n}." for n in names),
    ]
    return [key for key in keys if key.startswith(incomplete)]


def _variants(context: typer.Context) -> tuple[Any, ...]:
    """The variants of the scenario on the command line; none where it is no scenario."""
    from pipeline_bench.errors import PipelineBenchError
    from pipeline_bench.scenario.files import DEFAULT_SCENARIO
    from pipeline_bench.scenario.load import load

    try:
        # Behind an option that still lacks its value the arguments are not taken for the command's own.
        given = context.args[0] if context.args else context.params.get("scenario")
        return load(given or DEFAULT_SCENARIO).variants
    except PipelineBenchError:
        return ()
