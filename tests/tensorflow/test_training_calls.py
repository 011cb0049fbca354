"""`pipeline-bench run` on loops that hand their batches to what trains: `train_on_batch`, a function, eager code."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf  # noqa: TID253

from pipeline_bench.injection.functions import Call, Functions
from tests.tensorflow.programs import line_of, run, run_plain

SCRIPT = """
import sys, time
import numpy as np, keras, tensorflow as tf
keras.utils.set_random_seed(3)

def batches(count):
    for number in range(count):
        time.sleep(0.01)
        yield np.ones([2, 4], np.float32) * number / 60, np.zeros([2, 1], np.float32)

model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for epoch in range(2):
    for x, y in batches(30):
        got = model.train_on_batch(augment(x) if epoch > 9 else x, y)  # on a batch
    for x, y in batches(9):
        model.test_on_batch(x, y)
    model.evaluate(x, y, verbose=0)
print(got)

optimizer = keras.optimizers.SGD()

@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss

@tf.function
def augment(x):
    return x * 2.0

@tf.function
def validate(x, y):
    return tf.reduce_mean((model(x) - y) ** 2)

for epoch in range(2):
    for x, y in batches(30):
        got = step(augment(x), y)  # by a function
    for x, y in batches(30):
        validate(x, y)
print(float(got))

@tf.function
def gradient_penalty(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        given = model(x)
    return tf.reduce_sum(tape.gradient(given, x) ** 2)

weight = tf.Variable([[1.0]] * 4)
for epoch in range(2):
    for x, y in batches(30):
        with tf.GradientTape() as tape:  # in eager code
            with tf.GradientTape() as inner:
                inner.watch(x := tf.constant(x))
                loss = tf.reduce_mean((model(x) @ tf.transpose(weight) - y) ** 2)
            penalty = tf.reduce_sum(inner.gradient(loss, x) ** 2)
            loss += penalty + gradient_penalty(x)  # a part of the step, though it takes a gradient itself
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
    for x, y in batches(30):
        model(x)
print(float(loss))

if "dataset" in sys.argv:
    for x in tf.data.Dataset.range(40).map(lambda x: tf.ones([2, 4])):
        step(x, y)  # of a dataset
"""

OF_CALLS = ("# on a batch", "# by a function", "# in eager code")


@pytest.mark.slow
def test_a_loop_that_hands_over_its_batches_is_measured_and_trains_as_without(tmp_path: Path) -> None:
    watched, plain = run(tmp_path, SCRIPT, "dataset"), run_plain(tmp_path)
    assert (watched.returncode, plain.returncode) == (0, 0), watched.stderr
    assert watched.stdout == plain.stdout
    told = watched.stderr
    found = dict(re.findall(r"loop of train\.py:(\d+): (\d+) steps", told))
    assert set(found) == {str(line_of(SCRIPT, each)) for each in (*OF_CALLS, "in tf.data.")}, told
    assert 50 <= int(found[str(line_of(SCRIPT, "# on a batch"))]) <= 60
    assert 50 <= int(found[str(line_of(SCRIPT, "# in eager code"))]) <= 60
    for name in ("calls of train_on_batch", "calls of the tf.function that trains", "steps, from the end of one to"):
        assert f"input wait is the time between two {name}" in told
    for comment in OF_CALLS:
        wait_ms = re.search(rf"train\.py:{line_of(SCRIPT, comment)}: .*?input wait ([\d.]+) ms", told)
        assert wait_ms is not None, told
        assert float(wait_ms[1]) > 9.8, told  # what so long a sleep takes at the least, however long the step is


def double(x: Any) -> Any:
    return 2 * x


class Doubling:
    def double(self, x: Any) -> Any:
        return 2 * x

    traced = tf.function(double, reduce_retracing=False)


@pytest.mark.parametrize("function", [tf.function(double), Doubling().traced])
def test_of_a_function_that_is_traced_for_each_shape_it_is_known_where_it_is_written(function: Any) -> None:
    functions = Functions(threading.local())
    for length in (1, 2, 3, 3):
        with functions.inside(Call.of(function, (tf.zeros([length]),), {})):
            function(tf.zeros([length]))
    (found,) = functions.traced_anew()
    assert (found["function"], found["calls"]) == ("double", 2)
    file, _, line = found["line"].partition(":")
    assert file == Path(__file__).name
    assert "def double(" in Path(__file__).read_text().splitlines()[int(line) - 1]
