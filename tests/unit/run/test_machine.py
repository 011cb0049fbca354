"""What a comparison that names no scenario trains: a GPU's job only where TensorFlow uses one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_bench.cli import run
from pipeline_bench.diagnosis import variants
from pipeline_bench.environment import Accelerator
from pipeline_bench.errors import UsageError
from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.pipeline import Target
from pipeline_bench.run import comparison, diagnosis, machine
from pipeline_bench.run.child import Answer
from pipeline_bench.run.machine import TensorFlowAnswer
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.load import load
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.worker.devices import Matmul, TensorFlowDevice, TensorFlowReport

CPU, GPU = TensorFlowDevice(kind="cpu", name="CPU:0"), TensorFlowDevice(kind="gpu", name="NVIDIA H200")


def found(monkeypatch: pytest.MonkeyPatch, listed: str | None, *devices: TensorFlowDevice) -> machine.MainJob:
    """The job where the driver lists that GPU and TensorFlow those devices; none of them: it cannot be imported."""
    sampler = SimpleNamespace(accelerator=Accelerator(name=listed), close=lambda: None)
    monkeypatch.setattr(NvmlSampler, "open", lambda: sampler)
    report = TensorFlowReport(
        tensorflow="2.21.0",
        import_s=1.0,
        built_with_cuda=True,
        devices=devices,
        cpu_threads=2,
        matmul=Matmul(device="/cpu:0", ok=True),
    )
    monkeypatch.setattr(machine, "ask_tensorflow", lambda: TensorFlowAnswer(report if devices else None))
    return machine.choose()


def test_with_a_gpu_that_tensorflow_uses_it_is_trained_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, "NVIDIA H200", CPU, GPU) == ("two_layer", None)


@pytest.mark.parametrize(
    ("listed", "devices", "words"),
    [
        (None, (CPU, GPU), "No NVIDIA GPU was found"),
        ("NVIDIA H200", (CPU,), "NVIDIA H200 is here, but TensorFlow does not use it"),
        ("NVIDIA H200", (), "NVIDIA H200 is here, but TensorFlow does not use it"),
    ],
)
def test_without_one_the_accelerator_is_emulated_and_the_note_says_why(
    listed: str | None, devices: tuple[TensorFlowDevice, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = found(monkeypatch, listed, *devices)
    assert job.scenario == "tutorial"
    noted = job.noted(load(job.scenario, ["source.features=1000000"])).notes
    assert noted[0].startswith(words)
    assert "emulated accelerator" in noted[0]
    assert "published figures are left out" in noted[1]


def test_the_first_line_says_that_the_accelerator_is_emulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = found(monkeypatch, None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "pipeline_bench.run.comparison.compare", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    assert run(["compare", "--no-live"]) == 130
    assert " ".join(capsys.readouterr().out.split()).startswith(str(job.note))
    assert run(["compare", "two_layer", "--no-live"]) == 130
    assert "emulated" not in capsys.readouterr().out


@pytest.mark.parametrize(("device", "devices"), [("gpu", (CPU, GPU)), ("auto", (CPU,)), ("gpu", ())])
def test_a_scenario_that_needs_a_gpu_is_refused_only_where_tensorflow_says_that_it_has_none(
    device: str, devices: tuple[TensorFlowDevice, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, None, *devices)
    machine.check_gpu(scenario({"device": device}), Observer())


def test_a_scenario_that_needs_a_gpu_says_so_in_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, None, CPU)
    monkeypatch.setattr(NvmlSampler, "open", NvmlSampler)
    folder = tmp_path / "session"
    folder.mkdir()
    with pytest.raises(UsageError, match="device_prefetch needs a GPU"):
        comparison.compare(load("device_prefetch"), folder, Observer())
    assert not folder.exists()


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
    monkeypatch.setattr(machine, "call", lambda *_, **__: Answer(failed="Operation not permitted"))
    machine.refuse_servers.cache_clear()
    yield
    machine.refuse_servers.cache_clear()


def test_replicas_in_processes_start_servers_and_others_none() -> None:
    one, between, mirrored = scenario({}, BETWEEN, {"replicas": 2, "replication": "mirrored"}).variants[:3]
    assert [machine.starts_servers(each) for each in (one, between, mirrored)] == [False, True, False]


@pytest.mark.usefixtures("no_namespaces")
def test_where_servers_would_be_exposed_their_variants_are_left_out_and_say_why() -> None:
    kept = comparison.without_unavailable(scenario({}, BETWEEN))
    assert "variant 0" in [variant.name for variant in kept.variants]
    assert "variant 1" not in [variant.name for variant in kept.variants]
    (note,) = kept.notes
    assert kept.left_out == {"variant 1": note}
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
    note = machine.exposed_note(wanted)
    assert note is not None
    assert "variant 1" in note
    assert "variant 0" not in note


def test_a_comparison_without_servers_needs_no_note() -> None:
    assert machine.exposed_note(scenario({})) is None


class Told(Observer):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_diagnosis_that_may_expose_servers_says_so_beforehand_and_in_its_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(diagnosis, "run", lambda session, folder, *_, **__: Outcome(session, folder, False))
    asked = Diagnosis(target=Target(file="train.py", name="make_dataset"), budget_s=20)
    told = Told()
    for exposed in (False, True):
        outcome = diagnosis.run_diagnosis(asked, variants.scenario(asked, None), tmp_path, told, expose_servers=exposed)
        assert any("--expose-servers: other machines" in note for note in outcome.session.notes) == exposed
        assert any("--expose-servers: other machines" in note for note in told.notes) == exposed
