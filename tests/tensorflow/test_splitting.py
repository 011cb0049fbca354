"""Where a map's function can be divided before it draws: found by its graph, and proven on samples with one seed."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.model.edits import InsertAfter
from pipeline_bench.model.function_edits import DivideMap
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.tfdata import map_functions, rebuild, splitting
from tests.tensorflow.recorded import function_of, recipe_of, values

NOISE = 0.25
AUGMENT = True


def flip(x: Any) -> Any:
    import tensorflow as tf

    return tf.image.random_flip_left_right(tf.reshape(x, [2, 2, 1]))


def helper_draws(x: Any) -> Any:
    import tensorflow as tf

    image = tf.cast(tf.stack([x, x + 1, x + 2, x + 3]), tf.float32)
    label = x * 2
    image = flip(image)
    return image, label


def branches(x: Any) -> Any:
    import tensorflow as tf

    y = tf.cast(x, tf.float32)
    if y > 3.0:
        y = y - 3.0
    noise = tf.random.normal([]) * NOISE
    if noise > 0.0:
        return {"y": y + noise, "x": x}
    return {"y": y, "x": x}


def from_a_dict(x: Any) -> Any:
    import tensorflow as tf

    parts = {"a": x + 1, "b": {"c": tf.cast(x, tf.float32)}}
    size = tf.shape(parts["a"])
    parts["b"]["c"] += tf.random.uniform(size)
    return parts


def name_of_an_inner_dict(x: Any) -> Any:
    import tensorflow as tf

    parts = {"a": {"y": tf.cast(x, tf.float32)}}
    inner = parts["a"]
    inner["y"] += tf.random.uniform([])
    return parts


def changes_its_dict(parts: Any) -> Any:
    import tensorflow as tf

    parts["y"] = tf.cast(parts["x"], tf.float32)
    parts["y"] += tf.random.uniform([])


def goes_on_with_its_dict(parts: Any) -> Any:
    _ = changes_its_dict(parts)
    return parts


def pair_crosses(x: Any) -> Any:
    import tensorflow as tf

    y = tf.cast(x, tf.float32)
    pair = (y, y + 1.0)
    return pair[0] + tf.random.uniform([]), pair[1]


def crops_by_a_tensor(x: Any) -> Any:
    import tensorflow as tf

    picture = tf.fill([8, 8, 3], tf.cast(x, tf.float32))
    size = tf.concat([tf.shape(picture)[:2] // 2, [3]], 0)
    return tf.image.random_crop(picture, size)


def around(scale: float) -> Callable[[Any], Any]:
    def closes_over(x: Any) -> Any:
        import tensorflow as tf

        y = tf.cast(x, tf.float32) * scale
        return y + tf.random.uniform([])

    return closes_over


def draws_first(x: Any) -> Any:
    import tensorflow as tf

    y = tf.random.uniform([])
    return y, x


def number_crosses(x: Any) -> Any:
    import tensorflow as tf

    size = 3
    return tf.random.uniform([size]), x


def python_first(x: Any) -> Any:
    import tensorflow as tf

    y = tf.numpy_function(lambda value: value + 1, [x], tf.int64)
    return tf.cast(y, tf.float32) + tf.random.uniform([]), x


def own_generator(x: Any) -> Any:
    y = x + 1
    return y, HELD["generator"].uniform([])


def looks_up(x: Any) -> Any:
    import tensorflow as tf

    token = HELD["table"].lookup(x)
    noise = tf.random.uniform([])
    return token, noise


def counts(x: Any) -> Any:
    import tensorflow as tf

    number = HELD["count"].assign_add(x)
    return number, tf.random.uniform([])


def augments(x: Any, augment: bool, scale: float = 2.0) -> Any:
    import tensorflow as tf

    y = tf.cast(x, tf.float32) * scale
    if augment:
        y += tf.random.uniform([])
    return y, x


def wraps(x: Any) -> Any:
    return augments(x, augment=AUGMENT)


def wraps_behind_a_label(x: Any) -> Any:
    label = x * 3
    y, x = augments(x, AUGMENT)
    return y + 1.0, label


def around_a_wrapper(scale: float) -> Callable[[Any], Any]:
    def scaled(x: Any) -> Any:
        import tensorflow as tf

        y = tf.cast(x, tf.float32) * scale
        return y + tf.random.uniform([])

    def wraps_scaled(x: Any) -> Any:
        return scaled(x), x

    return wraps_scaled


class Loader:
    """Its method is the function of a map."""

    scale = 2.0

    def load(self, x: Any) -> Any:
        import tensorflow as tf

        y = tf.cast(x, tf.float32) * self.scale
        if self.scale > 1.0:
            y += tf.random.uniform([])
        return y, x


LOADER = Loader()


def with_names_of_halves() -> Loader:
    loader = Loader()
    vars(loader)["load_random"] = 3
    return loader


def unrolled(images: Any) -> Any:
    import tensorflow as tf

    images = tf.cast(images, tf.int32)
    return tf.stack([images[row] * tf.random.uniform([], maxval=9, dtype=tf.int32) for row in range(8)])


def test_a_loop_over_rows_that_is_unrolled_is_not_divided() -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.range(16).batch(8, drop_remainder=True).map(unrolled))
    of_map = function_of(splitting.with_splits(recipe)[-1])
    assert of_map.random
    assert (of_map.row_copies, of_map.fixed_statements, of_map.undivided) == (8, None, "")


HELD: dict[str, Any] = {}
"""What has a state."""


def found(function: Callable[[Any], Any]) -> UserFunction:
    import tensorflow as tf

    if not HELD:
        tokens = tf.range(8, dtype=tf.int64)
        HELD["generator"] = tf.random.Generator.from_seed(3)
        HELD["table"] = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tokens, tokens * 3), -1)
        HELD["count"] = tf.Variable(0, dtype=tf.int64)
    recipe = recipe_of(lambda: tf.data.Dataset.range(8).shuffle(8, seed=1).map(function))
    return function_of(splitting.with_splits(recipe)[-1])


@pytest.mark.parametrize(
    ("function", "statements"),
    [
        pytest.param(branches, 3, marks=pytest.mark.slow),
        pytest.param(from_a_dict, 3, marks=pytest.mark.slow),
        (name_of_an_inner_dict, 2),
        (pair_crosses, 2),
        (crops_by_a_tensor, 2),
        (Loader().load, 2),
    ],
)
def test_a_function_is_divided_right_before_it_draws(function: Callable[[Any], Any], statements: int) -> None:
    of_map = found(function)
    assert (of_map.fixed_statements, of_map.fixed_reads, of_map.undivided) == (statements, False, "")


@pytest.mark.parametrize(
    ("function", "within"),
    [
        (lambda x: wraps(x), "augments"),  # noqa: PLW0108 - it is looked at
        (wraps_behind_a_label, "augments"),
        pytest.param(around_a_wrapper(0.5), "scaled", marks=pytest.mark.slow),
    ],
)
def test_a_wrapper_is_divided_within_the_function_that_it_calls(
    function: Callable[[Any], Any], within: str, tmp_path: Path
) -> None:
    import tensorflow as tf

    of_map = found(function)
    assert (of_map.fixed_statements, of_map.fixed_within, of_map.undivided) == (2, within, "")
    recipe = recipe_of(lambda: tf.data.Dataset.range(6).shuffle(6, seed=1).map(function).batch(6))
    edits = (DivideMap(stage=2, after=0, statements=2, within=within), InsertAfter(stage=0, method="cache"))
    made = rebuild.rebuild(recipe, edits, tmp_path).dataset
    (drawn, x), (again, _) = (next(iter(made)) for _ in range(2))
    assert made.element_spec == recipe.dataset(recipe.sink).element_spec
    assert sorted(x.numpy()) in (list(range(6)), list(range(0, 18, 3)))
    assert drawn.numpy().tolist() != again.numpy().tolist()


def test_the_file_of_a_lambda_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    defined = map_functions.defined

    def counted(function: Any) -> map_functions.DefinedFunction | None:
        looked.append(function)
        return defined(function)

    monkeypatch.setattr(map_functions, "defined", counted)
    of_map = found(lambda x: augments(x, True))
    assert (of_map.fixed_statements, of_map.undivided) == (2, "")
    assert len(looked) == 1


def test_the_line_up_to_which_a_function_that_a_call_makes_draws_nothing_is_told() -> None:
    function = around(0.5)
    line = function.__code__.co_firstlineno + 3
    of_map = found(function)
    assert (of_map.fixed_statements, of_map.undivided) == (2, "")
    assert of_map.fixed_up_to == f"line {line} of test_splitting.py"


def test_what_a_lambda_hands_on_passes_both_parts_by(tmp_path: Path) -> None:
    import tensorflow as tf

    def made() -> Any:
        pairs = tf.data.Dataset.range(6).map(lambda x: (x, x * 3)).shuffle(6, seed=1)
        return pairs.map(lambda x, label: (augments(x, AUGMENT), label)).batch(6)

    recipe = recipe_of(made)
    of_map = function_of(splitting.with_splits(recipe)[3])
    assert (of_map.fixed_statements, of_map.undivided) == (2, "")
    edits = (DivideMap(stage=3, after=1, statements=2), InsertAfter(stage=1, method="cache"))
    rebuilt = rebuild.rebuild(recipe, edits, tmp_path)
    (cached,) = rebuilt.caches
    assert values(cached) == [(x, 2.0 * x, 3 * x) for x in range(6)], "two variables cross"
    ((drawn, x), label), ((again, _), _) = (next(iter(rebuilt.dataset)) for _ in range(2))
    assert rebuilt.dataset.element_spec == recipe.dataset(recipe.sink).element_spec
    assert (x.numpy() * 3).tolist() == label.numpy().tolist()
    assert drawn.numpy().tolist() != again.numpy().tolist()


def floats_of_bytes(x: Any) -> Any:
    import tensorflow as tf

    picture = tf.cast(tf.fill([4, 4], x), tf.uint8)
    picture = tf.image.flip_up_down(picture[..., tf.newaxis])
    scaled = tf.cast(picture, tf.float32) / 255.0
    return scaled + tf.random.uniform([])


def test_the_bytes_that_floats_are_made_of_are_a_smaller_first_part() -> None:
    of_map = found(floats_of_bytes)
    assert (of_map.fixed_statements, of_map.fixed_bytes) == (4, 64)
    assert of_map.fixed_smaller is not None
    assert (of_map.fixed_smaller.fixed_statements, of_map.fixed_smaller.fixed_bytes) == (3, 16)
    line = int(of_map.fixed_up_to.split()[1])
    assert of_map.fixed_smaller.fixed_up_to == f"line {line - 1} of test_splitting.py"


def test_a_first_part_that_hands_over_no_less_is_none() -> None:
    assert found(crops_by_a_tensor).fixed_smaller is None


def test_what_a_table_gives_is_kept_and_told_as_read() -> None:
    of_map = found(looks_up)
    assert (of_map.fixed_statements, of_map.fixed_bytes, of_map.fixed_reads) == (2, 8, True)


def jitter(image: Any) -> Any:
    import tensorflow as tf

    if tf.random.uniform([]) > 0.5:  # only AutoGraph takes this
        image = image + 1.0
    return image * float(np.random.uniform()) + tf.random.normal([])


def a_graph_of_its_own_draws(x: Any) -> Any:
    import tensorflow as tf

    image = tf.cast(x, tf.float32)
    image = jitter(image)
    return image, x


def test_a_tf_function_that_draws_is_traced_anew_for_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    in_a_graph = tf.function(jitter)
    monkeypatch.setitem(globals(), "jitter", in_a_graph)
    of_map = found(a_graph_of_its_own_draws)
    assert (of_map.fixed_statements, of_map.undivided) == (2, "")
    assert globals()["jitter"] is in_a_graph


def crops(x: Any) -> Any:
    import tensorflow as tf

    picture = tf.fill([20 + tf.cast(x, tf.int32) * 0, 10, 3], tf.cast(x, tf.float32))
    return tf.image.random_crop(picture, [2, 2, 3])


def test_what_the_fixed_part_hands_over_is_weighed_not_what_the_map_gives() -> None:
    of_map = found(crops)
    assert (of_map.fixed_statements, of_map.fixed_bytes) == (2, 20 * 10 * 3 * 4)


def test_inputs_in_another_order_in_each_pass_are_taken_once() -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.range(100).shuffle(100).map(abs).map(helper_draws))
    of_map = function_of(splitting.with_splits(recipe)[-1])
    assert (of_map.fixed_statements, of_map.undivided) == (3, "")


def test_a_map_behind_a_cache_is_divided_and_one_that_is_cached_is_not() -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.range(8).map(helper_draws).cache().map(lambda y, x: (y, x)))
    assert [stage.function.fixed_statements for stage in splitting.with_splits(recipe) if stage.function] == [None] * 2
    recipe = recipe_of(lambda: tf.data.Dataset.range(8).cache().shuffle(8, seed=1).map(helper_draws))
    (of_map,) = (stage.function for stage in splitting.with_splits(recipe) if stage.function)
    assert (of_map.fixed_statements, of_map.undivided) == (3, "")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (draws_first, "draws random numbers"),
        (number_crosses, "not all tensors"),
        (python_first, "its first line runs Python already"),
        (counts, "its first line changes a state already"),
        (own_generator, "a seed does not repeat"),
        (with_names_of_halves().load, "load_random, a name for one of its two parts, is taken"),
        (functools.partial(augments, augment=True), "no plain function"),
    ],
)
def test_what_is_not_proven_to_be_the_same_is_not_divided(function: Callable[[Any], Any], reason: str) -> None:
    of_map = found(function)
    assert of_map.fixed_statements is None
    assert re.search(reason, of_map.undivided), of_map.undivided


def test_a_dict_that_a_called_function_changes_and_the_caller_goes_on_with_is_not_divided() -> None:
    """Behind a map these are two dicts: what the second half draws into one of them was lost."""
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.range(8).map(lambda x: {"x": x}).shuffle(8).map(goes_on_with_its_dict))
    of_map = function_of(splitting.with_splits(recipe)[-1])
    assert of_map.fixed_statements is None


def test_a_function_of_a_name_for_a_half_stays_the_one_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "helper_draws_fixed", flip)
    assert "helper_draws_fixed, a name for one" in found(helper_draws).undivided


def test_a_function_that_is_no_longer_the_one_of_its_definition_is_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.setitem(globals(), "augments", lambda x, augment: (tf.random.uniform([]), x))
    assert found(wraps).fixed_statements is None


def test_the_first_half_runs_once_and_the_second_in_each_epoch(tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.range(6).shuffle(6, seed=1).map(helper_draws).batch(6))
    edits = (DivideMap(stage=2, after=0, statements=3), InsertAfter(stage=0, method="cache"))
    made = rebuild.rebuild(recipe, edits, tmp_path)
    (cached,) = made.caches
    assert [label for _, label in values(cached)] == [0, 2, 4, 6, 8, 10], "the cache is in front of the shuffle"
    first, second = (next(iter(made.dataset))[0].numpy() for _ in range(2))
    assert first.tolist() != second.tolist(), "each epoch draws anew"
    assert made.dataset.element_spec == recipe.dataset(recipe.sink).element_spec
    assert tf.executing_eagerly()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: augments(augment=AUGMENT, x=x),
        lambda x: LOADER.load(x),  # noqa: PLW0108 - it is looked at
    ],
)
def test_the_halves_get_what_is_the_same_for_all_elements(function: Callable[[Any], Any], tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.range(6).shuffle(6, seed=1).map(function).batch(6))
    edits = (DivideMap(stage=2, after=0, statements=2), InsertAfter(stage=0, method="cache"))
    made = rebuild.rebuild(recipe, edits, tmp_path)
    (cached,) = made.caches
    assert values(cached) == [(x, 2.0 * x) for x in range(6)]
    (drawn, x), (again, _) = (next(iter(made.dataset)) for _ in range(2))
    assert sorted(x.numpy()) == list(range(6))
    assert all(0.0 <= more < 1.0 for more in drawn.numpy() - 2.0 * x.numpy())
    assert drawn.numpy().tolist() != again.numpy().tolist()


def test_divisions_are_looked_at_as_long_as_there_is_time_with_a_sign_of_life_for_each() -> None:
    import tensorflow as tf

    recipe, signs = recipe_of(lambda: tf.data.Dataset.range(8).map(pair_crosses)), list[None]()
    (*_, late) = splitting.with_splits(recipe, -1.0, lambda: signs.append(None))
    assert function_of(late).undivided == "no time was left to trace its parts"
    assert signs
    (*_, in_time) = splitting.with_splits(recipe)
    assert function_of(in_time).fixed_statements
