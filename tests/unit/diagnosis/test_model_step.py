"""What makes the model's own step longer than it need be."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.model.events import Copied
from pipeline_bench.model.pipeline import Inspection, ScriptTraining
from tests.unit.diagnoses import row, tensor
from tests.unit.diagnosis.simulated import (
    Machine,
    cost,
    diagnose,
    inspection,
    python_decode,
    said,
    stage,
    text_of,
)


def trained(looked: Inspection, **updates: Any) -> Inspection:
    """The pipeline of a `fit`, which `updates` say more of."""
    training = ScriptTraining(line="train.py:9", model=True, **{"epochs": 5, **updates})
    return looked.model_copy(update={"training": training})


def with_text(dtype: str = "string", *, cache: bool = False) -> Inspection:
    looked = python_decode(2.0)
    if cache:
        stages, costs = (*looked.stages, stage(3, "cache", 2)), (*looked.costs, cost(3, 0.1))
        looked = looked.model_copy(update={"stages": stages, "costs": costs, "sink": 3})
    return looked.model_copy(update={"element": row(tensor(dtype, None), tensor("int64", None))})


@pytest.mark.parametrize(
    ("dtype", "gpu", "told"), [("string", True, True), ("string", False, False), ("int64", True, False)]
)
def test_strings_of_which_a_model_on_a_gpu_makes_numbers_in_its_step_are_told(
    dtype: str, gpu: bool, told: bool
) -> None:
    copied = Copied(size_bytes=2**20, ms=0.1) if gpu else None
    text = text_of(Machine(with_text(dtype), lambda edits: 2.0, ceiling_ms=90.0, copied=copied))
    assert ("The model is given strings, which no GPU takes" in text) == told


@pytest.mark.parametrize(
    ("dtype", "epochs", "step_ms", "told"),
    [
        ("string", 5, 90.0, True),
        ("string", 1, 90.0, False),  # nothing would be read from a cache
        ("string", None, 90.0, False),
        ("string", 5, 300.0, False),  # the input takes most of it
        ("int64", 5, 90.0, False),
    ],
)
def test_strings_of_which_a_model_on_a_cpu_makes_numbers_in_each_epoch_are_told_to_be_worth_a_cache(
    dtype: str, epochs: int | None, step_ms: float, told: bool
) -> None:
    looked = trained(with_text(dtype), epochs=epochs)
    text = text_of(Machine(looked, lambda edits: step_ms, ceiling_ms=90.0))
    where = "In a map of the dataset, with a cache() behind it, both in front of any shuffle or repeat, it is done in"
    assert (f"that is done anew in each epoch. {where} the first epoch only." in text) == told
    assert ("The model is given strings" in text) == told


def test_strings_that_a_cache_keeps_are_to_be_made_numbers_in_front_of_it() -> None:
    text = text_of(Machine(trained(with_text(cache=True)), lambda edits: 90.0, ceiling_ms=90.0))
    assert "In a map of the dataset, in front of cache, train.py:13, it is done in the first epoch only." in text


@pytest.mark.parametrize(
    ("batches", "sample_bytes", "ceiling_ms", "told"),
    [
        ("padded_batch", 250.0, 90.0, True),
        ("padded_batch", 250.0, 20.0, False),  # all of that is less than a third of the step
        ("padded_batch", 900.0, 90.0, False),
        ("padded_batch", 250.0, None, False),
        ("batch", 250.0, 90.0, False),
    ],
)
def test_padding_that_the_model_takes_long_for_is_told_with_its_share(
    batches: str, sample_bytes: float, ceiling_ms: float | None, told: bool
) -> None:
    """A batch of 32 rows of 1,000 bytes, three quarters of which are padding if a sample has 250."""
    stages = (stage(0, "range"), stage(1, "map", 0), stage(2, batches, 1, batch_size=32))
    samples = cost(1, 1.0, elements=32, element_bytes=sample_bytes)
    looked = inspection(stages, (cost(0, 0.1, elements=32), samples, cost(2, 0.5, element_bytes=32_000.0)))
    text = text_of(Machine(looked, lambda edits: 90.0, ceiling_ms=ceiling_ms))
    assert ("Of the first batches of padded_batch, train.py:12, 75 % of the bytes are padding," in text) == told
    assert ("padding" in text) == told


@pytest.mark.parametrize(
    ("steps_a_call", "step_ms", "ceiling_ms", "told"),
    [
        (1, 5.0, 4.95, True),
        (16, 5.0, 4.95, False),  # compile has it
        (None, 5.0, 4.95, False),  # eager
        (1, 50.0, 49.5, False),
        (1, 6.0, 1.0, True),  # it waits, and not for the 2.6 ms that the input takes
        (1, 4.0, 1.0, False),
    ],
)
def test_more_steps_a_call_are_told_of_short_steps_that_hardly_wait(
    steps_a_call: int | None, step_ms: float, ceiling_ms: float, told: bool
) -> None:
    looked = trained(python_decode(2.0), steps_a_call=steps_a_call)
    text = text_of(Machine(looked, lambda edits: step_ms, ceiling_ms=ceiling_ms))
    assert ("With steps so short, steps_per_execution=16 in compile may be faster; callbacks of a" in text) == told
    assert ("steps_per_execution" in text) == told


def test_more_steps_a_call_are_told_of_a_wait_that_no_stage_accounts_for_and_no_fix_is_tried() -> None:
    looked = trained(python_decode(0.1), steps_a_call=1)
    found = said(diagnose(Machine(looked, lambda edits: 8.0, ceiling_ms=6.8)))
    assert "No stage limits the training step" in found.text
    assert "With steps so short, steps_per_execution=16" in found.text
    of_the_map = [each for each in found.attempts if each.fix.stages == (1,)]
    assert of_the_map
    assert {each.outcome for each in of_the_map} == {"not-tried"}
    assert all("there is almost nothing to gain" in each.reason for each in of_the_map)


@pytest.mark.parametrize(("steps", "told"), [(32 * 3, False), (30, True), (None, False)])
def test_where_an_epoch_has_no_whole_number_of_calls_that_is_told(steps: int | None, told: bool) -> None:
    looked = trained(python_decode(2.0), steps_a_call=1, epochs=3, steps=steps)
    text = text_of(Machine(looked, lambda edits: 5.0, ceiling_ms=4.95))
    assert ("in compile, with a steps_per_epoch that is a multiple of it, may be" in text) == told
    assert "steps_per_execution=16" in text


def test_of_one_batch_in_an_epoch_no_call_takes_several_steps() -> None:
    looked = trained(python_decode(2.0), steps_a_call=1).model_copy(update={"cardinality": 1, "pass_elements": 1})
    assert "steps_per_execution" not in text_of(Machine(looked, lambda edits: 5.0, ceiling_ms=4.95))


@pytest.mark.parametrize(("after_ms", "told"), [(5.0, True), (20.0, False)])
def test_more_steps_a_call_are_told_of_steps_that_a_fix_makes_short(after_ms: float, told: bool) -> None:
    looked = trained(python_decode(60.0), steps_a_call=1)
    machine = Machine(looked, lambda edits: after_ms if edits else 61.0, ceiling_ms=4.95 if told else 19.8)
    found = said(diagnose(machine))
    assert found.proposal is not None
    fast = "With steps as short as this fix makes them, steps_per_execution=16 in compile may be faster; "
    assert (fast in found.text) == told
    assert ("steps_per_execution" in found.text) == told


@pytest.mark.parametrize(
    ("api", "made_ms", "told"),
    [("arrays", 0.2, True), ("arrays", 4.0, True), ("generator", 0.2, True), ("generator", 4.0, False)],
)
def test_what_keras_does_for_each_batch_counts_as_work_that_more_steps_a_call_spare(
    api: str, made_ms: float, told: bool
) -> None:
    looked = inspection((stage(0, api),), (cost(0, made_ms),)).model_copy(update={"api": api, "cardinality": None})
    text = text_of(Machine(trained(looked, steps_a_call=1), lambda edits: 5.0, ceiling_ms=1.0))
    assert ("With steps so short, steps_per_execution=16" in text) == told


@pytest.mark.parametrize(
    ("updates", "ceiling_ms", "told"),
    [
        ({}, 1.0, True),
        ({"steps_a_call": None}, 1.0, True),
        ({"in_loop": False}, 1.0, False),
        ({"epochs": 20}, 1.0, False),
        ({}, 40.0, False),
    ],
)
def test_of_a_fit_of_one_batch_in_a_loop_train_on_batch_is_told_and_not_more_steps_a_call(
    updates: dict[str, Any], ceiling_ms: float, told: bool
) -> None:
    looked = inspection((stage(0, "arrays"),), (cost(0, 0.2),)).model_copy(
        update={"api": "arrays", "cardinality": None, "pass_elements": None}
    )
    known = {"epochs": 1, "in_loop": True, "one_batch": True, "steps_a_call": 1, **updates}
    text = text_of(Machine(trained(looked, **known), lambda edits: ceiling_ms + 4.0, ceiling_ms=ceiling_ms))
    assert ("Each call of fit in the loop trains on one batch," in text) == told
    assert ("train_on_batch in its place, which takes the step alone, may be much faster." in text) == told
    assert "steps_per_execution" not in text
