"""Disturbances of the GPU, from planted samples; they prove the rules, and nothing about what NVML means by them."""

from __future__ import annotations

import pytest

from pipeline_bench.analysis.interference import find
from pipeline_bench.model.result import Disturbance
from pipeline_bench.model.trial import Track
from pipeline_bench.scenario.resolve import resolve
from tests.unit.analysis.planted import absent, steady, track, trial

SAMPLES = 26


def found(*trials: tuple[str, int, list[Track]], gpu: bool = True) -> list[Disturbance]:
    records = [trial(repeat, steady(repeat), *tracks, variant=name, gpu=gpu) for name, repeat, tracks in trials]
    return list(find(records, cores=2))


def each(metric: str, value: float) -> Track:
    return track(metric, [value] * SAMPLES)


def clock(mhz: float | list[float], utilization: float = 90.0) -> list[Track]:
    values = [float(mhz)] * SAMPLES if isinstance(mhz, int | float) else mhz
    return [track("device_sm_clock_mhz", values), each("device_utilization_percent", utilization)]


# --- other processes -------------------------------------------------------------------------------------------------


def test_another_process_on_the_gpu_is_told_at_a_cost_that_is_not_known() -> None:
    disturbed = found(("v", 0, [each("device_processes", 2)]), ("v", 1, [each("device_processes", 1)]))
    assert [(one.kind, one.repeat, one.cost_share) for one in disturbed] == [("gpu-contention", 0, None)]
    assert "another process had the GPU open" in disturbed[0].text


def test_the_processes_of_a_trials_own_are_no_others() -> None:
    variants = [
        {"name": "native", "backend": "tf_data", "loop": {"kind": "native"}},
        {"name": "workers", "backend": "tf_data", "runtime": {"replicas": 3, "replication": "between_graph"}},
        {"name": "one process", "backend": "tf_data"},
    ]
    scenario = resolve({"name": "s", "question": "?", "variants": variants})

    def with_others(count: int) -> set[str]:
        processes = {"native": 2 + count, "workers": 1 + count, "one process": 1 + count}
        records = [
            trial(0, steady(0), each("device_processes", number), variant=name, gpu=True)
            for name, number in processes.items()
        ]
        return {one.variant for one in find(records, 2, scenario)}

    assert with_others(0) == set()
    assert with_others(1) == {"native", "workers", "one process"}


# --- what holds the clock down ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bit", "said"), [(0x8, "hardware"), (0x20, "temperature"), (0x40, "temperature"), (0x80, "brake")]
)
def test_heat_and_hardware_that_hold_the_clock_down_are_told_even_of_a_single_repeat(bit: int, said: str) -> None:
    (throttling,) = found(("v", 0, [each("device_throttle_reasons", bit)]))
    assert (throttling.kind, throttling.cost_share) == ("gpu-throttling", None)
    assert said in throttling.text
    assert "100 %" in throttling.text


def test_a_power_cap_that_every_repeat_meets_is_the_variants_own() -> None:
    capped, free = [each("device_throttle_reasons", 4)], [each("device_throttle_reasons", 0)]
    assert found(("v", 0, capped), ("v", 1, capped), ("v", 2, capped)) == []
    assert [one.repeat for one in found(("v", 0, capped), ("v", 1, free), ("v", 2, free))] == [0]


def test_a_starved_gpus_idle_clock_is_no_cost_of_throttling() -> None:
    """It idles half of the time, and is held down for a part of the rest in which its clock stays as it was."""
    idle = [place % 2 == 1 for place in range(SAMPLES)]
    starved = [
        track("device_sm_clock_mhz", [300.0 if each_idle else 1980.0 for each_idle in idle]),
        track("device_utilization_percent", [0.0 if each_idle else 100.0 for each_idle in idle]),
        track("device_throttle_reasons", [0x20 if place >= SAMPLES - 8 else 0 for place in range(SAMPLES)]),
    ]
    (throttling,) = found(("v", 0, starved))
    assert (throttling.kind, throttling.cost_share) == ("gpu-throttling", 0.0)


def test_throttling_costs_at_most_what_the_clock_lacks_of_the_sessions_highest() -> None:
    hot = [each("device_throttle_reasons", 0x40), *clock(1200)]
    disturbed = found(("v", 0, hot), ("ceiling", 0, clock(1500)), ("v", 1, clock(1500)), ("ceiling", 1, clock(1500)))
    assert [one.kind for one in disturbed] == ["gpu-throttling", "gpu-clock"]
    assert [one.cost_share for one in disturbed] == pytest.approx([0.2, 0.2])


# --- the clock -------------------------------------------------------------------------------------------------------


def test_a_clock_below_that_of_the_trial_beside_it_is_told() -> None:
    trials = [("v", 0, clock(1350)), ("ceiling", 0, clock(1500)), ("v", 1, clock(1500)), ("ceiling", 1, clock(1500))]
    (lower,) = found(*trials)
    assert (lower.kind, lower.variant, lower.repeat) == ("gpu-clock", "v", 0)
    assert lower.cost_share == pytest.approx(0.1)
    assert "1350 MHz, beside 1500 MHz for ceiling" in lower.text


def test_a_clock_that_falls_within_a_trial_at_work_is_told() -> None:
    falling = [1500.0] * 13 + [1200.0] * 13
    (fell,) = found(("v", 0, clock(falling)), ("v", 1, clock(1500)))
    assert fell.kind == "gpu-clock"
    assert "from 1500 to 1200 MHz" in fell.text


NOT_SAMPLED = [absent("device_sm_clock_mhz"), absent("device_throttle_reasons"), absent("device_processes")]
STARVED = clock(600, utilization=20.0)


@pytest.mark.parametrize(
    "trials",
    [
        [("v", 0, [each("device_processes", 0)])],  # the driver lists none
        *([("v", 0, [each("device_throttle_reasons", bits)]), ("v", 1, [])] for bits in (0, 1, 2, 0x10, 0x100, 0x103)),
        [(name, repeat, clock(mhz)) for repeat in range(3) for name, mhz in (("v", 1350), ("ceiling", 1500))],
        [("v", 0, STARVED), ("ceiling", 0, clock(1500)), ("v", 1, clock(1500)), ("ceiling", 1, clock(1500))],
        [("v", 0, NOT_SAMPLED), ("v", 1, NOT_SAMPLED)],
    ],
)
def test_what_is_usual_idle_or_not_sampled_is_no_disturbance(trials: list[tuple[str, int, list[Track]]]) -> None:
    assert found(*trials) == []
    assert found(("v", 0, [each("device_processes", 3)]), gpu=False) == [], "of a GPU that the trial does not use"
