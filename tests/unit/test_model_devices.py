"""Models that spread over devices: what the parent refuses before the first trial, and the scenarios that use them."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.errors import UsageError
from pipeline_bench.run.comparison import prepare_data
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.load import load
from pipeline_bench.scenario.resolve import resolve


def refused(model: dict[str, Any], runtime: dict[str, Any], features: int = 784) -> str:
    document = {
        "name": "devices",
        "source": {"kind": "memory", "features": features},
        "model": model,
        "runtime": runtime,
        "variants": [{"name": "asked", "backend": "tf_data"}],
    }
    with pytest.raises(UsageError) as caught:
        prepare_data(resolve(document), Observer())
    return f"{caught.value.message} {caught.value.hint}"


PARTITION = {"kind": "mnist_cnn", "partition": True}
TWO = {"kind": "matpow", "devices": 2}


@pytest.mark.parametrize(
    ("model", "runtime", "said"),
    [
        (PARTITION, {"device": "cpu"}, "cpu_devices = 1. Set runtime.device"),
        (PARTITION, {"cpu_devices": 4}, "device = 'auto'"),
        (PARTITION, {"device": "cpu", "cpu_devices": 4, "replicas": 2}, "partition = false, or runtime.replicas = 1"),
        (TWO, {}, "Set runtime.cpu_devices = 2"),
        (TWO, {"device": "gpu:1", "cpu_devices": 2}, "runtime.device is 'gpu:1', which is one"),
        ({"kind": "mlp"}, {"replicas": 2}, "its loss is a sum over the batch"),
        ({"kind": "emulated"}, {"device": "gpu"}, 'Set runtime.device = "auto"'),
        ({"kind": "emulated_two_layer"}, {"device": "gpu:1"}, 'Set runtime.device = "auto"'),
        ({"kind": "matpow"}, {"replicas": 2}, "The model matpow cannot be replicated"),
    ],
)
def test_a_runtime_with_too_few_devices_is_refused_with_what_to_set(
    model: dict[str, Any], runtime: dict[str, Any], said: str
) -> None:
    text = refused(model, runtime)
    assert text.startswith("The variant 'asked' cannot run: ")
    assert said in text


@pytest.mark.parametrize("name", ["cpu_threads", "graph_partition", "matpow"])
def test_the_shipped_scenarios_pass_and_bring_a_ceiling_for_each_variant(name: str) -> None:
    scenario = load(name)
    prepare_data(scenario, Observer())
    compared = [variant for variant in scenario.variants if not variant.is_ceiling]
    for variant in compared:
        ceiling = scenario.variant(str(variant.ceiling))
        assert (ceiling.runtime, ceiling.model) == (variant.runtime, variant.model)
    assert len({variant.ceiling for variant in compared}) == len(compared)


@pytest.mark.parametrize(("option", "value"), [("devices", 3), ("size", 0), ("power", 0), ("side", 9)])
def test_options_of_matpow_outside_their_range_are_refused(option: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"model.{option}"):
        load("matpow", [f"variants.0.model.{option}={value}"])
