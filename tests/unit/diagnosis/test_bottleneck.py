"""The stage that limits a pipeline, from what each costs alone."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.diagnosis import segments
from pipeline_bench.model.calls import WORKERS
from pipeline_bench.model.diagnosis import Bottleneck
from pipeline_bench.model.pipeline import Inspection, Location, ScriptTraining, Stage
from pipeline_bench.model.user_function import UserFunction
from tests.unit.diagnosis.simulated import cost, find, function, inspection, python_decode, shuffled, stage


def test_a_python_map_is_named_with_its_place_its_share_and_its_cause() -> None:
    found = find(python_decode(20.0), cores=2, as_written_ms=25.0)
    assert found.stage == 1
    assert found.cause == "python"
    assert found.share == pytest.approx(0.8)
    assert found.text == (
        "map(decode), train.py:11, takes 80 % of the time between two batches: it runs Python, one call at a time."
    )


def test_a_stage_without_a_place_in_the_users_code_begins_its_sentence_by_its_name_alone() -> None:
    looked = python_decode(20.0)
    stages = tuple(each.model_copy(update={"place": None}) for each in looked.stages)
    found = find(looked.model_copy(update={"stages": stages}), cores=2, as_written_ms=25.0)
    assert found.text.startswith("map(decode) takes 80 % of the time between two batches")


def test_a_stage_that_takes_far_more_than_the_step_waits_is_said_to_run_beside_the_model() -> None:
    def said(wait_ms: float | None, ceiling_ms: float | None = 15.0) -> str:
        return find(python_decode(20.0), 2, as_written_ms=25.0, ceiling_ms=ceiling_ms, wait_ms=wait_ms).text

    assert said(8.0).endswith("one call at a time. The model computes meanwhile: its step waits for 32 % of it.")
    small = find(python_decode(4.0), 2, as_written_ms=25.0, ceiling_ms=20.0, wait_ms=0.8).text
    assert small.endswith("The model computes meanwhile: its step waits for 3 % of it."), "16 % is no small share"
    assert "meanwhile" not in said(17.0)
    assert "meanwhile" not in said(None)
    assert "meanwhile" not in said(8.0, None)


def test_before_the_ceiling_is_known_what_a_step_does_beside_its_wait_is_the_models() -> None:
    def found(wait_ms: float, *, trains: bool) -> Bottleneck:
        return find(python_decode(146.0), 2, as_written_ms=587.0, wait_ms=wait_ms, steps=40, trains=trains)

    assert "is spent between the stages" in found(23.0, trains=False).text, (
        "a loop that only takes elements waits for all"
    )
    waited = found(23.0, trains=True)
    assert (waited.stage, waited.limits) == (1, True)
    assert waited.text.endswith("The model computes meanwhile: its step waits for 4 % of it.")
    assert found(2.0, trains=True).text.startswith("The training hardly waits for its input (0.3 % of a step of 587 ms")
    assert "of the wait for batches" in found(500.0, trains=True).text


def test_an_input_that_is_hardly_waited_for_is_no_limit_and_its_costliest_stage_may_take_cores() -> None:
    def found(wait_ms: float, steps: int = 40) -> Bottleneck:
        return find(python_decode(4.0), 2, as_written_ms=25.0, ceiling_ms=20.0, wait_ms=wait_ms, steps=steps)

    hardly = found(0.2)
    assert (hardly.stage, hardly.limits, hardly.certainty) == (1, False, "certain")
    assert hardly.text == (
        "The training hardly waits for its input (0.8 % of a step of 25.0 ms); the input can only take cores from the "
        "model, which alone takes 20.0 ms. The costliest stage, map(decode), train.py:11, computes for 4.00 ms a batch."
    )
    few = found(0.2, steps=3)
    assert (few.certainty, few.doubt) == ("probable", "steps")
    assert few.text.startswith("Probably the training hardly waits")
    assert found(1.0).limits


def test_a_ceiling_of_trials_that_differ_does_not_prove_that_what_computes_on_its_cores_costs_nothing() -> None:
    def text(decode_ms: float, *, steady: bool) -> str:
        looked = python_decode(decode_ms)
        return find(looked, 2, as_written_ms=25.0, ceiling_ms=29.0, wait_ms=0.2, steps=40, steady=steady).text

    assert text(4.0, steady=True).startswith("The input is not the limit: a step takes 25.0 ms, and the model alone no")
    assert text(1.0, steady=False).startswith("The input is not the limit")
    unsteady = text(4.0, steady=False)
    assert unsteady.startswith("The training hardly waits for its input (0.8 % of a step of 25.0 ms)")
    assert "model, which alone takes 29.0 ms (in doubt: trials of one variant differ). The costliest" in unsteady


def test_of_a_costliest_stage_in_python_the_line_is_told() -> None:
    looked = python_decode(4.0)
    (decode,) = (each for each in looked.stages if each.function is not None)
    assert decode.function is not None
    of_line = decode.function.model_copy(update={"costliest": "line 21", "costliest_share": 0.78})
    stages = tuple(
        each if each is not decode else each.model_copy(update={"function": of_line}) for each in looked.stages
    )
    told = find(
        looked.model_copy(update={"stages": stages}), 2, as_written_ms=25.0, ceiling_ms=20.0, wait_ms=0.2, steps=40
    )
    assert told.text.endswith("computes for 4.00 ms a batch, 78 % of it in line 21.")


@pytest.mark.parametrize(("line", "told"), [(12, " and train.py:12"), (11, ", made 2 times")])
def test_stages_that_run_one_function_count_together_and_are_told_together(line: int, told: str) -> None:
    of = function("load")
    maps = [stage(number, "map", number - 1, of=of, num_parallel_calls=2) for number in (1, 3)]
    place = Location(file="/home/user/train.py", line=line)
    maps[1] = maps[1].model_copy(update={"place": place})
    mask = stage(5, "map", 4, of=function("mask"), num_parallel_calls=2)
    stages = (stage(0, "range"), maps[0], stage(2, "range"), maps[1], stage(4, "zip", 1, 3), mask)
    costs = [cost(1, 6.0), cost(3, 5.0), cost(5, 9.0)]
    found = find(inspection(stages, (cost(0, 0.0), cost(2, 0.0), cost(4, 0.0), *costs)), 2, as_written_ms=10.0)
    assert found.stage == 1
    assert found.text.startswith(f"map(load), train.py:11{told}, takes 60 % of the time between two")


def two_maps(calls: int | None, first_ms: float, second_ms: float, first_cpu_ms: float | None = None) -> Inspection:
    """Two stateful maps; the first hands over through a buffer where it has parallel calls."""
    given = {} if calls is None else {"num_parallel_calls": calls}
    first = stage(1, "map", 0, of=function("first", stateful=True)).model_copy(update={"arguments": given})
    stages = (
        stage(0, "range"),
        first,
        stage(2, "map", 1, of=function("second", stateful=True)),
        stage(3, "batch", 2),
    )
    costs = (cost(0, 0.0, 0.0), cost(1, first_ms, first_cpu_ms), cost(2, second_ms), cost(3, 1.0))
    return inspection(stages, costs)


def test_stages_of_one_thread_add_up_and_those_behind_a_buffer_do_not() -> None:
    assert segments.of(two_maps(None, 6.0, 5.0), 16).period_ns == pytest.approx(12e6)
    beside = segments.of(two_maps(4, 6.0, 5.0), 16)
    assert beside.period_ns == pytest.approx(6e6)
    assert set(beside.groups) == {(3, 2), (1,), (0,)}


def test_the_dearest_stage_of_the_longest_segment_is_named_and_not_a_dearer_one_beside_it() -> None:
    """map(first) alone takes longest of all stages, but the sum of those behind it is what the pipeline waits for."""
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, of=function("first"), num_parallel_calls=-1),
        stage(2, "map", 1, of=function("second", python=True)),
        stage(3, "map", 2, of=function("third", python=True)),
    )
    looked = inspection(stages, (cost(0, 0.0), cost(1, 6.0, 6.0), cost(2, 4.0), cost(3, 5.0)))
    assert find(looked, cores=8, as_written_ms=9.0).stage == 3


def test_the_stage_with_the_most_cpu_time_is_named_when_all_cores_are_busy() -> None:
    looked = two_maps(2, 10.0, 9.0, first_cpu_ms=20.0)
    found = find(looked, cores=2, as_written_ms=15.0)
    assert found.stage == 1
    assert "all cores are busy" in found.text


def test_a_prefetch_in_the_middle_cuts_a_segment_and_one_without_a_buffer_does_not() -> None:
    def with_buffer(size: int) -> Inspection:
        stages = (
            stage(0, "from_generator", of=function("rows", python=True)),
            stage(1, "prefetch", 0, buffer_size=size),
            stage(2, "map", 1, of=function("decode", python=True)),
        )
        return inspection(stages, (cost(0, 4.0), cost(1, 0.0), cost(2, 5.0)))

    assert segments.of(with_buffer(-1), 8).period_ns == pytest.approx(5e6)
    assert segments.of(with_buffer(0), 8).period_ns == pytest.approx(9e6)


def test_a_stateless_map_counts_as_parallel_only_while_tf_data_makes_it_so() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("f")), stage(2, "batch", 1))
    costs = (cost(0, 1.0), cost(1, 2.0), cost(2, 3.0))
    assert segments.of(inspection(stages, costs), 16).period_ns == pytest.approx(3e6)
    assert segments.of(inspection(stages, costs, default_parallelised=False), 16).period_ns == pytest.approx(6e6)


@pytest.mark.parametrize(
    ("elapsed_ms", "cpu_ms", "python", "cause"),
    [(20.0, 1.0, True, "waiting"), (20.0, 19.0, True, "python"), (20.0, 19.0, False, "cpu")],
)
def test_the_cause_follows_from_what_the_time_is_spent_on(
    elapsed_ms: float, cpu_ms: float, python: bool, cause: str
) -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("f", python=python, stateful=True)))
    looked = inspection(stages, (cost(0, 0.0), cost(1, elapsed_ms, cpu_ms)))
    assert find(looked, cores=2, as_written_ms=20.0).cause == cause


def test_a_stage_that_queued_for_a_core_does_not_wait_but_computes() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("f", python=True, stateful=True)))
    alone = cost(1, 187.0, 54.0)
    queued = alone.model_copy(update={"queued_ns": 80e6})
    assert find(inspection(stages, (cost(0, 0.0), alone)), 2, 187.0).cause == "waiting"
    assert find(inspection(stages, (cost(0, 0.0), queued)), 2, 187.0).cause == "python"


@pytest.mark.parametrize(
    ("cpu_ms", "queued_ms", "calls", "cores", "elements", "cause"),
    [
        (160.0, 0.0, 16, 16, 64.0, "waiting"),  # each of 16 calls computes for a tenth of its time: more calls gain
        (1231.0, 89.0, 16, 16, 64.0, "cpu"),  # of pictures that 16 cores decode (reports/h100-diagnose)
        (73.0, 0.0, 8, 2, 64.0, "waiting"),  # 8 calls leave 2 cores idle for most of their time
        (50.0, 60.0, 8, 2, 64.0, "waiting"),  # likewise beside other work, which their queueing for cores tells
        (50.0, 750.0, 8, 2, 64.0, "cpu"),  # beside other work each of them always wants a core
        (190.0, 0.0, 8, 2, 64.0, "cpu"),  # a quota lets them use no more, and counts no queueing
        (160.0, 0.0, 16, 16, 64_000.0, "handing-over"),  # of so small elements, calls lie idle for want of them
        (160.0, 0.0, 1, 16, 64.0, "cpu"),
    ],
)
def test_calls_at_the_same_time_wait_if_they_leave_most_of_the_time_of_their_cores(
    cpu_ms: float, queued_ms: float, calls: float, cores: int, elements: float, cause: str
) -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("f"), num_parallel_calls=-1))
    changes = {"calls": calls, "queued_ns": queued_ms * 1e6}
    alone = cost(1, 100.0, cpu_ms, elements=elements).model_copy(update=changes)
    assert find(inspection(stages, (cost(0, 0.0), alone)), cores, 100.0).cause == cause


def test_how_much_a_stage_that_waits_computes_is_said() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("f"), num_parallel_calls=-1))
    alone = cost(1, 100.0, 640.0, elements=64.0).model_copy(update={"calls": 16.0})
    said = find(inspection(stages, (cost(0, 0.0), alone)), 16, 100.0).text
    assert "it mostly waits: it computes for 40 % of its time, on several threads" in said


def test_that_a_stage_waits_is_in_doubt_where_the_system_does_not_count_how_long_it_had_no_core() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("f", python=True, stateful=True)))
    for cpu_ms, certainty in ((54.0, "probable"), (180.0, "certain")):
        unknown = cost(1, 187.0, cpu_ms).model_copy(update={"queued_ns": None})
        assert find(inspection(stages, (cost(0, 0.0), unknown)), 2, 187.0).certainty == certainty


@pytest.mark.parametrize(
    ("reads", "python", "cause", "said"),
    [
        (True, False, "reading", "it reads files, one after another"),  # map(read_file), on a slow disk
        (False, False, "waiting", "it neither computes nor reads files but waits, one call at a time"),
        (False, True, "waiting", "it computes little and waits, as for files or a network, one call at a time"),
    ],
)
def test_what_waits_is_said_to_wait_for_files_as_far_as_that_is_known(
    reads: bool, python: bool, cause: str, said: str
) -> None:
    load = function("load", python=python, stateful=True).model_copy(update={"reads_files": reads})
    stages = (stage(0, "list_files"), stage(1, "map", 0, of=load))
    found = find(inspection(stages, (cost(0, 0.1), cost(1, 90.0, 6.0))), 2, 91.0)
    assert found.cause == cause
    assert said in found.text


def test_two_lambdas_of_one_line_are_two_functions() -> None:
    def mapped(number: int, end: int, line: int = 5) -> Any:
        place = Location(file="train.py", line=5, end_line=5, column=4, end_column=end)
        of = function("<lambda>").model_copy(update={"file": "train.py", "line": line})
        return stage(number, "map", number - 1, of=of).model_copy(update={"place": place})

    def share(*stages: Any) -> float | None:
        looked = inspection((stage(0, "range"), *stages), (cost(0, 0.1), cost(1, 4.0), cost(2, 5.0)))
        return find(looked, 1, 9.3).share

    assert share(mapped(1, 30), mapped(2, 60)) == pytest.approx(5 / 9.3)
    assert share(mapped(1, 30), mapped(2, 30)) == pytest.approx(9 / 9.3), "in a loop it is one call"
    assert share(mapped(1, 30, line=2), mapped(2, 60, line=2)) == pytest.approx(9 / 9.3), "it has a name"


def test_a_reader_that_computes_all_its_time_is_not_said_to_wait_for_files() -> None:
    found = find(inspection((stage(0, "CsvDataset"),), (cost(0, 78.0, 78.0),)), 2, 80.0)
    assert found.cause == "cpu"
    assert "it reads files and computes, one call at a time" in found.text


def test_a_stage_that_costs_more_alone_than_the_whole_pipeline_is_told() -> None:
    text = find(python_decode(30.0), cores=2, as_written_ms=20.0).text
    assert "Alone it took 30.0 ms, and the whole pipeline 20.0 ms" in text
    assert "Alone" not in find(python_decode(21.0), cores=2, as_written_ms=20.0).text
    fed = find(shuffled(600.0), 2, 22.0, 5.0, 20.0, 20.0, 60, trains=True, in_a_row=60).text
    assert "and the whole pipeline 22.0 ms: a full buffer feeds the steps for a while." in fed
    skipped = find(skipping(3200, 600.0), 2, 22.0, 5.0, 20.0, 20.0, 60, trains=True, in_a_row=60).text
    assert "and the whole pipeline 22.0 ms: the machine was slower then." in skipped, "a skip holds nothing"


def cached(first_epoch_ms: float) -> Inspection:
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, of=function("decode", python=True)),
        stage(2, "cache", 1),
        stage(3, "map", 2, of=function("augment", python=True)),
    )
    before = cost(1, 0.0).model_copy(
        update={"first_epoch_ns": first_epoch_ms * 1e6, "first_epoch_cpu_ns": first_epoch_ms * 1e6}
    )
    return inspection(stages, (cost(0, 0.0), before, cost(2, 0.1), cost(3, 4.0)))


def test_the_first_epoch_is_told_apart_from_those_that_a_cache_serves() -> None:
    found = find(cached(60.0), cores=2, as_written_ms=5.0)
    assert found.stage == 3
    assert "from the second epoch on. The first epoch fills the cache and takes about 64.1 ms per batch" in found.text
    assert "map(decode), train.py:11" in found.text


def test_a_cache_in_front_of_what_takes_long_is_said_to_keep_nothing_of_it() -> None:
    """What it keeps was called the costliest of the first epoch."""
    found = find(cached(0.2), cores=2, as_written_ms=5.0)
    assert found.stage == 3
    assert "The cache keeps nothing that takes long: the first epoch, which fills it, takes about 4" in found.text
    assert "most of it in" not in found.text


def test_where_the_cache_could_not_be_filled_the_stage_before_it_is_named() -> None:
    found = find(cached(60.0).of_first_epoch(), cores=2, as_written_ms=66.0)
    assert found.stage == 1
    assert "This is the first epoch" in found.text
    assert "the stages after the cache take about 4.10 ms per batch" in found.text


def test_a_reader_reads_and_many_small_elements_are_handed_over() -> None:
    reading = inspection((stage(0, "TFRecordDataset"), stage(1, "batch", 0)), (cost(0, 9.0, 1.0), cost(1, 1.0)))
    assert find(reading, 2, 10.0).cause == "reading"
    tiny = inspection((stage(0, "range"), stage(1, "unbatch", 0)), (cost(0, 0.1), cost(1, 5.0, elements=1000)))
    found = find(tiny, 2, 5.0)
    assert found.cause == "handing-over"
    assert "1,000 small elements" in found.text


@pytest.mark.parametrize(
    ("costs_ms", "elements", "expected"),
    [
        ((0.3, 0.2, 0.4), 128, 0),
        ((0.2, 0.35, 0.1), 128, 0),
        ((0.1, 0.9, 0.1), 128, 2),  # the shuffle itself
        ((1.9, 0.1, 3.9), 128, 3),  # 30 µs a sample: it copies
        ((0.3, 0.2, 0.4), 4, 3),
    ],
)
def test_samples_of_an_array_that_are_passed_on_one_by_one_are_named_at_the_array(
    costs_ms: tuple[float, float, float], elements: int, expected: int
) -> None:
    stages = (
        stage(0, "from_tensor_slices"),
        stage(2, "shuffle", 0, buffer_size=99),
        stage(3, "batch", 2, batch_size=elements),
        stage(4, "map", 3, of=function("scale")),
    )
    slices, shuffle, batch = costs_ms
    costs = (
        cost(0, slices, elements=elements),
        cost(2, shuffle, elements=elements),
        cost(3, batch),
        cost(4, 0.1),
    )
    found = find(inspection(stages, costs), 2, sum(costs_ms) + 0.1)
    assert found.stage == expected
    if expected == 0:
        assert found.cause == "handing-over"
        assert found.share == pytest.approx(sum(costs_ms) / (sum(costs_ms) + 0.1))
        assert "from_tensor_slices, train.py:10, together with the stages up to batch, train.py:13, takes" in found.text
        assert "it passes 128 small elements on, one by one" in found.text


def test_a_model_that_computes_all_the_time_is_not_starved_by_any_stage() -> None:
    found = find(python_decode(5.0), cores=2, as_written_ms=30.0, ceiling_ms=29.5)
    assert found.stage is None
    assert found.share is None
    assert found.text.startswith("The input is not the limit: a step takes 30.0 ms, and the model alone 29.5 ms")


def test_a_model_alone_is_not_said_to_take_longer_than_with_its_input() -> None:
    found = find(python_decode(5.0), cores=2, as_written_ms=30.0, ceiling_ms=55.0)
    assert "a step takes 30.0 ms, and the model alone no less" in found.text


@pytest.mark.parametrize(("stage_ms", "is_named"), [(5.0, True), (0.02, False)])
def test_of_a_model_that_is_the_limit_a_stage_is_named_that_takes_a_tenth_of_the_step(
    stage_ms: float, is_named: bool
) -> None:
    found = find(python_decode(stage_ms), cores=2, as_written_ms=30.0, ceiling_ms=29.5)
    assert ("The costliest stage is map(decode)" in found.text) is is_named


def test_a_stage_that_takes_a_small_part_of_a_training_step_is_not_called_its_limit() -> None:
    found = find(python_decode(5.0), cores=2, as_written_ms=200.0, ceiling_ms=150.0, wait_ms=8.0)
    assert found.stage is None
    assert found.text.startswith("No stage limits the training step: the costliest, map(decode), train.py:11, takes 2")
    assert find(python_decode(50.0), cores=2, as_written_ms=200.0, ceiling_ms=150.0).stage == 1


def test_no_stage_is_named_that_explains_little_of_what_a_step_waits() -> None:
    looked = python_decode(5.0)
    found = {wait: find(looked, 2, 27.0, ceiling_ms=11.0, wait_ms=wait, steps=100) for wait in (6.0, 16.0, 20.0)}
    assert [each.stage for each in found.values()] == [1, 1, None]
    assert [each.certainty for each in found.values()][:2] == ["certain", "probable"]
    assert all("of the wait for batches" in found[wait_ms].text for wait_ms in (16.0, 20.0))


def test_a_wait_that_lies_where_epochs_begin_names_no_stage_and_says_how_long_an_epoch_is() -> None:
    looked = python_decode(0.2).model_copy(update={"cardinality": 11})

    def of_fit(epochs: int | None, **given: object) -> Inspection:
        training = ScriptTraining(line="train.py:9", model=True, epochs=epochs)
        return looked.model_copy(update={"training": training, **given})

    def text(inspection: Inspection, typical_wait_ms: float) -> str:
        return find(inspection, 2, 12.0, 4.0, 8.0, typical_wait_ms).text

    assert "waits 8.00 ms of 12.0 ms for its batch, most of it where an epoch of 11 batches begins" in text(looked, 0.4)
    assert "steps_per_epoch" not in text(looked, 0.4)
    assert "steps_per_epoch=11" in text(of_fit(20), 0.4)
    assert "this happens only once" in text(of_fit(1), 0.4)
    assert "steps_per_epoch" not in text(of_fit(1), 0.4) + text(of_fit(None), 0.4)
    assert "begins" in text(of_fit(20, api="PyDataset"), 0.4)
    assert "repeat()" not in text(of_fit(20, api="PyDataset"), 0.4) + text(of_fit(20, api="arrays"), 0.4)
    assert "epoch" not in text(looked, 7.0)


def test_a_single_stage_that_explains_little_of_the_wait_is_said_to() -> None:
    arrays = inspection((stage(0, "arrays"),), (cost(0, 0.2),))
    found = find(arrays, 2, 6.0, ceiling_ms=5.0, wait_ms=1.0)
    assert (found.stage, found.text) == (None, "Making the batches takes only 20 % of the wait for batches.")


def test_a_small_share_of_few_steps_is_only_probable() -> None:
    few = find(python_decode(2.0), 2, 20.0, ceiling_ms=17.0, wait_ms=2.5, steps=5)
    assert (few.stage, few.certainty) == (1, "probable")
    assert few.text.endswith("In doubt: only 5 steps as written could be measured.")
    large = find(python_decode(18.0), 2, 20.0, ceiling_ms=1.0, wait_ms=18.0, steps=5)
    assert large.certainty == "certain"


@pytest.mark.parametrize(("wait_ms", "limits"), [(3.0, True), (300.0, False), (None, False)])
def test_a_step_that_hardly_waits_and_whose_stages_hardly_compute_is_the_models(
    wait_ms: float | None, limits: bool
) -> None:
    found = find(python_decode(60.0), cores=2, as_written_ms=2750.0, ceiling_ms=2160.0, wait_ms=wait_ms)
    assert found.text.startswith("The input is not the limit") == limits
    if limits:
        assert found.stage is None
        assert "waits 3.00 ms for its batch, and all stages together compute for 60.6 ms" in found.text


def test_a_step_far_longer_than_all_stages_take_is_the_models_though_its_ceiling_was_not_measured() -> None:
    looked = python_decode(60.0)
    found = find(looked, cores=2, as_written_ms=30_000.0, wait_ms=0.2)
    assert found.stage is None
    assert found.text.startswith("The input is not the limit: a step of 30.0 s waits 200 µs for its batch, and all")
    for step_ms, wait_ms in ((1000.0, 0.2), (30_000.0, 20_000.0)):
        assert "not the limit" not in find(looked, cores=2, as_written_ms=step_ms, wait_ms=wait_ms).text


def test_without_any_cost_no_stage_is_named_and_the_reason_is() -> None:
    looked = inspection((stage(0, "range"),), (cost(0, None, reason="it gave no element within 3 s."),))
    found = find(looked, cores=2, as_written_ms=10.0)
    assert found.stage is None
    assert (
        found.text
        == "No stage can be named: range, train.py:10, was not measured alone: it gave no element within 3 s."
    )


@pytest.mark.parametrize(("steps", "wait_ms", "shows"), [(41, 0.5, True), (40, 0.5, False), (400, 5.0, False)])
def test_steps_that_outlast_the_buffers_show_that_the_model_limits_though_no_stage_was_measured(
    steps: int, wait_ms: float, shows: bool
) -> None:
    """As where a generator fills a buffer of its own first, and gives nothing by itself within the time for a stage."""
    late = cost(0, None, reason="it gave no element within 5 s").model_copy(update={"late": True})
    stages = (stage(0, "from_generator", of=function("parse", python=True)), stage(1, "prefetch", 0, buffer_size=40))
    found = find(
        inspection(stages, (late,)), cores=2, as_written_ms=30.3, ceiling_ms=31.4, wait_ms=wait_ms, in_a_row=steps
    )
    assert found.stage is None
    assert found.text.startswith("The input is not the limit: a step takes 30.3 ms") is shows


@pytest.mark.parametrize(
    ("behind", "shows"),
    [
        ((stage(1, "batch", 0), stage(2, "prefetch", 1, buffer_size=40)), True),
        ((stage(1, "shuffle", 0, buffer_size=10_000), stage(2, "batch", 1)), False),
        ((stage(1, "prefetch", 0, buffer_size=40), stage(2, "unbatch", 1), stage(3, "batch", 2)), False),
        ((stage(1, WORKERS, 0, workers=2, max_queue_size=400),), False),
        ((stage(1, "map", 0, of=function("parse")), stage(2, "prefetch", 1, buffer_size=400)), False),
    ],
)
def test_steps_show_that_the_model_limits_only_where_no_buffer_may_have_fed_them(
    behind: tuple[Stage, ...], shows: bool
) -> None:
    looked = inspection((stage(0, "from_generator", of=function("parse", python=True)), *behind), (cost(0, 0.001),))
    looked = looked.model_copy(update={"cardinality": None, "pass_elements": None})
    found = find(looked, cores=2, as_written_ms=30.3, ceiling_ms=31.4, wait_ms=0.5, in_a_row=100)
    assert found.text.startswith("The input is not the limit: a step takes 30.3 ms") is shows


@pytest.mark.parametrize(("wait_ms", "hardly"), [(3.0, True), (900.0, False)])
def test_where_no_stage_could_be_measured_it_is_told_that_the_steps_hardly_waited(wait_ms: float, hardly: bool) -> None:
    source = stage(0, "from_generator", of=function("parse", python=True))
    looked = inspection((source,), (cost(0, None, reason="no time was left for it"),))
    found = find(looked, cores=2, as_written_ms=8980.0, ceiling_ms=7850.0, wait_ms=wait_ms, steps=1)
    seen = "The training hardly waits for its input (0 % of a step of 8.98 s). " * hardly
    why = "from_generator(parse), train.py:10, was not measured alone: no time was left for it"
    assert found.text == f"{seen}No stage can be named: {why}."


def test_the_only_function_that_could_not_be_measured_is_named_where_the_rest_explains_little() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("parse")), stage(2, "batch", 1))
    reason = "it could not be made by itself"
    costs = (cost(0, 0.2), cost(1, None, reason=reason), cost(2, None, reason="what comes before it gave no element"))
    found = find(inspection(stages, costs), cores=2, as_written_ms=10.0)
    assert found.stage == 1
    assert found.share == pytest.approx(0.98)
    assert reason in found.text
    explained = find(inspection(stages, (cost(0, 9.0), *costs[1:])), cores=2, as_written_ms=10.0)
    assert explained.stage == 0


def test_a_stage_is_named_as_surely_as_the_stages_explain_the_time() -> None:
    def found(ms: float, ceiling_ms: float | None = None) -> Bottleneck:
        return find(python_decode(ms), cores=2, as_written_ms=100.0, ceiling_ms=ceiling_ms)

    assert (found(60.0).stage, found(60.0).certainty) == (1, "certain")
    assert (found(40.0).stage, found(40.0).certainty) == (1, "probable")
    assert found(40.0).text.startswith("Probably map(decode), train.py:11")
    assert "explain only 41 % of the time" in found(40.0).text
    assert found(40.0, ceiling_ms=50.0).certainty == "certain", "on a CPU the model competes with the stages"
    assert found(20.0).stage is None
    assert "explain only 21 % of the time; most of that is map(decode), train.py:11" in found(20.0).text


def test_a_stage_without_the_time_for_an_element_is_not_taken_for_the_bottleneck() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("parse")), stage(2, "batch", 1))
    late = cost(1, None, reason="it gave no element within 5 s").model_copy(update={"late": True})
    found = find(inspection(stages, (cost(0, 0.2), late, cost(2, None))), cores=2, as_written_ms=10.0)
    assert found.stage is None
    assert "it gave no element within 5 s" in found.text


def test_a_zip_of_two_inputs_is_one_segment() -> None:
    stages = (
        stage(0, "from_generator", of=function("images", python=True)),
        stage(1, "from_generator", of=function("labels", python=True)),
        stage(2, "zip", 0, 1),
    )
    looked = inspection(stages, (cost(0, 4.0), cost(1, 3.0), cost(2, 0.1)))
    assert segments.of(looked, 8).period_ns == pytest.approx(7.1e6)


def test_a_prefetch_is_not_named_while_a_map_was_not_measured_for_want_of_time() -> None:
    stages = (stage(0, "range"), stage(1, "prefetch", 0), stage(2, "map", 1, of=function("decode")))
    late = cost(2, None, reason="no time was left for it").model_copy(update={"late": True})
    found = find(inspection(stages, (cost(0, 0.1), cost(1, 4.0), late)), cores=2, as_written_ms=5.0)
    assert found.stage is None
    assert found.text == "No stage can be named: map(decode), train.py:12, was not measured, because time ran out."
    measured = inspection(stages, (cost(0, 0.1), cost(1, 4.0), cost(2, 0.2)))
    assert find(measured, cores=2, as_written_ms=5.0).stage == 1


def test_a_buffer_that_is_filled_between_the_measured_steps_limits_the_epoch_with_what_is_in_front_of_it() -> None:
    def found(looked: Inspection, in_a_row: int = 60) -> Bottleneck:
        return find(looked, 2, 15.0, 15.5, 0.4, 0.3, 120, trains=True, in_a_row=in_a_row)

    limit = found(shuffled(6015.0))
    assert (limit.stage, limit.cause, limit.limits, limit.doubt) == (1, "cpu", True, None)
    assert limit.share == pytest.approx(59.6 / 74.6, rel=1e-3)
    assert limit.text == (
        "map(load), train.py:11, limits an epoch: shuffle, train.py:13, fills its buffer before it gives anything: the "
        "first batch of an epoch comes 6.00 s late, 80 % of the epoch. Over 100 batches that is 59.6 ms for each, "
        "beside 15.0 ms for a step; the measured steps do not include it."
    )
    assert found(shuffled(6015.0, epochs=1)).text.endswith("This training has one epoch, so this happens only once.")
    for other in (
        shuffled(150.0),
        shuffled(6015.0, buffer_size=320),
        shuffled(6015.0, cache=True),
    ):
        assert found(other).text.startswith("The input is not the limit"), "short, not the buffer's, or of one pass"
    assert "comes 285 ms late, 14 % of the epoch" in found(shuffled(300.0)).text
    assert found(shuffled(6015.0), in_a_row=200).text.startswith("The input is not the limit"), "the steps have it"
    smaller = shuffled(6015.0).model_copy(update={"ahead_elements": 64})
    assert found(smaller, in_a_row=200) == limit, "and not those of trials whose shuffles hold less"
    assert found(shuffled(6015.0, epochs=1, cache=True)).stage == 1, "nothing is read from the cache"


def test_what_an_epoch_begins_with_is_told_behind_a_filter_too_with_the_part_that_the_size_of_the_files_gives() -> None:
    def found(source_bytes: float | None, wait_ms: float = 0.4, **given: Any) -> Bottleneck:
        looked = shuffled(6015.0, cardinality=None, pass_elements=None, ahead_elements=64, **given)
        reader, *others = looked.stages
        stages = (reader.model_copy(update={"method": "TFRecordDataset"}), *others)
        looked = looked.model_copy(update={"stages": stages, "source_bytes": source_bytes})  # 1,000 bytes a batch
        return find(looked, 2, 15.0, 15.5, wait_ms, 0.3, 120, trains=True, in_a_row=60)

    of_files = found(100_200.0)
    assert (of_files.stage, of_files.limits) == (1, True)
    assert "comes 6.00 s late, 80 % of the epoch. Over about 100 batches that is 59.6 ms for each" in of_files.text
    assert "comes 3.00 s late" in found(100_200.0, buffer_size=6400).text, "no pass fills all that it has room for"
    unknown = found(None)
    assert (unknown.stage, unknown.limits) == (1, False)
    assert unknown.text.startswith("The training hardly waits for its input (3 % of a step of 15.0 ms)")
    assert unknown.text.endswith(
        " The first element of an epoch takes 6.01 s: shuffle, train.py:13, fills its buffer before it gives any."
    )
    assert found(None, epochs=1).text.endswith("This training has one epoch, so this happens only once.")
    assert found(None, wait_ms=8.0).text.count("fills its buffer before it gives any") == 1


@pytest.mark.parametrize(("steps", "repeats", "told"), [(300, True, False), (None, True, True), (300, False, True)])
def test_what_one_iterator_for_all_epochs_begins_with_is_no_part_of_each(
    steps: int | None, repeats: bool, told: bool
) -> None:
    """Keras makes one for `steps_per_epoch`; a diagnosis said that each of four epochs begins 37 s late."""
    looked = shuffled(6015.0, cardinality=None, pass_elements=None, ahead_elements=64)
    reader, *others = looked.stages
    names = UserFunction(name="names", endless=repeats)
    opened = reader.model_copy(update={"method": "TFRecordDataset", "function": names})
    stages = (opened, *others)
    training = ScriptTraining(line="train.py:9", model=True, epochs=3, steps=steps)
    looked = looked.model_copy(update={"stages": stages, "source_bytes": 100_200.0, "training": training})
    found = find(looked, 2, 15.0, 15.5, 0.4, 0.3, 120, trains=True, in_a_row=60)
    assert ("fills its buffer before it gives any" in found.text) is told


def test_a_buffer_whose_filling_is_among_the_measured_steps_is_named_with_what_costs_most_in_front_of_it() -> None:
    looked = shuffled(1500.0, cardinality=None, pass_elements=100)
    costs = tuple(
        cost(each.stage, (each.elapsed_ns or 0.0) / 20e6) for each in looked.costs
    )  # the rest is spent beginning
    found = find(looked.model_copy(update={"costs": costs}), 2, 30.0, 10.0, 16.0, 0.5, 400, trains=True, in_a_row=400)
    assert (found.stage, found.limits) == (1, True)
    assert found.share == pytest.approx(15.5 / 30.0)
    assert found.text.startswith(
        "map(load), train.py:11, limits an epoch: shuffle, train.py:13, fills its buffer before it gives anything: a "
        "step waits 16.0 ms of 30.0 ms for its batch, most of it where an epoch of 100 batches begins (median 500 µs)."
    )


def test_a_stage_of_less_elapsed_time_that_takes_most_of_the_busy_cores_is_told_beside_the_longer_one() -> None:
    stages = (stage(0, "range"), stage(1, "prefetch", 0, buffer_size=-1), stage(2, "shuffle", 1), stage(3, "batch", 2))
    costs = (cost(0, 0.0), cost(1, 1.33, 2.35, elements=1000), cost(2, 1.66, elements=1000), cost(3, 0.4))
    found = find(inspection(stages, costs), 2, 2.6)
    assert found.stage == 1
    assert "it passes 1,000 small elements on, one by one, and all cores are busy." in found.text
    assert found.text.endswith(" shuffle, train.py:12, takes longer, but less of the cores' time.")
    passed = (stage(0, "from_tensor_slices"), stage(1, "shuffle", 0), stage(2, "batch", 1))
    of_passed = (cost(0, 1.0, elements=1000), cost(1, 1.5, elements=1000), cost(2, 0.4))
    both = find(inspection(passed, of_passed), 1, 3.0)
    assert "together with the stages up to batch" in both.text
    assert "takes longer" not in both.text, "it is one of those that are named"


def skipping(count: int, first_ms: float) -> Inspection:
    """As `shuffled`, with a skip in the place of the shuffle."""
    looked = shuffled(first_ms)
    stages = [each if each.id != 3 else stage(3, "skip", 2, count=count) for each in looked.stages]
    return looked.model_copy(update={"stages": tuple(stages)})


def test_what_is_made_only_to_be_left_out_limits_the_epoch_and_is_to_be_left_out_before() -> None:
    found = find(skipping(6400, 6015.0), 2, 15.0, 15.5, 0.4, 0.3, 120, trains=True, in_a_row=60)
    assert found.stage == 1
    assert found.text.startswith(
        "map(load), train.py:11, limits an epoch: skip, train.py:13, drops 6400 finished elements before it gives "
        "anything: the first batch of an epoch comes 6.00 s late"
    )
    few = find(skipping(640, 6015.0), 2, 15.0, 15.5, 0.4, 0.3, 120, trains=True, in_a_row=60)
    assert few.text.startswith("The input is not the limit"), "that takes no such time"


def test_what_fills_a_buffer_is_not_named_while_a_stage_in_front_of_it_was_not_measured() -> None:
    looked = shuffled(6015.0)
    late = cost(1, None, reason="no time was left for it").model_copy(update={"late": True})
    costs = tuple(late if each.stage == 1 else each for each in looked.costs)
    found = find(looked.model_copy(update={"costs": costs}), 2, 15.0, 15.5, 0.4, trains=True, in_a_row=60)
    assert (found.stage, found.doubt) == (None, "stages")
    assert found.text.startswith("What limits an epoch is its beginning: shuffle, train.py:13, fills its buffer before")


def test_a_buffer_whose_filling_takes_less_than_the_steps_wait_is_told_beside_what_limits_these() -> None:
    found = find(shuffled(1040.0), 2, 40.0, 5.0, 35.0, 35.0, 60, trains=True, in_a_row=60)
    assert found.stage == 1
    assert found.text.startswith("map(load), train.py:11, takes 75 % of the time between two batches")
    assert found.text.endswith(
        "Its first element takes 1.04 s: shuffle, train.py:13, fills its buffer before it gives any, and an epoch's "
        "last batches come from that buffer."
    )
    generated: dict[str, Any] = {"cardinality": None, "pass_elements": None, "ahead_elements": 64}
    told = find(shuffled(6015.0, **generated), 2, 40.0, 5.0, 35.0, 35.0, 60, trains=True, in_a_row=60).text
    assert told.endswith("Its first element takes 6.01 s: shuffle, train.py:13, fills its buffer before it gives any.")
    few = find(shuffled(6015.0, buffer_size=64, **generated), 2, 40.0, 5.0, 35.0, 35.0, 60, trains=True, in_a_row=60)
    assert "fills its buffer" not in few.text
    quarter = find(shuffled(1040.0, buffer_size=800), 2, 40.0, 30.0, 9.0, 9.0, 60, trains=True, in_a_row=60)
    assert quarter.text.endswith("which over an epoch of 100 batches is 7.75 ms for each.")


def buffered(*, prefetch: int, behind: bool = True, map_ms: float = 74.0) -> Inspection:
    """A Python map, batches of 16, and a prefetch behind them, or in front of the map."""
    slow = function("row", python=True)
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, of=slow) if behind else stage(1, "prefetch", 0, buffer_size=prefetch),
        stage(2, "batch", 1, batch_size=16),
        stage(3, "prefetch", 2, buffer_size=prefetch) if behind else stage(3, "map", 2, of=slow),
    )
    costs = {1: cost(1, map_ms, 9.0), 3: cost(3, 0.1)} if behind else {1: cost(1, 0.1), 3: cost(3, map_ms, 9.0)}
    return inspection(stages, (cost(0, 0.1), costs[1], cost(2, 0.2), costs[3]))


def test_steps_that_a_buffer_filled_before_them_may_have_fed_do_not_prove_that_the_input_is_no_limit() -> None:
    def found(looked: Inspection, in_a_row: int | None = 60, ceiling_ms: float | None = 40.5) -> Bottleneck:
        return find(looked, 2, 41.0, ceiling_ms, 0.4, 0.3, 120, trains=True, in_a_row=in_a_row)

    fed = found(buffered(prefetch=200))
    assert (fed.stage, fed.cause, fed.limits, fed.doubt) == (1, "waiting", True, "stages")
    assert fed.text.endswith(
        "The stages take 74.3 ms, longer than a step (41.0 ms): all measured steps may have been fed by what prefetch, "
        "train.py:13, held after the model was traced. Once that is empty, a step takes as long as the stages, unless "
        "the machine was slower while these were measured. The same may hold for trials of fixes."
    )
    waiting = find(buffered(prefetch=200), 2, 41.0, 20.0, 21.0, 21.0, 120, trains=True, in_a_row=60).text
    assert "Alone it took 74.0 ms" in waiting, "the buffer was empty"
    assert found(buffered(prefetch=200), ceiling_ms=None).stage == 1, "so it is before the ceiling is known"
    assert found(buffered(prefetch=-1), in_a_row=40).stage == 1
    unknown = shuffled(6015.0, cardinality=None, pass_elements=None)
    assert "what shuffle, train.py:13, held" in find(unknown, 2, 15.0, 15.5, 0.4, trains=True, in_a_row=60).text
    smaller = unknown.model_copy(update={"ahead_elements": 64})
    assert "held once" not in find(smaller, 2, 15.0, 15.5, 0.4, trains=True, in_a_row=60).text
    for looked, steps in (
        (buffered(prefetch=200, map_ms=48.0), 60),  # no more than another state of the machine
        (buffered(prefetch=200), 600),  # the buffer would have been empty
        (buffered(prefetch=-1), 60),
        (buffered(prefetch=0), 60),
        (buffered(prefetch=3200, behind=False), 60),  # it holds nothing of what takes long
        (buffered(prefetch=200), None),
    ):
        assert found(looked, steps).text.startswith("The input is not the limit"), (looked.stages, steps)


@pytest.mark.parametrize(("calls", "how"), [(1.0, "one call at a time"), (4.0, "on several threads")])
def test_an_interleave_of_one_file_computes_one_call_at_a_time_whatever_it_is_given(calls: float, how: str) -> None:
    inner = (stage(8, "TFRecordDataset"), stage(9, "map", 8, of=function("parse")))
    opened = stage(1, "interleave", 0, of=function("open"), inner=inner, num_parallel_calls=-1)
    stages = (stage(0, "list_files"), opened, stage(2, "batch", 1))
    costs = (cost(0, 0.1), cost(1, 20.0, 20.0 * calls).model_copy(update={"calls": calls}), cost(2, 0.5))
    found = find(inspection(stages, costs), 8, 21.0)
    assert f"computes, {how}" in found.text
