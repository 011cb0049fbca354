"""`pipeline-bench run` on scripts as their users wrote them."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from pipeline_bench.model.session import load
from tests.tensorflow.programs import line_of, run, run_command, run_plain

SCRIPT = """
import multiprocessing, os, signal, subprocess, sys, time
import numpy as np, keras, tensorflow as tf

def batches(count):
    def slow(number):
        time.sleep(0.01)
        return np.float32(number)
    def batch(number):
        value = tf.ensure_shape(tf.numpy_function(slow, [number], tf.float32), [])
        return tf.fill([4, 3], value), tf.zeros([4, 1])
    return tf.data.Dataset.range(count).map(batch)

def train(epochs, data=None):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(data or batches(40), epochs=epochs, verbose=0, validation_data=batches(3))

def work():
    import as_without
    train(1)

def hanging():  # batches after which TensorFlow waits for ever; 2 s later comes a TERM
    queue = tf.queue.FIFOQueue(1, [tf.float32], [[]])
    def hang(number):
        kill = [sys.executable, "-c", f"import time, os; time.sleep(2); os.kill({os.getpid()}, {signal.SIGTERM})"]
        subprocess.Popen(kill)
        return number
    def last(number):
        value = tf.ensure_shape(tf.numpy_function(hang, [tf.cast(number, tf.float32)], tf.float32), [])
        with tf.control_dependencies([value]):
            return tf.fill([4, 3], queue.dequeue()), tf.zeros([4, 1])
    return batches(40).concatenate(tf.data.Dataset.range(1).map(last))

if __name__ == "__main__":
    next(iter(batches(1)))
    for look in batches(2).take(1): pass
    for look in batches(2).take(1): pass
    for look in batches(2).take(1): pass
    if "loop" in sys.argv:
        for epoch in range(2):
            for x, y in batches(40) if epoch else batches(40).as_numpy_iterator():
                x + y
    if "fit" in sys.argv:
        train(2)
    if "worker" in sys.argv:
        worker = multiprocessing.get_context("spawn").Process(target=work)
        worker.start()
        worker.join()
        assert worker.exitcode == 0
    if "term" in sys.argv:
        train(1, hanging())
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder of a program that trains in several ways, and what it left when a signal had ended it."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "as_without.py").write_text(AS_WITHOUT)
    return folder, run(folder, SCRIPT, "loop", "fit", "worker", "term")


def test_a_fit_a_loop_and_a_spawned_worker_are_measured_without_an_edit_until_a_signal_ends_them(
    ended: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = ended
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("pipeline-bench: ")]
    assert any("was killed" in line for line in told)  # in the middle of a call in C
    (where,) = [line for line in told if "went: start-up and imports" in line and "between epochs" in line]
    for part in ("first step", "input wait", "compute and host", "validation"):
        assert part in where
    loop = line_of(SCRIPT, "as_numpy_iterator")
    whole = [line for line in told if not line.startswith("pipeline-bench:   ") and "was killed" not in line]
    names = sorted(line.split(": ")[1].partition(", process")[0] for line in whole)
    fits = [f"fit {number} of train.py" for number in (1, 1, 2, 3)]
    loops = [f"loop of as_without.py:{line_of(AS_WITHOUT, '# the loop')}", f"loop of train.py:{loop}"]
    assert names == ["between the calls of fit", *fits, *loops, "next", "not watched", "whole command"]
    steps = re.findall(r"pipeline-bench: fit (\d) of train\.py, process \d+: (\d+) steps", done.stderr)
    assert sorted(steps) == [("1", "10"), ("1", "72"), ("2", "36"), ("3", "36")]  # the first and the last: a worker's
    assert sum("input-bound" in line and "not input-bound" not in line for line in told) == 4  # how severe, is a load's
    assert done.stderr.count("nothing was seen to train on them") == 1  # the loop's
    assert told[-1].endswith("pipeline-bench diagnose train.py --training 1 -- loop fit worker term")  # not the loop
    waits = sorted(load(each).results[0].input_wait_share.value or 0.0 for each in (folder / "reports").iterdir())
    assert len(waits) == 6
    assert waits[1] > 0.2, "all but the fit of arrays"


