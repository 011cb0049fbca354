"""What is recorded of pipelines: stages, inputs, arguments, functions, places; and of what is no pipeline."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.calls import AUTOTUNE
from pipeline_bench.model.pipeline import Stage, Target
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.script import loading
from pipeline_bench.tfdata import dataset_graph, describe, public_api
from pipeline_bench.tfdata.recipe import Recipe, RecordedCall
from pipeline_bench.tfdata.record import Recording
from pipeline_bench.user_code import source_loops
from tests.tensorflow import recorded


def labels(recipe: Recipe) -> list[str]:
    return [stage.label for stage in recipe.stages]


@functools.cache
def of_train() -> Recipe:
    return recorded.recipe("make_dataset")


def _text(stage: Stage) -> str:
    return stage.element.text if stage.element is not None else ""


def named(recipe: Recipe, label: str) -> Stage:
    return next(stage for stage in recipe.stages if stage.label == label)


def test_a_chain_is_told_call_by_call() -> None:
    recipe = of_train()
    assert labels(recipe) == [
        "range",
        "shuffle",
        "map(partial of decode)",
        "map(jitter)",
        "map(through_python)",
        "map(named)",
        "map(Shift)",
        "map(Shift.back)",
        "apply(assert_cardinality)",
        "batch",
        "repeat",
        "prefetch",
    ]
    numbers = [stage.id for stage in recipe.stages]
    assert numbers == sorted(numbers)
    assert [stage.inputs for stage in recipe.stages] == [(), *((number,) for number in numbers[:-1])]
    assert recipe.sink == numbers[-1]
    assert recipe.stages[1].arguments == {"buffer_size": 5, "seed": 3}
    assert recipe.stages[2].arguments == {"num_parallel_calls": AUTOTUNE}
    assert _text(recipe.stages[11]) == "{image: float32[...], label: int64[8]}"


def test_functions_are_told_by_what_they_were_traced_to() -> None:
    recipe = of_train()

    def kind(label: str) -> tuple[bool, bool, bool]:
        function = recorded.function_of(named(recipe, label))
        return function.python, function.stateful, function.random

    assert kind("map(partial of decode)") == (False, False, False)
    assert kind("map(jitter)") == (False, True, True)
    assert kind("map(through_python)") == (True, True, False)
    function = recorded.function_of(named(recipe, "map(Shift)"))
    assert Path(str(function.file)) == recorded.TRAIN
    assert "def __call__" in recorded.TRAIN.read_text().splitlines()[int(function.line or 0) - 1]


def test_stateless_random_ops_draw_nothing_new_unless_a_state_seeds_them() -> None:
    import tensorflow as tf

    generator = tf.random.Generator.from_seed(1)

    def kind(mapped: Any) -> tuple[bool, bool]:
        function = recorded.function_of(recorded.recipe_of(lambda: tf.data.Dataset.range(9).map(mapped)).stages[-1])
        return function.random, function.draws_by_seed

    assert kind(lambda x: tf.random.stateless_uniform([], [x, 1])) == (False, True)
    assert kind(lambda x: tf.random.stateless_uniform([], generator.make_seeds(1)[:, 0])) == (True, False)
    assert kind(lambda x: x + 1) == (False, False)


def test_a_function_that_goes_over_the_rows_of_a_batch_in_a_loop_is_known() -> None:
    import tensorflow as tf

    def loops(mapped: Any) -> bool:
        made = recorded.recipe_of(lambda: tf.data.Dataset.from_tensors(tf.ones([8, 4])).map(mapped))
        function = recorded.function_of(made.stages[-1])
        return function.loops_over_rows

    jpeg = tf.io.encode_jpeg(tf.zeros([4, 4, 3], tf.uint8))
    assert loops(lambda rows: tf.map_fn(lambda row: row - tf.reduce_mean(row), rows))
    assert not loops(lambda rows: tf.vectorized_map(lambda row: row - tf.reduce_mean(row), rows))
    assert not loops(lambda rows: tf.while_loop(lambda at: at < 9.0, lambda at: [at + 1], [rows[0, 0]]))
    for of_file in (lambda row: tf.io.decode_jpeg(jpeg), lambda row: tf.io.decode_png(jpeg)):
        assert not loops(lambda rows, of_file=of_file: tf.map_fn(of_file, rows, fn_output_signature=tf.uint8)), (
            "a picture has no vectorized form"
        )


def test_rows_of_a_batch_that_tracing_gives_ops_of_their_own_are_counted() -> None:
    import tensorflow as tf

    anchors = tf.random.normal([40, 4])

    def copies(mapped: Any) -> int:
        batch = tf.data.Dataset.from_tensors((tf.ones([12, 6, 4]), tf.ones([12], tf.int64)))
        return recorded.function_of(recorded.recipe_of(lambda: batch.map(mapped)).stages[-1]).row_copies

    def cutmix(images: Any, labels: Any, rows: Any = range(12)) -> Any:
        images, made = tf.cast(images, tf.float16), []
        for own in rows:
            other, cut = tf.random.uniform([], 0, 12, tf.int32), tf.random.uniform([], 0, 6, tf.int32)
            made.append(tf.concat([images[own, :cut], images[other, cut:]], axis=0))
        return tf.stack(made), labels

    assert copies(cutmix) == 12
    assert copies(lambda images, _: tf.stack([each * 2 for each in tf.unstack(images)])) == 12
    assert copies(lambda images, labels: cutmix(images, labels, range(4))) == 0
    assert copies(lambda images, _: tf.stack([images[:, row % 6] for row in range(12)])) == 0, "columns"
    assert copies(lambda images, _: tf.stack([images * anchors[row] for row in range(12)])) == 0, "of no batch"
    assert copies(lambda images, _: tf.stack([images[0] + row for row in range(12)])) == 0, "all of one"


def test_what_reads_a_table_or_draws_changes_no_state_unless_a_variable_seeds_it() -> None:
    import tensorflow as tf

    initial = tf.lookup.KeyValueTensorInitializer([1], [2], key_dtype=tf.int64, value_dtype=tf.int64)
    table, count = tf.lookup.StaticHashTable(initial, -1), tf.Variable(0)
    generator, flip = tf.random.Generator.from_seed(1), tf.keras.layers.RandomFlip()

    def kind(mapped: Any) -> tuple[bool, bool]:
        picture = tf.data.Dataset.range(9).map(lambda x: tf.fill([4, 4, 3], tf.cast(x, tf.float32)))
        function = recorded.function_of(recorded.recipe_of(lambda: picture.map(mapped)).stages[-1])
        return function.stateful, function.changes_state

    def drawn(x: Any) -> Any:
        return tf.image.random_brightness(tf.image.random_crop(x, [2, 2, 3]), 0.1) + tf.random.normal([])

    assert kind(drawn) == (True, False)
    assert kind(lambda x: table.lookup(tf.cast(x, tf.int64))) == (True, False)
    assert kind(lambda x: x + tf.cast(count, tf.float32)) == (True, False)
    assert kind(lambda x: x + tf.cast(count.assign_add(1), tf.float32)) == (True, True)
    assert kind(lambda x: x + generator.normal([])) == (True, True)
    assert kind(flip) == (True, True)


def test_a_layer_of_keras_that_draws_changes_only_its_seeds() -> None:
    import keras
    import tensorflow as tf

    flip, count = keras.layers.RandomFlip(), tf.Variable(0, dtype=tf.int64)
    turned, generator = keras.Sequential([flip, keras.layers.RandomRotation(0.1)]), tf.random.Generator.from_seed(1)
    tokens = tf.range(3, dtype=tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tokens, tokens), -1)

    def seeds_alone(mapped: Any) -> bool:
        picture = tf.data.Dataset.range(9).map(lambda x: tf.fill([4, 4, 3], tf.cast(x, tf.float32)))
        function = recorded.function_of(recorded.recipe_of(lambda: picture.map(mapped)).stages[-1])
        assert function.random
        assert function.changes_state
        return function.changes_seeds

    assert seeds_alone(flip)
    assert seeds_alone(lambda x: (turned(x[tf.newaxis], training=True), table.lookup(tf.constant(1, tf.int64))))
    assert not seeds_alone(lambda x: (flip(x), count.assign_add(1)))
    assert not seeds_alone(lambda x: (flip(x), count.assign(3))), "it is of the same type"
    assert not seeds_alone(lambda x: (flip(x), generator.normal([])))


def draws_alike(mapped: Any) -> bool:
    """Whether a map of a picture and its mask is known to draw alike for both."""
    import tensorflow as tf

    pairs = tf.data.Dataset.from_tensors((tf.zeros([8, 8, 3]), tf.zeros([8, 8, 1])))
    function = recorded.function_of(recorded.recipe_of(lambda: pairs.map(mapped)).stages[-1])
    return function.draws_alike


def test_ops_of_one_seed_that_change_a_picture_and_its_mask_draw_alike() -> None:
    import tensorflow as tf

    def flip(picture: Any, seed: int | None = 1) -> Any:
        return tf.image.random_flip_left_right(picture, seed=seed)

    def chain(picture: Any) -> Any:
        picture = tf.image.random_brightness(flip(picture), 0.1, seed=1)
        picture = tf.image.random_contrast(picture, 0.1, 0.2, seed=1) + tf.random.normal([8, 8, 1], seed=1)
        return tf.image.random_crop(picture, [4, 4, picture.shape[-1]], seed=1)

    def where(x: Any, y: Any) -> Any:
        return tf.cond(tf.reduce_max(x) > 0.5, lambda: (flip(x), flip(y)), lambda: (x, y))

    def rows(picture: Any) -> Any:
        return tf.map_fn(lambda row: tf.image.random_brightness(row[tf.newaxis], 0.1, seed=1)[0], picture)

    def stateless(picture: Any) -> Any:
        return tf.image.stateless_random_flip_left_right(picture, seed=[1, 2])

    assert draws_alike(lambda x, y: (flip(x), flip(y)))
    assert draws_alike(lambda x, y: (chain(x), chain(y)))
    assert draws_alike(lambda x, y: tf.concat([flip(x), flip(y)], -1))
    assert draws_alike(tf.function(lambda x, y: (flip(x), flip(y))))
    assert draws_alike(where)
    assert draws_alike(lambda x, y: (rows(x), rows(y)))
    assert not draws_alike(lambda x, y: (flip(x), y))
    assert not draws_alike(lambda x, y: (flip(x), flip(y, seed=2)))
    assert not draws_alike(lambda x, y: (flip(x, seed=None), flip(y, seed=None)))
    assert not draws_alike(lambda x, y: (chain(x), y)), "one part, of which each draw changes what the one before made"
    assert not draws_alike(tf.function(lambda x, y: (chain(x), y)))
    assert not draws_alike(lambda x, y: (rows(x), y)), "one op, in each turn of a loop"
    assert not draws_alike(lambda x, y: tf.split(flip(tf.concat([x, y], -1)), [3, 1], -1))
    assert not draws_alike(lambda x, y: (stateless(x), stateless(y)))


@pytest.fixture
def one_seed_for_all() -> Iterator[None]:
    import tensorflow as tf

    tf.random.set_seed(1)
    yield
    tf.random.set_seed(None)


@pytest.mark.usefixtures("one_seed_for_all")
def test_ops_without_seeds_of_their_own_do_not_draw_alike_by_the_seed_for_all() -> None:
    import tensorflow as tf

    flip = tf.image.random_flip_left_right
    assert not draws_alike(lambda x, y: (flip(x), flip(y)))
    assert draws_alike(lambda x, y: (flip(x, seed=1), flip(y, seed=1)))


def test_generators_of_one_state_that_change_a_picture_and_its_mask_draw_alike() -> None:
    import keras
    import tensorflow as tf

    def flip(seed: int | None) -> Any:
        return keras.layers.RandomFlip("horizontal", seed=seed)

    def generator(seed: int) -> Any:
        return tf.random.Generator.from_seed(seed)

    def both(one: Any, other: Any) -> bool:
        is_alike = draws_alike(lambda x, y: (one(x), other(y)))
        assert draws_alike(tf.function(lambda x, y: (one(x), other(y)))) == is_alike
        return is_alike

    def brightened(of: Any) -> Any:
        return lambda picture: picture + of.uniform([])

    layers = keras.layers.RandomFlip(seed=4), keras.layers.RandomRotation(0.1, seed=4)
    chain, once, one = keras.Sequential(layers), flip(1), generator(1)
    assert both(flip(1), flip(1))
    assert both(brightened(generator(1)), brightened(generator(1)))
    assert both(chain, flip(4))
    assert not both(once, once), "one generator goes on from the picture to the mask"
    assert not both(flip(1), flip(2))
    assert not both(flip(None), flip(None))
    assert not both(brightened(one), brightened(one))
    assert not both(brightened(generator(1)), brightened(generator(2)))
    assert not draws_alike(lambda x, y: (chain(x), y)), "of one picture, layers of one seed"


def of_a_file(decode: Any, then: Any) -> UserFunction:
    """What is known of a map that decodes files, and does something with what it has decoded."""
    import tensorflow as tf

    files = tf.data.Dataset.from_tensors("a file")
    return recorded.function_of(recorded.recipe_of(lambda: files.map(lambda x: then(decode(x)))).stages[-1])


def test_what_crops_the_pictures_that_it_decodes_is_told() -> None:
    import tensorflow as tf

    def crops(decode: Any, then: Any = lambda picture: picture) -> bool:
        return of_a_file(decode, then).crops_decoded

    def whole(x: Any) -> Any:
        return tf.io.decode_jpeg(x, channels=3)

    def random_part(picture: Any) -> Any:
        return tf.image.random_crop(picture, [4, 4, 3])

    def as_floats(picture: Any) -> Any:
        return tf.cast(picture, tf.float32) / 255.0

    def box(picture: Any) -> Any:
        return tf.image.crop_to_bounding_box(picture, 0, 0, tf.shape(picture)[0] // 2, 3)

    assert crops(whole, random_part)
    assert crops(whole, lambda picture: tf.image.central_crop(picture, 0.5))
    assert crops(whole, lambda picture: as_floats(picture)[:4, :4])
    assert crops(lambda x: tf.io.decode_image(x, expand_animations=False), lambda picture: box(as_floats(picture)))
    assert not crops(whole)
    assert not crops(lambda x: tf.io.decode_png(x, channels=3), random_part), "no part of a PNG can be decoded alone"
    assert not crops(whole, lambda picture: random_part(tf.image.resize(picture, [8, 8])))
    assert not crops(whole, lambda picture: picture[..., ::-1])
    assert not crops(whole, lambda picture: picture[:, :, 0])
    assert not crops(whole, lambda picture: tf.image.resize_with_crop_or_pad(picture, 8, 8)), "it may only pad"
    assert not crops(whole, lambda picture: (picture[:, :4], picture[:, 4:])), "both halves are the whole picture"
    assert not crops(whole, lambda picture: (picture[:, :4], as_floats(picture)[:, 4:])), "and as bytes and floats"
    assert crops(lambda x: (whole(x), whole(x)), lambda both: (both[0][:4, :4], both[1][:4, :4])), "of two pictures"


def test_what_resizes_the_pictures_that_it_decodes_at_full_size_is_told() -> None:
    import tensorflow as tf

    def resizes(decode: Any, then: Any = lambda picture: tf.image.resize(picture, [8, 8])) -> bool:
        return of_a_file(decode, then).resizes_decoded

    def whole(x: Any) -> Any:
        return tf.io.decode_jpeg(x, channels=3)

    assert resizes(whole)
    assert resizes(lambda x: tf.io.decode_image(x, channels=3, expand_animations=False))
    assert resizes(whole, lambda picture: tf.image.resize(tf.cast(picture, tf.float32) / 255.0, [8, 8], antialias=True))
    assert not resizes(whole, lambda picture: picture)
    assert not resizes(lambda x: tf.io.decode_jpeg(x, channels=3, ratio=4)), "it is decoded smaller already"
    assert not resizes(whole, lambda picture: tf.image.resize(picture[:96, :96], [8, 8])), "a crop has fewer pixels"


def test_a_later_map_that_crops_or_resizes_counts_for_the_map_that_decodes() -> None:
    import tensorflow as tf

    def does(decode: Any, *then: Any) -> list[tuple[bool, bool]]:
        def make() -> Any:
            dataset = tf.data.Dataset.from_tensors(("a file", 1)).map(decode)
            for each in then:
                dataset = dataset.map(each)
            return dataset

        functions = [stage.function for stage in recorded.recipe_of(make).stages]
        return [(each.crops_decoded, each.resizes_decoded) for each in functions if each is not None]

    def decode(file: Any, label: Any) -> Any:
        return label, tf.io.decode_jpeg(file, channels=3)

    def as_floats(label: Any, picture: Any) -> Any:
        return tf.cast(picture, tf.float32) / 255.0, label

    neither = (False, False)
    assert does(decode, lambda _, picture: tf.image.resize(picture, [8, 8])) == [(False, True), neither]
    assert does(decode, as_floats, lambda picture, _: picture[:4, :4]) == [(True, False), neither, neither]
    assert does(decode, lambda label, picture: (label, picture)) == [neither, neither]
    halves = does(
        decode,
        lambda _, picture: (picture, tf.cast(picture, tf.float32)),
        lambda picture, floats: (picture[:, :4], floats[:, 4:]),
    )
    assert halves == [neither] * 3, "both are of one picture"
    made = does(decode, lambda label, _: tf.image.resize(tf.ones([4, 4, 3]) * tf.cast(label, tf.float32), [8, 8]))
    assert made == [neither, neither], "of another picture"


def test_an_interleave_draws_if_what_it_opens_does() -> None:
    import tensorflow as tf

    def opened(x: Any) -> Any:
        # With a seed of its own: another test may have set one for all, and TensorFlow then warns of functions.
        return tf.data.Dataset.range(x).map(lambda y: tf.cast(y, tf.float32) + tf.random.normal([], seed=1))

    function = recorded.function_of(recorded.recipe_of(lambda: tf.data.Dataset.range(9).interleave(opened)).stages[-1])
    assert (function.random, function.changes_state) == (True, False)


@pytest.fixture
def deterministic() -> Iterator[None]:
    from tensorflow.python.framework import config

    config.enable_op_determinism()
    yield
    config.disable_op_determinism()


@pytest.mark.usefixtures("deterministic")
def test_python_is_serial_where_tensorflow_is_to_be_deterministic() -> None:
    """As TensorFlow does it: with four calls of Python allowed, never two are under way."""
    import tensorflow as tf

    running, most = [0], [0]

    def load(number: Any) -> Any:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.01)
        running[0] -= 1
        return number

    def made() -> Any:
        numbers = tf.data.Dataset.range(20).map(lambda x: x + 1, num_parallel_calls=4)
        return numbers.map(lambda x: tf.numpy_function(load, [x], tf.int64), num_parallel_calls=4)

    recipe = recorded.recipe_of(made)
    assert [stage.serial for stage in recipe.stages] == [False, False, True]
    assert not stage_graph.hands_over(recipe.stages[-1], default_parallelised=True)
    assert len(list(made())) == 20
    assert most == [1]


def test_what_an_older_function_for_apply_was_given_says_whether_it_runs_in_parallel() -> None:
    import tensorflow as tf

    experimental, numbers = tf.data.experimental, tf.data.Dataset.range(9)
    fused = experimental.map_and_batch(lambda x: x + 1, 4, num_parallel_calls=AUTOTUNE)
    stage = recorded.recipe_of(lambda: numbers.apply(fused)).stages[-1]
    assert stage.label == "apply(map_and_batch)"
    assert stage.arguments == {"batch_size": 4, "num_parallel_calls": AUTOTUNE, "drop_remainder": False}
    assert stage_graph.hands_over(stage, default_parallelised=False)
    several = experimental.parallel_interleave(tf.data.Dataset.range, cycle_length=2)
    assert stage_graph.hands_over(
        recorded.recipe_of(lambda: numbers.apply(several)).stages[-1], default_parallelised=False
    )
    one_by_one = recorded.recipe_of(lambda: numbers.apply(lambda data: data.batch(2))).stages[-1]
    assert not stage_graph.hands_over(one_by_one, default_parallelised=False)


def test_a_place_ends_where_the_call_ends() -> None:
    for stage in of_train().stages:
        place = stage.place
        assert place is not None
        assert place.end_line is not None
        assert Path(place.file) == recorded.TRAIN
        line = recorded.TRAIN.read_bytes().splitlines()[place.end_line - 1]
        assert line[: place.end_column].endswith(b")")
        assert f".{stage.method}(".encode() in line
    batch = named(of_train(), "batch").place
    assert batch is not None
    assert batch.text == ".batch(8, drop_remainder=True)"
    assert batch.function == "make_dataset"


def test_several_inputs() -> None:
    recipe = recorded.recipe("make_sources")
    assert labels(recipe) == [
        "from_tensor_slices",
        "from_tensors",
        "repeat",
        "concatenate",
        "sample_from_datasets",
        "counter",
        "zip",
    ]
    slices, _, repeat, concatenate, sample, counter, _ = (stage.id for stage in recipe.stages)
    assert named(recipe, "concatenate").inputs == (slices, repeat)
    assert named(recipe, "sample_from_datasets").inputs == (concatenate, repeat)
    assert named(recipe, "zip").inputs == (sample, counter)
    assert recipe.stages[0].arguments == {"tensors": "[1, 1, 1]"}


def test_what_an_interleave_opens_is_inner(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("head\nabc\n")
    recipe = recipe_of_folder(tmp_path)
    assert labels(recipe) == ["list_files", "interleave(opened)"]
    inner = recipe.stages[1].inner
    assert [stage.method for stage in inner] == ["TextLineDataset", "skip", "map"]
    assert inner[1].inputs == (inner[0].id,)
    assert inner[1].arguments == {"count": 1}
    place = inner[1].place
    assert place is not None
    assert (Path(place.file), place.function) == (recorded.TRAIN, "opened")
    assert place.text == "lines = tf.data.TextLineDataset(name).skip(1)"


def recipe_of_folder(folder: Path) -> Recipe:
    with Recording() as recording, recorded.importing():
        make: Any = loading.load(Target(file=str(recorded.TRAIN), name="make_interleave"))
        value = make(str(folder))
    return recording.recipe(value)


@pytest.mark.parametrize("partial", [False, True], ids=["class", "partial"])
def test_a_class_given_as_the_function_is_inner_too(partial: bool, tmp_path: Path) -> None:
    import functools

    import tensorflow as tf

    (tmp_path / "a.txt").write_text("line\n")
    reader = tf.data.TextLineDataset
    function = functools.partial(reader, buffer_size=10) if partial else reader
    recipe = recorded.recipe_of(lambda: tf.data.Dataset.list_files(str(tmp_path / "*"), False).interleave(function))
    assert recipe.stages[1].label == f"interleave({'partial of ' if partial else ''}TextLineDataset)"
    assert [stage.method for stage in recipe.stages[1].inner] == ["TextLineDataset"]


@pytest.mark.parametrize("skips", [False, True], ids=["class", "function"])
def test_what_an_older_function_for_apply_opens_is_inner(skips: bool, tmp_path: Path) -> None:
    import tensorflow as tf

    (tmp_path / "a.txt").write_text("head\nline\n")
    reader = tf.data.TextLineDataset

    def opened(name: Any) -> Any:
        return reader(name).skip(1)

    def made() -> Any:
        names = tf.data.Dataset.list_files(str(tmp_path / "*"), False)
        return names.apply(tf.data.experimental.parallel_interleave(opened if skips else reader, cycle_length=2))

    stage = recorded.recipe_of(made).stages[-1]
    assert stage.label == "apply(parallel_interleave)"
    assert [each.method for each in stage.inner] == ["TextLineDataset", *["skip"] * skips]
    assert stage_graph.reads_files(stage)
    assert not stage.shared, "its line makes no other dataset"


def test_a_method_that_was_kept_records_no_more() -> None:
    import tensorflow as tf

    with Recording() as recording:
        kept = tf.data.Dataset.from_tensor_slices
        value = tf.data.Dataset.from_tensors([1, 2]).flat_map(kept)
    recipe = recording.recipe(value)
    assert [stage.method for stage in recipe.stages[1].inner] == ["from_tensor_slices"]
    assert recorded.values(kept([3])) == [3]
    assert recording.recipe(value).stages == recipe.stages


def test_options_are_told_as_far_as_they_are_set() -> None:
    stage = recorded.recipe("make_options").stages[-1]
    assert stage.arguments == {"deterministic": False, "threading.private_threadpool_size": 4}


def test_ids_are_the_same_every_time_and_a_long_chain_is_whole() -> None:
    first, second = recorded.recipe("make_long"), recorded.recipe("make_long")
    assert first.stages == second.stages
    assert len(first.stages) == 31


def test_what_the_pipeline_does_not_depend_on_is_left_out() -> None:
    import tensorflow as tf

    def function() -> Any:
        vocabulary = tf.data.Dataset.range(3).batch(2)
        list(vocabulary)
        return tf.data.Dataset.range(5)

    recipe = recorded.recipe_of(function)
    assert [(stage.id, stage.method) for stage in recipe.stages] == [(0, "range")]


def test_a_dataset_from_elsewhere_is_opaque() -> None:
    import tensorflow as tf

    before = tf.data.Dataset.range(4)
    recipe = recorded.recipe_of(lambda: before.batch(2))
    assert labels(recipe) == ["opaque", "batch"]
    assert recipe.dataset(0) is before


def test_generators_and_odd_elements() -> None:
    import tensorflow as tf

    def rows() -> Any:
        yield tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[0, 1]]), "text"

    signature = (
        tf.RaggedTensorSpec([2, None], tf.int32),
        tf.SparseTensorSpec([1, 2], tf.int32),
        tf.TensorSpec(None, tf.string),
    )
    recipe = recorded.recipe_of(lambda: tf.data.Dataset.from_generator(rows, output_signature=signature))
    assert labels(recipe) == ["from_generator(rows)"]
    assert _text(recipe.stages[0]) == "(ragged int32[2, ?], sparse int32[1, 2], string[...])"
    function = recorded.function_of(recipe.stages[0])
    assert function.python
    element = next(iter(recipe.dataset(0)))
    assert [path for path, _ in describe.components(element)] == ["0", "1", "2"]
    assert describe.nbytes(element) == (3 * 4 + 3 * 8) + (2 * 8 + 4 + 2 * 8) + len("text")


def test_windows_are_datasets_of_datasets() -> None:
    import tensorflow as tf

    recipe = recorded.recipe_of(
        lambda: tf.data.Dataset.range(6).window(2).flat_map(lambda window: window.batch(2))
    )  # fmt: skip
    assert _text(recipe.stages[1]) == "dataset of int64[]"
    assert [stage.method for stage in recipe.stages[2].inner] == ["batch"]


def test_a_library_that_calls_public_methods_shows_as_its_stages(tmp_path: Path) -> None:
    import tensorflow as tf

    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    recipe = recorded.recipe_of(
        lambda: tf.data.experimental.make_csv_dataset(str(tmp_path / "*.csv"), 2, label_name="y", num_epochs=1)
    )
    assert labels(recipe) == [
        "from_tensor_slices",
        "shuffle",
        "apply(make_csv_dataset_v2)",
        "shuffle",
        "batch",
        "map(map_fn)",
        "prefetch",
    ]
    for stage in recipe.stages:
        assert stage.place is not None
        assert Path(stage.place.file) == Path(__file__)


def test_what_cannot_be_told_in_full_is_told_short() -> None:
    import numpy as np
    import tensorflow as tf

    names = [os.fspath(Path("data") / f"{n}.tfrecord") for n in range(12)]
    recipe = recorded.recipe_of(lambda: tf.data.TFRecordDataset(names, num_parallel_reads=np.int64(3)))
    assert recipe.stages[0].arguments == {"filenames": 12, "num_parallel_reads": 3}
    pairs = (np.zeros([5, 2, 3], np.float32), {"y": np.zeros([5], np.int64)})
    recipe = recorded.recipe_of(lambda: tf.data.Dataset.from_tensor_slices(pairs).take(tf.constant(4, tf.int64)))
    assert recipe.stages[0].arguments == {"tensors": "(float32[5, 2, 3], {y: int64[5]})"}
    assert recipe.stages[1].arguments == {"count": 4}


@pytest.mark.parametrize(
    ("name", "batch"), [("make_distributed", 4), ("make_distributed_by_function", 2)], ids=["dataset", "function"]
)
def test_a_distributed_dataset_leads_back_to_its_own(name: str, batch: int) -> None:
    recipe = recorded.recipe(name)
    assert labels(recipe) == ["range", "batch"]
    assert recipe.stages[-1].arguments == {"batch_size": batch}
    assert recipe.notes[0].startswith("The dataset is distributed by a tf.distribute strategy; "), "a script's too"


def test_what_a_function_makes_in_its_graph_is_made_again_outside_of_it() -> None:
    import tensorflow as tf

    before = tf.data.Dataset.range(8)

    def made_in_a_function(*, of_its_argument: bool) -> Any:
        found: list[Any] = []

        def train(most: Any) -> None:
            made = before.map(lambda x: x + 1).skip(tf.constant(2, tf.int64)).batch(2)
            found.append(made.take(most) if of_its_argument else made)

        tf.function(train)(tf.constant(2, tf.int64))
        return found[0]

    recipe = recorded.recipe_of(lambda: made_in_a_function(of_its_argument=False))
    assert labels(recipe)[1:] == ["map(<lambda>)", "skip", "batch"]
    assert recorded.values(recipe.dataset(recipe.sink)) == [[3, 4], [5, 6], [7, 8]]
    with pytest.raises(UserCodeError, match="belongs to a graph of its own"):
        recorded.recipe_of(lambda: made_in_a_function(of_its_argument=True))


def test_of_several_datasets_the_first_is_taken() -> None:
    recipe = recorded.recipe("make_pair")
    assert labels(recipe) == ["range", "batch"]
    assert recipe.notes == (
        "The function returned a tuple of 2; the first dataset in it, at position 1, was diagnosed.",
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [("make_nothing", "None"), ("make_iterator", "an OwnedIterator"), ("make_array", "a ndarray")],
)
def test_what_is_no_dataset_is_refused(name: str, words: str) -> None:
    with pytest.raises(UserCodeError, match=f"the function returned {words}; it must return a tf.data.Dataset"):
        recorded.recipe(name)


def test_the_public_functions_are_themselves_again_afterwards() -> None:
    import tensorflow as tf

    before = (tf.data.Dataset.map, tf.data.Dataset.range, tf.data.TFRecordDataset.__init__)
    with Recording():
        assert tf.data.Dataset.map is not before[0]
    with pytest.raises(ZeroDivisionError), Recording():
        _ = 1 / 0
    assert (tf.data.Dataset.map, tf.data.Dataset.range, tf.data.TFRecordDataset.__init__) == before


def test_the_methods_that_make_datasets_are_found_in_the_class() -> None:
    found = public_api.entries()
    assert {"map", "batch", "interleave", "padded_batch", "apply", "zip", "from_generator", "load"} <= set(found)
    assert not {"reduce", "cardinality", "options", "save", "as_numpy_iterator"} & set(found)
    assert found["range"].kind == "static"
    assert found["TFRecordDataset"].kind == "class"


SHARED = """
import tensorflow as tf

