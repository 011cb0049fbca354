"""The parts on a GPU, whole, against stubs of the driver and of NVML: the plumbing and the arithmetic, no GPU.

The stub of the driver writes down what its kernels kept busy, and that of NVML computes its figures of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pipeline_bench.model.selftest import GpuRun, Selftest
from pipeline_bench.planted import cuda, gpu_loads
from pipeline_bench.run.child import call
from pipeline_bench.run.observer import Observer
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.selftest import gpu
from tests.stubs.nvml import gpu_stub, stub_environment

__all__ = ["gpu_stub"]


@pytest.fixture
def sampler(gpu_stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvmlSampler]:
    timeline = tmp_path / "timeline"
    timeline.touch()
    variables = {"NVML_STUB_TIMELINE": str(timeline), "CUDA_STUB_TIMELINE": str(timeline)}
    figures = {"NVML_STUB_GPM": "3:6,10:3,20:100,21:900", "NVML_STUB_WINDOW_MS": "200"}
    for name, value in stub_environment(gpu_stub, **variables, **figures).items():
        monkeypatch.setenv(name, value)
    with closing(NvmlSampler.open()) as opened:
        assert opened.accelerator.name == "NVIDIA Stub"
        yield opened


def loads(*shares: float) -> list[dict[str, object]]:
    common = {"kernel": "wide", "period_ms": 500.0, "sm_share": 1.0, "seconds": 1.0}
    return [{"name": f"wide, {share}", "share": share, **common} for share in shares]


def test_what_kernels_keep_busy_is_held_against_both_of_nvmls_figures(sampler: NvmlSampler) -> None:
    found = gpu._duty_cycles(sampler, Observer(), loads(0.0, 0.5, 1.0), Selftest())
    shares = [run.busy_share for run in found.gpu_runs]
    assert shares == [0.0, pytest.approx(0.5, abs=0.2), pytest.approx(1.0, abs=0.1)]
    assert [window.source for window in found.windows] == list(gpu.INSTRUMENTS)
    assert all(window.window_ms is not None for window in found.windows)
    assert {check.figure for check in found.parts[0].checks} == set(gpu.INSTRUMENTS)


def test_gpm_says_which_share_of_the_sms_was_busy(sampler: NvmlSampler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_ACTIVITY_S", 0.8)
    found = gpu._activity(sampler, Observer(), Selftest())
    by_name = {(check.what, check.figure): check for check in found.parts[0].checks}
    for share in (25, 50, 100):
        check = by_name[f"{share} % of the SMs", "sm active"]
        assert check.planted == pytest.approx(share, abs=5)
        assert check.measured == pytest.approx(share, abs=10)
    assert by_name["tensor cores", "tensor"].measured == pytest.approx(50, abs=10)
    assert by_name["copy to the device", "pcie rx"].measured == 900
    assert by_name["copy to the device", "pcie rx"].passed is None


def test_a_copy_of_the_stubs_takes_its_size(sampler: NvmlSampler) -> None:
    found = gpu._copies(Observer(), (16 << 20,), Selftest())
    assert {each.memory for each in found.copies} == {"pinned", "pageable"}
    for each in found.copies:
        assert each.device_ms == pytest.approx(1.68, rel=0.05)  # 16 MiB at the stub's 10 GB/s
        assert each.hidden_share is not None


def test_a_driver_that_refuses_is_a_reason(sampler: NvmlSampler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_STUB_REFUSES", "1")
    found = gpu._duty_cycles(sampler, Observer(), loads(0.5), Selftest())
    assert found.parts[0].status == "not-run"
    assert found.parts[0].reason == "cuInit failed: CUDA_ERROR_NO_DEVICE"
    answer = call(gpu_loads.copies, {"sizes_bytes": [1]}, progress=lambda _: None)
    assert "CUDA_ERROR_NO_DEVICE" in answer.failed


def test_under_mig_utilization_is_not_judged_and_says_why(
    sampler: NvmlSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVML_STUB_MODE", "mig")
    with closing(NvmlSampler.open()) as under_mig:
        short = {**loads(0.5)[0], "period_ms": 100.0, "seconds": 0.2}
        found = gpu._duty_cycles(under_mig, Observer(), [short], Selftest())
    why = "NVML does not report it while MIG is enabled on this GPU"
    assert [window.reason for window in found.windows] == [why, why]
    assert (found.parts[0].status, found.parts[0].reason) == ("not-run", why)


def test_a_container_without_the_drivers_compiler_is_told_what_it_lacks(
    sampler: NvmlSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_STUB_NO_COMPILER", "1")
    found = gpu._duty_cycles(sampler, Observer(), loads(0.5), Selftest())
    assert "libnvidia-ptxjitcompiler.so.1, is not there" in (found.parts[0].reason or "")


def test_memory_whose_clock_the_driver_does_not_tell_has_no_planted_share() -> None:
    """As that of a GPU that shares the host's: nothing is divided by it."""
    run = GpuRun(name="copy in memory", kernel="copy in memory", start_ns=0, end_ns=10**9, bytes_moved=10**9)
    (check,) = gpu._activity_checks(run, {"memory_bytes_per_s": 0.0, "sm_count": 1})
    assert (check.planted, check.measured) == (None, None)


def test_a_gpu_is_found_by_its_address_without_a_context(gpu_stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "LIBRARY", str(gpu_stub / "libcuda.so.1"))
    assert cuda.pci_bus_id(0) == "0000:01:00.0"
    monkeypatch.setattr(cuda, "LIBRARY", "libcuda_that_is_not_there.so")
    assert cuda.pci_bus_id(0) is None