GRAPH = """
import time
import numpy as np, tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def batches(delay_s):
    def slow(number):
        time.sleep(delay_s)
        return np.float32(number)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    def batch(number):
        for other in tf.data.Dataset.range(2):  # a pipeline's own loop is no training
            number += other
        return tf.fill([4], tf.ensure_shape(tf.numpy_function(slow, [number], tf.float32), []))
    return tf.data.Dataset.range(20).map(batch).with_options(options)

@tf.function
def epoch(data):
    total = tf.constant(0.0)
    for batch in data:
        total += tf.reduce_sum(batch)
    return total

@tf.function
def distributed(data):
    total = tf.constant(0.0)
    for batch in data:
        total += strategy.reduce("SUM", strategy.run(tf.reduce_sum, args=(batch,)), axis=None)
    return total

@tf.function
def both(data):
    total = tf.constant(0.0)
    iterator = iter(data)
    for _ in tf.range(10):
        total += tf.reduce_sum(next(iterator))
    return total

for _ in range(2):
    a = epoch(batches(0.02))
    b = distributed(strategy.experimental_distribute_dataset(batches(0.02)))
    c = both(batches(0.02))
for batch in strategy.experimental_distribute_dataset(batches(0.02)):
    strategy.run(tf.reduce_sum, args=(batch,))
module = tf.Module()
module.epoch = epoch
tf.saved_model.save(module, "saved")  # which refuses a function that captures what its module does not hold
print(float(a), float(b), float(c))
"""


@pytest.mark.slow
def test_loops_that_a_function_is_traced_with_are_measured_once_each_and_compute_the_same(tmp_path: Path) -> None:
    done = run(tmp_path, GRAPH)
    # 4 × (number + 1) for each batch; 20 batches of an epoch, 10 of `both`.
    assert (done.returncode, done.stdout) == (0, "840.0 840.0 220.0\n"), done.stderr
    trials = [session.trials[0] for session in map(load, (tmp_path / "reports").iterdir())]
    counts = [0 if trial.steps is None else trial.steps.count for trial in trials]
    # A step that nothing follows has no end: of two passes two, of a pass that the loop saw the end of none.
    assert sorted(counts) == [18, 20, 38, 40]
    for text in ("in data:", "= iter(data)", "for batch in strategy"):
        assert f"loop of train.py:{line_of(GRAPH, text)}: " in done.stderr
    (epoch,) = (trial.steps for trial, count in zip(trials, counts, strict=True) if count == 38 and trial.steps)
    assert epoch.wait_ns is not None
    assert epoch.wait_ns.unpack().mean() > 0.9 * 20e6  # what so long a sleep takes at the least


LOOKS = """
import numpy as np, tensorflow as tf
samples = iter(tf.data.Dataset.range(99))

def batches():
    for number in tf.data.Dataset.range(40):  # makes batches
        yield float(number)

def step(x):
    with tf.GradientTape() as tape:  # on an array
        loss = (weight * x) ** 2
    weight.assign_sub(1e-6 * tape.gradient(loss, weight))

data = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec([]))
weight = tf.Variable(1.0)
for epoch in range(6):
    for x in data:  # of a dataset
        step(x)
    for x in data.take(1):  # to show it
        print(float(x))
    print(int(next(samples)))
for number in range(200):
    step(np.float32(number))
for number in range(20):
    step(next(iter(data)))  # of an iterator each
"""


@pytest.mark.slow
def test_of_an_installed_package_the_loops_that_train_are_measured_and_not_those_that_show_or_make_a_batch(
    tmp_path: Path,
) -> None:
    package = tmp_path / "site-packages" / "mine"
    package.mkdir(parents=True)
    (package / "train.py").write_text(LOOKS)
    done = run_command(tmp_path, "-m", "mine.train")
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"loop of train\.py:(\d+): (\d+) steps", done.stderr))
    of_dataset, of_calls, of_iterators = (
        str(line_of(LOOKS, comment)) for comment in ("# of a dataset", "# on an array", "# of an iterator each")
    )
    assert set(found) == {of_dataset, of_calls, of_iterators}, done.stderr
    assert done.stderr.count("it makes an iterator for every batch") == 1
    assert int(found[of_dataset]) > 200
    assert int(found[of_calls]) > 100
    assert int(found[of_iterators]) > 10
    assert len(list((tmp_path / "reports").iterdir())) == 3