def double(x):
    return x * 2

def triple(x):
    return x * 3

def in_python(x):
    return tf.py_function(lambda x: x * 3, [x], tf.int64)

def augment(x):
    return x + tf.random.uniform([], 0, 9, tf.int64)

def prepare(ds, function, training):
    ds = ds.map(double)
    if training:
        ds = ds.shuffle(9)
    ds = ds.map(function)
    return ds.batch(2)

def make_dataset():
    training = prepare(tf.data.Dataset.range(9), {trained})
    validation = {validated}
    return training
"""


@pytest.mark.parametrize(
    ("trained", "validated", "shared"),
    [
        ("double, True", "tf.data.Dataset.range(4).map(augment).batch(2)", {}),
        ("double, True", "prepare(tf.data.Dataset.range(4), double, True)", dict.fromkeys([1, 2, 3, 4], "alike")),
        ("double, True", "prepare(tf.data.Dataset.range(4), double, False)", dict.fromkeys([1, 3, 4], "alike")),
        ("double, False", "prepare(tf.data.Dataset.range(4), double, True)", {1: "alike", 2: "varying", 3: "varying"}),
        (
            "double, True",
            "prepare(tf.data.Dataset.range(4).map(augment), double, True)",
            dict.fromkeys([1, 2, 3, 4], "varying"),
        ),
        (
            "double, True",
            "prepare(tf.data.Dataset.range(4).shuffle(4), double, True)",
            {1: "varying", 2: "alike", 3: "alike"},
        ),
        (
            "double, False",
            "prepare(tf.data.Dataset.range(4).repeat(), double, False)",
            dict.fromkeys([1, 2, 3], "varying"),
        ),
        ("double, False", "prepare(tf.data.Dataset.range(4), triple, False)", {1: "alike", 2: "fixed", 3: "alike"}),
        (
            "double, False",
            "prepare(tf.data.Dataset.range(4).repeat(), triple, False)",
            dict.fromkeys([1, 2, 3], "varying"),
        ),
        ("augment, True", "prepare(tf.data.Dataset.range(4), triple, False)", {1: "alike", 3: "varying", 4: "alike"}),
        ("double, True", "prepare(tf.data.Dataset.range(4), augment, True)", {1: "alike", 2: "alike", 3: True}),
        ("double, False", "prepare(tf.data.Dataset.range(4), in_python, False)", {1: "alike", 2: True, 3: "varying"}),
        (
            "in_python, False",
            "prepare(tf.data.Dataset.range(4), double, False)",
            {1: "alike", 2: "varying", 3: "alike"},
        ),
        (
            "augment, False",
            "[prepare(tf.data.Dataset.range(4), each, False) for each in (triple, in_python)]",
            {1: "alike", 2: True, 3: "varying"},
        ),
    ],
)
def test_how_like_another_datasets_stage_is_which_the_same_call_makes(
    trained: str, validated: str, shared: dict[int, object], tmp_path: Path
) -> None:
    file = tmp_path / "shared.py"
    file.write_text(SHARED.format(trained=trained, validated=validated))
    recipe = recorded.recipe("make_dataset", file=file)
    found = {number: stage.shared for number, stage in enumerate(recipe.stages) if stage.shared}
    assert {number: found.get(number) for number in shared} == shared
    assert shared or not found


FLAGS = """
import functools
import random
import tensorflow as tf

