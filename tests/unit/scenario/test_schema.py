"""The JSON schema of a scenario file, against what the reader accepts."""

import tomllib
from typing import Any

import pytest

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError
from pipeline_bench.scenario.files import json_schema, shipped
from pipeline_bench.scenario.resolve import resolve

SCHEMA = json_schema()


def test_every_reference_leads_somewhere() -> None:
    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if "$ref" in node else []
            return own + [found for value in node.values() for found in references(value)]
        return [found for value in node for found in references(value)] if isinstance(node, list) else []

    for reference in references(SCHEMA):
        assert reference.removeprefix("#/$defs/") in SCHEMA["$defs"]


def test_it_offers_the_backends_and_their_options() -> None:
    variant = SCHEMA["properties"]["variants"]["items"]
    assert variant["properties"]["backend"]["enum"] == plugins.names("backends")
    options = {
        branch["if"]["properties"]["backend"]["const"]: branch["then"]["properties"]["options"]["properties"]
        for branch in variant["allOf"]
    }
    for name in plugins.names("backends"):
        assert set(options[name]) == set(plugins.find("backends", name).Options.model_fields)


@pytest.mark.parametrize("key", sorted(SCHEMA["properties"]))
def test_the_reader_knows_every_key_of_it(key: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        resolve({"name": "x", key: object()})
    assert "unknown key" not in caught.value.message


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_key_of_a_shipped_scenario_is_in_it(name: str) -> None:
    document = tomllib.loads(shipped()[name].read_text())
    assert set(document) <= set(SCHEMA["properties"])
    for variant in document["variants"]:
        assert set(variant) <= set(SCHEMA["properties"]["variants"]["items"]["properties"])
    for key in ("runtime", "run"):
        assert set(document.get(key, {})) <= set(SCHEMA["properties"][key]["properties"])
