"""What is replicated, what is refused, and how a batch is divided among replicas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench import replication
from pipeline_bench.analysis.speedups import batch_size
from pipeline_bench.errors import UsageError
from pipeline_bench.models.emulated import Emulated
from pipeline_bench.models.two_layer import TwoLayer
from pipeline_bench.scenario import Runtime
from pipeline_bench.scenario.resolve import resolve


def asked(replicas: int, how: str = "in_graph", *, synchronous: bool = True) -> Runtime:
    return Runtime.model_validate({"replicas": replicas, "replication": how, "synchronous": synchronous})


@pytest.mark.parametrize("how", ["in_graph", "mirrored", "between_graph"])
def test_an_even_batch_of_a_model_with_a_gradient_passes(how: str) -> None:
    replication.check(TwoLayer({}), asked(4, how), 128)


@pytest.mark.parametrize("how", ["in_graph", "mirrored", "between_graph"])
def test_a_batch_that_cannot_be_divided_is_refused_with_one_that_can(how: str) -> None:
    with pytest.raises(UsageError, match="128 samples cannot be divided evenly among 3 replicas") as refused:
        replication.check(TwoLayer({}), asked(3, how), 128)
    assert "such as 129" in refused.value.hint


def test_one_replica_takes_any_model_and_batch() -> None:
    replication.check(Emulated({}), asked(1), 7, loop="while_loop")


def test_workers_need_several_replicas_to_be_any() -> None:
    with pytest.raises(UsageError, match=r"needs several replicas, and runtime\.replicas is 1"):
        replication.check(TwoLayer({}), asked(1, "between_graph"), 128)


@pytest.mark.parametrize(("replicas", "how"), [(1, "in_graph"), (2, "in_graph"), (2, "mirrored")])
def test_only_workers_can_go_on_without_each_other(replicas: int, how: str) -> None:
    with pytest.raises(UsageError, match=f'synchronous = false needs the workers of .*, and it is "{how}"'):
        replication.check(TwoLayer({}), asked(replicas, how, synchronous=False), 128)
    replication.check(TwoLayer({}), asked(2, "between_graph", synchronous=False), 128)


def test_an_emulated_device_has_no_gradient_to_share() -> None:
    with pytest.raises(UsageError, match="emulated cannot be replicated"):
        replication.check(Emulated({}), asked(2), 128)


def test_workers_are_driven_by_the_session_loop_only() -> None:
    with pytest.raises(UsageError, match="callable cannot drive between_graph workers"):
        replication.check(TwoLayer({}), asked(2, "between_graph"), 128, loop="callable")
    replication.check(TwoLayer({}), asked(2, "in_graph"), 128, loop="callable")


def test_only_several_replicas_between_graphs_are_processes() -> None:
    assert replication.in_processes(asked(2, "between_graph"))
    assert not replication.in_processes(asked(1, "between_graph"))
    assert not replication.in_processes(asked(2, "mirrored"))


def test_a_worker_has_its_part_of_the_batch_and_the_variant_keeps_the_whole() -> None:
    (whole, _) = resolve(
        {
            "name": "t",
            "source": {"batch_size": 12},
            "variants": [{"name": "v", "backend": "tf_data", "runtime": {"replicas": 3}}],
        }
    ).variants
    assert batch_size(replication.part_of(whole)) == 4
    assert batch_size(whole) == 12


def test_the_batch_of_a_wrapped_source_is_divided_too() -> None:
    (whole, _) = resolve(
        {
            "name": "t",
            "source": {"kind": "slow_storage", "files": {"kind": "tfrecord", "batch_size": 32}},
            "model": {"kind": "mobilenet"},
            "variants": [{"name": "v", "backend": "tf_data", "runtime": {"replicas": 2}}],
        }
    ).variants
    assert batch_size(replication.part_of(whole)) == 16
    assert batch_size(whole) == 32


@given(st.integers(0, 2**31 - 1), st.integers(2, 64))
def test_every_worker_has_a_seed_of_its_own_and_worker_0_the_runs(seed: int, workers: int) -> None:
    seeds = [replication.seed_of(seed, worker) for worker in range(workers)]
    assert seeds[0] == seed
    assert len(set(seeds)) == workers
    assert all(0 <= each < 2**31 for each in seeds)


def test_replicas_have_a_gpu_each_where_the_trial_is_on_one() -> None:
    assert replication.devices(asked(2), None) == ["/cpu:0", "/cpu:1"]
    assert replication.devices(asked(2), "/gpu:0") == ["/gpu:0", "/gpu:1"]
