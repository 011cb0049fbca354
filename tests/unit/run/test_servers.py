"""Which trials start servers, and what becomes of them where other machines cannot be kept from these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pipeline_bench.errors import UsageError
from pipeline_bench.run import comparison, servers
from pipeline_bench.run.child import Answer
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve

BETWEEN = {"replicas": 2, "replication": "between_graph"}


def scenario(*runtimes: dict[str, Any]) -> Scenario:
    variants = [
        {"name": f"variant {number}", "backend": "tf_data", "runtime": runtime}
        for number, runtime in enumerate(runtimes)
    ]
    return resolve({"name": "servers", "variants": variants})


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A system that refuses a network namespace."""
    monkeypatch.setattr(servers, "call", lambda *_, **__: Answer(failed="Operation not permitted"))
    servers.refusal.cache_clear()
    yield
    servers.refusal.cache_clear()


def test_replicas_in_processes_start_servers_and_others_none() -> None:
    one, between, mirrored = scenario({}, BETWEEN, {"replicas": 2, "replication": "mirrored"}).variants[:3]
    assert [servers.started_by(each) for each in (one, between, mirrored)] == [False, True, False]


@pytest.mark.usefixtures("no_namespaces")
def test_where_servers_would_be_exposed_their_variants_are_left_out_and_say_why() -> None:
    kept = comparison.without_unavailable(scenario({}, BETWEEN))
    assert "variant 0" in [variant.name for variant in kept.variants]
    assert "variant 1" not in [variant.name for variant in kept.variants]
    (note,) = kept.notes
    assert "'variant 1' was left out" in note
    assert "every network interface" in note
    assert "Operation not permitted" in note
    assert "--expose-servers" in note


@pytest.mark.usefixtures("no_namespaces")
def test_where_nothing_else_is_left_the_comparison_is_refused() -> None:
    with pytest.raises(UsageError, match="--expose-servers"):
        comparison.without_unavailable(scenario(BETWEEN))


@pytest.mark.usefixtures("no_namespaces")
def test_exposed_on_request_every_variant_runs_and_the_session_says_so() -> None:
    wanted = scenario({}, BETWEEN)
    assert comparison.without_unavailable(wanted, expose_servers=True) == wanted
    note = servers.exposed_note(wanted)
    assert note is not None
    assert "variant 1" in note
    assert "variant 0" not in note


def test_a_comparison_without_servers_needs_no_note() -> None:
    assert servers.exposed_note(scenario({})) is None
