"""The order of the trials: interleaved, so that a drift of the machine falls on all variants alike; their processes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.model import Series
from pipeline_bench.model.edits import InsertAfter
from pipeline_bench.model.pipeline import Target
from pipeline_bench.model.service_edits import OffloadToService
from pipeline_bench.model.task import Task
from pipeline_bench.model.trial import PhaseMark, Trial, TrialRecord, TrialSteps, plan, planned_rounds, round_of
from pipeline_bench.scenario.resolve import resolve


def planned(*repeats: int) -> list[tuple[str, int]]:
    variants: list[dict[str, Any]] = [
        {"name": chr(ord("A") + i), "backend": "ceiling", "run": {"repeats": count}} for i, count in enumerate(repeats)
    ]
    return [(trial.variant.name, trial.repeat) for trial in plan(resolve({"name": "x", "variants": variants}))]


def test_every_variant_runs_once_a_round_and_each_second_round_is_backwards() -> None:
    rounds = ["A0 B0 C0", "C1 B1 A1", "A2 B2 C2"]
    assert planned(3, 3, 3) == [(trial[0], int(trial[1])) for each in rounds for trial in each.split()]


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
    shown = [[(t.index, t.repeat, t.variant.name) for t in round_of(scenario, repeat, 7)] for repeat in (1, 2, 3)]
    assert shown == [[(7, 1, "B")], [(7, 2, "A"), (8, 2, "B")], [(7, 3, "B"), (8, 3, "A")]]


def started(trace_s: float, *steps_s: float) -> TrialRecord:
    marks_s = {"import": 0.0, "build": 1.0, "train": 4.0, "trace": 5.0, "train again": 5.0 + trace_s}
    phases = tuple(PhaseMark(name=name.split()[0], at_ns=int(at * 1e9)) for name, at in marks_s.items())
    ends_ns = np.cumsum(np.array(steps_s) * 1e9).astype(np.int64)
    columns = {"start_ns": ends_ns - (np.array(steps_s) * 1e9).astype(np.int64), "end_ns": ends_ns}
    packed = {name: Series.pack(column) for name, column in columns.items()}
    steps = TrialSteps(**packed, wait_ns=None, loss=Series.pack(np.zeros(len(steps_s)))) if steps_s else None
    times = {"started_ns": 0, "ended_ns": 90 * 10**9}
    return TrialRecord(index=0, variant="as written", repeat=0, status="ok", phases=phases, steps=steps, **times)


def test_a_start_has_what_tracing_took_and_of_a_script_what_it_does_before_it_trains() -> None:
    assert started(7.0, 0.01, 0.01).start_s(with_build=False) == pytest.approx(1 + 7 - 0.02)
    assert started(7.0, 0.01, 0.01).start_s(with_build=True) == pytest.approx(1 + 3 + 7 - 0.02)


def test_a_first_step_as_slow_as_the_others_has_traced_nothing() -> None:
    assert started(60.0, 30.0, 30.0).start_s(with_build=False) == 1
    assert started(60.0).start_s(with_build=False) == 1, "no step ended: it may hang"


def test_a_model_that_takes_minutes_to_trace_is_charged_for_most_of_them() -> None:
    assert started(80.0, 0.01, 0.01).start_s(with_build=False) == 1 + 30


def test_a_trial_runs_in_the_process_of_another_of_the_same_pipeline_and_model() -> None:
    written = Task(target=Target(file="train.py", name="make"), activity="drain")
    fix = written.model_copy(update={"edits": (InsertAfter(stage=0, method="prefetch"),)})
    offloaded = written.model_copy(update={"edits": (OffloadToService(),)})
    others = (
        written.model_copy(update={"target": Target(file="train.py", name="make_validation")}),
        written.model_copy(update={"model": Target(file="train.py", name="model")}),
        written.model_copy(update={"activity": "inspect"}),
        offloaded,
    )
    assert fix.may_follow(written)
    assert written.may_follow(fix)
    assert not any(each.may_follow(written) or written.may_follow(each) for each in others)
    assert not offloaded.may_follow(offloaded), "its worker is of one trial"
