"""Reads a scenario: the defaults, the file over them, the command line's values over both."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Any

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.check import RIVALS, is_other_kind
from pipeline_bench.scenario.files import (
    COMPONENTS,
    DEFAULT_KINDS,
    DEFAULT_SCENARIO,
    default_document,
    locate,
    read,
    shipped,
)
from pipeline_bench.scenario.resolve import job, resolve
from pipeline_bench.text import did_you_mean, sentence

_COMPONENTS = [*([part] for part in COMPONENTS), ["source", "files"]]
"""The tables that have a kind and options of it; the last is that of a source which reads another one's files."""

_UP_TO_EQUALS = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[^="'])*""")
"""What of ``KEY=VALUE`` is before the first ``=`` that is not in quotes."""


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
    notes = _apply_overrides(document, overrides, default_document()["variants"])
    _refuse_twice(overrides, run or {})
    _force_run(document, run or {})
    scenario = resolve(document, where=where, default_name=path.stem, backends=backends)
    scenario = scenario.model_copy(update={"notes": (*scenario.notes, *notes)})
    if overrides or run or backends:
        scenario = scenario.model_copy(update={"usual_duration_s": None})
    return _without_figures_of_other_jobs(scenario, as_written, where) if overrides else scenario


def _without_figures_of_other_jobs(scenario: Scenario, as_written: Mapping[str, Any], where: str) -> Scenario:
    """Leave out the published figures of variants that the overrides have turned into another job."""
    if scenario.published is None:
        return scenario
    try:
        written = {variant.name: job(variant) for variant in resolve(as_written, where).variants}
    except ScenarioError:  # the file is only valid with the overrides: nobody published figures for it as it stands
        written = {}
    now = {variant.name: job(variant) for variant in scenario.variants}
    figures = scenario.published.figures
    # A variant that the user has left out is not shown either way.
    kept = tuple(each for each in figures if each.variant not in now or now[each.variant] == written.get(each.variant))
    if kept == figures:
        return scenario
    note = "published figures are left out where --set makes another job than the author's"
    published = scenario.published.model_copy(update={"figures": kept})
    return scenario.model_copy(update={"published": published, "notes": (*scenario.notes, note)})


def _apply_overrides(
    document: dict[str, Any], overrides: Sequence[str], default_variants: Sequence[dict[str, Any]]
) -> list[str]:
    """Set each ``KEY=VALUE`` in the document; the variants of a file that has none are the default's.

    Another kind of source, model or loop is set first, and keeps those of the file's options that it has as well.

    Returns:
        What a reader should know of it: the options that another kind has no use for.

    Raises:
        ScenarioError: the key or the variant that one names cannot be found, or every variant has a value of its own.
    """
    notes = []
    split = [(_split_key(override), override) for override in overrides]
    for path, override in sorted(split, key=lambda each: each[0][-1] != "kind"):
        if path[0] == "variants" and "variants" not in document:
            document["variants"] = list(default_variants)
        value = _toml_value(_partition(override)[2].strip())
        if path[-1] == "kind" and path[:-1] in _COMPONENTS:
            notes += _drop_foreign_options(document, path[:-1], value)
        _check_has_effect(document, path, value, override)
        _set_value(document, path, value, override)
    return notes + _leave_out_synthetic(document, {tuple(path): override for path, override in split})


def _drop_foreign_options(document: dict[str, Any], place: Sequence[str], kind: Any) -> list[str]:
    """Drop the options of a component that its new kind does not have; say which."""
    group = COMPONENTS[place[0]]
    if not isinstance(kind, str) or not plugins.has(group, kind):
        return []
    table = _table(document, place)
    known = plugins.find(group, kind).Options.model_fields
    dropped = [key for key in table if key != "kind" and key not in known]
    for key in dropped:
        del table[key]
    name = ".".join([*place, "kind"])
    return [f"{name} = {kind} has no option {', '.join(dropped)}, which the scenario sets"] if dropped else []


def _leave_out_synthetic(document: dict[str, Any], given: Mapping[tuple[str, ...], str]) -> list[str]:
    """Leave out what the scenario says of synthetic data where ``--set`` names files of the user's own; say what.

    Raises:
        ScenarioError: ``--set`` itself says so beside a path.
    """
    notes = []
    for place in ("source",), ("source", "files"):
        table, name = _table(document, place), ".".join(place)
        kind = table.get("kind")
        if "path" not in table or not isinstance(kind, str) or not plugins.has("sources", kind):
            continue
        options: frozenset[str] = getattr(plugins.find("sources", kind), "synthetic_options", frozenset())
        synthetic = [key for key in table if key in options]
        if twice := next((key for key in synthetic if (*place, key) in given), None):
            raise ScenarioError(
                f"--set {given[*place, twice]!r}: {name}.{twice} is of synthetic data, "
                f"and {name}.path names files of your own.",
                "Leave it out: your files are taken as they are.",
            )
        if synthetic and (*place, "path") in given:
            for key in synthetic:
                del table[key]
            notes.append(
                f"{name}.path has no use for {', '.join(synthetic)} of synthetic data, which the scenario sets"
            )
    return notes


