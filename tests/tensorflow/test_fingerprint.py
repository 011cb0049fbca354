"""Fingerprints: what must not change a digest, and what must."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf  # noqa: TID253

from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.fingerprint import ElementComponent, Fingerprint
from pipeline_bench.model.pipeline import Stage
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.tfdata import describe, fingerprint

Make = Callable[[int], Any]
PADDED = (Stage(id=1, method="padded_batch", inputs=(0,), arguments={"batch_size": 4, "drop_remainder": True}),)


def of(make: Make, *stages: Stage) -> Fingerprint:
    return fingerprint.of(make, stages, limit_s=10)


def features(value: Any) -> Any:
    return {"x": tf.cast(value, tf.float32) * tf.ones(3), "name": tf.strings.as_string(value)}


def numbers(count: int = 12) -> Any:
    return tf.data.Dataset.range(count)


def in_batches(dataset: Any, size: int) -> Make:
    return lambda _: dataset.batch(size)


def digests(found: Fingerprint, ordered: bool = True) -> list[str]:
    return [component.ordered if ordered else component.unordered for component in found.components]


def test_the_same_samples_in_other_batches_are_the_same() -> None:
    one, other = (of(in_batches(numbers().map(features), size)) for size in (4, 5))
    assert digests(one) == digests(other)
    assert (one.samples, one.elements, one.batch_sizes) == (12, 3, (4,))
    assert other.batch_sizes == (2, 5)
    assert one.complete


def test_another_order_shows_in_the_ordered_digest_only() -> None:
    one = of(lambda _: numbers().map(features).batch(4))
    other = of(lambda _: numbers().shuffle(12, seed=3).map(features).batch(4))
    assert digests(one, ordered=False) == digests(other, ordered=False)
    assert digests(one) != digests(other)


@pytest.mark.parametrize(
    "changed",
    [
        lambda value: {**features(value), "x": tf.cast(value, tf.float32) * tf.ones(3) + 1e-3},
        lambda value: {**features(value), "x": tf.ones(3) * 5.0},
    ],
)
def test_other_values_are_other_samples(changed: Callable[[Any], Any]) -> None:
    one, other = of(lambda _: numbers().map(features)), of(lambda _: numbers().map(changed))
    by_name = {component.name: component for component in one.components}
    for component in other.components:
        assert (component.unordered == by_name[component.name].unordered) == (component.name == "name")


def test_a_sample_that_is_missing_shows() -> None:
    one, other = of(lambda _: numbers(12).batch(4)), of(lambda _: numbers(11).batch(4))
    assert digests(one, ordered=False) != digests(other, ordered=False)


def test_a_random_component_is_found_and_the_others_are_not() -> None:
    def make(seed: int) -> Any:
        tf.random.set_seed(seed)
        return numbers().map(lambda value: (value, tf.random.uniform(()))).batch(4)

    assert [component.random for component in of(make).components] == [False, True]


def test_ragged_rows_are_the_same_whether_they_happen_to_be_even_or_not() -> None:
    rows = numbers().map(lambda value: tf.range(value % 3))
    one, other = of(lambda _: rows.ragged_batch(1)), of(lambda _: rows.ragged_batch(6))
    assert digests(one) == digests(other)
    assert len(set(one.components[0].sample_hashes)) == 3


def test_sparse_rows() -> None:
    rows = tf.sparse.from_dense([[0.0, 1.0], [2.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    one, other = (of(in_batches(tf.data.Dataset.from_tensor_slices(rows), size)) for size in (2, 4))
    assert digests(one) == digests(other)
    assert len(set(one.components[0].sample_hashes)) == 3


def test_padding_is_not_part_of_a_sample() -> None:
    rows = numbers().map(lambda value: tf.range(value % 4 + 1))
    one, other = (of(lambda _: rows.padded_batch(2), *PADDED), of(lambda _: rows.padded_batch(4), *PADDED))
    assert digests(one) == digests(other)
    assert one.remainder_dropped == 4


@pytest.mark.parametrize(
    "values",
    [
        (tf.constant(0, tf.int64), tf.constant(-1, tf.int64)),
        {"ids": tf.constant(0, tf.int64), "labels": tf.constant(-1, tf.int64)},
    ],
)
def test_each_component_may_have_a_padding_of_its_own(values: Any) -> None:
    """Labels that are filled up with -1 kept that, and a change of the order was taken for other samples."""

    def rows(value: Any) -> Any:
        ids = tf.range(value % 4 + 1)
        return {"ids": ids, "labels": -ids} if isinstance(values, dict) else (ids, -ids)

    arguments = describe.arguments({"batch_size": 2, "padding_values": values})
    padded = Stage(id=1, method="padded_batch", inputs=(0,), arguments=arguments)

    def batches(size: int) -> Make:
        return lambda _: numbers().map(rows).padded_batch(size, padding_values=values)

    one, other = (of(batches(size), padded) for size in (2, 4))
    assert digests(one) == digests(other)


def test_samples_are_not_random_because_the_second_pass_was_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(s=0.0, passes=0)

    def make(seed: int) -> Any:
        clock.passes += 1
        return numbers(48)

    def monotonic() -> float:
        clock.s += 0.020 if clock.passes == 1 else 0.022
        return float(clock.s)

    monkeypatch.setattr(fingerprint, "time", SimpleNamespace(monotonic=monotonic))
    found = fingerprint.of(make, (), limit_s=2.0)
    assert (found.complete, found.samples) == (True, 48)
    assert [component.random for component in found.components] == [False]


def test_an_endless_pipeline_is_cut_off_and_says_so() -> None:
    found = of(lambda _: numbers().repeat().batch(1000))
    assert not found.complete
    assert found.samples >= fingerprint.MOST_SAMPLES
    assert not found.components[0].random


def test_strings_and_moments() -> None:
    component = of(lambda _: numbers(4).batch(2)).components[0]
    assert [component.mean, component.std] == pytest.approx([1.5, 1.118], abs=1e-3)
    assert (component.dtype, component.shape, component.name) == ("int64", "[]", "")
    texts = of(lambda _: numbers(4).map(tf.strings.as_string)).components[0]
    assert (texts.dtype, texts.mean) == ("string", None)


def test_what_the_pipeline_raises_is_the_users() -> None:
    def broken(value: Any) -> Any:
        raise ValueError("no such label")

    with pytest.raises(UserCodeError, match="no such label"):
        of(lambda _: numbers().map(lambda value: tf.py_function(broken, [value], tf.int64)))


def stateful(python: bool) -> Stage:
    return Stage(id=1, method="map", inputs=(0,), function=UserFunction(name="f", python=python, stateful=python))


def test_state_that_goes_on_is_told_from_random_ops_that_a_seed_repeats() -> None:
    counter = tf.Variable(0.0)

    def goes_on(seed: int) -> Any:
        return numbers().map(lambda x: tf.cast(x, tf.float32) + counter.assign_add(1.0)).batch(4)

    def drawn(seed: int) -> Any:
        tf.random.set_seed(seed)
        return numbers().map(lambda x: tf.cast(x, tf.float32) + tf.random.uniform([])).batch(4)

    def eager(x: Any) -> Any:
        return tf.cast(x, tf.float32) + tf.random.uniform([])

    def drawn_in_python(seed: int) -> Any:
        """Its numbers follow TensorFlow's seed as well, and a cache would keep them."""
        tf.random.set_seed(seed)
        return numbers().map(lambda x: x + 1).map(lambda x: tf.py_function(eager, [x], tf.float32)).batch(4)

    makes = (goes_on, drawn, drawn_in_python, in_batches(numbers(), 4))
    found = [of(make, stateful(True)).components[0] for make in makes]
    assert [each.random for each in found] == [True, True, True, False]
    assert [each.kept_state for each in found] == [True, False, True, False]


