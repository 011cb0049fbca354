"""What a look at the whole pipeline tells of the files that it reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf  # noqa: TID253

from pipeline_bench.inspection import pipeline_benchmark, pipeline_stages
from pipeline_bench.model.pipeline import Inspection, Stage, StageCost
from tests.tensorflow import recorded


@pytest.mark.parametrize(
    ("make", "in_a_pass"),
    [
        (lambda data: data.repeat().batch(4), 3),
        (lambda data: data.batch(4), 3),
        (lambda data: data.shuffle(10).batch(4).repeat(5), 3),
        (lambda data: data.filter(lambda number: number > 3).repeat().batch(4), None),
        (lambda data: data.map(lambda number: -number).repeat().batch(4).take(100), 3),
        (lambda data: tf.data.Dataset.zip(data.batch(4), tf.data.Dataset.from_tensors(7).repeat()), 3),
        (lambda data: tf.data.Dataset.zip(data.batch(4), data.batch(6)).repeat(), 2),
        (lambda data: tf.data.Dataset.zip(data.repeat().batch(4), data.repeat().batch(6)), 2),
        (lambda data: data.repeat(3).concatenate(data.skip(6)).batch(6), 7),  # oversampled: these are all of a pass
        (lambda data: tf.data.Dataset.zip(data, data.take(3).repeat(4)).batch(4), 3),
        (lambda data: data.repeat(2).concatenate(data.repeat(2)).batch(4).repeat(5), 6),
    ],
)
def test_how_many_batches_a_pass_has_is_told_whatever_repeats_it(
    make: Callable[[Any], Any], in_a_pass: int | None, tmp_path: Path
) -> None:
    recipe = recorded.recipe_of(lambda: make(tf.data.Dataset.range(12)))
    assert pipeline_benchmark.described(recipe, 1.0, tmp_path).pass_elements == in_a_pass


def test_strings_that_lead_to_files_are_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    names = tf.data.Dataset.from_tensor_slices([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])
    dataset = names.map(tf.io.read_file).batch(2)
    assert pipeline_benchmark.sources_of_files(dataset) == [(2, [str(tmp_path / "a.txt")])]


def size_bytes(dataset: Any) -> float | None:
    return pipeline_benchmark.source_bytes(pipeline_benchmark.sources_of_files(dataset))


def test_the_size_of_all_files_follows_from_the_first_ones(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.tfrecord" for number in range(70)]
    for file in files:
        with tf.io.TFRecordWriter(str(file)) as writer:
            writer.write(b"x" * 84)
    names = list(map(str, files))
    for dataset in (
        tf.data.TFRecordDataset(names).map(tf.strings.length),
        tf.data.Dataset.from_tensor_slices(names).interleave(tf.data.TFRecordDataset).batch(2),
        tf.data.Dataset.zip(tf.data.TFRecordDataset(names), tf.data.Dataset.range(9)),
    ):
        assert size_bytes(dataset) == 70 * 100
    assert size_bytes(tf.data.TFRecordDataset([*names[:40], *["none"] * 20])) == 40 * 100
    assert size_bytes(tf.data.Dataset.range(9)) is None


def test_lines_of_text_are_no_files_however_long(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word " * 200 + "\n" + "/word" * 900 + "\n")
    assert not pipeline_benchmark.sources_of_files(tf.data.TextLineDataset(str(tmp_path / "a.txt")).batch(2))


FILE_BYTES = 10_000


def slow(batch: Any) -> Any:
    time.sleep(0.01)
    return batch


def read_files(folder: Path, seconds: float, passes: int | None) -> float | None:
    """Return what is said to be read for a batch of four files, behind a shuffle of 200 of them."""
    for number in range(240):
        (folder / f"{number}").write_bytes(b"x" * FILE_BYTES)
    data = tf.data.Dataset.from_tensor_slices([str(folder / f"{number}") for number in range(240)])
    data = data.repeat(passes).map(tf.io.read_file).shuffle(200).batch(4)
    data = data.map(lambda batch: tf.py_function(slow, [batch], tf.string))
    options = tf.data.Options()  # nothing else than the shuffle reads ahead
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.inject_prefetch = False
    return pipeline_benchmark.run(data.with_options(options), Inspection(), seconds, folder / "scratch")[0].read_bytes


@pytest.mark.parametrize("passes", [1, None])
def test_what_fills_a_shuffle_is_not_held_against_the_first_elements(passes: int | None, tmp_path: Path) -> None:
    assert read_files(tmp_path, 60.0 if passes else 0.3, passes) == pytest.approx(4 * FILE_BYTES, rel=0.05)


def test_of_one_element_behind_a_shuffle_it_is_not_known_what_is_read_for_it(tmp_path: Path) -> None:
    assert read_files(tmp_path, 0.0, None) is None


def filled(buffer: int, each_s: float) -> Callable[[], Any]:
    """Return what makes a pipeline that waits so long for each element that fills its shuffle."""

    def wait(number: Any) -> Any:
        time.sleep(each_s)
        return number

    def make() -> Any:
        data = tf.data.Dataset.range(10_000).map(lambda number: tf.py_function(wait, [number], tf.int64))
        return data.shuffle(buffer).batch(4)

    return make


@pytest.mark.parametrize(("endless", "ahead", "counted"), [(False, None, 4), (False, 8, None), (True, None, None)])
def test_a_pass_that_ends_in_time_is_counted(
    endless: bool, ahead: int | None, counted: int | None, tmp_path: Path
) -> None:
    data = tf.data.Dataset.range(9).filter(lambda number: number % 2 == 1)
    looked = Inspection(ahead_elements=ahead)
    found, _ = pipeline_benchmark.run(data.repeat() if endless else data, looked, 0.2, tmp_path / "scratch")
    assert found.pass_elements == counted


def test_of_what_is_repeated_the_passes_are_not_counted_together(tmp_path: Path) -> None:
    def counted(make: Any) -> int | None:
        recipe = recorded.recipe_of(make)
        looked = pipeline_benchmark.described(recipe, 1.0, tmp_path)
        return pipeline_benchmark.run(recipe.dataset(recipe.sink), looked, 0.2, tmp_path / "scratch")[0].pass_elements

    assert counted(lambda: tf.data.Dataset.range(9).repeat(3)) == 9
    assert counted(lambda: tf.data.Dataset.range(9).filter(lambda number: number % 2 == 1).repeat(3)) is None


@pytest.mark.parametrize(("buffer", "each_s", "held"), [(5000, 0.01, 64), (5000, 0.0, None), (60, 0.01, None)])
def test_shuffles_hold_less_where_to_fill_them_takes_long(
    buffer: int, each_s: float, held: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_benchmark, "_FIRST_WITHIN_S", 0.2 if held else 60.0)
    recipe = recorded.recipe_of(filled(buffer, each_s))
    assert pipeline_benchmark.ahead_elements(recipe, recipe.dataset(recipe.sink)) == held


def test_what_a_pass_would_begin_with_is_computed_where_shuffles_hold_less() -> None:
    def first_s(*buffers: int, in_a_pass: int | None = None) -> float | None:
        shuffles = [
            Stage(id=at, method="shuffle", inputs=(at - 1,), arguments={"buffer_size": buffer})
            for at, buffer in enumerate(buffers, 1)
        ]
        stages = (Stage(id=0, method="range"), *shuffles)
        costs = tuple(StageCost(stage=each.id, elements=4.0) for each in stages)
        looked = Inspection(stages=stages, costs=costs, first_ns=1e9, pass_elements=in_a_pass)
        first_ns = pipeline_benchmark.with_all_ahead(looked, 2e6).first_ns
        return None if first_ns is None else first_ns / 1e9

    assert first_s(4000) == pytest.approx(1 + 1000 * 2e-3)
    assert first_s(4000, 400) == pytest.approx(1 + 1100 * 2e-3)
    assert first_s(4000, in_a_pass=50) == pytest.approx(1 + 50 * 2e-3)
    skips = Stage(id=0, method="skip", arguments={"count": 400})
    looked = Inspection(stages=(skips,), costs=(StageCost(stage=0, elements=4.0),), first_ns=1e9, pass_elements=5)
    assert pipeline_benchmark.with_all_ahead(looked, 2e6).first_ns == pytest.approx(1e9 + 100 * 2e6)


def test_what_a_pass_would_begin_with_is_told_of_a_pipeline_without_any_function_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(name: str) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        return tmp_path / name

    def nothing() -> None:
        """No one watches."""

    monkeypatch.setattr(pipeline_benchmark, "_FIRST_WITHIN_S", 0.0)
    recipe = recorded.recipe_of(lambda: tf.data.Dataset.range(100_000).shuffle(50_000).batch(10))
    described = pipeline_benchmark.described(recipe, 1.0, folder("once"))
    first, *_, last = pipeline_stages.inspect(recipe, described, 3.0, folder, nothing, nothing)
    assert first.ahead_elements == 64
    assert first.first_ns is not None
    assert last.first_ns is not None
    assert last.first_ns > first.first_ns
