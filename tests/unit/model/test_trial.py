"""The order of the trials: interleaved, so that a drift of the machine falls on all variants alike."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.model.trial import PhaseMark, Trial, TrialRecord, plan, planned_rounds, round_of
from pipeline_bench.scenario.resolve import resolve


def planned(*repeats: int) -> list[tuple[str, int]]:
    variants: list[dict[str, Any]] = [
        {"name": chr(ord("A") + i), "backend": "ceiling", "run": {"repeats": count}} for i, count in enumerate(repeats)
    ]
    return [(trial.variant.name, trial.repeat) for trial in plan(resolve({"name": "x", "variants": variants}))]


def test_every_variant_runs_once_a_round() -> None:
    assert planned(2, 2, 2) == [("A", 0), ("B", 0), ("C", 0), ("A", 1), ("B", 1), ("C", 1)]


def test_a_variant_with_fewer_repeats_leaves_the_later_rounds() -> None:
    assert planned(1, 3) == [("A", 0), ("B", 0), ("B", 1), ("B", 2)]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_each_variant_gets_its_repeats_in_order(repeats: list[int]) -> None:
    order = planned(*repeats)
    for i, count in enumerate(repeats):
        assert [repeat for name, repeat in order if name == chr(ord("A") + i)] == list(range(count))


def test_a_trial_is_numbered_and_labelled_and_travels_as_json() -> None:
    trials = plan(resolve({"name": "x"}))
    assert [trial.index for trial in trials] == list(range(len(trials)))
    assert trials[0].label == "feed_dict, repeat 1"
    assert Trial.model_validate_json(trials[0].model_dump_json()) == trials[0]


def test_a_round_beyond_the_scenarios_holds_every_variant() -> None:
    variants: list[dict[str, Any]] = [
        {"name": "A", "backend": "ceiling", "run": {"repeats": 1}},
        {"name": "B", "backend": "ceiling", "run": {"repeats": 2}},
    ]
    scenario = resolve({"name": "x", "variants": variants})
    assert planned_rounds(scenario) == 2
    shown = [[(t.index, t.repeat, t.variant.name) for t in round_of(scenario, repeat, 7)] for repeat in (1, 2)]
    assert shown == [[(7, 1, "B")], [(7, 2, "A"), (8, 2, "B")]]


def test_a_start_has_the_first_step_and_of_a_script_what_it_does_before_it_trains() -> None:
    begins_s = {"import": 0, "build": 1, "train": 4, "trace": 5, "train again": 12, "fingerprint": 20}
    phases = tuple(PhaseMark(name=name.split()[0], at_ns=at * 10**9) for name, at in begins_s.items())
    times = {"started_ns": 0, "ended_ns": 25 * 10**9}
    record = TrialRecord(index=0, variant="as written", repeat=0, status="ok", phases=phases, **times)
    assert record.start_s(with_build=False) == 1 + 7
    assert record.start_s(with_build=True) == 1 + 3 + 7
