"""GPM against a stub of NVIDIA's library: the plumbing and the error paths, and nothing about a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.samplers.nvml_metrics import ACTIVITY
from tests.stubs.nvml import run_probe

FIGURES = "2:12.5,3:6,5:0.25,10:3,20:100,21:900"
EVERY = (12.5, 6.0, 0.25, 3.0, 100.0, 900.0)
S = 10**9


def polled(folder: Path, *times_s: float, **variables: str) -> list[dict[str, tuple[Any, Any]]]:
    """Of each poll at these times what GPM gave: (value, reason) by metric."""
    steps: list[dict[str, Any]] = [
        {"do": "open"},
        {"do": "begin"},
        *({"do": "poll", "at_ns": round(at * S)} for at in times_s),
    ]
    _, _, *polls = run_probe(folder, steps, gpm=True, **variables)
    return [{r["metric"]: (r["value"], r["reason"]) for r in each if r["source"] == "NVML GPM"} for each in polls]


def test_a_figure_is_of_two_samples(nvml_stub: Path) -> None:
    first, second = polled(nvml_stub, 1.0, 1.2, NVML_STUB_GPM=FIGURES)
    assert first == {}
    assert second == {metric: (value, None) for metric, value in zip(ACTIVITY, EVERY, strict=True)}


def test_samples_that_are_too_close_are_no_figure(nvml_stub: Path) -> None:
    _, second, third = polled(nvml_stub, 1.0, 1.05, 1.2, NVML_STUB_GPM=FIGURES)
    assert second == {}
    assert third


def spans_s(folder: Path, *times_s: float, **variables: str) -> list[tuple[float, float]]:
    """From when to when each figure of SM activity speaks of, in seconds."""
    polls = [{"do": "poll", "at_ns": round(at * S)} for at in times_s]
    answers = run_probe(folder, [{"do": "open"}, *polls], gpm=True, **variables)[1:]
    readings = [each for poll in answers for each in poll if each["metric"] == ACTIVITY[0]]
    return [(each["from_ns"] / S, each["at_ns"] / S) for each in readings if each["value"] is not None]


def test_after_a_sample_that_is_not_ready_a_figure_spans_both_of_its_samples(nvml_stub: Path) -> None:
    missed = spans_s(nvml_stub, 1.0, 1.2, 1.4, 1.6, NVML_STUB_GPM=FIGURES, NVML_STUB_GPM_NOT_READY="2")
    assert missed == [(1.0, 1.4), (1.4, 1.6)]


def test_a_figure_that_was_not_given_lengthens_no_other_span(nvml_stub: Path) -> None:
    polls = [{"do": "poll", "at_ns": round(at * S)} for at in (1.0, 1.2, 1.4, 1.6)]
    polls[2]["env"] = {"NVML_STUB_GPM": "10:3"}
    polls[3]["env"] = {"NVML_STUB_GPM": FIGURES}
    answers = run_probe(nvml_stub, [{"do": "open"}, *polls], gpm=True, NVML_STUB_GPM=FIGURES)[1:]
    spans = [(each["from_ns"], each["value"]) for poll in answers for each in poll if each["metric"] == ACTIVITY[0]]
    assert spans[0] == (1.0 * S, 12.5)
    assert spans[-1] == (1.4 * S, 12.5)


def test_a_sample_is_stamped_when_it_is_taken_and_not_when_the_poll_began(nvml_stub: Path) -> None:
    polls = [{"do": "poll", "at_ns": round(at * S), "tick_ns": 1000} for at in (1.0, 1.2)]
    *_, last = run_probe(nvml_stub, [{"do": "open"}, *polls], gpm=True, NVML_STUB_GPM=FIGURES)
    stamps = {each["metric"]: each["at_ns"] for each in last}
    assert stamps[ACTIVITY[0]] > stamps["device_temperature_celsius"]


def test_a_gpu_without_gpm_gives_its_reason_once(nvml_stub: Path) -> None:
    first, second = polled(nvml_stub, 1.0, 1.2)
    assert first == dict.fromkeys(ACTIVITY, (None, "NVML gives no GPM on this GPU; GPUs from Hopper on have it"))
    assert second == {}


def test_a_driver_without_gpm_says_nothing_about_the_gpu(old_nvml_stub: Path) -> None:
    first, _ = polled(old_nvml_stub, 1.0, 1.2)
    assert first == dict.fromkeys(ACTIVITY, (None, "this driver's NVML library is too old for it"))


@pytest.mark.parametrize("lacks", ["nvmlGpmQueryDeviceSupport", "c_nvmlGpmMetricsGet_t"])
def test_a_pynvml_without_gpm_says_nothing_about_the_gpu(nvml_stub: Path, lacks: str) -> None:
    first, second = polled(nvml_stub, 1.0, 1.2, NVML_STUB_GPM=FIGURES, PYNVML_LACKS=lacks)
    assert {**first, **second} == dict.fromkeys(
        ACTIVITY, (None, "the imported pynvml does not know GPM: an old one, or not nvidia-ml-py's")
    )


def test_samples_that_are_refused_are_a_reason_once(nvml_stub: Path) -> None:
    first, second = polled(nvml_stub, 1.0, 1.2, NVML_STUB_GPM=FIGURES, NVML_STUB_GPM_REFUSES="4")
    assert first == dict.fromkeys(ACTIVITY, (None, "the NVIDIA driver refused: no permission"))
    assert second == {}


def test_a_metric_that_is_missing_is_a_reason_and_the_others_go_on(nvml_stub: Path) -> None:
    _, second, third = polled(nvml_stub, 1.0, 1.2, 1.4, NVML_STUB_GPM="2:12.5,10:3")
    assert second["device_sm_active_percent"] == (12.5, None)
    assert second["device_tensor_percent"] == (None, "NVML does not support it on this GPU")
    assert set(third) == {"device_sm_active_percent", "device_dram_percent"}


@pytest.mark.parametrize("figure", ["-3", "170", "nan"])
def test_what_cannot_be_is_a_reason(nvml_stub: Path, figure: str) -> None:
    _, second = polled(nvml_stub, 1.0, 1.2, NVML_STUB_GPM=f"2:{figure},10:3")
    value, reason = second["device_sm_active_percent"]
    assert value is None
    assert "cannot be" in reason


@pytest.mark.parametrize(
    ("visible", "percent"),
    [(None, 12.5), ("0", 12.5), ("MIG-stub-7", 12.5), ("MIG-stub-9,MIG-stub-7", 6.25), ("MIG-GPU-stub-0/9/0", 6.25)],
)
def test_under_mig_the_instance_that_cuda_is_shown_is_sampled(
    nvml_stub: Path, visible: str | None, percent: float
) -> None:
    variables = {"NVML_STUB_MODE": "mig"} | ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
    _, second = polled(nvml_stub, 1.0, 1.2, NVML_STUB_GPM=FIGURES, **variables)
    assert second["device_sm_active_percent"] == (percent, None)


@pytest.mark.parametrize("visible", ["MIG-stub-8", "MIG-GPU-stub-0/8/0"])
def test_a_mig_device_that_nvml_does_not_list_is_not_taken_for_another_one(nvml_stub: Path, visible: str) -> None:
    variables = {"NVML_STUB_MODE": "mig", "NVML_STUB_GPM": FIGURES, "CUDA_VISIBLE_DEVICES": visible}
    select = {"do": "select", "pci_bus_id": "0000:01:00.0"}  # as CUDA has it, whatever NVML lists
    *_, polled = run_probe(nvml_stub, [{"do": "open"}, select, {"do": "poll", "at_ns": S}], gpm=True, **variables)
    reasons = {each["reason"] for each in polled if each["metric"] in ACTIVITY}
    assert reasons == {
        f"CUDA_VISIBLE_DEVICES begins with {visible}, which is no MIG device that NVML lists on this GPU"
    }


def test_a_gpu_without_a_mig_device_under_mig_is_a_reason(nvml_stub: Path) -> None:
    variables = {"NVML_STUB_MODE": "mig", "NVML_STUB_NO_MIG_DEVICES": "1"}
    first, _ = polled(nvml_stub, 1.0, 1.2, NVML_STUB_GPM=FIGURES, **variables)
    assert first == dict.fromkeys(ACTIVITY, (None, "MIG is enabled on this GPU, and NVML lists no MIG device"))


def test_the_next_trial_does_not_speak_of_the_time_before_it(nvml_stub: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"do": "open"},
        {"do": "poll", "at_ns": S},
        {"do": "begin", "at_ns": 2 * S},
        {"do": "poll", "at_ns": 3 * S},
    ]
    *_, last = run_probe(nvml_stub, steps, gpm=True, NVML_STUB_GPM=FIGURES)
    assert not [each for each in last if each["source"] == "NVML GPM"]
