"""Finding disturbances in any trials at all: what is left out, the order, and that nothing raises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.analysis.interference import find
from pipeline_bench.model.events import Device
from pipeline_bench.model.trial import Track, TrialRecord
from tests.unit import records
from tests.unit.analysis.planted import steady, trial
from tests.unit.records import steps_of

METRICS = (
    "other_cpu_percent",
    "machine_cpu_percent",
    "steal_percent",
    "cpu_throttled_seconds",
    "device_processes",
    "device_throttle_reasons",
    "device_sm_clock_mhz",
    "device_utilization_percent",
)


def slow(seed: int) -> TrialRecord:
    steps = steady(seed)
    steps[600:800] *= 3
    return trial(seed, steps)


def test_trials_that_did_not_end_well_are_left_out_and_are_no_siblings() -> None:
    good = [trial(1, steady(1)), trial(2, steady(2))]
    assert [each.repeat for each in find([slow(0), *good], 2)] == [0]
    assert find([slow(0).model_copy(update={"status": "failed"}), *good], 2) == ()
    assert find([slow(0), *(each.model_copy(update={"status": "interrupted"}) for each in good)], 2) == ()


def test_the_order_of_the_trials_makes_no_difference() -> None:
    trials = [
        trial(0, steady(0), variant="b").model_copy(update={"index": 0}),
        slow(0).model_copy(update={"index": 1}),
        slow(1).model_copy(update={"index": 2, "variant": "b"}),
        trial(1, steady(1)).model_copy(update={"index": 3}),
    ]
    in_order = find(trials, 2)
    assert [(each.variant, each.repeat) for each in in_order] == [("b", 1), ("v", 0)]
    assert find(trials[::-1], 2) == in_order


@st.composite
def tracks(draw: st.DrawFn) -> Track:
    metric = draw(st.sampled_from(METRICS))
    values = draw(st.lists(st.floats(0, 2**40) | st.sampled_from([float("nan"), 0.0, 100.0]), max_size=8))
    if not values:
        return Track(metric=metric, source="s", reason="it could not be read")
    at_ns = draw(st.lists(st.integers(0, 10**10), min_size=len(values), max_size=len(values)))
    return records.track(metric, at_ns, values)


@st.composite
def odd_trials(draw: st.DrawFn) -> TrialRecord:
    durations = np.array(draw(st.lists(st.floats(0, 1000), max_size=12)))
    steps = steps_of(np.tile(durations, draw(st.sampled_from([1, 40]))))
    return TrialRecord(
        index=draw(st.integers(0, 5)),
        variant=draw(st.sampled_from(["a", "b"])),
        repeat=draw(st.integers(0, 2)),
        status="ok",
        started_ns=0,
        ended_ns=1,
        warmup_steps=draw(st.integers(0, 3)),
        steps=draw(st.sampled_from([None, steps])),
        device=draw(st.sampled_from([None, Device(kind="gpu", name="G"), Device(kind="cpu", name="C")])),
        samples=tuple(draw(st.lists(tracks(), max_size=8))),
    )


@given(trials=st.lists(odd_trials(), max_size=6), cores=st.integers(0, 64))
def test_odd_trials_never_raise_and_a_cost_is_a_share(trials: list[TrialRecord], cores: int) -> None:
    for each in find(trials, cores):
        assert each.cost_share is None or 0 <= each.cost_share <= 1
        assert each.text
        assert "nan" not in each.text


@pytest.mark.parametrize("trials", [[], [trial(0, [1.0])], [trial(0, [1.0]), trial(1, [2.0])]])
def test_without_steps_to_speak_of_there_is_nothing(trials: list[TrialRecord]) -> None:
    assert find(trials, 2) == ()