def test_a_sketch_tells_rounding_from_a_single_other_value() -> None:
    written = np.random.default_rng(1).random((200, 1000)).astype(np.float32)
    rounded = written * np.float32(1 + 2**-23)
    another = written.copy()
    another[170, 3] += 0.01
    moved = written[[1, 0, *range(2, 200)]]

    def sketched(values: Any) -> ElementComponent:
        return of(lambda _: tf.data.Dataset.from_tensor_slices(values).batch(50)).components[0]

    def farthest(values: Any) -> float:
        one, two = sketched(written), sketched(values)
        assert one.ordered != two.ordered
        figures = zip(one.projections, two.projections, one.norms, strict=True)
        return max(abs(left - right) / norm for left, right, norm in figures)

    assert farthest(rounded) < 1e-6
    assert min(map(farthest, (another, moved, written[[128, *range(1, 128), 0, *range(129, 200)]]))) > 1e-4


def test_the_end_of_a_pass_is_not_waited_for() -> None:
    """TensorFlow's own takes a minute now and then."""
    may_end, ended = threading.Event(), threading.Event()

    class Pass:
        def __init__(self) -> None:
            self.left = [tf.constant([1, 2])]

        def __iter__(self) -> Pass:
            return self

        def __next__(self) -> Any:
            if not self.left:
                raise StopIteration
            return self.left.pop()

        def __del__(self) -> None:
            if may_end.wait(30):
                ended.set()

    class Dataset:
        def __iter__(self) -> Pass:
            return Pass()

    found = fingerprint._pass_over(Dataset(), None, 5.0, 10, lambda: None)
    assert found.samples == 2
    assert not ended.is_set()
    may_end.set()
    assert ended.wait(30)
