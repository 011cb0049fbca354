"""The NVML reader against a stub of NVIDIA's library, in a process of its own.

The stub proves the plumbing and the error paths, and nothing about what the figures mean on a GPU.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from pipeline_bench.samplers.nvml_metrics import (
    RATES,
    SAMPLES_SOURCE,
    UTILIZATION,
    NvmlDevice,
    explain,
    first_visible,
    normalise_pci_bus_id,
)
from pipeline_bench.samplers.nvml_reader import NvmlReader
from tests.stubs.nvml import LIBRARY, run_probe

S = 1_000_000_000
WALL = 1_800_000_000 * S
"""The wall clock at monotonic 0 in these tests."""

METRICS = {
    "device_utilization_percent",
    "device_memory_bytes",
    "device_sm_clock_mhz",
    "device_throttle_reasons",
    "device_processes",
    "device_power_watts",
    "device_temperature_celsius",
}


def step(do: str, at_s: float = 0, **more: Any) -> dict[str, Any]:
    at_ns = round(at_s * S)
    return {"do": do, "at_ns": at_ns, "wall_ns": WALL + at_ns, **more}


def stub_samples(*samples: tuple[float, float]) -> dict[str, str]:
    """The driver's buffer: (seconds on our monotonic clock, percent)."""
    return {"NVML_STUB_SAMPLES": ",".join(f"{(WALL + round(at * S)) // 1000}:{value}" for at, value in samples)}


def polled(stub: Path, *polls: dict[str, str] | None, opened: dict[str, str] | None = None, **variables: Any) -> Any:
    """What a reader said as it opened, and of each poll a second later than the one before, with its variables."""
    steps = [step("open", env=opened or {})]
    steps += [step("poll", at_s, env=own or {}) for at_s, own in enumerate(polls, 1)]
    return run_probe(stub, steps, **variables)


def only(metric: str, readings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [reading for reading in readings if reading["metric"] == metric]


def figures(metric: str, readings: list[dict[str, Any]]) -> list[tuple[int, float | None]]:
    return [(reading["at_ns"], reading["value"]) for reading in only(metric, readings)]


def reasons(readings: list[dict[str, Any]]) -> dict[str, str]:
    assert all((reading["value"] is None) == (reading["reason"] is not None) for reading in readings)
    return {reading["metric"]: reading["reason"] for reading in readings if reading["reason"] is not None}


# --- where nothing can be read ---------------------------------------------------------------------------------------


def test_no_library_is_a_reason(tmp_path: Path) -> None:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        pass
    else:
        pytest.skip("this machine has NVIDIA's library")
    opened, first, second = run_probe(tmp_path, [step("open"), step("poll", 1), step("poll", 2)])
    expected = "no NVIDIA driver here (libnvidia-ml.so.1 was not found)"
    assert (opened["reason"], opened["devices"]) == (expected, [])
    assert reasons(first) == dict.fromkeys(METRICS, expected)
    assert second == []


def test_a_library_that_cannot_be_loaded_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_bytes(b"")
    opened, readings = run_probe(tmp_path, [step("open"), step("poll", 1)])
    assert "libnvidia-ml.so.1 was not found" in opened["reason"]
    assert set(reasons(readings)) == METRICS


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("absent_driver", "not loaded"),
        ("no_permission", "no permission"),
        ("mismatch", "differ in version"),
        ("no_devices", "lists no GPU"),
    ],
)
def test_a_driver_that_refuses_is_a_reason(nvml_stub: Path, mode: str, said: str) -> None:
    steps = [step("open"), step("poll", 1), step("poll", 2), step("close"), step("close")]
    opened, first, second, *_ = run_probe(nvml_stub, steps, NVML_STUB_MODE=mode)
    assert said in opened["reason"]
    assert "\n" not in opened["reason"]
    assert opened["selected"] is None
    assert reasons(first) == dict.fromkeys(METRICS, opened["reason"])
    assert second == []


def test_the_version_error_that_is_no_nvml_error_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLLibraryMismatchError("use a versioned function\nsuch as _v2")

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    reader = NvmlReader()
    assert reader.reason == "nvidia-ml-py and the driver's NVML library do not match in version"


def test_a_broken_install_of_pynvml_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    reader = NvmlReader()
    assert reader.reason is not None
    assert reader.reason.startswith("the module pynvml (of nvidia-ml-py) cannot be imported")


def test_a_pynvml_of_another_kind_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pynvml, "nvmlInit")
    reader = NvmlReader()
    assert reader.reason is not None
    assert "nvmlInit" in reader.reason


