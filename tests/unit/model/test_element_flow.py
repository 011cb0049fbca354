"""How many elements each stage gives for one of the sink's: from the calls, and from what was counted."""

from __future__ import annotations

import pytest

from pipeline_bench.model import element_flow
from pipeline_bench.model.calls import Value
from pipeline_bench.model.pipeline import Stage
from pipeline_bench.model.user_function import UserFunction


def stage(number: int, method: str, *inputs: int, **arguments: Value) -> Stage:
    return Stage(id=number, method=method, inputs=inputs, arguments=arguments)


def elements(*stages: Stage) -> dict[int, float]:
    told = {each.id: element_flow.inputs_per_output(each) for each in stages}
    return element_flow.per_sink_element(stages, stages[-1].id, told)


def test_a_batch_takes_so_many_of_all_that_comes_before_it() -> None:
    found = elements(
        stage(0, "range"), stage(1, "map", 0), stage(2, "batch", 1, batch_size=32), stage(3, "prefetch", 2)
    )
    assert found == {0: 32, 1: 32, 2: 1, 3: 1}


def test_what_comes_before_a_stage_that_does_not_tell_is_unknown() -> None:
    stages = (stage(0, "range"), stage(1, "filter", 0), stage(2, "batch", 1, batch_size=4))
    assert elements(*stages) == {1: 4, 2: 1}
    assert element_flow.per_sink_element(stages, 2, {0: 0.0, 1: 5.0, 2: 4.0}) == {0: 20, 1: 4, 2: 1}


def test_before_a_cache_nothing_runs_unless_it_is_never_full() -> None:
    told = {0: 0.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 8.0}
    for method in ("cache", "snapshot"):
        kept = (stage(0, "range"), stage(1, "map", 0), stage(2, method, 1))
        once = (*kept, stage(3, "repeat", 2), stage(4, "batch", 3))
        assert element_flow.per_sink_element(once, 4, told) == {0: 0, 1: 0, 2: 8, 3: 8, 4: 1}
    for_ever = (
        stage(0, "range"),
        stage(1, "map", 0),
        stage(2, "repeat", 1),
        stage(3, "cache", 2),
        stage(4, "batch", 3),
    )
    assert element_flow.per_sink_element(for_ever, 4, told) == {0: 8, 1: 8, 2: 8, 3: 8, 4: 1}


@pytest.mark.parametrize(
    ("method", "arguments", "endless"),
    [("repeat", {}, True), ("repeat", {"count": -1}, True), ("repeat", {"count": 3}, False), ("map", {}, False)],
)
def test_a_repeat_without_a_count_never_ends(method: str, arguments: dict[str, Value], endless: bool) -> None:
    stages = (stage(0, "range"), stage(1, method, 0, **arguments), stage(2, "batch", 1, batch_size=2))
    assert element_flow.endless(stages, 2) is endless
    assert not element_flow.endless(stages, 0)


@pytest.mark.parametrize(("arguments", "endless"), [({}, True), ({"count": -1}, True), ({"count": 3}, False)])
def test_an_older_function_for_apply_repeats_as_the_method_does(arguments: dict[str, Value], endless: bool) -> None:
    function = UserFunction(name="shuffle_and_repeat")
    applied = stage(1, "apply", 0, buffer_size=9, **arguments).model_copy(update={"function": function})
    assert element_flow.endless((stage(0, "range"), applied), 1) is endless


@pytest.mark.parametrize(
    ("method", "endless"),
    [
        ("zip", False),  # as keras.utils.timeseries_dataset_from_array has it
        ("choose_from_datasets", False),
        ("sample_from_datasets", True),
        ("concatenate", True),
    ],
)
def test_what_ends_with_the_first_of_its_inputs_to_end_is_not_endless(method: str, endless: bool) -> None:
    stages = (stage(0, "range"), stage(1, "counter"), stage(2, method, 0, 1), stage(3, "cache", 2))
    assert element_flow.endless(stages, 3) is endless
    assert element_flow.endless((stage(0, "random"), stage(1, "counter"), stage(2, method, 0, 1)), 2)


@pytest.mark.parametrize("method", ["interleave", "flat_map", "map"])
def test_what_reads_datasets_without_an_end_has_none(method: str) -> None:
    inner = (stage(0, "TFRecordDataset"), stage(1, "repeat", 0))
    read = stage(1, method, 0).model_copy(update={"inner": inner})
    stages = (stage(0, "from_tensor_slices"), read, stage(2, "batch", 1, batch_size=2))
    assert element_flow.endless(stages, 2) is (method != "map")
    ends = read.model_copy(update={"inner": (*inner, stage(2, "take", 1, count=9))})
    assert not element_flow.endless((stages[0], ends, stages[2]), 2)


def test_a_take_ends_what_never_ends() -> None:
    stages = (stage(0, "range"), stage(1, "repeat", 0), stage(2, "take", 1, count=9), stage(3, "take", 1, count=-1))
    assert [element_flow.endless(stages, number) for number in range(4)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("method", "arguments", "taken"),
    [
        ("batch", {"batch_size": 32}, 32),
        ("batch", {"batch_size": True}, None),
        ("window", {"size": 10}, 10),
        ("window", {"size": 10, "shift": 2}, 2),
        ("filter", {}, None),
    ],
)
def test_how_many_elements_a_stage_takes(method: str, arguments: dict[str, Value], taken: float | None) -> None:
    assert element_flow.inputs_per_output(stage(1, method, 0, **arguments)) == taken


@pytest.mark.parametrize(("left_early", "taken"), [(True, 8.0), (False, 0.0)])
def test_a_cache_that_each_pass_leaves_early_is_made_anew(left_early: bool, taken: float) -> None:
    cache = Stage(id=1, method="cache", inputs=(0,), left_early=left_early)
    stages = [stage(0, "range"), cache, stage(2, "take", 1, count=9), stage(3, "batch", 2)]
    given = element_flow.per_sink_element(stages, 3, {0: 0.0, 1: 1.0, 2: 1.0, 3: 8.0})
    assert given == {3: 1.0, 2: 8.0, 1: 8.0, 0: taken}


def test_elements_multiply_along_the_chain_and_add_up_where_it_joins() -> None:
    stages = [
        Stage(id=0, method="range"),
        Stage(id=1, method="map", inputs=(0,)),
        Stage(id=2, method="sample_from_datasets", inputs=(0, 1)),
        Stage(id=3, method="batch", inputs=(2,)),
    ]
    given = element_flow.per_sink_element(stages, 3, {0: 0.0, 1: 1.0, 2: 1.0, 3: 8.0})
    assert given == {3: 1.0, 2: 8.0, 1: 4.0, 0: 8.0}
    weighted = stages[2].model_copy(update={"arguments": {"weights": "[0.25, 0.75]"}})
    given = element_flow.per_sink_element([*stages[:2], weighted, stages[3]], 3, {0: 0.0, 1: 1.0, 2: 1.0, 3: 8.0})
    assert given == {3: 1.0, 2: 8.0, 1: 6.0, 0: 8.0}
    told = {0: 0.0, 1: 1.0, 2: 1.0, 3: 8.0}
    joined = stages[2].model_copy(update={"method": "concatenate", "input_shares": (0.875, 0.125)})
    given = element_flow.per_sink_element([*stages[:2], joined, stages[3]], 3, told)
    assert given == {3: 1.0, 2: 8.0, 1: 1.0, 0: 8.0}
    unknown = element_flow.per_sink_element(stages, 3, {0: 0.0, 1: None, 2: 1.0, 3: 8.0})
    assert 0 not in unknown
