"""Which loops over tf.data `pipeline-bench run` calls trainings, and which only read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tensorflow.programs import run

TRACED = """
import tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
weight = tf.Variable(1.0)
data = tf.data.Dataset.range(80).map(lambda number: tf.cast(number, tf.float32)).batch(2, drop_remainder=True)

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((weight * x) ** 2)
    weight.assign_sub(1e-6 * tape.gradient(loss, weight))

@tf.function
def twice(x):
    step(x)
    step(x)

@tf.function
def step_if(x, training):
    if training:
        step(x)
    return tf.reduce_sum((weight * x) ** 2)

def replica(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(x**2)
    return tape.gradient(loss, x)

@tf.function
def replicas(x):
    return strategy.run(replica, args=(x,))

for _ in range(3):
    step(tf.zeros([2]))  # is traced, and trains
for x in data:
    twice(x)  # trains
step_if(x, True)
compiled = step.get_concrete_function(tf.TensorSpec([2]))
for x in data:
    compiled(x)  # trains
for x in strategy.experimental_distribute_dataset(data):
    replicas(x)  # trains
for x in data:
    step_if(x, False)
"""


@pytest.mark.slow
def test_loops_train_whose_functions_were_traced_before_within_others_or_by_replicas(tmp_path: Path) -> None:
    done = run(tmp_path, TRACED)
    assert done.returncode == 0, done.stderr
    expected = {number for number, line in enumerate(TRACED.splitlines()) if line.endswith("(x)  # trains")}
    told = re.findall(r"loop of train\.py:(\d+): \d+ steps", done.stderr)
    assert set(map(int, told)) == expected, done.stderr
    (reads,) = re.findall(r"loop of train\.py:(\d+): .* nothing was seen to train on them", done.stderr)
    assert int(reads) == TRACED.count("\n") - 1