def _table(document: Mapping[str, Any], place: Sequence[str]) -> dict[str, Any]:
    """Return the table at that place of the scenario; an empty one where there is none."""
    table: Any = document
    for key in place:
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def _check_has_effect(document: dict[str, Any], path: Sequence[str], value: Any, override: str) -> None:
    """Refuse a value for all variants where each of them has one of its own, or no use for it.

    Raises:
        ScenarioError: so it is.
    """
    variants = document.get("variants")
    part, *keys = path
    if not keys or not isinstance(variants, list) or not variants:
        return
    base = {"kind": DEFAULT_KINDS.get(part)} | _table(document, [part])
    tables = [_table(entry, [part]) if isinstance(entry, dict) else {} for entry in variants]
    rivals = {RIVALS.get(keys[0])} if part == "run" else set()
    own = [_own_key(base, table, keys, value) or next(iter(rivals & table.keys()), None) for table in tables]
    if all(own):
        named = " or ".join(f"{part}.{key}" for key in dict.fromkeys(own))
        first = _variant_name(variants[0])
        raise ScenarioError(
            f"--set {override!r}: every variant sets its own {named}, so this would change nothing.",
            f"Set it for one of them: --set 'variants.\"{first}\".{'.'.join(path)}=...'",
        )


def _own_key(base: Mapping[str, Any], own: Mapping[str, Any], keys: Sequence[str], value: Any) -> str | None:
    """Return the key of a variant's table for which it does not take `value` from the scenario's; None: it does."""
    key, *deeper = keys
    if is_other_kind(base, own):
        return "kind"
    if key not in own:
        return None
    if deeper and isinstance(own[key], dict):
        inner = _own_key(_table(base, [key]), own[key], deeper, value)
        return inner and f"{key}.{inner}"
    # Of two tables the variant's keys are set in the scenario's.
    return None if isinstance(own[key], dict) and isinstance(value, dict) else key


def _refuse_twice(overrides: Sequence[str], run: Mapping[str, Any]) -> None:
    """Refuse an override of what `run` sets for every variant.

    Raises:
        ScenarioError: there is one.
    """
    for override in overrides:
        *table, key = _split_key(override)
        if table[-1:] == ["run"] and (key in run or RIVALS.get(key) in run):
            raise ScenarioError(
                f"--set {override!r} was given beside an option that sets it for every variant.",
                "Leave out one of the two.",
            )


def _force_run(document: dict[str, Any], run: Mapping[str, Any]) -> None:
    """Make the values hold for the scenario and every variant of it; a table that is none is left for the check."""
    variants = document.get("variants")
    own = [entry.get("run") for entry in variants if isinstance(entry, dict)] if isinstance(variants, list) else []
    shared = document.setdefault("run", {})
    for table in (*own, shared):
        for key in run if isinstance(table, dict) else ():
            table.pop(key, None)
            table.pop(RIVALS.get(key, key), None)
    if isinstance(shared, dict):
        shared.update(run)


def _partition(override: str) -> tuple[str, str, str]:
    """Return key, ``=`` and value as `str.partition` does, for a name in the key's quotes may hold an ``=``."""
    found = _UP_TO_EQUALS.match(override)
    end = found.end() if found else 0
    rest, equals, value = override[end:].partition("=")
    return override[:end] + rest, equals, value


def _split_key(override: str) -> list[str]:
    """Split the dotted key of ``KEY=VALUE`` as TOML does; a quoted part may hold dots: ``variants."a.b".backend``."""
    key, equals, text = _partition(override)
    key = key.strip()
    try:
        table = tomllib.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        raise ScenarioError(
            f"--set {override!r}: {key!r} is no dotted key.",
            "Quote a part with spaces: --set 'variants.\"my queue\".backend=...'",
        ) from None
    parts = []
    node: Any = table
    while isinstance(node, dict) and node:
        part, node = next(iter(node.items()))
        parts.append(part)
    if not equals or not parts or "\n" in text:
        raise ScenarioError(
            f"--set {override!r} is no KEY=VALUE.",
            "Write for example --set source.batch_size=32 or --set run.repeats=5.",
        )
    return parts


def _toml_value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, date | time) else value  # no key takes a date, and folders are named by one


def _set_value(document: dict[str, Any], path: list[str], value: Any, override: str) -> None:
    node: Any = document
    for depth, part in enumerate(path):
        if isinstance(node, list):
            node_index = _variant_index(node, part, override)
            if depth == len(path) - 1:
                node[node_index] = value
            else:
                node = node[node_index]
        elif not isinstance(node, dict):
            raise ScenarioError(
                f"--set {override!r}: {'.'.join(path[:depth])} is a value, not a table.", "Shorten the key."
            )
        elif depth == len(path) - 1:
            node[part] = value
            if path[-2:-1] == ["run"]:  # the last word on a trial's length holds
                node.pop(RIVALS.get(part), None)
        else:
            node = node.setdefault(part, {})


def _variant_index(variants: list[Any], part: str, override: str) -> int:
    labels = [_variant_name(entry) for entry in variants]
    if part in labels:
        return labels.index(part)
    if part.isdecimal() and int(part) < len(variants):
        return int(part)
    raise ScenarioError(
        f"--set {override!r}: there is no variant {part!r}.",
        sentence(f"{did_you_mean(part, labels)}, or a position from 0 to {len(variants) - 1}"),
    )


def _variant_name(entry: Any) -> str:
    return str(entry.get("name", entry.get("backend", ""))) if isinstance(entry, dict) else ""
