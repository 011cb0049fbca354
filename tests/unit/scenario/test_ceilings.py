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


def test_a_setting_of_the_runtime_that_changes_no_step_makes_no_other_ceiling() -> None:
    found = scenario(
        {"name": "a", "backend": "feed_dict"},
        {"name": "b", "backend": "tf_data", "runtime": {"log_placement": True, "replication": "mirrored"}},
        {"name": "c", "backend": "tf_data", "runtime": {"replicas": 2}},
        {"name": "d", "backend": "fifo_queue", "runtime": {"replicas": 2, "synchronous": False}},
    )
    assert [variant.ceiling for variant in found.variants[:2]] == ["ceiling, replicas 1"] * 2
    assert [variant.ceiling for variant in found.variants[2:4]] == ["ceiling, replicas 2, replication in_graph"] * 2


def test_between_graph_workers_that_wait_for_each_other_have_another_ceiling_than_those_that_do_not() -> None:
    runtime = {"replicas": 2, "replication": "between_graph"}
    found = scenario(
        {"name": "a", "backend": "tf_data", "runtime": runtime},
        {"name": "b", "backend": "tf_data", "runtime": {**runtime, "synchronous": False}},
    )
    assert [variant.name for variant in found.variants[2:]] == [
        "ceiling, synchronous true",
        "ceiling, synchronous false",
    ]


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