def load(value, training):
    return value * 2 if training else value * 3

def load_in_python(value, training):
    return tf.py_function(lambda value: load(value, training), [value], tf.int64)

def unused(value, training):
    return value * 2

def drawn(value, training):
    return load(value, training) + tf.random.uniform([], 0, 9, tf.int64)

def in_branches(value, training):
    return tf.cond(value > 2, lambda: value * 2, lambda: value * (2 if training else 3))

class Loader:
    def __init__(self, training):
        self.training, self.name, self.scale = training, f"loader {{training}}", tf.constant(2 + training, tf.int64)

    def load(self, value):
        return load(value, self.training)

    def scaled(self, value):
        return value * self.scale

    def read(self, value):
        return load(value, self.training)

    def load_in_python(self, value):
        return tf.py_function(self.read, [value], tf.int64)

    def unused_in_python(self, value):
        return tf.py_function(lambda value: value * 2, [value], tf.int64)

def make(training):
    def nested(value):
        return unused(value, training)

    return tf.data.Dataset.range(4).map({function}).batch(2)

def make_dataset():
    made = make(True)
    make(False)
    return made
"""


@pytest.mark.parametrize(
    ("function", "shared"),
    [
        ("lambda value: load(value, training)", "fixed"),
        ("functools.partial(load, training=training)", "fixed"),
        ("Loader(training).load", "fixed"),
        ("Loader(training).scaled", "fixed"),
        ("lambda value: in_branches(value, training)", "fixed"),
        ("lambda value: drawn(value, training)", True),
        ("lambda value: load_in_python(value, training)", True),
        ("functools.partial(load_in_python, training=training)", True),
        ("Loader(training).load_in_python", True),
        ("lambda value: load(value, True)", "alike"),
        ("lambda value: unused(value, training)", "alike"),
        ("nested", "alike"),
        ("Loader(True).load", "alike"),
        ("Loader(training).unused_in_python", "alike"),
        ("lambda value: drawn(value, True)", "alike"),
        ("lambda value: in_branches(value, True)", "alike"),
        ("lambda value: load_in_python(value, True)", "alike"),
        ("lambda value: value + random.randrange(1) + tf.random.uniform([], 0, 9, tf.int64)", "alike"),
    ],
)
def test_a_function_that_a_flag_makes_another_one_is_not_alike(function: str, shared: object, tmp_path: Path) -> None:
    file = tmp_path / "flags.py"
    file.write_text(FLAGS.format(function=function))
    stages = recorded.recipe("make_dataset", file=file).stages
    assert stages[1].shared == shared


@pytest.mark.parametrize(
    ("given", "shared"),
    [
        ("functools.partial(read, 'train' if training else 'val', True)", "alike"),
        ("functools.partial(read, 'train', training)", True),
    ],
)
def test_generators_are_alike_whatever_they_read(given: str, shared: object, tmp_path: Path) -> None:
    file = tmp_path / "generators.py"
    file.write_text(f"""
