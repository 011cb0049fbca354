"""Puts the command line's values over a scenario file's: ``--set KEY=VALUE``, and those that hold for every variant."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_bench.errors import ScenarioError, did_you_mean, sentence

RIVALS = {"steps": "time_s", "time_s": "steps"}
"""The two ways to say how long a trial is; one replaces the other."""


def apply(document: dict[str, Any], override: str, default_variants: Sequence[dict[str, Any]]) -> None:
    """Set one ``KEY=VALUE`` in the document; the variants of a file that has none are the default's.

    Raises:
        ScenarioError: the key or the variant that it names cannot be found.
    """
    key, equals, text = override.partition("=")
    path = _split_key(key.strip(), override)
    if not equals or not path or "\n" in text:
        raise ScenarioError(
            f"--set {override!r} is no KEY=VALUE.",
            "Write for example --set source.batch_size=32 or --set run.repeats=5.",
        )
    if path[0] == "variants" and "variants" not in document:
        document["variants"] = list(default_variants)
    _set(document, path, _toml_value(text.strip()), override)


def force_run(document: dict[str, Any], run: Mapping[str, Any]) -> None:
    """Let the values hold for the scenario and every variant of it; a table that is none is left for the check."""
    variants = document.get("variants")
    own = [entry.get("run") for entry in variants if isinstance(entry, dict)] if isinstance(variants, list) else []
    tables = [table for table in own if isinstance(table, dict)]
    for table in tables:
        for key in run:
            table.pop(key, None)
            table.pop(RIVALS.get(key, key), None)
    shared = document.setdefault("run", {})
    if isinstance(shared, dict):
        for key, value in run.items():
            shared.pop(RIVALS.get(key, key), None)
            shared[key] = value


def _split_key(key: str, override: str) -> list[str]:
    """Split a dotted key as TOML does, so that a quoted part may hold dots: ``variants."a.b".backend``."""
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
    return parts


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _set(document: dict[str, Any], path: list[str], value: Any, override: str) -> None:
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
