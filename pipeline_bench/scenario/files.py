"""Scenario files: those that come with the package, how one is found and read, written as TOML, and its JSON schema."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError
from pipeline_bench.scenario import Component, Published, Run, Runtime, Scenario, Variant
from pipeline_bench.system.files import read_text, unreadable
from pipeline_bench.text import did_you_mean, safe, sentence

COMPONENTS: dict[str, plugins.Group] = {"source": "sources", "model": "models", "loop": "loops"}
DEFAULT_KINDS = {"source": "synthetic", "model": "two_layer", "loop": "session"}
DEFAULT_SCENARIO = "two_layer"
_PARTS = (*COMPONENTS, "runtime", "run")
_LARGEST_BYTES = 1 << 20
"""A scenario is written by hand, and has a few thousand bytes."""
_MOST_LEVELS = 50
"""Of its tables and lists: its own keys need six, and a plug-in's options some more."""


def shipped() -> dict[str, Path]:
    """Return name to file of the scenarios that come with the package."""
    folder = Path(str(files("pipeline_bench"))) / "scenarios"
    if not folder.is_dir():  # an editable install: the wheel puts scenarios/ inside the package, a checkout beside it
        folder = folder.parent.parent / "scenarios"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def default_document() -> dict[str, Any]:
    """Return the default scenario's file, as its TOML says it."""
    return read(shipped()[DEFAULT_SCENARIO])


def locate(name_or_path: str) -> Path:
    """Return the file of a shipped scenario's name, or of a path to a TOML file.

    Raises:
        ScenarioError: neither exists.
    """
    known = shipped()
    if name_or_path in known:
        return known[name_or_path]
    path = Path(name_or_path)
    try:
        if path.exists() and not path.is_dir():  # a pipe, as of <(...), will do
            return path
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise ScenarioError(
            f"The scenario file {name_or_path} cannot be read: {error}.", "Give another path."
        ) from None
    if path.suffix == ".toml" or "/" in name_or_path:
        reason = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise ScenarioError(f"The scenario file {name_or_path} {reason}.", "Give the path to a TOML file.")
    raise ScenarioError(f"There is no scenario {name_or_path!r}.", sentence(did_you_mean(name_or_path, known)))