def test_an_error_without_a_plain_text_keeps_what_nvml_said_on_one_line() -> None:
    assert explain(RuntimeError("first\n  second")) == "NVML failed: first second"


# --- which device ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("0000:01:00.0", "00000000:01:00.0"),
        ("00000000:01:00.0", "00000000:01:00.0"),
        ("0000:AF:00.0", "00000000:af:00.0"),
        ("01:00.0", "00000000:01:00.0"),
        ("0001:3b:00", "00000001:3b:00.0"),
        (" 10000:01:00.1 ", "00010000:01:00.1"),
        ("GPU:0", "gpu:0"),
        ("", ""),
    ],
)
def test_pci_ids_are_normalised(given: str, normal: str) -> None:
    assert normalise_pci_bus_id(given) == normal


def test_devices_are_described(nvml_stub: Path) -> None:
    [opened] = run_probe(nvml_stub, [step("open")], NVML_STUB_DEVICES="2")
    assert (opened["reason"], opened["driver"]) == (None, "999.99")
    assert opened["devices"][1] == {
        "index": 1,
        "name": "NVIDIA Stub",
        "uuid": "GPU-stub-1",
        "pci_bus_id": "00000000:02:00.0",
        "mig_enabled": False,
        "mig_uuids": [],
    }
    assert opened["selected"] == 0


def test_the_device_is_the_one_that_tensorflow_names(nvml_stub: Path) -> None:
    steps = [step("open"), step("select", pci_bus_id="0000:02:00.0"), step("poll", 1)]
    _, selected, readings = run_probe(nvml_stub, steps, NVML_STUB_DEVICES="2")
    assert selected == 1
    assert figures("device_memory_bytes", readings) == [(S, 2 << 30)]


def test_a_device_that_nvml_does_not_list_is_a_reason(nvml_stub: Path) -> None:
    steps = [step("open"), step("select", pci_bus_id="0000:7f:00.0"), step("poll", 1), step("poll", 2)]
    opened, selected, first, second = run_probe(nvml_stub, steps)
    assert opened["reason"] is None
    assert selected is None
    assert reasons(first) == dict.fromkeys(METRICS, "NVML lists no GPU at PCI address 0000:7f:00.0")
    assert second == []


def test_cuda_visible_devices_is_honoured(nvml_stub: Path) -> None:
    [opened] = run_probe(nvml_stub, [step("open")], NVML_STUB_DEVICES="3", CUDA_VISIBLE_DEVICES="2,0")
    assert opened["selected"] == 2


def device(index: int) -> NvmlDevice:
    mig = ("MIG-stub-a", "MIG-stub-b") if index == 1 else ()
    return NvmlDevice(index, "NVIDIA Stub", f"GPU-stub-{index}", f"00000000:0{index + 1}:00.0", index == 1, mig)


@pytest.mark.parametrize(
    ("visible", "index"),
    [
        (None, 0),
        ("1", 1),
        ("1,0", 1),
        ("GPU-stub-1", 1),
        ("", None),
        ("-1", None),
        ("5", None),
        ("MIG-stub-b", 1),
        ("MIG-stub-c", None),
        ("MIG-GPU-stub-1/3/0", 1),
        ("MIG-GPU-stub-7/3/0", None),
    ],
)
def test_first_visible(visible: str | None, index: int | None) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found, reason = first_visible((device(0), device(1)), environ)
    assert (found.index if found else None) == index
    assert (reason is None) == (index is not None)


def test_first_visible_of_none() -> None:
    assert first_visible((), {}) == (None, "the NVIDIA driver lists no GPU")


# --- what is read ----------------------------------------------------------------------------------------------------


def test_every_metric_has_its_unit(nvml_stub: Path) -> None:
    _, readings = polled(nvml_stub, stub_samples((0.5, 60)), opened=stub_samples((-1, 10)))
    assert {reading["metric"]: reading["value"] for reading in readings} == {
        "device_utilization_percent": 60,
        "device_memory_bytes": 1 << 30,
        "device_sm_clock_mhz": 1500,
        "device_throttle_reasons": 0,
        "device_processes": 1,
        "device_power_watts": 250.5,
        "device_temperature_celsius": 45,
    }
    assert reasons(readings) == {}


