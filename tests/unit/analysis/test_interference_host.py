"""Disturbances of the host, from planted samples of its CPU."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_bench.analysis.interference import find
from pipeline_bench.analysis.measured import AllSteps
from pipeline_bench.model import Series
from pipeline_bench.model.result import Disturbance
from pipeline_bench.model.trial import Track
from tests.unit.analysis.planted import absent, steady, track, trial

SAMPLES = 26  # 5.2 s, the length of a trial of 1000 steps of 5 ms


def found(*of_repeats: list[Track], warm: float = 1.0) -> list[Disturbance]:
    trials = []
    for repeat, tracks in enumerate(of_repeats):
        steps = steady(repeat)
        steps[:300] *= warm
        trials.append(trial(repeat, steps, *tracks))
    return list(find(trials, cores=2))


def cpu(other: float, machine: float) -> list[Track]:
    return [track("other_cpu_percent", [other] * SAMPLES), track("machine_cpu_percent", [machine] * SAMPLES)]


# --- other processes -------------------------------------------------------------------------------------------------


def test_others_that_fill_the_machine_are_found_in_every_repeat_that_has_them() -> None:
    disturbed = found(cpu(20, 99), cpu(0, 85), cpu(30, 100))
    assert [(each.kind, each.repeat) for each in disturbed] == [("cpu-contention", 0), ("cpu-contention", 2)]
    assert [each.cost_share for each in disturbed] == pytest.approx([0.2, 0.3])
    assert "20 % of the machine's CPU" in disturbed[0].text


@pytest.mark.parametrize(("busy_ms", "cost"), [(4.5, 0.1), (0.5, 0.3)])
def test_what_others_took_while_an_emulated_device_was_busy_cost_nothing(busy_ms: float, cost: float) -> None:
    """A tenth of the step is the host's; a wait that ends late, as one in fifty does, is its as well."""
    record = trial(0, steady(0, spread=0.001), *cpu(30, 100))
    assert record.steps is not None
    busy_ns = np.full(record.steps.count, int(busy_ms * 1e6), dtype=np.int64)
    busy_ns[::50] *= 3
    steps = record.steps.model_copy(update={"busy_ns": Series.pack(busy_ns)})
    (contention,) = find([record.model_copy(update={"steps": steps})], cores=2)
    assert contention.cost_share == pytest.approx(cost, abs=0.005)


def test_others_count_for_as_long_as_they_filled_the_machine() -> None:
    half = SAMPLES // 2
    tracks = [
        track("other_cpu_percent", [50.0] * half + [0.0] * half),
        track("machine_cpu_percent", [100.0] * half + [80.0] * half),
    ]
    (contention,) = found(tracks)
    assert contention.cost_share == pytest.approx(0.25, abs=0.04)
    assert "50 % of the machine's CPU for 4" in contention.text or "50 % of the machine's CPU for 5" in contention.text


def test_others_during_the_warm_up_disturb_no_figure() -> None:
    early = [50.0] * 8 + [0.0] * (SAMPLES + 4)
    tracks = [track("other_cpu_percent", early), track("machine_cpu_percent", [100.0] * len(early))]
    assert [each.kind for each in found(tracks, cpu(0, 80), cpu(0, 80))] == ["cpu-contention"]
    # The same samples, when those 300 steps take 3.75 s and are the warm-up of all repeats.
    assert found(tracks, cpu(0, 80), cpu(0, 80), warm=2.5) == []


def test_only_samples_that_speak_of_the_measured_steps_count() -> None:
    def both(values: list[float], every_ms: int) -> list[Track]:
        return [track(metric, values, every_ms) for metric in ("other_cpu_percent", "machine_cpu_percent")]

    assert [each.kind for each in found(both([0, 100], every_ms=10**6))] == ["cpu-contention"], "one long interval"
    assert found(both([100, 100, 100], every_ms=1)) == [], "they end within the first step"
    assert found(both([100], every_ms=1)) == [], "the interval of the first sample is not known"


# --- steal -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("machine", "cost"), [([track("machine_cpu_percent", [50.0] * SAMPLES)], 0.2), ([], 0.1)])
def test_stolen_time_is_a_share_of_what_was_busy_where_that_is_known(machine: list[Track], cost: float) -> None:
    (steal,) = found([track("steal_percent", [10.0] * SAMPLES), *machine])
    assert steal.kind == "steal"
    assert steal.cost_share == pytest.approx(cost)
    assert "10 %" in steal.text


# --- quota -----------------------------------------------------------------------------------------------------------


def throttled(seconds_a_second: float) -> list[Track]:
    return [track("cpu_throttled_seconds", [7 + 0.2 * seconds_a_second * index for index in range(SAMPLES + 1)])]


def test_throttled_time_is_over_the_cores_and_costs_what_the_other_repeats_were_spared() -> None:
    disturbed = found(throttled(0.8), throttled(0.0), throttled(0.2))
    assert [(each.kind, each.repeat) for each in disturbed] == [("cpu-throttling", 0), ("cpu-throttling", 2)]
    assert [each.cost_share for each in disturbed] == pytest.approx([0.4, 0.1], abs=0.01)


@pytest.mark.parametrize(
    ("repeats", "costs"),
    [
        ([throttled(0.8), throttled(0.8)], [0.0, 0.0]),  # every repeat meets it alike
        ([throttled(0.8)], [None]),
        ([throttled(60.0), throttled(0.0)], [1.0]),  # more cores wait than the quota allows
    ],
)
def test_what_a_quota_cost(repeats: list[list[Track]], costs: list[float | None]) -> None:
    assert [each.cost_share for each in found(*repeats)] == pytest.approx(costs, abs=1e-6)


def test_throttled_time_is_a_share_of_all_cpus_that_the_trial_may_run_on_and_not_of_the_quota() -> None:
    """A quota of 2 on 64 CPUs, whose queues are throttled for half of the time."""
    many = trial(0, steady(0), *throttled(32.0), *cpu(0, 10)).model_copy(update={"allowed_cpus": 64})
    (disturbance,) = find([many], cores=2)
    assert "waiting for 50 % of the time" in disturbance.text
    assert AllSteps(many, cores=2).taken.mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    "repeats",
    [
        [cpu(40, 80)],
        [cpu(4, 100)],
        [[absent("other_cpu_percent"), cpu(50, 100)[1]]],
        [[cpu(50, 100)[0], absent("machine_cpu_percent")]],
        [[track("steal_percent", [0.0] * 20 + [5.0] + [0.0] * 5)]],
        [throttled(0.02), throttled(0.0)],
    ],
    ids=["idle cores", "a system's own little", "others absent", "machine absent", "a stray tick", "hardly throttled"],
)
def test_what_costs_nothing_or_was_not_sampled_is_not_told(repeats: list[list[Track]]) -> None:
    assert found(*repeats) == []