def within_depth(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document, where it is nested no deeper than any key of a scenario needs.

    Raises:
        RecursionError: it is: what copies, compares and shows it calls itself a level.
    """
    level: list[Any] = [document]
    for _ in range(_MOST_LEVELS):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        if not level:
            return document
    raise RecursionError(f"it is nested deeper than {_MOST_LEVELS} levels")


def read(path: Path) -> dict[str, Any]:
    """Return the mapping that a TOML file holds.

    Raises:
        ScenarioError: it cannot be read, or is no TOML.
    """
    try:
        text = read_text(path, _LARGEST_BYTES)
    except (OSError, ValueError) as error:
        raise ScenarioError(
            f"{path} cannot be read: {unreadable(error)}.", "A scenario is a UTF-8 text file."
        ) from error
    try:
        return within_depth(tomllib.loads(text))
    except (ValueError, RecursionError) as error:  # beside TOMLDecodeError: a number too long, a nesting too deep
        raise ScenarioError(
            f"{path} is not valid TOML: {error}.", "Correct the named line; see docs/scenarios.md."
        ) from error


def to_toml(scenario: Scenario) -> str:
    """Return a resolved scenario as TOML that reads back as the same one: what its variants share stands first."""
    tables = [_part_tables(variant) for variant in scenario.variants]
    shared = {part: _shared([own[part] for own in tables]) for part in _PARTS}
    document = {
        **without_none(scenario.model_dump(mode="json", include={"name", "question", "usual_duration_s"})),
        **{part: table for part, table in shared.items() if table},
        "published": without_none(scenario.published.model_dump(mode="json")) if scenario.published else None,
        "variants": [
            {
                **without_none(variant.model_dump(mode="json", include={"name", "backend", "ceiling", "options"})),
                **{part: table for part in _PARTS if (table := _difference(own[part], shared[part]))},
            }
            for variant, own in zip(scenario.variants, tables, strict=True)
        ],
    }
    return _escape_controls(tomli_w.dumps(without_none(document)))


def _escape_controls(toml: str) -> str:
    """Return the TOML with what steers a terminal written as escapes: it stands in quoted texts only."""
    unsafe = {char for char in set(toml) if safe(char) != char}
    return toml.translate({ord(char): f"\\U{ord(char):08x}" for char in unsafe})


def _part_tables(variant: Variant) -> dict[str, dict[str, Any]]:
    tables = {}
    for name in _PARTS:
        part = getattr(variant, name)
        table = {"kind": part.kind, **part.options} if isinstance(part, Component) else part.model_dump(mode="json")
        tables[name] = without_none(table)
    return tables


def _shared(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first variant's table, less what some other one leaves at None: TOML cannot take a key back."""
    shared = {}
    for key, value in tables[0].items():
        if all(key in table for table in tables):
            inner = [table[key] for table in tables if isinstance(table[key], dict)]
            shared[key] = _shared(inner) if isinstance(value, dict) else value
    return shared


def _difference(own: dict[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a variant has to say beside the shared table; of the tables in it, what these have to say."""
    if own.get("kind") != shared.get("kind"):  # another kind starts from nothing
        return own
    differing = {key: value for key, value in own.items() if key not in shared or not _same(shared[key], value)}
    for key, value in differing.items():
        if isinstance(value, dict) and isinstance(shared.get(key), dict):
            differing[key] = _difference(value, shared[key])
    return differing


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of one type: TOML tells ``1`` from ``1.0`` and from ``true``."""
    return tomli_w.dumps({"value": one}) == tomli_w.dumps({"value": other})


def without_none(value: Any) -> Any:
    """Return the value without the keys that hold None, at any depth: TOML has no such value, a mapping may."""
    if isinstance(value, Mapping):
        return {key: without_none(each) for key, each in value.items() if each is not None}
    return [without_none(each) for each in value] if isinstance(value, list | tuple) else value


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a scenario file, with the options of every plug-in that loads here."""
    run, runtime, published = (model.model_json_schema() for model in (Run, Runtime, Published))
    defs = published.pop("$defs")
    parts: dict[str, Any] = {key: _component_schema(key, DEFAULT_KINDS[key], defs) for key in COMPONENTS}
    own_parts: dict[str, Any] = {key: _component_schema(key, None, defs) for key in COMPONENTS}
    lengths = {"runtime": runtime, "run": run}
    backends = list(plugins.loadable("backends"))
    backend_choices = [
        {
            "if": {"properties": {"backend": {"const": name}}},
            "then": {"properties": {"options": _options_schema("backends", name, defs)}},
        }
        for name in backends
    ]
    variant = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "backend": {"enum": backends},
            "options": {"type": "object"},
            "ceiling": {"type": "string", "minLength": 1},
            **own_parts,
            **lengths,
        },
        "required": ["backend"],
        "additionalProperties": False,
        "allOf": backend_choices,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pipeline-bench scenario",
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "question": {"type": "string"},
            "usual_duration_s": {"type": "number", "exclusiveMinimum": 0},
            **parts,
            **lengths,
            "published": published,
            "variants": {"type": "array", "minItems": 1, "items": variant},
        },
        "additionalProperties": False,
        "$defs": defs,
    }


def _component_schema(key: str, default: str | None, defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a component; without a default, as in a variant, one without a kind may hold any option."""
    group = COMPONENTS[key]
    options = {name: _options_schema(group, name, defs).get("properties", {}) for name in plugins.loadable(group)}
    return {
        "type": "object",
        "properties": {"kind": {"enum": [*options]} | ({"default": default} if default else {})},
        "propertyNames": {"enum": sorted({"kind"}.union(*options.values()))},
        "allOf": [
            {
                "if": {
                    "properties": {"kind": {"const": name}},
                    "required": [] if name == default else ["kind"],
                },
                "then": {
                    "properties": {"kind": {}, **options[name]},
                    "additionalProperties": False,
                },
            }
            for name in options
        ],
    }


def _options_schema(group: plugins.Group, name: str, defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a plug-in's options; what it refers to is added to `defs`, under names of its own."""
    own = f"{group}.{name}."
    schema = plugins.find(group, name).Options.model_json_schema(ref_template=f"#/$defs/{own}{{model}}")
    defs |= {own + key: value for key, value in schema.pop("$defs", {}).items()}
    return schema
