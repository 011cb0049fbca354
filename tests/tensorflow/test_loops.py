"""Real trials of the loops that Python drives: the same training, whole, and step times without gaps or overlaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.analysis import validity
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from tests.tensorflow import images
from tests.tensorflow.conftest import RunScenario
from tests.trials import alone, selected, without_ceilings

STEPS = 40
CALLS = [
    pytest.param("while_loop", 15, marks=pytest.mark.slow),
    ("queue, while_loop", 15),
    ("function, many", 15),
    ("keras_fit, many", 20),
]
"""Steps a call, where it is more than one."""
VARIANTS: list[dict[str, Any]] = [
    {"name": "session", "backend": "tf_data"},
    {"name": "fed callable", "backend": "feed_dict", "loop": {"kind": "callable"}},
    {"name": "while_loop", "backend": "tf_data", "loop": {"kind": "while_loop", "steps_per_call": 15}},
    {"name": "queue, while_loop", "backend": "fifo_queue", "loop": {"kind": "while_loop", "steps_per_call": 15}},
    {"name": "function", "backend": "tf_data", "loop": {"kind": "function"}},
    {"name": "function, many", "backend": "tf_data", "loop": {"kind": "function", "steps_per_call": 15}},
    {"name": "keras_fit", "backend": "tf_data", "loop": {"kind": "keras_fit"}},
    {"name": "keras_fit, many", "backend": "tf_data", "loop": {"kind": "keras_fit", "steps_per_execution": 20}},
]
BROADER = {"while_loop", "function", "keras_fit"}
"""Variants beside which the default run has one that is much the same."""
NAMES = [pytest.param(entry["name"], marks=pytest.mark.slow if entry["name"] in BROADER else ()) for entry in VARIANTS]
KEPT_CEILINGS = ("function, many",)
"""The variants whose ceilings are run beside them."""


@pytest.fixture(scope="module")
def scenario(request: pytest.FixtureRequest) -> Scenario:
    """A numbered source, whose batches are the same in every trial; the ceilings that say nothing new are left out."""
    asked = {VARIANTS[0]["name"], *selected(request, "name")}
    whole = resolve(
        {
            "name": "loops",
            "source": {"kind": "memory", "batch_size": 16, "features": 32, "samples": 100},
            "model": {"hidden_widths": [16]},
            "run": {"steps": STEPS, "repeats": 1},
            "variants": [entry for entry in VARIANTS if entry["name"] in asked],
        }
    )
    return without_ceilings(whole, *(whole.variant(name).ceiling for name in KEPT_CEILINGS if name in asked))


@pytest.fixture(scope="module")
def records(scenario: Scenario, run_scenario_once: RunScenario) -> dict[str, TrialRecord]:
    """A trial of every variant, by its name."""
    return {record.variant: record for record in run_scenario_once(scenario).trials}


def columns(record: TrialRecord) -> tuple[Any, Any, Any]:
    """When each step started and ended, and its loss."""
    assert record.status == "ok", f"{record.reason}\n{record.stderr_tail}"
    assert record.steps is not None
    return record.steps.start_ns.unpack(), record.steps.end_ns.unpack(), record.steps.loss.unpack()


@pytest.mark.parametrize("name", NAMES)
def test_every_loop_trains_exactly_its_steps_on_the_samples_that_it_should(
    name: str, scenario: Scenario, records: dict[str, TrialRecord]
) -> None:
    """40 steps are two calls of 15 and one of 10: the last call is as short as it must be."""
    _, _, losses = columns(records[name])
    assert len(losses) == STEPS
    checked = validity.check_work(
        scenario.variant(name), [records[name]], scenario.baseline, [records[scenario.baseline.name]]
    )
    assert checked.status == "equal", checked.text
    work = records[name].work
    assert work is not None
    assert work.steps == STEPS
    assert work.checked_steps >= 1


@pytest.mark.parametrize("name", NAMES[1:])
def test_every_loop_trains_the_same_weights_as_a_session_does(name: str, records: dict[str, TrialRecord]) -> None:
    _, _, reference = columns(records["session"])
    _, _, losses = columns(records[name])
    np.testing.assert_allclose(losses, reference, rtol=1e-4)
    assert records[name].accuracy.before == records["session"].accuracy.before
    assert records[name].accuracy.after == pytest.approx(records["session"].accuracy.after)


@pytest.mark.parametrize("name", NAMES)
def test_steps_follow_each_other_and_a_wait_is_part_of_its_step(name: str, records: dict[str, TrialRecord]) -> None:
    start_ns, end_ns, _ = columns(records[name])
    assert (end_ns >= start_ns).all()
    assert (start_ns[1:] >= end_ns[:-1]).all()
    steps = records[name].steps
    assert steps is not None
    assert steps.wait_ns is not None
    waits = steps.wait_ns.unpack()
    assert (waits >= 0).all()
    assert (waits <= end_ns - start_ns + 2000).all()  # the graph's clock has a resolution of 1 µs at either end
    assert waits.sum() > 0


@pytest.mark.parametrize(("name", "in_a_call"), CALLS)
def test_the_steps_of_a_call_fill_its_time_without_gaps(
    name: str, in_a_call: int, records: dict[str, TrialRecord]
) -> None:
    start_ns, end_ns, _ = columns(records[name])
    inside = np.arange(1, STEPS) % in_a_call != 0
    np.testing.assert_array_equal(start_ns[1:][inside], end_ns[:-1][inside])
    assert len(np.unique(end_ns)) > STEPS // 2  # they were stamped one by one, and not shared out evenly


@pytest.mark.parametrize("name", NAMES)
def test_all_steps_are_in_the_phase_that_trains(name: str, records: dict[str, TrialRecord]) -> None:
    start_ns, end_ns, _ = columns(records[name])
    marks = records[name].phases
    train = next(i for i, mark in enumerate(marks) if mark.name == "train")
    assert marks[train].at_ns <= start_ns[0]
    assert end_ns[-1] <= marks[train + 1].at_ns


@pytest.mark.parametrize("name", KEPT_CEILINGS)
def test_a_loops_ceiling_is_the_loop_without_an_input(
    name: str, scenario: Scenario, records: dict[str, TrialRecord]
) -> None:
    ceiling = scenario.variant(name).ceiling
    assert ceiling is not None
    record = records[ceiling]
    _, _, losses = columns(record)
    assert len(losses) == STEPS
    assert losses[-1] < losses[0]
    assert record.steps is not None
    assert record.steps.wait_ns is None


@pytest.mark.slow
def test_a_shuffled_dataset_has_the_same_order_in_keras_which_makes_an_iterator_of_its_own(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """A second iterator over the same dataset would shuffle as the second epoch does."""
    shuffled = {"backend": "tf_data", "options": {"shuffle": images.RECORDS}}
    entries = [{"name": name, **shuffled, "loop": {"kind": name}} for name in ("session", "keras_fit")]
    session = run_scenario(alone(*entries, source=images.files(images.make(tmp_path)), run={"steps": 6}))
    losses = {record.variant: columns(record)[2] for record in session.trials}
    np.testing.assert_allclose(losses["keras_fit"], losses["session"], rtol=1e-4)


def test_keras_takes_the_next_batch_of_a_call_while_a_step_computes(run_scenario: RunScenario) -> None:
    """A batch takes a third of a step: from the second step of a call on, nothing is left of it when the step ends."""
    in_a_call, read_ms = 6, 20.0
    asked = alone(
        {
            "name": "keras_fit",
            "backend": "tf_data",
            "options": {"parallel_calls": 1, "prefetch": 0},
            "loop": {"kind": "keras_fit", "steps_per_execution": in_a_call},
        },
        source={"kind": "planted", "batch_size": 8, "read_ms": [read_ms]},
        model={"kind": "planted_device", "step_ms": 3 * read_ms},
        run={"steps": 2 * in_a_call},
    )
    (record,) = run_scenario(asked).trials
    assert record.status == "ok", record.reason
    assert record.steps is not None
    assert record.steps.wait_ns is not None
    waits_ms = record.steps.wait_ns.unpack().reshape(-1, in_a_call) / 1e6
    assert (waits_ms[:, 0] > 0.9 * read_ms).all()
    assert np.median(waits_ms[:, 1:]) < read_ms / 2