SHORT = """
import tensorflow as tf
data, held_out = tf.data.Dataset.range(1), tf.data.Dataset.range(9)
weight = tf.Variable(1.0)

def step(x):
    with tf.GradientTape() as tape:
        loss = (weight * tf.cast(x, tf.float32)) ** 2
    weight.assign_sub(1e-6 * tape.gradient(loss, weight))

@tf.function
def whole(data):
    for x in data:  # trains in a graph
        step(x)

for epoch in range(6):
    for x in data:  # trains
        step(x)
    for x in held_out:  # validates
        weight * float(x)
    for x in data:
        print(int(x))
for epoch in range(6):
    whole(tf.data.Dataset.range(2))  # has a step for each batch but the last
"""


@pytest.mark.slow
def test_epochs_of_a_batch_or_two_are_measured_also_beside_a_larger_validation(tmp_path: Path) -> None:
    done = run(tmp_path, SHORT)
    assert done.returncode == 0, done.stderr
    expected = {str(number) for number, line in enumerate(SHORT.splitlines(), 1) if ":  # " in line}
    assert set(re.findall(r"loop of train\.py:(\d+): ", done.stderr)) == expected, done.stderr


ONE_SHOT = """
import tensorflow as tf
weight = tf.Variable(1.0)
batches = tf.compat.v1.data.make_one_shot_iterator(tf.data.Dataset.range(99))
for number in range(99):
    with tf.GradientTape() as tape:
        loss = (weight * tf.cast(batches.get_next(), tf.float32)) ** 2
    weight.assign_sub(1e-6 * tape.gradient(loss, weight))
"""


@pytest.mark.slow
def test_a_loop_by_the_iterator_of_tensorflow_1_is_measured_as_one_over_its_dataset(tmp_path: Path) -> None:
    done = run(tmp_path, ONE_SHOT)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"loop of train\.py:(\d+): ", done.stderr) == ["4"], done.stderr


EAGER = """
import keras, tensorflow as tf
data = tf.data.Dataset.from_tensors((tf.ones([8, 4]), tf.ones([8, 1]))).repeat(60)

def model(**compiled):
    made = keras.Sequential([keras.layers.Dense(8, "relu") for _ in range(4)] + [keras.layers.Dense(1)])
    made.compile("sgd", "mse", **compiled)
    return made

weights = [tf.Variable(tf.ones([4, 4])) for _ in range(4)]

def step(x):
    with tf.GradientTape() as tape:
        for weight in weights:
            x = tf.tanh(x @ weight)
        loss = tf.reduce_mean(x)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(1e-3 * gradient)

in_graph = tf.function(step)
for x, y in data:  # in no function
    step(x)
for x, y in data:  # as a graph
    in_graph(x)
model(run_eagerly=True).fit(data, verbose=0)
model().fit(data, verbose=0)
tf.config.run_functions_eagerly(True)
for x, y in data:  # all eager
    in_graph(x)
model().fit(data, verbose=0)
"""


@pytest.mark.slow
def test_of_steps_of_eager_code_it_is_told_why_they_are_none_of_graphs(tmp_path: Path) -> None:
    done = run(tmp_path, EAGER)
    assert done.returncode == 0, done.stderr
    told: dict[str, str | None] = {}
    for line in done.stderr.splitlines():
        if (named := re.search(r"(fit \d|loop of train\.py:\d+)", line)) is not None:
            told[training := named[1]] = None
        elif (reason := re.search(r"op by op from Python: (.*?)\. As graphs", line)) is not None:
            told[training] = reason[1]
    loops = [f"loop of train.py:{number}" for number, line in enumerate(EAGER.splitlines(), 1) if ":  # " in line]
    none, every = "their GradientTape is in no tf.function", "tf.config.run_functions_eagerly(True) was called"
    fits = {"fit 1": "the model's run_eagerly is True", "fit 2": None, "fit 3": every}
    assert told == fits | dict(zip(loops, (none, None, every), strict=True)), done.stderr


KERAS_2 = """
import os, sys, time
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np, tensorflow as tf
tf_keras = tf.keras

class Hook(tf_keras.callbacks.Callback):
    def on_train_batch_end(self, number, logs=None):
        pass

def batches(count):
    def slow(number):
        time.sleep(0.01)
        return np.float32(number)
    def batch(number):
        value = tf.ensure_shape(tf.numpy_function(slow, [number], tf.float32), [])
        return tf.fill([4, 3], value), tf.zeros([4, 1])
    return tf.data.Dataset.range(count).map(batch)

model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
model.compile("sgd", "mse")
for callbacks in (None, [Hook(), tf_keras.callbacks.ModelCheckpoint("kept")]):
    model.fit(batches(40), epochs=2, verbose=0, validation_data=batches(3), callbacks=callbacks)
print("Keras 3 was imported:", "keras" in sys.modules)
"""


