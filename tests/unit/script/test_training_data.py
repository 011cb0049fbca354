"""What is said of how a script was run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_bench.model.pipeline import ScriptTraining
from pipeline_bench.script import training_data
from pipeline_bench.script.training_data import CapturedTraining, Named
from pipeline_bench.user_code.source_loops import SourceLoop


def test_a_later_fit_is_named_with_the_option_that_measures_it() -> None:
    for lines, said in (
        ((19,), "It also calls fit in line 19: --training 19 measures that."),
        ((19, 30), "It also calls fit in lines 19 and 30: --training 19 measures that."),
    ):
        training = ScriptTraining(line="train.py:8", epochs=1, model=True, later_fits=lines)
        assert training_data.notes(training, 1e9, "train.py")[1] == said


@dataclass
class Strategy:
    num_replicas_in_sync: int


def test_the_command_that_measures_a_loop_is_the_scripts_and_not_its_neighbours() -> None:
    sentences = training_data.notes(ScriptTraining(line="engine.py:3"), 1e9, "-m pkg.main --n 2000")
    assert "`pipeline-bench run -- python -m pkg.main --n 2000`" in sentences[1]


def test_of_another_dataset_than_the_fits_it_is_not_said_that_a_loop_takes_it() -> None:
    sentences = training_data.notes(ScriptTraining(line="train.py:8", epochs=4), 1e9, "train.py")
    assert sentences[1] == "The model is not trained on it: whether what takes it waits for it is not known."


def test_a_fit_that_tells_its_steps_takes_them_in_each_epoch() -> None:
    assert training_data.steps_of({"steps_per_epoch": 40}, 2) == 80
    assert training_data.steps_of({"steps_per_epoch": None}, 2) is None
    assert training_data.steps_of({}, 2) is training_data.steps_of({"steps_per_epoch": 40}, None) is None


@pytest.mark.parametrize(
    ("shape", "given", "expected"),
    [
        ((1, 4), {}, True),
        ((33, 4), {}, False),  # Keras takes 32 rows
        ((33, 4), {"batch_size": 64}, True),
        ((64,), {"batch_size": None}, False),
        ((20, 4), {"validation_split": 0.2}, False),
        ((20, 4), {"callbacks": [object()]}, False),
        ((20, 4), {"validation_data": (SimpleNamespace(shape=(20, 4)),)}, False),
        ((20, 4), {"callbacks": [], "validation_data": None}, True),
        ((), {}, False),
        ((None, 4), {}, False),
    ],
)
def test_arrays_of_no_more_rows_than_a_batch_are_one(
    shape: tuple[int | None, ...], given: dict[str, Any], expected: bool
) -> None:
    array = SimpleNamespace(shape=shape)
    for data in (array, [array, array], {"a": (array,)}):
        assert training_data.fit_in_one_batch(data, given) is expected
    assert not training_data.fit_in_one_batch([], given)


@pytest.mark.parametrize("other", [False, True])
def test_how_a_fit_trains_is_told_of_the_data_that_it_is_given_alone(
    monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    monkeypatch.setattr(training_data, "kind", lambda data: "tf.data")
    data, validation = SimpleNamespace(element_spec=1), SimpleNamespace(element_spec=2)
    model, datasets = SimpleNamespace(), (Named("train", data), Named("val", validation))
    captured = CapturedTraining(
        data, model, "train.py:3", given={"x": data}, datasets=datasets, one_batch=True, steps_a_call=1
    )
    training, _ = training_data.choose(captured, "val" if other else None, lambda data: None)
    assert (training.one_batch, training.steps_a_call) == ((False, None) if other else (True, 1))


def test_where_no_line_of_the_users_calls_fit_none_is_named() -> None:
    (sentence,) = training_data.notes(ScriptTraining(line="the script", epochs=4, model=True), 1e9, "train.py")
    assert sentence.startswith("The script took 1.00 s until it trained, apart from TensorFlow's import. Each process")


def test_what_keras_puts_behind_the_data_is_told() -> None:
    def behind(model: object = None, **given: object) -> str:
        training = CapturedTraining((), model, "train.py:3", given=given, datasets=(Named("", ()),))
        return training_data.choose(training, None, lambda data: None)[0].behind

    two, one = (SimpleNamespace(distribute_strategy=Strategy(replicas)) for replicas in (2, 1))
    assert [behind(class_weight={0: 2.0}), behind(two), behind(one), behind()] == [
        "its class weights",
        "Strategy",
        "",
        "",
    ]


@pytest.mark.parametrize("made_in_it", [False, True])
def test_a_fit_in_a_loop_may_train_on_its_data_again_unless_the_loop_makes_it_anew(made_in_it: bool) -> None:
    loop = SourceLoop(1, "train.py", 2)
    captured = CapturedTraining((), None, "train.py:3", datasets=(Named("", ()),), epochs=3, in_loop=True, within=loop)
    training, _ = training_data.choose(captured, None, lambda _: None, lambda *made: made_in_it and made == ((), loop))
    assert training.in_loop is not made_in_it


ROWS = ["a dataset"]


def test_the_dataset_that_a_generator_uses_is_named_with_the_option_that_measures_it() -> None:
    other = ["another"]

    def of_module() -> Iterator[str]:
        yield from ROWS

    def of_function() -> Iterator[str]:
        yield from other

    def of_neither() -> Iterator[str]:
        yield ""

    def of_argument(rows: list[str]) -> Iterator[str]:
        yield from rows

    def of_attribute(config: SimpleNamespace) -> Iterator[str]:
        yield from config.ROWS

    found = []
    own = SimpleNamespace(ROWS=["its own"])
    for made in (of_module(), of_function(), of_neither(), of_argument(ROWS), of_attribute(own)):
        datasets = (Named("batches", made), Named("val_rows", other), Named("train_rows", ROWS))
        captured = CapturedTraining(made, None, "train.py:3", given={"x": made}, datasets=datasets, epochs=2)
        training, _ = training_data.choose(captured, None, lambda data: None)
        found.append(training.generator_uses)
        told = " ".join(training_data.notes(training, 1e9, "train.py"))
        assert (f"--dataset {training.generator_uses} measures them" in told) is bool(training.generator_uses)
    assert found == ["train_rows", "val_rows", "", "train_rows", ""]


def test_that_a_generator_of_the_scripts_works_on_the_elements_is_told() -> None:
    training = ScriptTraining(line="train.py:8", model=True, handed_on_by="batches, train.py:3")
    told = training_data.notes(training, 1e9, "train.py")[1]
    assert told.startswith("The loop trains on what batches, train.py:3, a generator of the script's, makes of these")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("valid_data", "train_data"), "train_data"),
        (("ds_test", "training"), "training"),
        (("val", "evaluated", "train2"), "train2"),
        (("latest_batches", "train_ds"), "latest_batches"),
        (("train_val", "train_ds", "train_more"), "train_val"),
        (("val_ds", "train_other"), "val_ds"),
        (("val_ds",), "val_ds"),
        (("testset", "trainset"), "trainset"),
        (("valDs", "trainDs"), "trainDs"),
        (("testLoader", "trainloader"), "trainloader"),
        (("ds_test", "ds_tr"), "ds_tr"),
        (("TEST_DATA", "TRAIN_DATA"), "TRAIN_DATA"),
        (("valid_data", "latest", "tried", "untrained", "trail_ds"), "valid_data"),
        (("values", "train_ds"), "values"),
        (("tester", "train_ds"), "tester"),
        (("evalDatasets", "train_ds"), "train_ds"),
        (("", "train_ds"), ""),
    ],
)
def test_of_a_loop_that_may_validate_the_one_dataset_named_as_trainings_is_meant(
    names: tuple[str, ...], expected: str
) -> None:
    datasets = [Named(name, name) for name in names]
    assert training_data.of_loop(datasets, lambda data: data != "train_other").name == expected
