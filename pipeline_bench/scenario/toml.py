"""Writes a resolved scenario as a TOML file that reads back as the same scenario."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline_bench.scenario import Component, Scenario, Variant
from pipeline_bench.scenario.overrides import COMPONENTS
from pipeline_bench.text import is_utf8, safe

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PARTS = (*COMPONENTS, "runtime", "run")


def to_toml(scenario: Scenario) -> str:
    """The scenario as TOML: what its variants share first, then each variant with what is its own."""
    parts = [_parts(variant) for variant in scenario.variants]
    shared = {name: table for name in _PARTS if (table := _shared([part[name] for part in parts]))}
    lines = [f"name = {_value(scenario.name)}", f"question = {_value(scenario.question)}"]
    if scenario.usual_duration_s is not None:
        lines += [f"usual_duration_s = {_value(scenario.usual_duration_s)}"]
    for name, table in shared.items():
        lines += ["", f"[{name}]", *_pairs(table)]
    if scenario.published:
        published = _without_none(scenario.published.model_dump(mode="json"))
        figures = published.pop("figures")
        lines += ["", "[published]", *_pairs(published)]
        for figure in figures:
            lines += ["", "[[published.figures]]", *_pairs(_without_none(figure))]
    for variant, own in zip(scenario.variants, parts, strict=True):
        lines += ["", "[[variants]]", f"name = {_value(variant.name)}", f"backend = {_value(variant.backend)}"]
        lines += [f"ceiling = {_value(variant.ceiling)}"] if variant.ceiling is not None else []
        lines += [f"options = {_value(_without_none(variant.options))}"]
        for name in _PARTS:
            lines += [f"{name}.{line}" for line in _pairs(_difference(own[name], shared.get(name, {})))]
    return "\n".join(lines) + "\n"


def _parts(variant: Variant) -> dict[str, dict[str, Any]]:
    tables = {}
    for name in _PARTS:
        part = getattr(variant, name)
        table = {"kind": part.kind, **part.options} if isinstance(part, Component) else part.model_dump(mode="json")
        tables[name] = _without_none(table)
    return tables


def _shared(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """The first variant's table, less what some other one leaves at None: TOML cannot take a key back."""
    return {key: value for key, value in tables[0].items() if all(key in table for table in tables)}


def _difference(own: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    if own.get("kind") != shared.get("kind"):  # another kind starts from nothing
        return dict(own)
    return {key: value for key, value in own.items() if key not in shared or not _same(shared[key], value)}


def _same(one: Any, other: Any) -> bool:
    """Equal and of one type: TOML tells ``1`` from ``1.0`` and from ``true``."""
    return _value(one) == _value(other)


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    return (f"{_key(key)} = {_value(value)}" for key, value in table.items())


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(_value(item) for item in value)}]"
        case dict():
            inner = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items() if item is not None)
            return f"{{ {inner} }}" if inner else "{}"
        case _:
            return _text(str(value))


def _text(text: str) -> str:
    # JSON's escapes are TOML's. DEL, C1 and what changes the direction of a text stand in JSON, and a terminal obeys
    # them. TOML has no word at all for a lone surrogate, which no scenario that was checked holds.
    written = json.dumps(text if is_utf8(text) else safe(text), ensure_ascii=False)
    return "".join(char if safe(char) == char else f"\\U{ord(char):08x}" for char in written)
