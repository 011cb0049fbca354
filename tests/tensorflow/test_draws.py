"""Whether a pipeline's Python gives the same each time: by calls for one element, and by passes of a generator."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf  # noqa: TID253

from pipeline_bench.inspection import pipeline_stages
from pipeline_bench.model.pipeline import Inspection
from tests.tensorflow.recorded import recipe_of
from tests.unit.diagnosis.simulated import cost, inspection

calls = [0]
own = random.Random(3)
numbers = np.random.default_rng(3)


def counted(x: Any) -> Any:
    calls[0] += 1
    return x * (calls[0] % 2)


def told(make: Callable[[], Any], folder: Path, each_ms: float = 0.1, seconds: float = 2.0) -> Inspection:
    recipe = recipe_of(make)
    costs = tuple(cost(stage.id, each_ms) for stage in recipe.stages)
    signs: list[int] = []
    found = pipeline_stages.with_draws(
        recipe, inspection(recipe.stages, costs), folder, seconds, lambda: signs.append(1)
    )
    assert signs or all(each.function is None or each.function.draws_in_python is None for each in found.stages)
    return found


def of_last(found: Inspection) -> bool | None:
    function = found.stages[-1].function
    assert function is not None
    return function.draws_in_python


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (lambda x: x, False),
        (lambda x: x * np.float32(random.random()), True),
        (lambda x: x * np.float32(numbers.random()), True),
        (counted, True),
        (lambda x: x + np.float32(random.random() > 2.0), None),  # it draws, which does not show
        (lambda x: x + np.float32(own.random() > 2.0), False),  # nor that it does so
    ],
    ids=["nothing", "Python", "NumPy", "a state", "seldom", "seldom, by a generator of its own"],
)
@pytest.mark.parametrize("parallel", [None, 4])
def test_what_a_map_gives_for_one_element_is_told_from_a_shuffle_in_front_of_it(
    of: Callable[[Any], Any], expected: bool | None, parallel: int | None, tmp_path: Path
) -> None:
    def make() -> Any:
        dataset = tf.data.Dataset.range(1, 41).map(lambda n: tf.cast(n, tf.float32)).shuffle(40)
        return dataset.map(lambda n: tf.numpy_function(of, [n], tf.float32), num_parallel_calls=parallel)

    found = told(make, tmp_path)
    assert of_last(found) is expected
    assert found.stages[-1].draws is (expected is True)


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize(
    ("mixes", "expected"),
    [
        (lambda rows: None, False),
        (random.shuffle, None),
        (own.shuffle, None),
        (lambda rows: rows.append(random.randrange(10**6) + len(rows)), True),
    ],
)
def test_a_generator_is_known_to_give_the_same_or_others_or_not_known_to_beside_another_order(
    mixes: Callable[[list[int]], None], expected: bool | None, ahead: bool, tmp_path: Path
) -> None:
    """Many shuffle at the end of a pass."""
    order = list(range(40))

    def rows() -> Any:
        if ahead:
            mixes(order)
        yield from order
        if not ahead:
            mixes(order)

    def make() -> Any:
        return tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int64))

    assert of_last(told(make, tmp_path)) is expected


def test_of_a_generator_without_an_end_it_is_not_known_what_comes_in_another_pass(tmp_path: Path) -> None:
    def rows() -> Any:
        while True:
            yield 1

    def make() -> Any:
        return tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int64))

    assert of_last(told(make, tmp_path, seconds=0.3)) is None


def test_what_fails_or_takes_long_is_not_known(tmp_path: Path) -> None:
    def fails(x: Any) -> Any:
        raise ValueError("no such file")

    def make() -> Any:
        return tf.data.Dataset.range(4).map(lambda n: tf.numpy_function(fails, [n], tf.int64))

    assert of_last(told(make, tmp_path)) is None

    def slow() -> Any:
        return tf.data.Dataset.range(4).map(lambda n: tf.numpy_function(lambda x: x, [n], tf.int64))

    assert of_last(told(slow, tmp_path, each_ms=200.0)) is None
    assert of_last(told(slow, tmp_path, each_ms=100.0)) is False


def test_ops_of_the_graph_are_not_asked(tmp_path: Path) -> None:
    assert of_last(told(lambda: tf.data.Dataset.range(4).map(lambda n: n + 1), tmp_path)) is None
