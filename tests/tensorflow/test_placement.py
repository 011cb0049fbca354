"""Where ops really ran: a partitioned network, powers of matrices on one device and on two, and any loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench import environment
from pipeline_bench.cli import run
from pipeline_bench.model.events import Placement
from pipeline_bench.models.matpow import Matpow
from pipeline_bench.models.mnist_cnn import MnistCnn
from pipeline_bench.scenario import Runtime
from pipeline_bench.sources import Batch
from pipeline_bench.worker import runtime
from tests.tensorflow.conftest import RunScenario
from tests.trials import alone

CPUS = ("/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3")
PARTITIONED = """
name = "partitioned"
[source]
kind = "memory"
batch_size = 8
features = 784
[model]
kind = "mnist_cnn"
partition = true
[runtime]
device = "cpu"
cpu_devices = 4
inter_op_threads = 2
[[variants]]
name = "partitioned"
backend = "tf_data"
"""


def ran(
    model: Any, steps: int, devices: tuple[str, ...], under: str | None = None
) -> tuple[list[float], dict[str, Any], Placement]:
    """The losses of some steps, the variables after them, and where the ops of one more ran."""
    import tensorflow as tf

    v1 = tf.compat.v1
    model.devices = devices
    with tf.Graph().as_default():
        v1.set_random_seed(0)
        features = np.random.default_rng(0).random((8, 784), dtype=np.float32)
        batch = Batch(tf.constant(features), tf.constant(np.arange(8, dtype=np.int64)))
        with tf.device(under):
            graph = model.build(batch, batch)
        options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        with v1.Session(config=v1.ConfigProto(device_count={"CPU": 4})) as session:
            session.run(v1.global_variables_initializer())
            losses = [float(session.run([graph.train, graph.loss])[1]) for _ in range(steps)]
            variables = {each.op.name: session.run(each) for each in v1.global_variables()}
            session.run([graph.train, graph.loss], options=options, run_metadata=metadata)
    return losses, variables, runtime.placement_of_graphs(metadata.partition_graphs)


def types_on(placement: Placement, device: str) -> str:
    return " ".join(op.type for op in placement.ops if op.device == device)


def test_each_layer_is_trained_on_its_own_device_and_learns_the_same() -> None:
    whole, _, together = ran(MnistCnn(), 3, CPUS)
    apart, _, partitioned = ran(MnistCnn({"partition": True}), 3, CPUS)
    assert {op.device for op in together.ops} == {"CPU:0"}
    for device, op in {"CPU:0": "Conv2D", "CPU:1": "Conv2D", "CPU:2": "MatMul", "CPU:3": "MatMul"}.items():
        types = types_on(partitioned, device)
        assert op in types
        assert types.count("ResourceApplyMomentum") == 2  # weights and biases of one layer
    assert "Conv2DBackpropInput" in types_on(partitioned, "CPU:1")  # the gradient too, not only the way forward
    np.testing.assert_allclose(apart, whole, rtol=1e-5)


def test_a_whole_one_stays_where_it_is_put() -> None:
    _, _, placement = ran(MnistCnn(), 1, CPUS, under="/cpu:1")
    assert types_on(placement, "CPU:1").count("ResourceApplyMomentum") == 8
    assert "MatMul" not in types_on(placement, "CPU:0")


def test_with_fewer_devices_than_layers_the_last_one_takes_the_rest() -> None:
    _, _, placement = ran(MnistCnn({"partition": True}), 1, CPUS[:2])
    assert types_on(placement, "CPU:0").count("ResourceApplyMomentum") == 2
    assert types_on(placement, "CPU:1").count("ResourceApplyMomentum") == 6


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("power", [1, 7])
def test_the_powers_are_right_wherever_they_are_computed(devices: int, power: int) -> None:
    model = Matpow({"size": 24, "power": power, "devices": devices})
    losses, found, placement = ran(model, 2, CPUS[:2])
    a, b, kept = (found[f"matpow_{name}"].astype(np.float64) for name in ("A", "B", "sum"))
    np.testing.assert_allclose(
        kept, np.linalg.matrix_power(a, power) + np.linalg.matrix_power(b, power), rtol=1e-3, atol=1e-5
    )
    assert not np.allclose(a, b)
    assert np.isnan(losses).all()
    multiplied = [types_on(placement, device).count("MatMul") for device in ("CPU:0", "CPU:1")]
    assert multiplied == ([2 * (power - 1), 0] if devices == 1 else [power - 1, power - 1])


def test_a_large_power_neither_overflows_nor_vanishes() -> None:
    _, found, _ = ran(Matpow({"size": 128, "power": 20}), 1, CPUS[:1])
    assert 1e-6 < float(np.abs(found["matpow_sum"]).max()) < 1e3


def test_every_loop_tells_where_its_step_ran(run_scenario: RunScenario) -> None:
    loops: list[dict[str, Any]] = [
        {"name": "fed", "backend": "feed_dict"},
        {"name": "queued", "backend": "fifo_queue"},
        {"name": "eager", "backend": "tf_data", "loop": {"kind": "function"}},
    ]
    scenario = alone(
        *loops,
        {**loops[0], "name": "not asked", "runtime": {"log_placement": False}},
        source={"batch_size": 8, "features": 16},
        model={"hidden_widths": [8], "learning_rate": 0.1},  # one step more is another accuracy
        runtime={"device": "cpu", "log_placement": True},
        run={"steps": 4},
    )
    *asked, not_asked = run_scenario(scenario).trials
    assert asked[0].accuracy == not_asked.accuracy  # nor does it count as training
    for trial in asked:
        assert trial.status == "ok", trial.reason
        assert trial.placement is not None
        assert trial.placement.reason is None, trial.variant
        assert "MatMul" in types_on(trial.placement, "CPU:0"), trial.variant
        assert trial.steps is not None
        assert trial.steps.count == 4  # the step that tells is none of the trial's


@pytest.mark.slow
@pytest.mark.usefixtures("commands_share_server")
def test_the_option_shows_the_devices_of_a_partitioned_network_and_a_note_the_threads_beyond_the_cores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = environment.describe
    monkeypatch.setattr(environment, "describe", lambda found: here(found).model_copy(update={"cores": 1}))
    asked = tmp_path / "partitioned.toml"
    asked.write_text(PARTITIONED)
    options = ["--log-placement", "--steps", "6", "--repeats", "1", "--no-live", "--out", str(tmp_path / "out")]
    assert run(["compare", str(asked), *options]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    warned = "There are more threads than cores (1) on this machine: partitioned for 2 inter-op threads."
    assert shown.count(warned) == 2, "before the trials, and among the notes"
    assert "threads: partitioned asks for 2 inter-op threads on 1 core: their effect is not known" in shown
    assert "placement: which device ran the ops of a step" in shown
    for number in range(4):
        assert f"CPU:{number}" in shown
    report = next((tmp_path / "out").rglob("report.md")).read_text(encoding="utf-8")
    assert "ResourceApplyMomentum" in report


@pytest.mark.parametrize(
    ("gpus", "asked", "put_on", "devices"),
    [
        (0, {"cpu_devices": 2}, "cpu", ("/cpu:0", "/cpu:1")),
        (1, {"cpu_devices": 2}, "cpu", ("/cpu:0", "/cpu:1")),
        (2, {"cpu_devices": 2}, "auto", ("/gpu:0", "/gpu:1")),
        (2, {"device": "cpu"}, "cpu", ("/cpu:0",)),
        (2, {"device": "gpu:1"}, "gpu:1", ("/gpu:1",)),
    ],
)
def test_matpow_is_on_two_gpus_or_on_none_unless_one_is_asked_for(
    gpus: int, asked: dict[str, Any], put_on: str, devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    for named in ("list_physical_devices", "get_visible_devices"):
        monkeypatch.setattr(tf.config, named, lambda kind: ["a GPU"] * gpus)
    wanted = Runtime.model_validate(asked)
    settings = runtime.of_model(Matpow(), wanted)
    assert settings.device == put_on
    assert runtime.model_devices(wanted, runtime.accelerator(settings)) == devices


def test_one_gpu_is_enough_for_other_models(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a GPU"])
    assert runtime.of_model(MnistCnn(), Runtime()).device == "auto"
