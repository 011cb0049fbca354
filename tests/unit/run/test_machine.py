"""What a comparison that names no scenario trains: a GPU's job only where TensorFlow uses one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline_bench.cli import run
from pipeline_bench.environment import Accelerator
from pipeline_bench.run import machine
from pipeline_bench.run.machine import Probed
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario.load import load
from pipeline_bench.worker.probe import Matmul, ProbedDevice, ProbeReport

CPU, GPU = ProbedDevice(kind="cpu", name="CPU:0"), ProbedDevice(kind="gpu", name="NVIDIA H200")


def found(monkeypatch: pytest.MonkeyPatch, listed: str | None, *devices: ProbedDevice) -> machine.MainJob:
    """The job where the driver lists that GPU and TensorFlow those devices; none of them: it cannot be imported."""
    sampler = SimpleNamespace(accelerator=Accelerator(name=listed), close=lambda: None)
    monkeypatch.setattr(NvmlSampler, "open", lambda: sampler)
    report = ProbeReport(
        tensorflow="2.21.0",
        import_s=1.0,
        built_with_cuda=True,
        devices=devices,
        cpu_threads=2,
        matmul=Matmul(device="/cpu:0", ok=True),
    )
    monkeypatch.setattr(machine, "run_probe", lambda: Probed(report if devices else None))
    return machine.choose()


def test_with_a_gpu_that_tensorflow_uses_it_is_trained_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, "NVIDIA H200", CPU, GPU) == ("two_layer", None)


@pytest.mark.parametrize(
    ("listed", "devices", "words"),
    [
        (None, (CPU, GPU), "No NVIDIA GPU is found here"),
        ("NVIDIA H200", (CPU,), "NVIDIA H200 is here, but TensorFlow does not use it"),
        ("NVIDIA H200", (), "NVIDIA H200 is here, but TensorFlow does not use it"),
    ],
)
def test_without_one_the_accelerator_is_emulated_and_the_note_says_why(
    listed: str | None, devices: tuple[ProbedDevice, ...], words: str, monkeypatch: pytest.MonkeyPatch
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
