"""Which variants share a ceiling, what it is called, and how long it runs."""

from __future__ import annotations

from typing import Any

from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve


def scenario(*entries: dict[str, Any]) -> Scenario:
    return resolve({"name": "test", "variants": list(entries)})


def test_variants_that_differ_in_backend_or_latency_share_one() -> None:
    found = scenario(
        {"name": "a", "backend": "feed_dict"},
        {"name": "b", "backend": "tf_data"},
        {"name": "c", "backend": "tf_data", "source": {"latency_ms": 5}},
    )
    assert {variant.ceiling for variant in found.variants[:3]} == {"ceiling"}
    assert found.variant("ceiling").source.options["latency_ms"] == 0


def test_ceilings_are_called_after_what_tells_them_apart() -> None:
    found = scenario(
        {"name": "a", "backend": "feed_dict", "source": {"batch_size": 32}},
        {"name": "b", "backend": "tf_data", "source": {"batch_size": 64}},
    )
    assert [variant.name for variant in found.variants[2:]] == ["ceiling, batch_size 32", "ceiling, batch_size 64"]


def test_a_ceiling_runs_as_long_and_as_often_as_the_longest_of_its_variants() -> None:
    found = scenario(
        {"name": "a", "backend": "feed_dict", "run": {"steps": 5, "repeats": 5}},
        {"name": "b", "backend": "tf_data", "run": {"steps": 300, "repeats": 1}},
    )
    run = found.variant("ceiling").run
    assert (run.steps, run.repeats) == (300, 5)


def test_a_ceiling_in_the_file_is_used() -> None:
    found = scenario({"name": "top", "backend": "ceiling"}, {"name": "a", "backend": "feed_dict"})
    assert [variant.name for variant in found.variants] == ["top", "a"]
    assert found.variant("a").ceiling == "top"