@pytest.mark.slow
def test_a_fit_of_keras_2_is_measured_without_importing_keras_3(tmp_path: Path) -> None:
    pytest.importorskip("tf_keras")
    done = run(tmp_path, KERAS_2)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Keras 3 was imported: False\n"
    assert done.stderr.count(" of train.py: 72 steps") == 2
    assert done.stderr.count("severely input-bound") == 2
    assert (tmp_path / "kept").is_dir()


ADAPTS = """
import time
import numpy as np, tensorflow as tf
layers = tf.keras.layers

def slow(number):
    time.sleep(0.01)
    return np.float32(number % 7)

numbers = tf.data.Dataset.range(150).map(lambda number: tf.numpy_function(slow, [number], tf.float32))
numbers = numbers.map(lambda number: tf.ensure_shape(number, []))
words = numbers.map(tf.strings.as_string)
lookup, text, scaled = layers.StringLookup(), layers.TextVectorization(), layers.Normalization()
lookup.adapt(words)
text.adapt(words)
scaled.adapt(numbers.map(lambda number: tf.fill([1, 3], number)))
print(len(lookup.get_vocabulary()), len(text.get_vocabulary()), round(float(np.mean(scaled.mean)), 3))
"""


@pytest.mark.slow
@pytest.mark.parametrize("legacy", ["0", "1"])
def test_layers_that_adapt_are_told_with_their_elements_and_learn_the_same(
    legacy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tf_keras")
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", legacy)
    done = run(tmp_path, ADAPTS)
    assert done.stdout == "8 9 2.96\n", done.stderr
    told = [line.removeprefix("pipeline-bench: ") for line in done.stderr.splitlines() if ": adapt of " in line]
    at = {name: number for number, line in enumerate(ADAPTS.splitlines(), 1) for name in (line.split(".adapt(")[0],)}
    assert [line.rpartition(" in ")[0] for line in told] == [
        f"adapt of StringLookup, train.py:{at['lookup']}: 150 elements",
        f"adapt of TextVectorization, train.py:{at['text']}: 150 elements",
        f"adapt of Normalization, train.py:{at['scaled']}: 150 elements",
    ]
    assert done.stderr.count("each element is a single value") == 2


REPLICAS = """
import time
import numpy as np, keras, tensorflow as tf, tf_keras
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

def slow(number):
    time.sleep(0.01)
    return np.float32(number)

def batch(number):
    value = tf.ensure_shape(tf.numpy_function(slow, [number], tf.float32), [])
    return tf.fill([4, 3], value), tf.zeros([4, 1])

for package in (keras, tf_keras):
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = package.Sequential([package.layers.Dense(2), package.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(tf.data.Dataset.range(40).map(batch), epochs=2, verbose=0)
"""


@pytest.mark.slow
def test_a_fit_on_several_devices_of_one_process_is_measured_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("tf_keras")
    done = run(tmp_path, REPLICAS)
    assert done.returncode == 0, done.stderr
    for number in (1, 2):
        assert f"pipeline-bench: fit {number} of train.py: " in done.stderr


SAVED = """
import sys
import tensorflow as tf

class Sum(tf.Module):
    @tf.function(input_signature=[])
    def total(self):
        total = tf.constant(0.0)
        for number in tf.data.Dataset.range(10):
            total += tf.cast(number, tf.float32)
        return total

if "saved" in sys.argv:
    module = tf.saved_model.load("saved")
else:
    module = Sum()
print(float(module.total()))
if "saved" not in sys.argv:
    tf.saved_model.save(module, "saved")
"""


@pytest.mark.slow
def test_a_function_that_was_watched_and_saved_runs_where_nothing_is_watched(tmp_path: Path) -> None:
    done = run(tmp_path, SAVED)
    assert (done.returncode, done.stdout) == (0, "45.0\n"), done.stderr
    assert "loop of train.py:9: 8 steps" in done.stderr
    plain = run_plain(tmp_path, "saved")
    assert (plain.returncode, plain.stdout) == (0, "45.0\n"), plain.stderr


ENDS = """
import gc, importlib, time, weakref
import keras, numpy as np

class Pruned(Exception):
    pass

def prune(epoch, logs):
    raise Pruned

def fit(**hooks):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callbacks = [keras.callbacks.LambdaCallback(**hooks)] if hooks else None
    try:
        model.fit(np.ones((64, 2)), np.ones(64), batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
    except Pruned:
        pass
    return weakref.ref(model)

models = [fit(), fit(on_epoch_end=prune)]
importlib.reload(keras)
models.append(fit(on_train_batch_end=lambda batch, logs: time.sleep(0.02)))
keras.backend.clear_session()
gc.collect()
print("kept", sum(model() is not None for model in models))
"""


@pytest.mark.slow
def test_a_fit_is_over_when_it_ends_or_raises_and_keeps_no_model(tmp_path: Path) -> None:
    done = run(tmp_path, ENDS)
    assert (done.returncode, done.stdout) == (0, "kept 0\n"), done.stderr
    assert "pipeline-bench: 2 more calls of fit took" in done.stderr, done.stderr
    _, pruned, slow = sorted(map(load, (tmp_path / "reports").iterdir()), key=lambda each: each.trials[0].started_ns)
    assert pruned.wall_time is not None
    assert pruned.wall_time.end_ns <= slow.trials[0].started_ns
    assert slow.wall_time is not None
    later = 2 * 16 - 1  # without the first step, of which its callbacks are a part
    assert sum(epoch.step_callbacks_ns for epoch in slow.wall_time.epochs) >= later * 20_000_000


AS_WITHOUT = """
import pickle, time
import keras, numpy as np, tensorflow as tf

def slow(number):
    time.sleep(0.01)
    return np.float32(number)

data = tf.data.Dataset.range(60).map(lambda n: tf.ensure_shape(tf.numpy_function(slow, [n], tf.float32), []))
weight = tf.Variable(1.0)

@tf.function(input_signature=[tf.data.IteratorSpec(data.element_spec)])
def step(iterator):
    with tf.GradientTape() as tape:
        loss = weight * next(iterator)
    weight.assign_sub(1e-9 * tape.gradient(loss, weight))

iterator = iter(data)  # the loop
for _ in range(60):
    step(iterator)

print(len(pickle.loads(pickle.dumps([keras.Model.fit, keras.Model.predict, keras.Model.__call__]))), "methods")
model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=False)
ones = np.ones([12, 1], "float32")
calls = []

class Count(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        calls.append(epoch)

class Attribute(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.model.train_function.mark = 7  # as the graph of a tf.function is

    def on_train_batch_end(self, batch, logs=None):
        calls.append(self.model.train_function.mark)

model.make_train_function()
model.train_function.mark = 7
model.fit(ones, ones, batch_size=1, verbose=0, callbacks=[[Count(), Count()], Attribute()])
print(calls)
own = keras.callbacks.CallbackList([], add_history=True, add_progbar=True, model=model, epochs=1, verbose=2, steps=3)
model.fit(ones, ones, batch_size=4, verbose=2, callbacks=own)
"""


def test_a_program_does_as_without_and_a_step_that_its_signature_gives_an_iterator_is_measured(
    ended: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, done = ended
    methods, calls, *bars = done.stdout.splitlines()
    assert methods == "3 methods"
    assert calls == str([*[7] * 12, 0, 0])
    assert len(bars) == 1, "a second CallbackList would show a second line"
    assert "a fit that gets Keras' own CallbackList" in done.stderr
    line = line_of(AS_WITHOUT, "# the loop")
    (loop,) = [text for text in done.stderr.splitlines() if f"loop of as_without.py:{line}, process " in text]
    assert "severely input-bound" in loop


DETERMINISTIC = """
import keras, tensorflow as tf
keras.utils.set_random_seed(1)
tf.config.experimental.enable_op_determinism()
data = tf.data.Dataset.range(640).map(lambda n: (tf.fill([8], tf.cast(n, tf.float32)), 0.0)).batch(16)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data, epochs=2, verbose=0)

@tf.function
def whole():
    total = 0.0
    for x, _ in data:
        total += tf.reduce_sum(x)
    return total

print(float(whole()))
"""


@pytest.mark.slow
def test_a_training_that_is_to_be_deterministic_goes_on_and_is_measured(tmp_path: Path) -> None:
    """TensorFlow refuses the op that reads a graph's clock then."""
    done = run(tmp_path, DETERMINISTIC)
    assert (done.returncode, done.stdout) == (0, "1635840.0\n"), done.stderr
    assert re.search(r"fit of train\.py: \d+ steps.*; input wait \d", done.stderr), done.stderr
    assert "its graphs may read no clock" in done.stderr
