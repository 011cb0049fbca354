"""The command `backends`."""

import json
from typing import Any

import pytest

from pipeline_bench.cli import run
from pipeline_bench.cli.available import describe_type


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backends", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {"feed_dict", "fifo_queue", "tf_data", "ceiling"} <= set(rows)
    threads = next(option for option in rows["fifo_queue"]["options"] if option["name"] == "threads")
    assert (threads["type"], threads["default"]) == ("integer ≥ 1, ≤ 4096", 1)
    assert threads["meaning"]
    assert rows["fifo_queue"]["origin"] == "built in"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "minimum": 1}, "integer ≥ 1"),
        ({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "auto"}]}, 'integer ≥ 0 | "auto"'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
        ({"enum": ["a", "b"]}, '"a" | "b"'),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, "number > 0, ≤ 1"),
        ({"$ref": "#/$defs/Kind"}, '"x"'),
        ({}, "any"),
    ],
)
def test_a_type_in_words(schema: dict[str, Any], text: str) -> None:
    assert describe_type(schema, {"Kind": {"const": "x"}}) == text