import functools
import tensorflow as tf

def read(folder, flips):
    yield 0

def make(training):
    return tf.data.Dataset.from_generator({given}, output_signature=tf.TensorSpec([], tf.int64))

def make_dataset():
    made = make(True)
    make(False)
    return made
""")
    assert [each.shared for each in recorded.recipe("make_dataset", file=file).stages] == [shared]


def test_files_in_another_order_are_not_as_values_that_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("a\nb\n")
    file = tmp_path / "orders.py"
    file.write_text(f"""
import tensorflow as tf

def draw(line):
    return tf.strings.join([line, tf.strings.as_string(tf.random.uniform([]))])

def prepare(ds):
    return ds.map(tf.strings.lower)

def make_dataset():
    made = prepare(tf.data.TextLineDataset(tf.data.Dataset.list_files({str(tmp_path / "*.txt")!r})))
    prepare(tf.data.Dataset.from_tensor_slices(["A"]).map(draw))
    return made
""")
    assert recorded.recipe("make_dataset", file=file).stages[-1].shared == "varying"


@pytest.mark.parametrize(("behind", "others_go_on"), [("", False), (".take(2)", True)])
def test_whether_another_dataset_of_the_same_line_goes_on_behind_it_is_told(
    behind: str, others_go_on: bool, tmp_path: Path
) -> None:
    file = tmp_path / "ends.py"
    file.write_text(f"""