@pytest.mark.parametrize("value_type", ["0", "1"])
def test_buffered_samples_carry_the_drivers_stamps_on_our_clock(nvml_stub: Path, value_type: str) -> None:
    buffers = (stub_samples((-1, 10), (0.25, 20), (0.5, 30)), stub_samples((0.25, 20), (0.5, 30), (1.75, 40)))
    opened = stub_samples((-1, 10))
    _, first, second = polled(nvml_stub, *buffers, opened=opened, NVML_STUB_SAMPLE_TYPE=value_type)
    assert figures(UTILIZATION, first) == [(S // 4, 20), (S // 2, 30)]
    assert figures(UTILIZATION, second) == [(7 * S // 4, 40)]
    assert {reading["source"] for reading in only(UTILIZATION, first)} == {SAMPLES_SOURCE}


def test_a_trial_begins_without_what_was_buffered_before(nvml_stub: Path) -> None:
    steps = [
        step("open", env=stub_samples((-1, 10))),
        step("begin", 5, env=stub_samples((3, 90), (4.5, 80))),
        step("poll", 6, env=stub_samples((3, 90), (4.5, 80), (5.5, 70))),
    ]
    *_, readings = run_probe(nvml_stub, steps)
    assert figures(UTILIZATION, readings) == [(11 * S // 2, 70)]


def test_a_trial_that_begins_right_after_a_poll_reads_the_buffer_still(nvml_stub: Path) -> None:
    steps = [
        step("open", env=stub_samples((-1, 10))),
        step("begin", 1),
        step("poll", 2, env=stub_samples((-1, 10), (1.5, 70))),
    ]
    *_, readings = run_probe(nvml_stub, steps)
    assert [(reading["source"], reading["value"]) for reading in only(UTILIZATION, readings)] == [(SAMPLES_SOURCE, 70)]


def test_an_implausible_stamp_becomes_now(nvml_stub: Path) -> None:
    buffered = stub_samples((-61, 1), (-59, 2), (0.25, 3), (1.25, 4), (1.75, 5))
    _, readings = polled(nvml_stub, buffered, opened=stub_samples((-100, 0)))
    assert figures(UTILIZATION, readings) == [(S, 1), (-59 * S, 2), (S // 4, 3), (5 * S // 4, 4), (S, 5)]


def test_the_offset_of_the_wall_clock_is_measured_at_each_poll(nvml_stub: Path) -> None:
    hour = 3600
    later = step("poll", 2, env=stub_samples((hour + 1.5, 60)))
    later["wall_ns"] += hour * S  # somebody set the clock
    steps = [step("open", env=stub_samples((-1, 10))), step("poll", 1, env=stub_samples((0.5, 50))), later]
    _, first, second = run_probe(nvml_stub, steps)
    assert figures(UTILIZATION, first) == [(S // 2, 50)]
    assert figures(UTILIZATION, second) == [(3 * S // 2, 60)]


def test_nothing_new_in_the_buffer_is_no_failure(nvml_stub: Path) -> None:
    steps = [step("open", env=stub_samples((-1, 10))), step("poll", 1), step("poll", 1.5, env=stub_samples((1.25, 50)))]
    _, first, second = run_probe(nvml_stub, steps)
    assert only(UTILIZATION, first) == []
    assert figures(UTILIZATION, second) == [(5 * S // 4, 50)]


@pytest.mark.parametrize("mode", ["no_samples", "samples_unsupported"])
def test_without_buffered_samples_the_utilization_rates_are_read(nvml_stub: Path, mode: str) -> None:
    _, readings = polled(nvml_stub, None, NVML_STUB_MODE=mode)
    assert figures(UTILIZATION, readings) == [(S, 37)]
    assert only(UTILIZATION, readings)[0]["source"] == RATES.source


def test_a_buffer_that_falls_silent_gives_way_to_the_utilization_rates(nvml_stub: Path) -> None:
    steps = [step("open", env=stub_samples((-1, 10))), step("poll", 1), step("poll", 2), step("poll", 2.5)]
    _, *polls = run_probe(nvml_stub, steps)
    assert [figures(UTILIZATION, readings) for readings in polls] == [[], [], [(5 * S // 2, 37)]]


def test_the_same_rate_is_recorded_once_a_window_and_another_at_once(nvml_stub: Path) -> None:
    steps = [
        step("open"),
        step("poll", 1.0),
        step("poll", 1.1),
        step("poll", 1.2),
        step("poll", 1.25, env={"NVML_STUB_UTILIZATION": "90"}),
    ]
    _, *polls = run_probe(nvml_stub, steps, NVML_STUB_MODE="no_samples")
    recorded = [figure for readings in polls for figure in figures(UTILIZATION, readings)]
    assert recorded == [(S, 37), (1_200_000_000, 37), (1_250_000_000, 90)]


def test_an_idle_gpu_reads_zero_and_gives_no_reason(nvml_stub: Path) -> None:
    _, readings = polled(nvml_stub, stub_samples((0.5, 0)), opened=stub_samples((-1, 10)))
    assert figures(UTILIZATION, readings) == [(S // 2, 0)]


def test_what_is_no_percentage_is_left_out(nvml_stub: Path) -> None:
    buffered = stub_samples((0.25, 4_000_000_000), (0.5, 50))
    _, readings = polled(nvml_stub, buffered, opened=stub_samples((-1, 10)))
    assert figures(UTILIZATION, readings) == [(S // 2, 50)]


def test_a_sample_that_is_no_number_or_negative_is_left_out(nvml_stub: Path) -> None:
    buffered = stub_samples((0.25, float("nan")), (0.5, 50), (0.75, -1))
    _, readings = polled(nvml_stub, buffered, opened=stub_samples((-1, 10)), NVML_STUB_SAMPLE_TYPE="0")
    assert figures(UTILIZATION, readings) == [(S // 2, 50)]


@pytest.mark.parametrize(
    ("mode", "number", "long_number", "watts"),
    [
        ("all_ones", 2**32 - 1, 2**64 - 1, "4294967.295"),
        ("negative", 2**32 - 40, 2**64 - 40, "4294967.256"),
    ],
)
def test_a_value_that_no_gpu_can_have_is_a_reason(
    nvml_stub: Path, mode: str, number: int, long_number: int, watts: str
) -> None:
    _, first, second, third = polled(nvml_stub, None, None, {"NVML_STUB_MODE": "ok"}, NVML_STUB_MODE=mode)
    assert reasons(first) == {
        UTILIZATION: f"NVML gave {number}, which is no share of time",
        "device_memory_bytes": f"NVML gave {long_number}, which is no amount of memory",
        "device_sm_clock_mhz": f"NVML gave {number}, which is no clock rate",
        "device_throttle_reasons": f"NVML gave {long_number}, which is no set of reasons",
        "device_power_watts": f"NVML gave {watts}, which is no power",
        "device_temperature_celsius": f"NVML gave {number}, which is no temperature",
    }
    assert only("device_processes", first)[0]["value"] == 1
    assert reasons(second) == {}
    assert {reading["metric"] for reading in third if reading["value"] is not None} == METRICS


@pytest.mark.parametrize("value", [0, 0.0, 37, 100])
def test_a_share_of_time_is_one_between_none_and_all_of_it(value: float) -> None:
    assert RATES.implausible(value) is None


@pytest.mark.parametrize("value", [-1, 101, float("nan"), float("inf"), -float("inf")])
def test_what_lies_outside_is_named(value: float) -> None:
    assert RATES.implausible(value) == f"NVML gave {value}, which is no share of time"


@pytest.mark.parametrize("value", [2**32 - 1, 2**64 - 1])
def test_all_ones_are_no_value_even_where_they_lie_in_the_range(value: int) -> None:
    assert replace(RATES, highest=2**70).implausible(value) is not None


# --- what holds the clock down, and who else is there -----------------------------------------------------------------


def test_the_reasons_of_a_lowered_clock_are_nvmls_bit_mask(nvml_stub: Path) -> None:
    _, first, second = polled(nvml_stub, None, {"NVML_STUB_THROTTLE_REASONS": "72"})
    assert figures("device_throttle_reasons", first) == [(S, 0)]
    assert figures("device_throttle_reasons", second) == [(2 * S, 72)]


def test_a_driver_that_knows_the_reasons_by_their_older_name_is_asked_for_that(old_nvml_stub: Path) -> None:
    _, readings = polled(old_nvml_stub, None, NVML_STUB_THROTTLE_REASONS="4")
    assert figures("device_throttle_reasons", readings) == [(S, 4)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_processes_on_the_gpu_are_counted(nvml_stub: Path, count: int) -> None:
    _, readings = polled(nvml_stub, None, NVML_STUB_PROCESSES=str(count))
    assert figures("device_processes", readings) == [(S, count)]


def test_a_driver_that_lacks_the_newest_call_is_asked_for_its_processes_by_an_older_one(old_nvml_stub: Path) -> None:
    _, readings = polled(old_nvml_stub, None, NVML_STUB_PROCESSES="2")
    assert figures("device_processes", readings) == [(S, 2)]


def test_under_mig_what_nvml_counts_of_the_whole_gpu_is_not_taken_for_the_instances(nvml_stub: Path) -> None:
    _, readings = polled(nvml_stub, None, NVML_STUB_MODE="mig", NVML_STUB_PROCESSES="3")
    why = "while MIG is enabled on this GPU, NVML counts all of its instances"
    told = reasons(readings)
    assert (told["device_processes"], told["device_memory_bytes"]) == (why, why)


def test_processes_that_may_not_be_listed_are_a_reason_and_not_none_at_all(nvml_stub: Path) -> None:
    _, readings = polled(nvml_stub, None, NVML_STUB_MODE="refused_processes")
    assert reasons(readings) == {"device_processes": "the NVIDIA driver refused: no permission"}


# --- what cannot be read, and loss in mid-run ------------------------------------------------------------------------


def test_a_metric_that_is_refused_is_explained_once_a_trial_and_the_others_go_on(nvml_stub: Path) -> None:
    steps = [step("open"), step("poll", 1), step("poll", 2), step("begin", 3), step("poll", 4)]
    _, first, second, _, third = run_probe(nvml_stub, steps, NVML_STUB_MODE="refused_power")
    assert reasons(first) == {"device_power_watts": "the NVIDIA driver refused: no permission"}
    assert only("device_power_watts", second) == []
    assert figures("device_temperature_celsius", second) == [(2 * S, 45)]
    assert reasons(third) == reasons(first)


def test_a_refusal_that_passes_costs_only_the_readings_it_hit(nvml_stub: Path) -> None:
    refuse, allow = {"NVML_STUB_MODE": "refused_metrics"}, {"NVML_STUB_MODE": "ok"}
    _, first, second, third = polled(nvml_stub, refuse, refuse, allow)
    assert set(reasons(first)) == METRICS
    assert second == []
    assert {reading["metric"] for reading in third if reading["value"] is not None} == METRICS


def test_under_mig_utilization_is_absent_with_the_reason(nvml_stub: Path) -> None:
    opened, first, second = polled(nvml_stub, None, None, NVML_STUB_MODE="mig")
    assert opened["devices"][0]["mig_enabled"]
    assert reasons(first)[UTILIZATION] == "NVML does not report it while MIG is enabled on this GPU"
    assert figures("device_power_watts", first) == [(S, 250.5)]
    assert only(UTILIZATION, second) == []


def test_a_gpu_that_is_lost_gives_its_reason_once_and_then_nothing(nvml_stub: Path) -> None:
    steps = [step("open"), step("poll", 1), step("poll", 2), step("poll", 3), step("begin", 4), step("poll", 5)]
    _, first, second, third, _, next_trial = run_probe(nvml_stub, steps, NVML_STUB_MODE="lost_after_1")
    assert reasons(first) == {}
    assert reasons(second) == dict.fromkeys(METRICS, "the GPU was lost: the driver can no longer reach it")
    assert third == []
    assert set(reasons(next_trial)) == METRICS


@pytest.mark.parametrize(("mode", "source"), [("ok", SAMPLES_SOURCE), ("samples_unsupported", RATES.source)])
def test_a_gpu_that_comes_back_is_not_read_before_the_next_trial(nvml_stub: Path, mode: str, source: str) -> None:
    lost, back = {"NVML_STUB_MODE": "lost_after_0"}, {"NVML_STUB_MODE": mode}
    steps = [
        step("open", env=back),
        step("poll", 1, env=lost),
        step("poll", 2, env=back),
        step("begin"),
        step("poll", 3),
    ]
    _, at_loss, after, _, next_trial = run_probe(nvml_stub, steps)
    assert only(UTILIZATION, at_loss)[0]["source"] == source
    assert after == []
    assert reasons(next_trial) == {}


def test_a_library_that_is_shut_down_in_mid_run_is_a_loss(nvml_stub: Path) -> None:
    gone = {"NVML_STUB_MODE": "uninitialized"}
    _, readings, after = run_probe(nvml_stub, [step("open"), step("poll", 1, env=gone), step("poll", 2)])
    assert reasons(readings) == dict.fromkeys(METRICS, "the NVML library was shut down")
    assert after == []


def test_a_closed_reader_reads_nothing(nvml_stub: Path) -> None:
    steps = [step("open"), step("close"), step("poll", 1), step("close"), step("select", pci_bus_id=None)]
    _, _, readings, _, selected = run_probe(nvml_stub, steps)
    assert readings == []
    assert selected is None
