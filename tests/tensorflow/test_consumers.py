"""What takes the elements: every element once, the model's own loss, the user's own errors."""

from __future__ import annotations

import functools
import itertools
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf  # noqa: TID253
import tf_keras

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.element import Element
from pipeline_bench.model.events import Copied, InGraph, KnownShapes
from pipeline_bench.model.job import Eager
from pipeline_bench.script import loop_step
from pipeline_bench.tfdata import dataset_graph, describe, iterators, passes, public_api, static_shapes, throughput
from pipeline_bench.user_code import legacy_keras
from pipeline_bench.worker import consumers, keras_step, model_ceiling


class Steps:
    """Keeps so many steps."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.start_ns: list[int] = []
        self.end_ns: list[int] = []
        self.wait_ns: list[int] = []
        self.loss: list[float] = []

    def __call__(self, start_ns: int, end_ns: int, wait_ns: int, loss: float) -> bool:
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.wait_ns.append(wait_ns)
        self.loss.append(loss)
        return len(self.loss) < self.most


def counting(seen: list[int], length: int) -> Any:
    def numbers() -> Any:
        for number in range(length):
            seen.append(number)
            yield number

    return tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.int32))


def test_a_drain_takes_as_many_elements_as_it_tells() -> None:
    seen: list[int] = []
    steps = Steps(400)
    consumers.drain(counting(seen, 100), steps)
    assert len(steps.loss) == 400
    assert 400 <= len(seen) <= 400 + 250, "windows and buffers hold some, and some were the warm-up's"
    assert all(math.isnan(loss) for loss in steps.loss)
    assert steps.wait_ns == [end - start for start, end in zip(steps.start_ns, steps.end_ns, strict=True)]


@pytest.mark.parametrize("length", [700, 10**6])
def test_a_fast_drain_has_steps_that_follow_one_another(length: int) -> None:
    steps = Steps(5000)
    consumers.drain(tf.data.Dataset.range(length), steps, warmup_s=0.01)
    assert len(steps.loss) == 5000
    assert all(before <= after for before, after in zip(steps.end_ns, steps.start_ns[1:], strict=False))


def test_fast_elements_of_which_a_part_is_nothing_are_drained() -> None:
    steps = Steps(500)
    consumers.drain(tf.data.Dataset.range(10**6).map(lambda value: (value, None)), steps, warmup_s=0.05)
    assert len(steps.loss) == 500


@pytest.mark.slow
def test_a_thousand_datasets_that_were_joined_one_by_one_are_found_upstream_first() -> None:
    whole = tf.data.Dataset.range(1).cache()
    caches = [whole]
    for _ in range(1100):
        whole = whole.concatenate(tf.data.Dataset.range(1))
    caches.append(whole.cache())
    assert [id(each) for each in dataset_graph.caches_in(caches[1].batch(2))] == [id(each) for each in caches]


def test_a_short_pass_is_counted_by_its_own_elements() -> None:
    passes = tf.Variable(0, dtype=tf.int64)

    def noted(value: Any) -> Any:
        return passes.assign_add(1) * 0 + value

    steps = Steps(200)
    consumers.drain(tf.data.Dataset.range(40).map(noted), steps)
    assert int(passes.numpy()) >= 200, "no element is counted that was not taken"


@pytest.mark.parametrize("trains", [False, True])
def test_a_pass_that_begins_anew_counts_where_a_whole_one_was_measured(
    trains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "_SHORT_PASS_NS", 0.0)
    begun: list[tuple[int, int]] = []

    def slow_to_begin() -> Any:
        start_ns = time.monotonic_ns()
        time.sleep(0.2)
        begun.append((start_ns, time.monotonic_ns()))
        yield from range(40)

    data = tf.data.Dataset.from_generator(slow_to_begin, output_signature=tf.TensorSpec((), tf.int32))
    data = data.map(lambda number: number, num_parallel_calls=None)
    for most, expected in ((35, 0), (100, 1)):
        steps = Steps(most)
        begun.clear()
        if trains:
            consumers.train(data, float, steps, warmup_s=0.01)
        else:
            consumers.drain(data, steps, warmup_s=0.01)
        spans = list(zip(steps.start_ns, steps.end_ns, strict=True))
        beginnings = sum(any(start <= since and until <= end for start, end in spans) for since, until in begun)
        assert beginnings in (expected, expected + (most > 40))
        assert len(begun) >= 1 + (most > 40)


@pytest.mark.parametrize(
    ("most", "known"),
    [
        (25, True),
        pytest.param(90, True, marks=pytest.mark.slow),
        pytest.param(25, False, marks=pytest.mark.slow),
        (90, False),
    ],
)
def test_what_short_passes_begin_with_counts_in_every_one(most: int, known: bool) -> None:
    def wait(number: Any) -> Any:
        time.sleep(0.01)
        return number

    def slow(number: Any) -> Any:
        return tf.py_function(wait, [number], tf.int64)

    shuffled = tf.data.Dataset.range(30).map(slow).filter(lambda number: known or number >= 0).shuffle(30)
    if known:
        shuffled = shuffled.apply(tf.data.experimental.assert_cardinality(30))
    steps = Steps(most)
    consumers.drain(shuffled, steps, warmup_s=0.01)
    took = [end - start for start, end in zip(steps.start_ns, steps.end_ns, strict=True)]
    assert len(took) == most
    assert min(took) > 9e6, "each has its part of filling the buffer, all of which comes before the first"


def test_a_dataset_without_elements_is_told() -> None:
    with pytest.raises(UserCodeError, match="gives no element"):
        consumers.drain(tf.data.Dataset.range(0), Steps(1))
    with pytest.raises(UserCodeError, match="gives no element"):
        consumers.train(tf.data.Dataset.range(0), lambda batch: 0.0, Steps(1))


def test_what_a_generator_raises_is_in_its_own_words() -> None:
    def broken() -> Any:
        yield 1
        raise KeyError("label 7 of the training set")

    dataset = tf.data.Dataset.from_generator(broken, output_signature=tf.TensorSpec((), tf.int32))
    with pytest.raises(UserCodeError, match="label 7 of the training set") as raised:
        consumers.drain(dataset, Steps(100))
    assert "in broken" in raised.value.traceback
    assert "site-packages" not in raised.value.traceback


def compiled(package: Any = keras, **options: Any) -> Any:
    model = package.Sequential([package.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(optimizer=package.optimizers.SGD(0.1), loss="mse", **options)
    return model


def pairs() -> Any:
    return tf.data.Dataset.from_tensors((np.ones((4, 1), np.float32), np.ones((4, 1), np.float32))).repeat()


@pytest.mark.parametrize("package", [keras, tf_keras])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"run_eagerly": True},
        {"steps_per_execution": 2},
        pytest.param({"jit_compile": True}, marks=pytest.mark.slow),
    ],
)
def test_a_keras_model_trains(package: Any, options: dict[str, Any]) -> None:
    model, steps = compiled(package, **options), Steps(30)
    consumers.train(pairs(), consumers.step_of(model), steps)
    assert float(model.weights[0].numpy().item()) == pytest.approx(1.0, abs=0.01)
    assert steps.loss[-1] < steps.loss[0]
    assert all(
        0 <= wait <= end - start for wait, start, end in zip(steps.wait_ns, steps.start_ns, steps.end_ns, strict=True)
    )


def test_a_distributed_model_of_keras_2_takes_one_batch_however_many_a_call_of_fit_takes() -> None:
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        model = compiled(tf_keras, steps_per_execution=4)
    consumers.train(pairs(), consumers.step_of(model), Steps(30))
    assert float(model.weights[0].numpy().item()) == pytest.approx(1.0, abs=0.01)
    assert (legacy_keras.steps_a_call(model), len(model.weights)) == (4, 1)


def test_what_makes_a_batch_of_its_tensors_is_no_part_of_a_step_where_fit_takes_them_in_a_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tensorflow.python.data.util import structure

    now_ns, made = iter(range(10**6)), structure.from_compatible_tensor_list

    def slowly(spec: Any, tensors: Any) -> Any:
        for _ in range(1000):
            next(now_ns)
        return made(spec, tensors)

    monkeypatch.setattr(consumers, "monotonic_ns", lambda: next(now_ns))
    monkeypatch.setattr(structure, "from_compatible_tensor_list", slowly)
    ragged = tf.ragged.constant([[[1, 2], [3]]])
    data = tf.data.Dataset.from_tensor_slices({"x": ragged, "y": [0.5]}).repeat()
    seen: list[Any] = []

    def step(batch: Any) -> float:
        seen.append((batch["x"].to_list(), float(batch["y"])))
        return 0.0

    steps = Steps(3)
    consumers.train(data, step, steps, spec=data.element_spec)
    assert seen[-1] == ([[1, 2], [3]], 0.5)
    assert all(end - start < 1000 for start, end in zip(steps.start_ns, steps.end_ns, strict=True))
    assert all(wait > 0 for wait in steps.wait_ns)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_sample_weights_are_the_third_of_a_tuple(package: Any) -> None:
    weightless = pairs().map(lambda x, y: (x, y, tf.zeros(4)))
    model = compiled(package)
    consumers.train(weightless, consumers.step_of(model), Steps(3))
    assert float(model.weights[0].numpy().item()) == 0.0


@pytest.mark.parametrize("package", [keras, tf_keras])
@pytest.mark.parametrize("parts", [0, 1, 2, 4])
@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}])
def test_a_train_step_of_the_users_own_is_given_what_the_dataset_gives(
    package: Any, parts: int, options: dict[str, Any]
) -> None:
    seen: list[Any] = []

    class Own(package.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            seen.append(data)
            x = data[0] if parts > 1 else data["x"] if parts == 0 else data
            return {"loss": tf.reduce_mean(self(x, training=True))}

    inputs = package.Input((4,))
    model = Own(inputs, package.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse", **options)
    elements = (tf.ones((8, 4)), tf.ones((8, 1)), tf.ones((8,)), tf.ones((8,)))[:parts]
    given = elements if parts > 1 else tf.ones((8, 4)) if parts else {"x": tf.ones((8, 4))}
    consumers.train(tf.data.Dataset.from_tensors(given).repeat(4), consumers.step_of(model), Steps(2))
    assert {len(data) if isinstance(data, tuple) else 0 if isinstance(data, dict) else 1 for data in seen} == {parts}


class Pair(NamedTuple):
    """A batch whose parts have names."""

    x: Any
    y: Any


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_a_train_step_of_the_users_own_is_given_a_named_tuple_as_it_is(package: Any) -> None:
    class Own(package.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            return {"loss": tf.reduce_mean(self(data.x, training=True)) * 0.0 + 3.0}

    inputs = package.Input((4,))
    model = Own(inputs, package.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse")
    assert consumers.step_of(model)(Pair(tf.ones((8, 4)), tf.ones((8, 1)))) == 3.0


@pytest.mark.parametrize(("package", "on_tensorflow"), [(keras, True), (keras, False), (tf_keras, True)])
def test_a_train_step_of_a_model_that_was_trained_before_is_given_what_the_dataset_gives(
    package: Any, on_tensorflow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = stepping(package, 1, lambda x: None)
    model.fit(pairs(), steps_per_epoch=1, shuffle=False, verbose=0)
    monkeypatch.setattr(keras_step, "is_on_tensorflow", lambda model: on_tensorflow)
    assert consumers.step_of(model)(next(iter(pairs()))) >= 0.0


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_autograph_converts_a_train_step_where_fit_has_it_converted(package: Any) -> None:
    seen: list[str] = []
    model = stepping(package, 1, lambda x: seen.append(tf.__internal__.autograph.control_status_ctx().status.name))
    model.fit(pairs(), steps_per_epoch=1, shuffle=False, verbose=0)
    by_fit = seen[-1]
    seen.clear()
    consumers.step_of(model)(next(iter(pairs())))
    assert set(seen) == {by_fit}


@pytest.mark.parametrize("on_tensorflow", [True, False])
@pytest.mark.parametrize("does", ["train", "test", "predict"])
def test_what_a_class_has_in_place_of_keras_methods_for_one_batch_is_no_part_of_a_step(
    does: Any, on_tensorflow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classes of KerasHub prepare the samples there; the batches that their `fit` takes are prepared already."""

    class Preparing(keras.Model):  # type: ignore[misc]
        def train_on_batch(self, *given: Any, **named: Any) -> Any:
            raise ValueError("prepared a second time")

        test_on_batch = predict_on_batch = train_on_batch

    monkeypatch.setattr(keras_step, "is_on_tensorflow", lambda model: on_tensorflow)
    inputs = keras.Input((1,))
    model = Preparing(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse")
    loss = consumers.step_of(model, does)(next(iter(pairs())))
    assert math.isnan(loss) is (does == "predict")


@pytest.mark.parametrize("on_tensorflow", [True, False])
@pytest.mark.parametrize("is_optional", [True, False])
def test_what_a_batch_lacks_is_none_for_a_train_step(
    is_optional: bool, on_tensorflow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a generator gives None, the dataset that Keras makes of it gives an Optional."""
    seen: list[Any] = []

    class Own(keras.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            x, y = data
            seen.append(y)
            return {"loss": tf.reduce_mean(self(x, training=True))}

    monkeypatch.setattr(keras_step, "is_on_tensorflow", lambda model: on_tensorflow)
    inputs = keras.Input((1,))
    model = Own(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse")
    lacking = tf.experimental.Optional.empty(None) if is_optional else None
    assert not math.isnan(consumers.step_of(model)((tf.ones((4, 1)), lacking)))
    assert set(seen) == {None}


@pytest.mark.parametrize("made", [tf.sparse.from_dense, tf.RaggedTensor.from_tensor])
def test_sparse_and_ragged_parts_of_a_batch_are_dense_for_jax_and_pytorch(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(keras_step, "is_on_tensorflow", lambda model: False)
    model = stepping(keras, 2, lambda x: seen.append(x.shape.as_list()))
    assert consumers.step_of(model)((made(tf.eye(2)), tf.ones((2, 1)))) >= 0.0
    assert seen[-1] == [2, 2]


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_a_model_is_traced_for_the_shapes_that_its_dataset_promises_as_fit_traces_it(package: Any) -> None:
    """A batch's own shapes would be known to TensorFlow, whose convolutions may then take a thirtieth of the time."""
    seen: list[Any] = []

    class Own(package.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            if public_api.is_symbolic(data[0]):
                seen.append(data[0].shape.as_list())
            return {"loss": tf.reduce_mean(self(data[0], training=True))}

    inputs = package.Input((4,))
    model = Own(inputs, package.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse")
    unknown = pairs().map(lambda x, y: (tf.tile(x, [tf.random.uniform([], 1, 2, tf.int32), 4]), y))
    model.fit(unknown, steps_per_epoch=2, shuffle=False, verbose=0)
    by_fit = seen[-1]
    spec = static_shapes.traceable_spec(unknown)
    seen.clear()
    consumers.train(unknown, consumers.step_of(model, spec=spec), Steps(2))
    assert seen[-1] == by_fit == [None, 4]


def test_what_is_no_tensor_is_traced_for_no_spec() -> None:
    assert static_shapes.traceable_spec(pairs()) == pairs().element_spec
    assert static_shapes.traceable_spec(tf.data.Dataset.range(4).window(2)) is None
    assert static_shapes.traceable_spec([1, 2]) is None


def test_the_ceiling_steps_on_one_batch_of_the_dataset() -> None:
    seen: list[int] = []
    batches: list[int] = []
    step = consumers.step_of(lambda batch: batches.append(int(batch)))
    found = list(model_ceiling.run(counting(seen, 50), step, Steps(20)))
    assert set(batches) == {0}
    assert len(batches) >= 20
    assert not found, "without a GPU nothing is copied"


@pytest.mark.parametrize(
    ("samples", "expected"),
    [(11, [4, 3, 4, 4, 3, 4, 4, 3]), (12, [4] * 8), (4 * 40 + 1, [4] * 8)],
    ids=["a smaller last one", "all of a size", "many in a pass"],
)
def test_the_last_batch_of_a_short_pass_takes_its_turn_in_the_ceiling(samples: int, expected: list[int]) -> None:
    """Of 3 batches of 64 and one of 8, the model alone took longer than the steps with a pipeline in front of it."""
    data = tf.data.Dataset.range(samples).map(lambda x: (x, x)).batch(4)
    sizes: list[int] = []
    step = consumers.step_of(lambda batch: sizes.append(len(batch[0])))
    assert not list(model_ceiling.run(data, step, Steps(6)))
    assert sizes[:8] == expected


def test_what_is_held_against_a_step_of_the_ceiling_is_one_on_its_whole_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held_ns: list[int] = []
    now_ns = 0

    def step(batch: Any) -> float:
        nonlocal now_ns
        now_ns += 20 * len(batch)
        return 0.0

    def shorter(batch: Any, step: Any, other: Any, shapes: Any, shortest_ns: int, alive: Any) -> list[Any]:
        held_ns.append(shortest_ns)
        return []

    monkeypatch.setattr(model_ceiling, "monotonic_ns", lambda: now_ns)
    monkeypatch.setattr(model_ceiling, "_shorter", shorter)
    assert not list(model_ceiling.run(tf.data.Dataset.range(5).batch(4), step, Steps(4)))
    assert held_ns == [20 * 4]


def test_a_later_batch_that_fails_leaves_the_ceiling_its_first_one() -> None:
    sizes: list[int] = []
    data = tf.data.Dataset.range(11).map(lambda x: 1 // (8 - x)).batch(4)
    assert not list(model_ceiling.run(data, consumers.step_of(lambda batch: sizes.append(len(batch))), Steps(3)))
    assert set(sizes) == {4}


def test_the_ceiling_steps_on_a_batch_with_parts_that_have_no_shape() -> None:
    data = tf.data.Dataset.range(4).map(lambda x: (x, None)).repeat()
    steps = Steps(3)
    assert not list(model_ceiling.run(data, consumers.step_of(lambda batch: batch[0]), steps))
    retracing = model_ceiling.Retracing(data.element_spec, lambda spec: lambda batch: 0.0)
    assert not list(model_ceiling.run(data, consumers.step_of(lambda batch: batch[0]), Steps(3), other=retracing))
    windows = tf.data.Dataset.range(8).window(2).repeat()
    assert not list(model_ceiling.run(windows, lambda batch: 0.0, Steps(3)))


@dataclass
class FakeGpu:
    """Steps by a clock of its own: on the batch that was put on it they are quicker than on one in host memory."""

    on_it: Any = None
    now_ns: int = 0
    host_ns: tuple[int, ...] = (7_000_000,)
    """What steps on a batch in host memory take, one after another; the last one from then on."""
    on_host: list[Any] = field(default_factory=list)
    dataset: Any = field(default_factory=lambda: tf.data.Dataset.from_tensors(tf.zeros((2, 5))).repeat())

    def put(self, batch: Any, device: str) -> Any:
        moved = tf.nest.map_structure(tf.identity, batch)
        if device != "/cpu:0":
            self.on_it = moved
        return moved

    def step(self, batch: Any) -> float:
        if batch is self.on_it:
            self.now_ns += 2_000_000
        else:
            self.now_ns += self.host_ns[min(len(self.on_host), len(self.host_ns) - 1)]
            self.on_host.append(batch)
        return 0.0

    def ran(self, monkeypatch: pytest.MonkeyPatch, device: str = "/gpu:7") -> list[Copied | KnownShapes | InGraph]:
        monkeypatch.setattr(model_ceiling, "_gpus", lambda: [device])
        monkeypatch.setattr(model_ceiling, "_on_device", self.put)
        monkeypatch.setattr(model_ceiling, "monotonic_ns", lambda: self.now_ns)
        return list(model_ceiling.run(self.dataset, self.step, Steps(5)))


def test_the_copy_is_what_a_step_takes_longer_on_a_batch_in_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    assert gpu.ran(monkeypatch) == [Copied(size_bytes=2 * 5 * 4, ms=5.0)]
    assert len({id(batch) for batch in gpu.on_host}) == len(gpu.on_host) > 3, "a tensor that was moved is moved once"
    slow_to_set_up = FakeGpu(host_ns=(5_000_000_000, 7_000_000))
    assert slow_to_set_up.ran(monkeypatch) == [Copied(size_bytes=2 * 5 * 4, ms=5.0)]


def test_batches_of_one_shape_are_copied_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tf.data.Dataset.range(21).batch(2).repeat()  # the last batch of a pass has one row
    gpu = FakeGpu(dataset=rows)
    gpu.ran(monkeypatch)
    assert {tuple(batch.numpy()) for batch in gpu.on_host} == {(row, row + 1) for row in range(0, 20, 2)}


def test_a_copy_that_cannot_be_told_or_that_the_pipeline_makes_has_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not FakeGpu(host_ns=(1_500_000_000,)).ran(monkeypatch), "beside such a step no copy shows"
    noise = tuple(2_000_000 + (-1) ** number * 900_000 for number in range(1000))
    assert not FakeGpu(host_ns=noise).ran(monkeypatch)
    assert not FakeGpu().ran(monkeypatch, device="/cpu:0"), "the pipeline copies its batches itself"


def test_a_batch_in_host_memory_for_which_there_is_no_room_costs_nothing_but_its_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(FakeGpu):
        def step(self, batch: Any) -> float:
            if batch is not self.on_it:
                raise UserCodeError("the GPU has no memory left", "")
            return super().step(batch)

    assert not Full().ran(monkeypatch)


def lost(*lengths: int, promised: Any = None) -> Any:
    """Batches of rows of these lengths, whose shape is not promised whole."""
    elements = itertools.cycle(lengths)
    spec = tf.TensorSpec(promised, tf.float32)
    rows = (np.ones((2, each), np.float32) for each in elements)
    return tf.data.Dataset.from_generator(lambda: rows, output_signature=spec)


@pytest.mark.parametrize(
    ("promised", "lengths", "known_ms", "tracing_s", "known"),
    [
        (None, (5,), 2.0, 1.0, (None, 5)),
        (None, (5, 7), 2.0, 1.0, (None, None)),  # that they have two axes is known
        ((None, None), (5, 7), 2.0, 1.0, None),
        (None, (5,), 8.0, 1.0, None),  # of a step of 9 ms
        (None, (5,), 2.0, 30.0, None),  # it would take much of the budget
    ],
)
def test_a_model_is_also_traced_for_the_shapes_that_all_batches_have(
    monkeypatch: pytest.MonkeyPatch,
    promised: Any,
    lengths: tuple[int, ...],
    known_ms: float,
    tracing_s: float,
    known: tuple[int | None, ...] | None,
) -> None:
    now_ns = 0

    def stepping(*ms: float) -> consumers.StepFunction:
        each_ms = itertools.chain(ms, itertools.repeat(ms[-1]))

        def step(batch: Any) -> float:
            nonlocal now_ns
            now_ns += int(next(each_ms) * 1e6)
            return 0.0

        return step

    def step_of(spec: Any) -> consumers.StepFunction:
        assert spec != batches.element_spec
        return stepping(1e3 * tracing_s, known_ms)

    monkeypatch.setattr(model_ceiling, "monotonic_ns", lambda: now_ns)
    batches = lost(*lengths, promised=promised)
    retracing = model_ceiling.Retracing(batches.element_spec, step_of)
    found = list(model_ceiling.run(batches, stepping(1e3 * tracing_s, 9.0), Steps(5), other=retracing))
    shaped = Element(kind="tensor", dtype="float32", shape=known)
    told = KnownShapes(element=shaped, batches=16, ms=known_ms, promised_ms=9.0)
    assert found == [told] * (known is not None)


class Clock:
    """Time that passes by steps and batches alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        monkeypatch.setattr(model_ceiling, "monotonic_ns", lambda: self.now_ns)

    def step(self, seconds: float) -> consumers.StepFunction:
        def step(batch: Any) -> float:
            self.now_ns += int(seconds * 1e9)
            return 0.0

        return step

    def takes(self, monkeypatch: pytest.MonkeyPatch, seconds: float, fails_at: int | None = None) -> Any:
        """Return a dataset whose batches take so long, one after another."""
        numbers = itertools.count()

        def take() -> Any:
            if next(numbers) == fails_at:
                raise ValueError("a record is broken")
            self.now_ns += int(seconds * 1e9)
            return tf.ones((2, 5))

        monkeypatch.setattr(passes, "batches", lambda dataset: take)
        return lost(5)


@pytest.mark.parametrize(("step_s", "known_s", "told"), [(3.6, 1.0, True), (3.6, 2.5, False), (12.0, 1.0, False)])
def test_of_long_steps_few_are_made_with_known_shapes_and_these_must_be_much_shorter(
    monkeypatch: pytest.MonkeyPatch, step_s: float, known_s: float, told: bool
) -> None:
    clock = Clock(monkeypatch)
    data = clock.takes(monkeypatch, 0.01)
    retracing = model_ceiling.Retracing(data.element_spec, lambda spec: clock.step(known_s))
    steps = Steps(2)
    found = list(model_ceiling.run(data, clock.step(step_s), steps, other=retracing))
    assert len(found) == told
    assert clock.now_ns <= 1e9 * (1 + 4 * step_s + 3 * known_s), "a long step is not made again"


@pytest.mark.parametrize(
    ("batch_s", "fails_at", "batches"), [(0.01, None, 16), (1.0, None, 2), (3.0, None, 0), (0.01, 4, 4), (0.01, 1, 0)]
)
def test_shapes_are_those_of_two_batches_or_more_as_far_as_they_come_fast_and_do_not_fail(
    monkeypatch: pytest.MonkeyPatch, batch_s: float, fails_at: int | None, batches: int
) -> None:
    clock, steps = Clock(monkeypatch), Steps(3)
    data = clock.takes(monkeypatch, batch_s, fails_at)
    retracing = model_ceiling.Retracing(data.element_spec, lambda spec: clock.step(0.001))
    found = list(model_ceiling.run(data, clock.step(0.01), steps, other=retracing))
    assert [each.batches for each in found if isinstance(each, KnownShapes)] == [batches] * (batches > 0)
    assert len(steps.loss) == 3, "the ceiling is measured all the same"


def test_a_long_step_of_eager_code_is_not_traced_which_may_take_far_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = Clock(monkeypatch), list[float]()

    def found(step_s: float) -> list[Any]:
        def step_of() -> consumers.StepFunction:
            made.append(step_s)
            return clock.step(step_s / 10)

        data, other = clock.takes(monkeypatch, 0.01), model_ceiling.EagerModel("model", step_of)
        return list(model_ceiling.run(data, clock.step(step_s), Steps(3), other=other))

    assert found(2.0) == []
    assert found(0.1) == [InGraph(eager="model", ms=10.0, eager_ms=100.0)]
    assert made == [0.1]


def test_a_model_that_fails_for_known_shapes_has_its_ceiling_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, steps = Clock(monkeypatch), Steps(3)
    data = clock.takes(monkeypatch, 0.01)

    def step_of(spec: Any) -> consumers.StepFunction:
        def fails(batch: Any) -> float:
            raise UserCodeError("no memory is left", "")

        return fails

    retracing = model_ceiling.Retracing(data.element_spec, step_of)
    assert not list(model_ceiling.run(data, clock.step(0.01), steps, other=retracing))
    assert len(steps.loss) == 3


def stepping(package: Any, width: int, sees: Callable[[Any], None], **compiled: Any) -> Any:
    """A compiled model of so many inputs, which shows the batches that its step is given."""

    class Own(package.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            x, y = data
            sees(x)
            return {"loss": tf.reduce_mean((self(x, training=True) - y) ** 2)}

    inputs = package.Input((width,))
    model = Own(inputs, package.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse", **compiled)
    return model


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_a_keras_model_is_traced_a_second_time_for_the_shapes_of_its_batches(
    package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(model_ceiling, "_SHORTER", 0.0)  # whatever these small steps take
    model = stepping(package, 4, lambda x: seen.extend([x.shape.as_list()] * public_api.is_symbolic(x)))
    unknown = pairs().map(lambda x, y: (tf.tile(x, [1, tf.random.uniform([], 4, 5, tf.int32)]), y))
    spec = static_shapes.traceable_spec(unknown)
    assert seen == []
    step_of = functools.partial(consumers.step_of, model, "train")
    (found,) = model_ceiling.run(unknown, step_of(spec), Steps(2), other=model_ceiling.Retracing(spec, step_of))
    assert isinstance(found, KnownShapes)
    assert [each.shape for each in found.element.tensors()] == [(4, 4), (4, 1)]
    assert [4, None] in seen
    assert seen[-1] == [4, 4]


@pytest.mark.parametrize("package", [keras, tf_keras])
@pytest.mark.parametrize("why", ["model", "functions", None])
def test_of_a_model_that_runs_as_eager_code_a_step_is_also_measured_as_a_graph(
    package: Any, why: Eager | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(model_ceiling, "_SHORTER", 0.0)  # whatever these small steps take
    model = stepping(package, 1, lambda x: seen.append(bool(public_api.is_symbolic(x))), run_eagerly=why == "model")
    tf.config.run_functions_eagerly(why == "functions")
    try:
        steps = Steps(3)
        other = model_ceiling.other_step(model, "train", None)
        found = list(model_ceiling.run(pairs(), consumers.step_of(model), steps, other=other))
        assert tf.config.functions_run_eagerly() is (why == "functions")
    finally:
        tf.config.run_functions_eagerly(False)
    assert len(steps.loss) == 3
    assert [(type(each), each.eager) for each in found if isinstance(each, InGraph)] == [(InGraph, why)] * bool(why)
    assert seen.count(True) == 1


@pytest.mark.parametrize(
    ("options", "does", "expected"),
    [
        ({}, "train", True),
        ({}, "test", True),
        ({}, "predict", False),  # Keras 3 hands it each batch as it is
        ({"run_eagerly": True}, "train", False),
    ],
)
def test_shapes_matter_to_what_is_traced_for_those_that_the_dataset_promises(
    options: dict[str, Any], does: Any, expected: bool
) -> None:
    assert consumers.is_traced(compiled(keras, **options), does) is expected
    assert consumers.is_traced(compiled(tf_keras), "predict")
    assert not consumers.is_traced(lambda batch: 0.0, does)


@pytest.mark.parametrize(
    ("promised", "shapes", "known"),
    [
        (None, [[2, 3], [2, 3]], [None, 3]),
        (None, [[2, 3], [1, 3]], [None, 3]),
        (None, [[2, 3], [2, 4]], [None, None]),
        (None, [[2, 3], [2]], None),
        ([None, None, 3], [[2, 5, 3]], [None, 5, 3]),
        ([4, None], [[4, 2], [4, 7]], [4, None]),
        ([], [[], []], []),
    ],
)
def test_sizes_that_a_spec_leaves_open_are_those_that_all_elements_have(
    promised: list[int | None] | None, shapes: list[list[int]], known: list[int | None] | None
) -> None:
    spec = {"x": tf.TensorSpec(promised, tf.float32), "text": tf.RaggedTensorSpec([None, None], tf.string)}
    elements = ({"x": tf.zeros(each), "text": tf.ragged.constant([["a"], []])} for each in shapes)
    found = static_shapes.known(spec, [*map(static_shapes.of_element, elements)])
    assert describe.shape(found["x"].shape) == (None if known is None else tuple(known))
    assert found["text"] == spec["text"]
    assert static_shapes.are_open(spec) == (promised is None or None in promised[1:])


def test_parts_of_a_batch_that_are_none_or_text_stay_as_they_are() -> None:
    given = {"x": tf.ones(3), "none": None, "text": tf.constant(["a"])}
    moved = model_ceiling._on_device(given, "/cpu:0")
    assert moved["none"] is None
    assert moved["text"] is given["text"]
    assert moved["x"] is not given["x"]
    assert model_ceiling._is_on(given, "/cpu:0")
    assert not model_ceiling._is_on({"none": None}, "/cpu:0")


def test_the_input_wait_is_that_of_the_input_alone() -> None:
    def model(batch: Any) -> Any:
        time.sleep(0.02)
        return tf.reduce_sum(batch[0])

    steps = Steps(5)
    consumers.train(pairs(), consumers.step_of(model), steps)
    assert all(
        end - start - wait >= 20e6 for start, end, wait in zip(steps.start_ns, steps.end_ns, steps.wait_ns, strict=True)
    )
    assert steps.loss == [4.0] * 5


def test_the_loss_is_the_first_single_number_that_a_step_returns() -> None:
    for returned in (3.0, (None, 3.0), (tf.ones([4, 2]), 3.0, 5.0), {"image": np.ones(4), "mean": 3.0}, {"loss": 3.0}):
        assert consumers.step_of(lambda batch, given=returned: given)(0) == 3.0
    assert math.isnan(consumers.step_of(lambda batch: None)(0))


def test_a_loops_step_that_runs_python_for_batches_of_another_shape_is_not_made() -> None:
    ran: list[Any] = []

    @tf.function  # type: ignore[untyped-decorator]
    def step(batch: Any) -> Any:
        if batch.shape[0] == 2:
            tf.py_function(ran.append, [batch], [])
        return tf.reduce_sum(batch)

    batch = tf.ones([4])
    made = consumers.step_of(loop_step.LoopStep(step, [batch], {}, batch))
    assert made(tf.ones([4])) == made(tf.ones([4])) == 4.0
    with pytest.raises(UserCodeError, match="step runs Python"):
        made(tf.ones([2]))
    assert not ran


def test_how_often_a_loops_step_is_traced_for_batches_of_other_shapes_is_counted_behind_the_first() -> None:
    step, batch = tf.function(tf.reduce_sum), tf.ones([4])
    made = loop_step.LoopStep(step, [batch], {}, batch)
    for length in (4, 4, 5, 6, 5):
        made(tf.ones([length]))
    assert made.traced_anew == 2
    assert made.traced_anew_s > 0
    relaxed = loop_step.LoopStep(tf.function(tf.reduce_sum, reduce_retracing=True), [batch], {}, batch)
    for length in (4, 5, 6, 7):
        relaxed(tf.ones([length]))
    assert relaxed.traced_anew == 1


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_a_model_that_was_not_compiled_is_told_what_to_do(package: Any) -> None:
    with pytest.raises(UserCodeError, match="not compiled") as raised:
        consumers.step_of(package.Sequential([package.layers.Dense(1)]))
    assert "compile" in raised.value.hint


def test_what_is_no_model_is_told() -> None:
    with pytest.raises(UserCodeError, match="returned int, which is no model"):
        consumers.step_of(5)


def test_a_wrong_shape_shows_the_users_own_frame() -> None:
    def step_on_images(batch: Any) -> Any:
        return tf.matmul(batch[0], tf.ones((7, 7)))

    with pytest.raises(UserCodeError, match="failed on a batch") as raised:
        consumers.train(pairs(), consumers.step_of(step_on_images), Steps(1))
    assert "step_on_images" in raised.value.traceback


@pytest.mark.parametrize(("warmup_s", "most", "kept"), [(0.0, 100, 6), (60.0, 100, 6), (0.0, 3, 3)])
def test_an_input_that_cannot_be_begun_anew_is_as_long_as_it_is(warmup_s: float, most: int, kept: int) -> None:
    left = iter(range(8))  # every pass goes on where the one before ended
    once = tf.data.Dataset.from_generator(lambda: left, output_signature=tf.TensorSpec((), tf.int32))
    steps = Steps(most)
    ended = consumers.train(once, float, steps, warmup_s)
    assert steps.loss == list(range(2, 2 + kept))
    assert ended == (8 if kept == 6 else None)


@pytest.mark.parametrize(("warmup_s", "most", "kept"), [(0.0, 1000, 10), (60.0, 1000, 100), (0.0, 3, 3)])
def test_a_drain_of_an_input_that_cannot_be_begun_anew_is_as_long_as_it_is(
    warmup_s: float, most: int, kept: int
) -> None:
    """Nothing trained on what had ended, and the whole diagnosis failed."""

    def numbers() -> Any:
        for number in range(100):
            time.sleep(0.005)
            yield number

    left = numbers()
    once = tf.data.Dataset.from_generator(lambda: left, output_signature=tf.TensorSpec((), tf.int32))
    steps = Steps(most)
    ended = consumers.drain(once, steps, warmup_s, may_end=True)
    assert ended == (100 if most == 1000 else None)
    assert kept <= len(steps.loss) <= min(most, 100)
    assert all(end > start for start, end in zip(steps.start_ns, steps.end_ns, strict=True))


def test_an_input_that_ends_while_what_a_queue_held_is_dropped_is_told() -> None:
    left = iter(range(8))
    once = tf.data.Dataset.from_generator(lambda: left, output_signature=tf.TensorSpec((), tf.int32))
    with pytest.raises(UserCodeError, match="in its first pass and none in the next") as raised:
        consumers.train(once, float, Steps(5), held=10)
    assert "Have it give more batches" in raised.value.hint


def test_only_what_is_no_model_is_refused_before_the_stages_are_measured() -> None:
    def fails() -> Any:
        raise UserCodeError("no room on the GPU")

    def uncompiled() -> Any:
        return keras.Sequential([keras.layers.Dense(1)])

    consumers.require_model(fails)
    consumers.require_model(compiled)
    for make, said in ((uncompiled, "was not compiled"), (list, "which is no model")):
        with pytest.raises(consumers.NoModelError, match=said):
            consumers.require_model(make)


def test_batches_that_a_queue_may_have_held_before_the_steps_are_dropped() -> None:
    steps = Steps(3)
    consumers.train(tf.data.Dataset.range(20), float, steps, held=10)
    assert steps.loss == [12, 13, 14]


def test_an_input_that_ends_before_a_step_was_measured_is_told() -> None:
    left = iter(range(2))
    once = tf.data.Dataset.from_generator(lambda: left, output_signature=tf.TensorSpec((), tf.int32))
    with pytest.raises(UserCodeError, match="in its first pass and none in the next"):
        consumers.train(once, float, Steps(5))


def test_an_element_that_never_comes_is_given_up() -> None:
    never = throughput.FlatIterator(tf.data.Dataset.range(5).repeat().filter(lambda value: value < 0))
    with throughput.Deadline(0.1) as deadline, pytest.raises(throughput.OutOfTimeError):
        never.take(deadline)


def test_a_generator_that_is_given_up_has_not_come_to_its_end() -> None:
    """One that is cancelled between two samples says that it has none left, in about one of sixty tries."""
    ended, deadline = tf.errors.OutOfRangeError(None, None, "End of sequence"), throughput.Deadline(1.0)
    assert isinstance(throughput.FlatIterator._explained(ended, deadline), StopIteration)
    deadline.passed = True
    assert isinstance(throughput.FlatIterator._explained(ended, deadline), throughput.OutOfTimeError)


def test_every_element_of_a_warm_up_is_a_sign_of_life() -> None:
    signs: list[str] = []
    dataset = tf.data.Dataset.range(9).repeat()
    consumers.drain(dataset, lambda *_: False, alive=lambda: signs.append("drained"))
    consumers.train(dataset, lambda _: 0.0, lambda *_: False, alive=lambda: signs.append("trained"))
    assert signs == ["drained"] * 2 + ["trained"] * 4, "before and after each of the first two steps"


def test_an_input_begins_anew_where_the_users_code_has_taken_the_import_system() -> None:
    path, modules = list(sys.path), dict(sys.modules)
    user_code.keep_imports()

    def taking(number: int) -> int:
        sys.path.clear()
        sys.modules.clear()
        return number

    steps = Steps(9)
    try:
        consumers.drain(
            tf.data.Dataset.range(2).map(lambda number: tf.numpy_function(taking, [number], tf.int64)), steps
        )
    finally:
        sys.path[:] = path
        sys.modules.update(modules)
    assert len(steps.loss) >= 9


def test_steps_have_their_times_where_the_users_code_replaces_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(3)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 0)
    consumers.drain(tf.data.Dataset.range(9), steps)
    assert 0 < steps.start_ns[0] <= steps.start_ns[-1]


def test_what_takes_long_to_end_ends_aside() -> None:
    may_end, ended = threading.Event(), threading.Event()

    class Held:
        def __del__(self) -> None:
            if may_end.wait(30):
                ended.set()

    held = [Held()]
    iterators.end_aside(held, 0.0)
    assert not held
    assert not ended.is_set(), "nobody waited for it"
    may_end.set()
    assert ended.wait(30)


@pytest.mark.parametrize("lasted_s", [0.0, 10.0])
@pytest.mark.parametrize("of", [passes.batches, passes.flat_elements])
def test_an_iterator_that_begins_anew_gives_the_same_elements(of: Any, lasted_s: float) -> None:
    take = of(tf.data.Dataset.range(3))
    first = [int(tf.nest.flatten(take())[0]) for _ in range(2)]
    iterators.restart(take._held.iterator, lasted_s)
    assert first + [int(tf.nest.flatten(take())[0]) for _ in range(3)] == [0, 1, 0, 1, 2]


def test_nothing_holds_the_iterator_of_a_long_pass_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterators, "_LONG_PASS_S", 0.0)
    holders: list[int] = []
    monkeypatch.setattr(iterators, "end_aside", lambda held, *_: holders.append(sys.getrefcount(held[0])))
    take = passes.batches(tf.data.Dataset.range(2))
    for _ in range(3):
        take()
    assert holders == [2], "the list, and the call that counts"


@pytest.mark.parametrize("of", [passes.batches, passes.flat_elements])
def test_nobody_waits_for_the_end_of_what_was_measured(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow may take as long for it as the pass took, here in a trial with 15 s for a pipeline that hangs."""
    holders: list[int] = []

    def end_aside(held: list[Any], *_: float) -> None:
        holders.append(sys.getrefcount(held[0]))

    monkeypatch.setattr(iterators, "end_aside", end_aside)
    take = of(tf.data.Dataset.range(9).repeat())
    take()
    del take
    assert holders == [2], "the list, and the call that counts"


REPLICAS = """
import keras, tensorflow as tf, tf_keras
from pipeline_bench.worker import consumers
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
batches = tf.data.Dataset.from_tensors((tf.ones([6, 1]), tf.ones([6, 1])))
for package in (keras, tf_keras):
    seen, loss = [], []
    class Own(package.Model):
        def train_step(self, data):
            seen.append((tf.distribute.get_replica_context().num_replicas_in_sync, data[0].shape[0]))
            return super().train_step(data)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        inputs = package.Input((1,))
        model = Own(inputs, package.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(inputs))
        model.compile(package.optimizers.SGD(0.1), "mse")
    consumers.train(batches.repeat(), consumers.step_of(model), lambda *step: loss.append(step[3]) or len(loss) < 30)
    print(seen[-1], loss[-1] < loss[0], round(float(model.weights[0].numpy().item()), 2))
"""


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_model_of_a_strategy_with_one_replica_steps_within_that(package: str) -> None:
    """Its metrics take a value within a replica only."""
    made = pytest.importorskip(package)
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        model = made.Sequential([made.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(made.optimizers.SGD(0.1), "mse", metrics=["mae"])
    batches = tf.data.Dataset.from_tensors((tf.ones([6, 1]), tf.ones([6, 1]))).repeat()
    steps = Steps(9)
    consumers.train(batches, consumers.step_of(model), steps)
    assert steps.loss[-1] < steps.loss[0]


@pytest.mark.slow
def test_a_model_on_several_devices_steps_on_each_of_them() -> None:
    done = subprocess.run([sys.executable, "-c", REPLICAS], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(2, 3) True 1.0\n" * 2
