"""The JSON schema of a scenario file, for editors."""

from __future__ import annotations

from typing import Any

from pipeline_bench import plugins
from pipeline_bench.scenario import Published, Run, Runtime
from pipeline_bench.scenario.check import DEFAULT_KINDS
from pipeline_bench.scenario.overrides import COMPONENTS


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a scenario file, the options of every plug-in found here included."""
    run, runtime, published = (model.model_json_schema() for model in (Run, Runtime, Published))
    defs = published.pop("$defs")
    parts: dict[str, Any] = {key: _component_schema(key) for key in COMPONENTS}
    parts |= {"runtime": runtime, "run": run}
    backend_choices = [
        {
            "if": {"properties": {"backend": {"const": name}}},
            "then": {"properties": {"options": plugins.find("backends", name).Options.model_json_schema()}},
        }
        for name in plugins.names("backends")
    ]
    variant = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "backend": {"enum": plugins.names("backends")},
            "options": {"type": "object"},
            "ceiling": {"type": "string", "minLength": 1},
            **parts,
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
            "published": published,
            "variants": {"type": "array", "minItems": 1, "items": variant},
        },
        "additionalProperties": False,
        "$defs": defs,
    }


def _component_schema(key: str) -> dict[str, Any]:
    group = COMPONENTS[key]
    return {
        "type": "object",
        "properties": {"kind": {"enum": plugins.names(group), "default": DEFAULT_KINDS[key]}},
        "allOf": [
            {
                "if": {
                    "properties": {"kind": {"const": name}},
                    "required": [] if name == DEFAULT_KINDS[key] else ["kind"],
                },
                "then": {
                    "properties": {"kind": {}, **plugins.find(group, name).Options.model_json_schema()["properties"]},
                    "additionalProperties": False,
                },
            }
            for name in plugins.names(group)
        ],
    }
