"""Each part on a GPU, and how it fails, against stubs of the driver and of NVML: the plumbing, and nothing of a GPU.

What comes out of the whole is in `test_chain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pipeline_bench.model import Series
from pipeline_bench.model.selftest import GpuRun, Part, Selftest, Window
from pipeline_bench.model.trial import Track
from pipeline_bench.planted import cuda, gpu_loads
from pipeline_bench.report import selftest as report
from pipeline_bench.run.child import call
from pipeline_bench.run.observer import Observer
from pipeline_bench.samplers import Reading
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.samplers.nvml_metrics import RATES, UTILIZATION
from pipeline_bench.selftest import gpu
from tests.stubs.nvml import gpu_environment, gpu_stub
from tests.unit.console import printed
from tests.unit.selftest.test_windows import cycles

__all__ = ["gpu_stub"]


@pytest.fixture
def sampler(gpu_stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvmlSampler]:
    for name, value in gpu_environment(gpu_stub, tmp_path / "timeline").items():
        monkeypatch.setenv(name, value)
    with closing(NvmlSampler.open()) as opened:
        assert opened.accelerator.name == "NVIDIA Stub"
        yield opened


BROKE_OFF = "cuLaunchKernel failed: CUDA_ERROR_LAUNCH_FAILED"


def output(part: Part) -> str:
    """What the terminal shows of a part."""
    return printed(report.table(Selftest(parts=(part,)), 120), 120)


def loads(*shares: float) -> list[dict[str, object]]:
    common = {"kernel": "wide", "period_ms": 500.0, "sm_share": 1.0, "seconds": 1.0}
    return [{"name": f"wide, {share}", "share": share, **common} for share in shares]


@pytest.mark.parametrize(("engines", "hidden"), [("several", 1.0), ("one", 0.0)])
def test_what_of_a_copy_a_kernel_hides_does_not_depend_on_what_launching_takes(
    sampler: NvmlSampler, monkeypatch: pytest.MonkeyPatch, engines: str, hidden: float
) -> None:
    monkeypatch.setenv("CUDA_STUB_GB_PER_S", "1")
    monkeypatch.setenv("CUDA_STUB_LAUNCH_MS", "3")
    if engines == "one":
        monkeypatch.setenv("CUDA_STUB_ONE_ENGINE", "1")
    for _attempt in range(6):  # the stub's GPU waits for a host that other processes keep from its next call
        pinned, pageable = gpu._copies(Observer(), (4 << 20,), Selftest()).copies
        times_ms = pytest.approx((4.2, 4.2), rel=0.3) == (pinned.device_ms, pageable.device_ms)  # with a launch 7.2
        shares = pytest.approx((hidden, hidden), abs=0.3) == (pinned.hidden_share, pageable.hidden_share)
        pinned_returns = (pinned.call_ms or 0) < 0.5 * (pinned.device_ms or 0)
        if times_ms and shares and pinned_returns:
            break
    else:
        pytest.fail(f"in none of six attempts: {pinned}, {pageable}")
    assert (pageable.call_ms or 0) > 0.9 * (pageable.device_ms or 0)  # the host does nothing else meanwhile


def test_copies_are_shown_and_not_judged(sampler: NvmlSampler) -> None:
    (part,) = gpu._copies(Observer(), (1 << 20,), Selftest()).parts
    assert part.status == "shown"
    assert [check.figure for check in part.checks] == 2 * ["copy", "until the call is back", "hidden by a kernel"]


def test_a_copy_that_fails_behind_others_fails_its_part_with_its_reason(
    sampler: NvmlSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_STUB_LAUNCHES", "11")  # one to warm up, and ten beside the first copy
    found = gpu._copies(Observer(), (1 << 20,), Selftest())
    assert [(each.memory, each.reason) for each in found.copies] == [("pinned", None), ("pageable", BROKE_OFF)]
    assert (found.parts[0].status, found.parts[0].checks[-1].reason) == ("failed", BROKE_OFF)


def test_a_load_that_fails_fails_its_part_also_when_later_ones_run(
    sampler: NvmlSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = [{**load, "period_ms": 50.0, "seconds": 0.1} for load in loads(0.0, 0.5)]
    monkeypatch.setenv("CUDA_STUB_LAUNCHES", "2")
    found = gpu._duty_cycles(sampler, Observer(), short, Selftest())
    assert [run.reason for run in found.gpu_runs] == [None, BROKE_OFF]
    monkeypatch.setattr(gpu, "_ran", lambda *_: ([cycles(50, 0.5, 0)], {}, ""))
    (part,) = gpu._duty_cycles(sampler, Observer(), short[1:], found).parts
    assert part.status == "failed"
    assert "wide, 0.5, load: cuLaunchKernel failed" in output(part)


def test_runs_without_a_whole_window_are_counted() -> None:
    long = [cycles(20, share, 8000 * place) for place, share in enumerate((0.0, 0.5, 1.0))]
    short = cycles(100, 0.5, 24_000, 100)
    at_ns = Series.pack([24_050 * 10**6])
    track = Track(metric=UTILIZATION, source="NVML samples", at_ns=at_ns, values=Series.pack([50.0]))
    window = Window(source="NVML samples", window_ms=167, latency_ms=0, error_points=1.0)
    found = list(gpu._utilization_checks([*long, short.model_copy(update={"tracks": (track,)})], window))
    assert [check.what for check in found] == ["3 of 3 runs, wide, every 20 ms", "1 of 1 runs, wide, every 100 ms"]
    assert all(check.passed is None and check.reason for check in found)


def test_on_a_gpu_that_others_use_no_window_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without a kernel whose late figures are above 0; the early ones still speak of the time before it."""
    monkeypatch.setattr(gpu, "_ran", lambda *_: ([], {}, ""))
    idle = cycles(20, 0.0, 0)
    at_ns = Series.pack(np.arange(0, 4000, 100) * 10**6)
    early = np.where(np.arange(40) < 11, 80.0, 0.0)
    for figures, used in ((early, False), (early + 30.0, True)):
        track = Track(metric=UTILIZATION, source="NVML samples", at_ns=at_ns, values=Series.pack(figures))
        before = Selftest(gpu_runs=(idle.model_copy(update={"tracks": (track,)}),))
        found = gpu._duty_cycles(NvmlSampler(), Observer(), loads(0.5), before)
        (part,) = found.parts
        assert "used the GPU" in (part.reason or "") or not used
        assert (part.status == "not-run", bool(found.windows)) == (used, not used)


