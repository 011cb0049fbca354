"""The ceiling whose batch lies in host memory: another CPU device stands in for the model's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline_bench.backends.ceiling import Ceiling, HostCeiling
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.sources.memory import Memory
from pipeline_bench.worker import runtime
from tests.tensorflow.conftest import RunScenario
from tests.trials import losses, without_ceilings

HOST, DEVICE = "CPU:0", "CPU:1"
LOOPS: dict[str, dict[str, Any]] = {
    "session": {},
    "while_loop": {"steps_per_call": 10},
    "function": {"steps_per_call": 10},
    "keras_fit": {},
    "native": {},
}


def step_on(device: str, backend: Ceiling) -> dict[str, list[str]]:
    """The types of the ops of one step that takes the batch on that device, by the device that they ran on."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        feeding = backend.connect(Memory({"batch_size": 4, "features": 8, "samples": 16}), device)
        with tf.device(device):
            total = tf.reduce_sum(feeding.batch.features)
        options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
            session.run(v1.global_variables_initializer())
            feeding.start(session)
            session.run(total, options=options, run_metadata=metadata)
    found: dict[str, list[str]] = {HOST: [], DEVICE: []}
    for op in runtime.placement_of_graphs(metadata.partition_graphs).ops:
        found[op.device].append(op.type)
    return found


def test_each_step_sends_its_batch_from_host_memory_to_the_models_device() -> None:
    copied = step_on("/cpu:1", HostCeiling())
    assert "IteratorGetNext" in copied[HOST]
    assert any("Send" in kind for kind in copied[HOST])
    assert any("Recv" in kind for kind in copied[DEVICE])


def test_the_step_of_the_ceiling_takes_nothing_from_the_host() -> None:
    on_device = step_on("/cpu:1", Ceiling())[DEVICE]
    assert "Sum" in on_device  # the step itself was recorded
    assert not any("Recv" in kind for kind in on_device)


def test_its_batches_are_several_in_memory_which_come_in_turn() -> None:
    feeding = HostCeiling().connect_eagerly(Memory({"batch_size": 64, "features": 4096, "samples": 128}), None)
    taken = [feeding.take()[0].features for _ in range(48)]
    places = [np.asarray(memoryview(features)).ctypes.data for features in taken]
    assert len(set(places)) == 16
    assert places[16:] == places[:-16]
    np.testing.assert_array_equal(taken[0], taken[1])


@pytest.mark.parametrize(
    "loops", [("while_loop",), pytest.param(("session", "function", "keras_fit", "native"), marks=pytest.mark.slow)]
)
def test_it_trains_as_the_ceiling_does_in_every_loop(run_scenario: RunScenario, loops: tuple[str, ...]) -> None:
    names = {f"{backend} {loop}": (backend, loop) for loop in loops for backend in ("ceiling", "host_ceiling")}
    variants = [
        {"name": name, "backend": backend, "loop": {"kind": loop, **LOOPS[loop]}}
        for name, (backend, loop) in names.items()
    ]
    scenario = {"name": "loops", "source": {"kind": "memory", "features": 16}, "run": {"steps": 20, "repeats": 1}}
    found = {}
    for record in run_scenario(without_ceilings(resolve({**scenario, "variants": variants}), *names)).trials:
        found[record.variant] = losses(record)
        assert record.steps is not None
        assert record.steps.wait_ns is None
    for loop in loops:
        np.testing.assert_allclose(found[f"host_ceiling {loop}"], found[f"ceiling {loop}"], rtol=1e-5)
