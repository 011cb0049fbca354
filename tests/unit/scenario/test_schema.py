"""The JSON schema of a scenario file, against what the reader accepts."""

import tomllib
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError
from pipeline_bench.scenario.files import json_schema, shipped, to_toml
from pipeline_bench.scenario.load import load
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


def errors(document: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document)]


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_scenario_is_valid_as_written_and_as_printed_and_named_as_its_file(name: str) -> None:
    scenario = load(name)
    printed = tomllib.loads(to_toml(scenario))
    assert scenario.name == name
    assert "?" in scenario.question
    assert errors(tomllib.loads(shipped()[name].read_text())) == []
    assert errors(printed) == []
    assert resolve(printed) == scenario


@pytest.mark.parametrize(
    "document",
    [
        {"source": {"latency": 3}},
        {"model": {"kind": "matpow", "step_ms": 3}},
        {"variants": [{"backend": "tf_data", "model": {"stepms": 3}}]},
        {"variants": [{"backend": "tf_data", "model": {"kind": "matpow", "step_ms": 3}}]},
        {"variants": [{"backend": "tf_data", "options": {"threads": 3}}]},
    ],
)
def test_a_key_that_the_reader_refuses_is_refused_by_it(document: dict[str, Any]) -> None:
    assert errors(document)
    with pytest.raises(ScenarioError):
        resolve({"name": "x", **document})