import tensorflow as tf

def make(count):
    return tf.data.Dataset.range(count).batch(2)

def make_dataset():
    made = make(9)
    validation = make(8){behind}
    return made
""")
    stages = recorded.recipe("make_dataset", file=file).stages
    assert [(each.shared, each.others_go_on) for each in stages] == [("alike", True), ("alike", others_go_on)]


def test_the_datasets_of_tensorflow_1s_interface_are_looked_through() -> None:
    """Each is wrapped: no cache was found in them, and none was seen to be left early."""
    import tensorflow as tf

    data = tf.compat.v1.data.Dataset.range(9)
    cached = data.cache()
    assert dataset_graph.caches_in(cached.map(abs).take(5)) == [cached]
    for taken, is_left in ((cached.take(5), True), (cached.batch(2).take(3), True), (cached.take(9), False)):
        assert dataset_graph.left_early(taken).get(id(cached), False) is is_left
    paired = tf.compat.v1.data.Dataset.zip((cached, tf.compat.v1.data.Dataset.range(7)))
    assert dataset_graph.left_early(paired).get(id(cached)) is True


def test_a_file_of_the_users_is_not_filled_through_a_dataset_that_a_function_reads(tmp_path: Path) -> None:
    import tensorflow as tf

    file = tmp_path / "users_cache"
    with Recording() as recording:
        kept = tf.data.Dataset.range(3).cache(str(file)).map(abs)
        made = tf.data.Dataset.range(2).flat_map(lambda _: kept.take(2)).batch(2)
        plain = tf.data.Dataset.range(3).cache()
        in_memory = tf.data.Dataset.range(2).flat_map(lambda _: plain)
    with pytest.raises(UserCodeError, match=r"flat_map\(.*\) reads a dataset that cache, line \d+, keeps in files"):
        recording.recipe(made)
    assert not list(tmp_path.iterdir())
    assert [stage.method for stage in recording.recipe(in_memory).stages] == ["range", "flat_map"]


def test_candidate_samplers_draw() -> None:
    """Negative samples of word2vec: a cache would keep those of the first epoch, and a batch share one draw."""
    import tensorflow as tf

    def negatives(word: Any) -> Any:
        words = tf.reshape(tf.cast(word, tf.int64), [1, 1])
        return tf.random.log_uniform_candidate_sampler(words, 1, 3, unique=True, range_max=100)[0]

    with Recording() as recording:
        data = tf.data.Dataset.range(9).map(negatives)
    function = recorded.function_of(recording.recipe(data).stages[1])
    assert function.random


def test_what_each_round_of_a_loop_makes_from_its_sources_on_is_told_from_what_it_shares(tmp_path: Path) -> None:
    import tensorflow as tf

    with Recording() as recording:
        shared = tf.data.Dataset.range(9)
        for _ in range(1):
            loop = next(source_loops.around())
            made = {
                "own": tf.data.Dataset.range(9).map(abs).repeat(),
                "shared": shared,
                "of what is shared": shared.map(abs),
                "of both": tf.data.Dataset.zip((shared, tf.data.Dataset.range(9))),
                "in files": tf.data.Dataset.range(9).cache(str(tmp_path / "kept")),
            }
    assert [name for name, each in made.items() if recording.is_made_in(each, loop)] == ["own"]
    assert not recording.is_made_in(made["own"], None)


@pytest.mark.parametrize(
    ("behind", "taken", "is_left"),
    [
        ("batch(1)", 100, True),
        ("batch(1)", 980, False),  # the rest of it may be in a buffer
        ("batch(1).repeat()", 100, True),
        ("shuffle(1000)", 100, False),
        ("shuffle(100).prefetch(2)", 100, True),
        ("prefetch(900)", 100, False),
        ("filter(lambda value: value > 0)", 100, False),
        ("concatenate(tf.data.Dataset.range(10))", 100, False),
    ],
)
def test_a_pass_leaves_a_pipeline_early_if_nothing_of_it_may_come_to_its_end(
    behind: str, taken: int, is_left: bool
) -> None:
    import tensorflow as tf

    data = eval(f"data.{behind}", {"data": tf.data.Dataset.range(1000).map(abs), "tf": tf})
    assert dataset_graph.is_left(data, taken) is is_left


def test_what_a_take_or_a_zip_leaves_before_its_end_is_told() -> None:
    import tensorflow as tf

    with Recording() as recording:
        cached = tf.data.Dataset.range(9).cache()
        made = {
            "less": cached.take(4),
            "all": cached.take(9),
            "no limit": cached.take(-1),
            "of one pass": cached.repeat().take(4),
            "of several passes": cached.repeat().take(12),
            "behind a map": cached.map(abs).take(4),
            "of batches": cached.batch(3).prefetch(1).take(3),
            "of a full shuffle": cached.shuffle(9).take(1),
            "of a shuffle": cached.shuffle(7).skip(1).take(1),
            "of all by a shuffle": cached.shuffle(7).skip(1).take(2),
            "of a filter": cached.filter(lambda value: value > 0).take(4),
            "of several for one": cached.flat_map(lambda value: tf.data.Dataset.range(9)).take(9),
            "of samples again": cached.batch(3).unbatch().take(8),
            "of a pair": tf.data.Dataset.zip((cached, cached)).take(9),
            "of one of two": cached.concatenate(tf.data.Dataset.range(9)).take(12),
            "of a longer one of a pair": tf.data.Dataset.zip((cached, tf.data.Dataset.range(7))),
            "of a full shuffle of a pair": tf.data.Dataset.zip((cached.shuffle(9), tf.data.Dataset.range(8))),
            "of a shorter one of a pair": tf.data.Dataset.zip((cached, tf.data.Dataset.range(10))),
            "of a pair with an endless one": tf.data.Dataset.zip((cached, tf.data.Dataset.counter())),
            "over and over in a pair": tf.data.Dataset.zip((cached.repeat(), tf.data.Dataset.range(20))),
            "of a pair with one of unknown size": tf.data.Dataset.zip(
                (cached, tf.data.Dataset.range(9).filter(lambda value: value > 3))
            ),
        }
    left = {name: recording.recipe(each).stages[1].left_early for name, each in made.items()}
    leaves = {"less", "of one pass", "behind a map", "of a shuffle", "of a longer one of a pair"}
    unknown = dict.fromkeys(
        ("of a filter", "of several for one", "of samples again", "of one of two", "of a pair with one of unknown size")
    )
    assert left == {name: name in leaves for name in made} | unknown


@pytest.mark.parametrize(
    "behind",
    [
        "take(3)",
        "shuffle(10).take(3)",
        "shuffle(9).take(1)",
        "shuffle(9).take(2)",
        "repeat().take(9)",
        "batch(2).take(4)",
        "shuffle(5).batch(3).take(2)",
        "apply(lambda data: tf.data.Dataset.zip((data, tf.data.Dataset.range(8))))",
        "apply(lambda data: tf.data.Dataset.zip((data, tf.data.Dataset.range(9))))",
        "apply(lambda data: tf.data.Dataset.zip((tf.data.Dataset.range(9), data)))",
        "apply(lambda data: tf.data.Dataset.zip((tf.data.Dataset.range(11), data))).batch(2)",
        "shuffle(5).apply(lambda data: tf.data.Dataset.zip((data, tf.data.Dataset.range(9))))",
        "repeat().apply(lambda data: tf.data.Dataset.zip((data, tf.data.Dataset.range(15))))",
    ],
)
def test_a_cache_that_is_not_left_early_is_full_behind_the_first_pass(behind: str) -> None:
    import tensorflow as tf

    made: list[int] = []

    def note(value: Any) -> Any:
        made.append(int(value))
        return value

    read = tf.data.Dataset.range(10).map(lambda value: tf.py_function(note, [value], tf.int64))
    cached = read.cache()
    data = eval(f"cached.{behind}", {"cached": cached, "tf": tf})
    left = dataset_graph.left_early(data).get(id(cached), False)
    for _ in range(2):
        for _ in data:
            pass
    assert (len(made) == 10) is (left is False)


def test_how_much_a_concatenate_takes_from_each_input_is_told() -> None:
    import tensorflow as tf

    data = tf.data.Dataset
    with Recording() as recording:
        made = [
            data.range(6).batch(2).concatenate(data.range(1).batch(1)),
            data.range(9).repeat().concatenate(data.range(1).repeat()),
            data.range(9).filter(lambda value: value > 3).concatenate(data.range(9)),
        ]
    shares = [recording.recipe(each).stages[-1].input_shares for each in made]
    assert shares == [(0.75, 0.25), (1.0, 0.0), ()]


def test_a_pipeline_is_recorded_in_whatever_thread_it_is_made_and_numbered_by_itself() -> None:
    import tensorflow as tf

    def make(beside: Callable[[], object]) -> Any:
        first = tf.data.Dataset.range(9)
        beside()
        return first.map(lambda number: number + 1).batch(3)

    with Recording() as recording, ThreadPoolExecutor(2) as pool:
        alone = pool.submit(make, lambda: None).result()
        among_others = pool.submit(make, lambda: pool.submit(make, lambda: None).result()).result()
    assert labels(recording.recipe(alone)) == ["range", "map(<lambda>)", "batch"]
    stages = [[(each.id, each.inputs) for each in recording.recipe(made).stages] for made in (alone, among_others)]
    assert stages[0] == stages[1] == [(0, ()), (1, (0,)), (2, (1,))]


def test_a_step_that_writes_files_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    import tensorflow as tf

    logs = tf.summary.create_file_writer(str(tmp_path))

    def log(recorded: Any = None) -> None:
        with logs.as_default(), contextlib.nullcontext() if recorded is None else tf.summary.record_if(recorded):
            tf.summary.write("loss", 1.0, 1)

    def graph_of(body: Callable[[], object]) -> Any:
        def step() -> None:
            body()

        with tf.summary.record_if(False):
            return tf.function(step, autograph=False).get_concrete_function().graph

    bodies: list[tuple[Callable[[], object], bool]] = [
        (lambda: tf.print("loss"), False),
        (lambda: tf.print("loss", output_stream=f"file://{tmp_path}/losses"), True),
        (lambda: tf.io.write_file(f"{tmp_path}/losses", "1"), True),
        (log, False),
        (lambda: log(tf.random.uniform([]) < 1), True),
    ]
    for body, writes in bodies:
        assert describe.leaves_graph(graph_of(body)) is writes


def test_each_of_many_calls_of_one_line_is_described_once_or_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    def make(files: int) -> Any:
        whole = tf.data.Dataset.range(1)
        for number in range(files):
            whole = whole.concatenate(tf.data.Dataset.range(number).map(lambda value: value + 1))
        return whole

    described, plain = [0], RecordedCall.stage

    def counted(call: Any, *behind: Any) -> Any:
        described[0] += 1
        return plain(call, *behind)

    with Recording() as recording:
        training, _ = make(12), make(12)
    monkeypatch.setattr(RecordedCall, "stage", counted)
    recipe = recording.recipe(training)
    assert described[0] <= 3 * len(recipe.stages), "with one for each pair of calls, and what is before it, thousands"
    assert {stage.shared for stage in recipe.stages} == {"alike"}


def test_a_class_of_datasets_that_interleave_is_given_makes_no_other_pipeline(tmp_path: Path) -> None:
    import tensorflow as tf

    with Recording() as recording:
        files = tf.data.Dataset.from_tensor_slices([str(tmp_path / "1"), str(tmp_path / "2")])
        read = files.interleave(tf.data.TFRecordDataset, cycle_length=2)
    assert not any(stage.shared for stage in recording.recipe(read).stages)


def test_what_the_loop_of_the_passes_makes_is_made_anew_for_each() -> None:
    import tensorflow as tf

    with Recording() as recording:
        data = tf.data.Dataset.range(6).map(lambda number: -number)
        for epoch in range(1):
            within = next(source_loops.around())
            batches = data.batch(2)
            if epoch == 0:
                first = data.batch(3)
            of_new = batches
            if epoch == 0:
                of_new = of_new.prefetch(1)
    assert [stage.anew for stage in recording.recipe(batches, within).stages] == [False, False, True]
    assert [stage.anew for stage in recording.recipe(of_new, within).stages] == [False, False, True, True]
    assert not any(stage.anew for stage in recording.recipe(first, within).stages)
    assert not any(stage.anew for stage in recording.recipe(batches).stages)


def test_what_is_passed_over_again_before_it_is_made_anew_or_is_kept_in_files_may_be_read_from_a_cache(
    tmp_path: Path,
) -> None:
    import tensorflow as tf

    with Recording() as recording:
        for _ in range(1):
            within = next(source_loops.around())
            repeated = tf.data.Dataset.range(6).repeat().batch(2)
            kept = tf.data.Dataset.range(6).cache(str(tmp_path / "kept")).batch(2)
    for each, anew in ((repeated, [False, True, True]), (kept, [False, False, True])):
        assert [stage.anew for stage in recording.recipe(each, within).stages] == anew


def mixed(by: str, kept: bool = False, both: bool = True) -> Any:
    import tensorflow as tf

    given = tf.data.Dataset.range(100)
    if by == "shuffle":
        given = given.shuffle(100)
    elif by == "one order":
        given = given.shuffle(100, reshuffle_each_iteration=False)
    elif by == "files":
        given = tf.data.Dataset.list_files(str(Path(__file__).parent / "*.py"))
    given = given.map(lambda x: x).cache() if kept else given.map(lambda x: x)
    given.take(1)  # a preview
    validation = given.take(3) if both else None
    return given.skip(3).batch(2), validation


@pytest.mark.parametrize(
    ("by", "kept", "both", "keeps"),
    [
        ("shuffle", False, True, "shuffle(…, reshuffle_each_iteration=False)"),
        ("files", False, True, "list_files(…, shuffle=False)"),
        ("one order", False, True, None),
        ("nothing", False, True, None),
        ("shuffle", True, True, None),
        ("shuffle", False, False, None),
    ],
)
def test_a_division_into_parts_that_change_from_pass_to_pass_is_told(
    by: str, kept: bool, both: bool, keeps: str | None
) -> None:
    notes = recorded.recipe_of(lambda: mixed(by, kept, both)[0]).warnings
    assert len(notes) == (keeps is not None)
    for note in notes:
        file = Path(__file__).name
        assert re.match(rf"(take, {file}:\d+, and skip|skip, {file}:\d+, and take), {file}:\d+, divide what ", note)
        assert f"{keeps} keeps them apart" in note


def by_python(number: Any) -> Any:
    return number * random.randint(1, 9)


def by_numpy(number: Any) -> Any:
    return number * np.random.randint(1, 9)


def in_graph(number: Any) -> Any:
    import tensorflow as tf

    return number + tf.random.uniform([], 0, 9, tf.int64)


def in_each_call(number: Any) -> Any:
    import tensorflow as tf

    return tf.numpy_function(by_numpy, [number], tf.int64)


def by_keras(number: Any) -> Any:
    import keras

    return keras.random.uniform([]) + keras.ops.cast(number, "float32")


@pytest.mark.parametrize(
    ("function", "told"),
    [(by_python, True), (by_numpy, True), (in_graph, False), (in_each_call, False), (by_keras, False)],
)
def test_random_numbers_that_are_drawn_while_a_map_is_traced_are_told(function: Any, told: bool) -> None:
    import tensorflow as tf

    warnings = recorded.recipe_of(lambda: tf.data.Dataset.range(9).map(function).batch(3)).warnings
    assert [each.partition(", test_record")[0] for each in warnings] == [f"map({function.__name__})"] * told
    assert all("traces it, which is once: all samples of all epochs get the same." in each for each in warnings)


def test_a_map_within_a_function_of_the_graph_is_recorded_beside_a_generator_of_tensorflows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tensorflow as tf
    from tensorflow.python.ops import stateful_random_ops

    monkeypatch.setattr(stateful_random_ops, "global_generator", tf.random.Generator.from_seed(1))
    files = tf.data.Dataset.range(2)
    recipe = recorded.recipe_of(lambda: files.interleave(lambda n: tf.data.Dataset.range(3).map(lambda x: x + n)))
    assert [each.method for each in recipe.stages[-1].inner] == ["range", "map"]


def read(path: Any) -> Any:
    import tensorflow as tf

    return tf.strings.length(tf.io.read_file(path))


def parts_of(mapped: Callable[[Any], Any], count: int = 3) -> tuple[Any, Any]:
    import tensorflow as tf

    files = mapped(tf.data.Dataset.list_files(str(Path(__file__).parent / "*.py"), shuffle=False))
    return files.take(count), files.skip(count)


@pytest.mark.parametrize(
    ("mapped", "told"),
    [
        (lambda paths: paths.map(read), "Put take and skip in front of map(read)."),
        (lambda paths: paths.map(lambda path: path + "").map(read).prefetch(1), "skip in front of map(read)."),
        (lambda paths: paths.map(read).batch(2), "in front of map(read), and count samples there in place of batches."),
        (lambda paths: paths.batch(2).unbatch().map(read), "Put take and skip in front of map(read)."),
        (lambda paths: paths.map(lambda path: path + "x"), None),
        (lambda paths: paths.map(read).cache(), None),
        (lambda paths: paths.map(read).filter(lambda length: length > 0), None),
    ],
)
def test_parts_that_are_divided_behind_a_map_that_reads_files_are_to_be_divided_in_front_of_it(
    mapped: Callable[[Any], Any], told: str | None
) -> None:
    notes = recorded.recipe_of(lambda: parts_of(mapped)[0]).warnings
    assert len(notes) == (told is not None)
    assert all(told is not None and note.endswith(told) for note in notes)


def test_nothing_is_said_of_parts_that_are_not_trained_on_of_none_and_of_what_is_kept() -> None:
    def keeping() -> tuple[Any, Any]:
        training, validation = parts_of(lambda paths: paths.map(read))
        return training, validation.cache()

    assert recorded.recipe_of(lambda: keeping()[0]).warnings == ()
    assert recorded.recipe_of(lambda: parts_of(lambda paths: paths.map(read), 0)[0]).warnings == ()
    assert recorded.recipe_of(lambda: parts_of(lambda paths: paths.map(read))[1]).warnings == ()


@pytest.mark.parametrize("shuffled_again", [False, True])
def test_parts_of_what_keras_reads_from_a_folder_are_made_by_its_own_arguments(
    shuffled_again: bool, tmp_path: Path
) -> None:
    import keras

    for name in ("cat/1.txt", "cat/2.txt", "dog/1.txt", "dog/2.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a text")

    def parts() -> tuple[Any, Any]:
        texts = keras.utils.text_dataset_from_directory(tmp_path, batch_size=1, verbose=False)
        texts = texts.shuffle(4) if shuffled_again else texts.map(lambda text, label: (text, label))
        return texts.take(3), texts.skip(3)

    (note,) = recorded.recipe_of(lambda: parts()[0]).warnings
    own = 'text_dataset_from_directory(…, validation_split=…, subset="both", seed=…) returns two parts that stay apart'
    assert (own in note) != shuffled_again
    assert ("shuffle(…, reshuffle_each_iteration=False) keeps them apart" in note) == shuffled_again


@pytest.mark.parametrize(
    ("images", "masks", "is_told"),
    [
        ({}, {}, True),
        ({"seed": 1}, {"seed": 2}, True),
        ({"seed": 1}, {"seed": 1}, False),
        ({"shuffle": False}, {}, True),
        ({"seed": 1}, {"shuffle": False}, True),
        ({"shuffle": False}, {"shuffle": False}, False),
        ({}, None, False),
    ],
)
def test_files_that_two_lists_in_an_order_of_their_own_hand_to_a_zip_are_told(
    images: dict[str, Any], masks: dict[str, Any] | None, is_told: bool
) -> None:
    import tensorflow as tf

    files = str(Path(__file__).parent / "*.py")

    def made() -> Any:
        one = tf.data.Dataset.list_files(files, **images)
        other = one if masks is None else tf.data.Dataset.list_files(files, **masks)
        return tf.data.Dataset.zip((one.map(tf.io.read_file), other.map(tf.io.read_file))).batch(2)

    notes = recorded.recipe_of(made).warnings
    assert len(notes) == is_told
    for note in notes:
        lists = rf"list_files, {Path(__file__).name}:\d+, and list_files, {Path(__file__).name}:\d+, list, each"
        assert re.match(rf"zip, {Path(__file__).name}:\d+, joins the files that {lists} in an order of its own", note)


@pytest.mark.parametrize(("seed", "is_told"), [(None, False), (7, True)])
def test_files_of_branches_that_each_shuffle_anew_belong_together_in_no_order(seed: int | None, is_told: bool) -> None:
    """As a picture and any style that is put on it."""
    import tensorflow as tf

    def branch() -> Any:
        return tf.data.Dataset.list_files(str(Path(__file__).parent / "*.py")).shuffle(9, seed=seed)

    assert len(recorded.recipe_of(lambda: tf.data.Dataset.zip((branch(), branch()))).warnings) == is_told


def test_what_a_map_in_one_call_with_its_batch_draws_while_it_is_traced_is_told() -> None:
    import tensorflow as tf

    def turned(x: Any) -> Any:
        return x + random.randint(1, 9)

    def made() -> Any:
        return tf.data.Dataset.range(9).apply(tf.data.experimental.map_and_batch(turned, 3))

    (told,) = recorded.recipe_of(made).warnings
    assert "draws random numbers by Python or NumPy while TensorFlow traces it" in told


def test_a_dataset_that_a_statement_makes_and_drops_is_told_once() -> None:
    import tensorflow as tf

    def made() -> Any:
        dataset = tf.data.Dataset.range(8)
        for _ in range(2):
            dataset.map(lambda x: x).cache()
        (
            dataset
            .shuffle(8)
        )  # fmt: skip
        rest = dataset.skip(2)
        assert rest is not dataset
        dataset.take(2).cardinality()
        return dataset.batch(2)

    notes = recorded.recipe_of(made).warnings
    assert [re.sub(r":\d+", "", note.split(" does nothing")[0]) for note in notes] == [
        f"cache, {Path(__file__).name},",
        f"shuffle, {Path(__file__).name},",
    ]


def test_a_generator_that_a_decorator_limits_is_not_endless_though_what_it_wraps_is() -> None:
    import tensorflow as tf

    def rows() -> Iterator[int]:
        while True:
            yield 1

    @functools.wraps(rows)
    def some() -> Iterator[int]:
        yield from itertools.islice(rows(), 9)

    for given, endless in ((rows, True), (some, False)):
        spec = tf.TensorSpec([], tf.int64)
        dataset = tf.data.Dataset.from_generator(given, output_signature=spec)
        assert describe.function(given, dataset, generator=True).endless is endless