def test_a_driver_that_refuses_is_a_reason(sampler: NvmlSampler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_STUB_REFUSES", "1")
    found = gpu._duty_cycles(sampler, Observer(), loads(0.5), Selftest())
    assert found.parts[0].status == "not-run"
    assert found.parts[0].reason == "cuInit failed: CUDA_ERROR_NO_DEVICE"
    answer = call(gpu_loads.copies, {"sizes_bytes": [1]}, progress=lambda _: None)
    assert "CUDA_ERROR_NO_DEVICE" in answer.failed


def test_under_mig_utilization_is_not_judged_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "NVML does not report it while MIG is enabled on this GPU"
    refused = Reading(UTILIZATION, RATES.source, at_ns=0, reason=why)  # once, before the load begins
    run = gpu._with_readings(cycles(100, 0.0, 1000).model_dump(exclude={"tracks"}), [refused])
    monkeypatch.setattr(gpu, "_ran", lambda *_: ([run], {}, ""))
    found = gpu._duty_cycles(NvmlSampler(), Observer(), loads(0.5), Selftest())
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
    (check,) = gpu._activity_checks({}, run, {"memory_bytes_per_s": 0.0, "sm_count": 1})
    assert (check.planted, check.measured) == (None, None)


def test_the_planted_share_of_the_sms_is_the_loads_own_whatever_a_run_is_called() -> None:
    run = GpuRun(name="some blocks", kernel="wide", start_ns=0, end_ns=10**9, busy_share=0.5)
    facts = {"memory_bytes_per_s": 0.0, "sm_count": 100}
    sm, tensor = gpu._activity_checks({"sm_share": 0.3}, run, facts)
    assert (sm.planted, tensor.planted) == (15.0, 0.0)


def test_a_gpu_is_found_by_its_address_without_a_context(gpu_stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "LIBRARY", str(gpu_stub / "libcuda.so.1"))
    assert cuda.pci_bus_id(0) == "0000:01:00.0"
    monkeypatch.setattr(cuda, "LIBRARY", "libcuda_that_is_not_there.so")
    assert cuda.pci_bus_id(0) is None
