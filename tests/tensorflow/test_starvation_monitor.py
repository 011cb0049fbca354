"""`pipeline_bench.keras.StarvationMonitor` in real calls of `fit`: every kind of input, a training left as it was."""

from __future__ import annotations

import copy
import dis
import functools
import gc
import importlib
import os
import pickle
import signal
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline_bench
from pipeline_bench.analysis import wall_time
from pipeline_bench.model.job import WallTime
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialSteps

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
tf_keras = pytest.importorskip("tf_keras")

from pipeline_bench.injection import callback_marks  # noqa: E402
from pipeline_bench.keras import StarvationMonitor  # noqa: E402
from pipeline_bench.monitoring import fit_watch, iterator_ends  # noqa: E402

STEPS, BATCH = 40, 4
DELAY_S = 0.01
WAITED_MS = 0.98 * DELAY_S * 1000
"""What a step waits at the least for a delay of `DELAY_S`, whatever else the machine does: two clocks tell it."""

# What Keras and TensorFlow have to say of the data that these tests give them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*shuffle=True.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*ran out of data.*:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def network(**compiled: Any) -> Any:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-3), "mse", **compiled)
    return model


def batch(number: int) -> tuple[Any, Any]:
    return np.full((BATCH, 4), number % 5, np.float32), np.full((BATCH, 1), number % 3, np.float32)


def slowly(delay_s: float = DELAY_S, steps: int = STEPS) -> Any:
    """A dataset that works for each batch when it is asked for it, and never ahead: every step waits so long."""

    def batches() -> Iterator[Any]:
        for number in range(steps):
            time.sleep(delay_s)
            yield batch(number)

    spec = tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return tf.data.Dataset.from_generator(batches, output_signature=spec).with_options(options)


def forever() -> Iterator[Any]:
    while True:
        time.sleep(DELAY_S)
        yield batch(1)


class Sequence(keras.utils.PyDataset):  # type: ignore[name-defined,misc]
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, number: int) -> Any:
        time.sleep(DELAY_S)
        return batch(number)


class Tapped(keras.Sequential):  # type: ignore[name-defined,misc]
    """A model with a step of its own, as people write them."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def fitted(model: Any, data: Any, **arguments: Any) -> StarvationMonitor:
    return fitted_with(model, [], data, **arguments)


def fitted_with(model: Any, callbacks: list[Any], data: Any, **arguments: Any) -> StarvationMonitor:
    callback = StarvationMonitor(out=None, quiet=True)
    model.fit(data, verbose=0, callbacks=[*callbacks, callback], **arguments)
    return callback


def session_of(callback: StarvationMonitor) -> Session:
    assert callback.session is not None
    return callback.session


def steps_of(callback: StarvationMonitor) -> TrialSteps:
    steps = session_of(callback).trials[0].steps
    assert steps is not None
    return steps


def wall_time_of(callback: StarvationMonitor) -> WallTime:
    found = session_of(callback).wall_time
    assert found is not None
    return found


def wait_ms(callback: StarvationMonitor) -> float:
    """The mean input wait of a step."""
    found = session_of(callback).results[0].input_wait_ms.value
    assert found is not None
    return found


@pytest.mark.parametrize(
    "compiled",
    [
        {"steps_per_execution": 3},
        pytest.param({"run_eagerly": True}, marks=pytest.mark.slow),
        pytest.param({"jit_compile": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_slow_dataset_is_waited_for_however_the_step_runs(compiled: dict[str, Any]) -> None:
    callback = fitted(network(**compiled), slowly())
    assert wait_ms(callback) >= WAITED_MS
    in_graph = "run_eagerly" not in compiled
    assert wall_time_of(callback).steps_a_call == (compiled.get("steps_per_execution", 1) if in_graph else None)


@pytest.mark.parametrize(
    "arguments",
    [
        lambda: {"data": Sequence()},
        lambda: {"data": forever(), "steps_per_epoch": STEPS},
        lambda: {"data": slowly(), "class_weight": {0: 1.0, 1: 2.0, 2: 1.0}},
    ],
    ids=["PyDataset", "generator", "class weights"],
)
def test_every_kind_of_input_is_measured(arguments: Any) -> None:
    assert wait_ms(fitted(network(), **arguments())) > WAITED_MS / 4


def test_arrays_with_validation_are_measured_without_the_validation() -> None:
    x, y = np.ones((STEPS * BATCH, 4), np.float32), np.ones((STEPS * BATCH, 1), np.float32)

    class Slow(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.05)

    callback = StarvationMonitor(out=None, quiet=True)
    network().fit(
        x, y, batch_size=BATCH, epochs=3, validation_data=(x[:8], y[:8]), verbose=0, callbacks=[Slow(), callback]
    )
    assert callback.session is not None
    assert callback.session.results[0].input_wait_share.value is not None
    steps = steps_of(callback)
    between_ns = steps.start_ns.unpack()[1:] - steps.end_ns.unpack()[:-1]
    assert between_ns.sum() >= 2 * 2 * 0.05e9  # two of the three validations, of two batches each, lie between steps


def test_a_models_own_train_step_is_measured() -> None:
    model = Tapped([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert wait_ms(fitted(model, slowly())) >= WAITED_MS


def test_a_slow_step_does_not_wait() -> None:
    class Slow(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            time.sleep(DELAY_S)

    callback = StarvationMonitor(out=None, quiet=True)
    ready = tf.data.Dataset.from_tensors(batch(1)).repeat(STEPS).prefetch(2)
    network().fit(ready, verbose=0, callbacks=[Slow(), callback])
    assert callback.session is not None
    step_ms = callback.session.results[0].step_ms.mean
    assert step_ms is not None
    assert wait_ms(callback) + WAITED_MS <= step_ms


def test_of_several_steps_a_call_only_what_a_step_is_blocked_is_its_wait() -> None:
    """Keras takes the next batch of a call while a step computes, here for as long as the batch takes."""

    class Slow(keras.Model):  # type: ignore[name-defined,misc]
        def train_step(self, data: Any) -> Any:
            def compute(x: Any) -> Any:
                time.sleep(2 * DELAY_S)
                return np.float32(x.sum())

            return {"loss": tf.ensure_shape(tf.numpy_function(compute, [data[0]], tf.float32), [])}

    model = Slow()
    model.compile(steps_per_execution=8)
    steps = steps_of(fitted(model, slowly(2 * DELAY_S)))
    assert steps.wait_ns is not None
    blocked_ns = (steps.end_ns.unpack() - steps.start_ns.unpack()) - 0.98e9 * 2 * DELAY_S
    assert (steps.wait_ns.unpack() <= blocked_ns).all()


def test_the_wait_for_the_first_batch_of_an_epoch_is_that_of_no_other_batch_of_its_call() -> None:
    time_spent = wall_time_of(fitted(network(steps_per_execution=STEPS), slowly(), epochs=3))
    first, *later = time_spent.epochs
    assert (first.steps, [epoch.steps for epoch in later]) == (0, [STEPS] * 2)
    assert [0 < (epoch.first_wait_ns or 0) < (epoch.wait_ns or 0) / 2 for epoch in later] == [True] * 2


def test_the_first_epoch_of_a_resumed_training_has_the_number_that_keras_gives_it() -> None:
    time_spent = wall_time_of(fitted(network(), slowly(0.0), initial_epoch=50, epochs=52))
    assert (time_spent.initial_epoch, len(time_spent.epochs)) == (50, 2)


def test_the_steps_of_calls_of_several_are_seen_while_their_epoch_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_watch, "_READ_EVERY_NS", 0, raising=False)
    seen: list[int] = []

    class Looks(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            assert callback._watch is not None
            seen.append(callback._watch.so_far()[0].totals.steps)

    callback = StarvationMonitor(out=None, quiet=True)
    model = network(steps_per_execution=8)
    model.fit(slowly(0.001), verbose=0, callbacks=[Looks(), callback])
    assert seen == [0, 0, 8, 16, 24]  # without the very first call, and that which has just ended
    steps = steps_of(callback)
    assert steps.steps is not None
    assert int(steps.steps.unpack().sum()) == STEPS
    assert steps.wait_ns is not None


@pytest.mark.parametrize(
    ("data", "arguments"),
    [
        (slowly(0).filter(lambda x, y: True), {}),
        (slowly(0).repeat(), {"steps_per_epoch": 17}),
    ],
    ids=["no known length", "a step more than a call"],
)
def test_the_steps_of_a_call_are_those_that_it_trained(data: Any, arguments: dict[str, Any]) -> None:
    """Keras trains whole calls, also where an epoch's steps are no multiple, until there are no more batches."""
    model = network(steps_per_execution=16)
    steps = steps_of(fitted(model, data, epochs=2, **arguments))
    assert steps.steps is not None
    assert int(steps.steps.unpack().sum()) == int(model.optimizer.iterations.numpy())


def test_the_steps_of_a_call_are_those_that_it_trained_where_keras_2_changes_how_many_it_takes() -> None:
    class Tuner(tf_keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        """Does at once what Keras' own does every few seconds."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model._steps_per_execution.assign(4)

    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution="auto")
    data = slowly(0.001, 90).apply(tf.data.experimental.assert_cardinality(90))
    steps = steps_of(fitted_with(model, [Tuner()], data, epochs=2))
    assert steps.steps is not None
    assert int(steps.steps.unpack().sum()) == int(model.optimizer.iterations.numpy()) == 180
    assert steps.wait_ns is not None


@pytest.mark.parametrize("eager", [True, False])
def test_a_step_that_takes_several_batches_is_one(eager: bool) -> None:
    class Accumulated(Tapped):
        def make_train_function(self, force: bool = False) -> Any:
            def function(iterator: Any) -> Any:
                next(iterator)
                return self.train_step(next(iterator))

            self.train_function = function if eager else tf.function(function)
            return self.train_function

    model = Accumulated([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-3), "mse", run_eagerly=eager)
    steps = steps_of(fitted(model, slowly(0), steps_per_epoch=STEPS // 2))
    assert (steps.count, steps.steps) == (STEPS // 2, None)
    assert steps.wait_ns is not None


@pytest.mark.parametrize(
    "compiled",
    [{"steps_per_execution": 3}, *(pytest.param(each, marks=pytest.mark.slow) for each in ({}, {"run_eagerly": True}))],
    ids=str,
)
def test_the_losses_are_the_same_bit_by_bit_with_the_monitor_and_after_it(compiled: dict[str, Any]) -> None:
    def losses(callbacks: list[Any]) -> list[float]:
        model, found = network(**compiled), []
        for given in (callbacks, [], callbacks):
            found += model.fit(slowly(0.0, 10), epochs=2, verbose=0, callbacks=given).history["loss"]
        return found

    assert losses([]) == losses([StarvationMonitor(out=None, quiet=True)])


def test_one_monitor_measures_one_fit_after_the_other_and_the_training_function_is_back_at_the_end() -> None:
    model, callback = network(), StarvationMonitor(out=None, quiet=True)
    model.fit(slowly(0.0, 4), verbose=0)
    before = model.train_function
    for steps in (20, 30):
        model.fit(slowly(0.001, steps), verbose=0, callbacks=[callback])
        assert steps_of(callback).count == steps
        assert wait_ms(callback) > 0
        assert model.train_function is before


@pytest.mark.parametrize("package", [keras, pytest.param(tf_keras, marks=pytest.mark.slow)])
def test_the_steps_of_a_training_function_that_a_callback_makes_anew_are_measured(package: Any) -> None:
    class Unfreeze(package.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                self.model.compile("sgd", "mse")
                self.model.make_train_function()
                made.append(self.model.train_function)

    made: list[Any] = []
    model = package.Sequential([package.layers.Dense(1)])
    model.compile("sgd", "mse")
    monitors = [StarvationMonitor(out=None, quiet=True) for _ in range(2)]
    model.fit(slowly(0.001, 10), epochs=3, verbose=0, callbacks=[Unfreeze(), *monitors])
    for each in monitors:
        assert steps_of(each).count == 30
    assert wait_ms(monitors[0]) > 0


def test_a_fit_of_the_same_model_within_a_callback_has_its_steps_for_itself() -> None:
    class Within(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                self.model.fit(slowly(0.001, 7), epochs=2, verbose=0, callbacks=[within])

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 4:
                self.model.fit(slowly(0.001, 7), verbose=0, callbacks=[StarvationMonitor(out=None, quiet=True)])

    within = StarvationMonitor(out=None, quiet=True)
    outer = fitted_with(network(), [Within()], slowly(0.001, 10), epochs=3)
    for callback, steps in ((outer, 30), (within, 14)):
        assert steps_of(callback).count == steps
    assert wait_ms(within) > 0


def test_a_function_that_a_callback_puts_around_the_training_function_is_called_once_a_step() -> None:
    class Counts(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                self.model.train_function = functools.partial(counted, self.model.train_function)

    def counted(function: Any, iterator: Any) -> Any:
        calls.append(iterator)
        return function(iterator)

    calls: list[Any] = []
    assert steps_of(fitted_with(network(), [Counts()], slowly(0.001, 10), epochs=3)).count == 30
    assert 20 <= len(calls) <= 22  # and the end of each of the two epochs


@pytest.mark.parametrize(
    ("compiled", "with_batch_hook"),
    [
        ({"steps_per_execution": 4}, False),
        pytest.param({}, True, marks=pytest.mark.slow),
        pytest.param({}, False, marks=pytest.mark.slow),
        pytest.param({"steps_per_execution": 4}, True, marks=pytest.mark.slow),
        pytest.param({"run_eagerly": True}, False, marks=pytest.mark.slow),
        pytest.param({"run_eagerly": True}, True, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_fit_of_keras_2_is_measured_and_left_as_it_was(compiled: dict[str, Any], with_batch_hook: bool) -> None:
    class Hook(tf_keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            hooked.append(batch)

    def losses(callbacks: list[Any]) -> list[float]:
        tf_keras.utils.set_random_seed(3)
        model = tf_keras.Sequential([tf_keras.layers.Dropout(0.5), tf_keras.layers.Dense(1)])
        model.compile(tf_keras.optimizers.SGD(1e-3), "mse", **compiled)
        given = slowly(DELAY_S if callbacks else 0.0)
        callbacks = [*callbacks, *([Hook()] if with_batch_hook else [])]
        counted = tf.data.experimental.assert_cardinality(STEPS)
        data = {"x": given.apply(counted), "validation_data": slowly(0.0, 4), "validation_steps": 4}
        found: list[float] = model.fit(epochs=2, verbose=0, callbacks=callbacks, **data).history["loss"]
        trained = model.train_function
        model.fit(slowly(0.0).apply(counted), verbose=0)
        assert model.train_function is trained
        return found

    hooked: list[int] = []
    callback = StarvationMonitor(out=None, quiet=True)
    assert losses([]) == losses([callback])
    assert bool(hooked) == with_batch_hook
    assert wait_ms(callback) >= WAITED_MS
    assert [epoch.validation_ns > 0 for epoch in wall_time_of(callback).epochs] == [True, True]
    steps = steps_of(callback)
    assert steps.count == 2 * STEPS // compiled.get("steps_per_execution", 1)


@pytest.mark.parametrize("at_once", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_distributed_training_has_its_wait_measured(at_once: int) -> None:
    """Its iterator has a buffer ahead of the replica: a step that takes no time waits for what fills that."""
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        model = network(steps_per_execution=at_once)
    data = slowly(3 * DELAY_S).map(lambda x, y: (tf.ensure_shape(x, [BATCH, 4]), y))
    callback = fitted(model, data.apply(tf.data.experimental.assert_cardinality(STEPS)))
    assert callback.session is not None
    assert callback.figures is not None
    assert callback.figures.steps == callback.session.results[0].steps == STEPS - 4
    assert wait_ms(callback) > WAITED_MS  # the rest is left to a busy machine


def test_an_epoch_has_one_line_and_its_figures_in_tensorboard(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    callback = StarvationMonitor(writer=tmp_path, out=None)
    network().fit(slowly(), epochs=2, verbose=0, callbacks=[callback])
    first, second, whole = capsys.readouterr().out.splitlines()
    assert "severely input-bound" in whole, "out=None keeps no file, and says how it was"
    assert first.startswith(f"epoch 1: {STEPS - 1} steps of ")
    assert second.startswith(f"epoch 2: {STEPS} steps of ")
    assert "severely input-bound" in second
    assert wall_time_of(callback).steps_a_call == 1
    (file,) = tmp_path.glob("events.*")
    found: dict[str, list[int]] = {}
    for record in tf.data.TFRecordDataset(str(file)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            found.setdefault(value.tag, []).append(event.step)
    for name in ("step_ms", "input_wait_ms", "input_wait_share", "utilization_at_most"):
        assert found[f"pipeline_bench/{name}"] == [0, 1]


def test_a_step_that_raises_passes_and_the_session_is_written(tmp_path: Path) -> None:
    def failing() -> Iterator[Any]:
        yield from (batch(number) for number in range(30))
        raise ValueError("a bad record")

    spec = tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])
    data = tf.data.Dataset.from_generator(failing, output_signature=spec)
    model, callback = network(), StarvationMonitor(out=tmp_path, quiet=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a bad record"):
        model.fit(data, verbose=0, callbacks=[callback])
    (folder,) = tmp_path.iterdir()
    session = pipeline_bench.load(folder)
    assert session.watched
    assert any("InvalidArgumentError" in note for note in session.notes)
    assert session.trials[0].steps is not None
    assert session.trials[0].steps.count == 30
    assert getattr(model.train_function, "__self__", None) is None


def test_a_second_ctrl_c_while_the_session_of_the_first_is_saved_shows_no_code_of_the_monitors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(keras.Sequential):  # type: ignore[name-defined,misc]
        def train_step(self, data: Any) -> Any:
            signal.raise_signal(signal.SIGINT)

    def synced(file: int, sync: Any = os.fsync) -> None:
        signal.raise_signal(signal.SIGINT)
        sync(file)

    model = Impatient([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    monkeypatch.setattr(os, "fsync", synced)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as raised:
            model.fit(slowly(0.0), verbose=0, callbacks=[StarvationMonitor(out=tmp_path, quiet=True)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert raised.value.__context__ is None
    assert raised.traceback[-1].name == "train_step"
    (folder,) = tmp_path.iterdir()
    assert any("KeyboardInterrupt" in note for note in pipeline_bench.load(folder).notes)


def test_another_callback_that_raises_leaves_a_session_once_the_monitor_goes(tmp_path: Path) -> None:
    class Raising(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise RuntimeError("no space for the checkpoint")

    model = network()

    def train() -> None:
        callback = StarvationMonitor(out=tmp_path, quiet=True)
        with pytest.raises(RuntimeError, match="checkpoint"):
            model.fit(slowly(0.0), verbose=0, callbacks=[callback, Raising()])

    train()
    gc.collect()
    (folder,) = tmp_path.iterdir()
    session = pipeline_bench.load(folder)
    assert session.trials[0].steps is not None
    assert session.trials[0].steps.count == STEPS
    assert any("outside of its steps" in note for note in session.notes)
    assert model.predict(np.ones((1, 4)), verbose=0).shape == (1, 1)


def test_what_goes_wrong_in_it_is_told_and_the_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    name: Any = 3  # no session can have that name
    model = network()
    model.fit(slowly(0.0), verbose=0, callbacks=[StarvationMonitor(out=None, name=name)])
    assert "3 is not watched: " in capsys.readouterr().err
    assert getattr(model.train_function, "__self__", None) is None


def test_a_folder_for_tensorboard_that_cannot_be_made_is_noted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    callback = StarvationMonitor(writer=tmp_path / "file" / "logs", out=None, quiet=True)
    network().fit(slowly(0.0), verbose=0, callbacks=[callback])
    assert callback.session is not None
    assert any("the summary writer failed" in note for note in callback.session.notes)


@pytest.mark.slow
def test_a_monitor_keeps_no_model_of_the_trainings_that_have_ended() -> None:
    """One that ended as it should, one that said nothing of its end, and one whose watching failed."""

    class Raises(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise ValueError("another callback")

    callback = StarvationMonitor(out=None, quiet=True)
    callback.on_problem = lambda _: None
    held: list[weakref.ref[Any]] = []
    for beside in ([], [Raises()], []):
        model = network()
        held.append(weakref.ref(model))
        with suppress(ValueError):
            model.fit(slowly(0.0, steps=3), verbose=0, callbacks=[callback, *beside])
    callback.on_train_begin()
    callback.give_up(RuntimeError("the watching failed"))
    callback.set_model(network())
    del model, beside
    gc.collect()
    assert [each() for each in held] == [None, None, None]
    assert callback.session is not None


@pytest.mark.slow
def test_a_copy_watches_trainings_of_its_own(tmp_path: Path) -> None:
    """Tuners and scikit-learn's `clone` copy the callbacks that they are given, before a training and after one."""
    copies = []

    class Copying(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            copies.append(copy.deepcopy(callback))

    callback = StarvationMonitor(out=None, quiet=True)
    callback.on_kept = lambda: None  # as under `run`; it can be no part of a pickle
    copies += [copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))]
    network().fit(slowly(0.0), verbose=0, callbacks=[callback, Copying()])
    for each in (*copies, copy.deepcopy(callback)):
        network().fit(slowly(0.0), verbose=0, callbacks=[each])
        assert each.session is not None
        assert each.session is not callback.session


class SlowEnd:
    """What takes a while to be let go of."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __del__(self) -> None:
        time.sleep(self._seconds)


def iterators() -> list[Any]:
    """Return TensorFlow's iterators of eager mode."""
    return [each for each in gc.get_objects() if type(each).__name__ == "OwnedIterator" and hasattr(each, "_dataset")]


@pytest.mark.parametrize("package", [keras, pytest.param(tf_keras, marks=pytest.mark.slow)])
def test_an_iterator_is_let_go_of_when_keras_does_and_its_end_is_no_part_of_a_step(package: Any) -> None:
    def first_epochs_iterator_lives_on(*callbacks: Any) -> bool:
        others = iterators()
        held: list[weakref.ref[Any]] = []
        alive: list[bool] = []

        class Ends(package.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                if epoch == 0:
                    (iterator,) = [each for each in iterators() if all(each is not other for other in others)]
                    held.append(weakref.ref(iterator._iterator_resource))
                    iterator._components = SlowEnd(0.2)

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                gc.collect()  # on Python 3.13 the exception that ended the epoch before is in a cycle, monitor or not

            def on_train_batch_begin(self, number: int, logs: Any = None) -> None:
                alive.extend(each() is not None for each in held)

        model = package.Sequential([package.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(slowly(0.0, 8), verbose=0, epochs=3, callbacks=[Ends(), *callbacks])
        assert alive
        return any(alive)

    if first_epochs_iterator_lives_on():
        pytest.skip("this Keras holds on to it, as Keras 2 with TensorFlow 2.16 does")
    callback = StarvationMonitor(out=None, quiet=True)
    assert not first_epochs_iterator_lives_on(callback)
    ends_s = [epoch.iterator_end_ns / 1e9 for epoch in wall_time_of(callback).epochs]
    assert ends_s[1] >= 0.2
    assert dict(wall_time.parts(wall_time_of(callback)))[wall_time.ITERATOR_END] >= 0.2


def test_the_end_of_a_validations_iterator_is_one_of_iterators_in_the_first_epoch_too() -> None:
    """Keras 2 lets go of it once the validation has ended."""
    others = iterators()

    class Ends(tf_keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_test_end(self, logs: Any = None) -> None:
            for iterator in iterators():
                if all(iterator is not other for other in others):
                    iterator._components = SlowEnd(0.2)

    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = StarvationMonitor(out=None, quiet=True)
    model.fit(slowly(0.0), validation_data=slowly(0.0), verbose=0, callbacks=[Ends(), callback])
    assert dict(wall_time.parts(wall_time_of(callback))).get(wall_time.ITERATOR_END, 0.0) >= 0.2
    assert not wall_time_of(callback).queue_of_keras_2


@pytest.mark.slow
def test_of_a_sequence_with_workers_in_keras_2_its_queue_is_told_of() -> None:
    class Batches(tf_keras.utils.Sequence):  # type: ignore[name-defined,misc]
        def __len__(self) -> int:
            return 4

        def __getitem__(self, place: int) -> Any:
            return np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32)

    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = StarvationMonitor(out=None, quiet=True)
    model.fit(Batches(), validation_data=Batches(), workers=2, verbose=0, callbacks=[callback])
    assert callback.session is not None
    (remark,) = [each for each in wall_time.remarks_of(callback.session) if "Keras 2" in each]
    assert "its queue of a Sequence with workers sleeps" in remark


class Lasting:
    """What takes some time to end."""

    def __del__(self) -> None:
        time.sleep(0.02)


def test_of_the_ends_of_iterators_that_nobody_asks_for_one_sum_is_kept() -> None:
    iterator_ends.time_ends()
    gc.collect()
    gc.disable()  # the iterators of other tests in one piece of garbage would end together
    try:
        iterator_ends.ends_ns(iterator_ends.UNTIMED)
        before = len(iterator_ends._waited.begun_ns), len(iterator_ends._waited.ended_ns)  # of other tests
        for _ in range(5):
            iterator = iter(tf.data.Dataset.range(3))
            iterator._components = [Lasting()]
            del iterator
    finally:
        gc.enable()
    assert len(iterator_ends._waited.begun_ns) <= before[0] + 1
    assert len(iterator_ends._waited.ended_ns) <= before[1] + 1
    assert iterator_ends.ends_ns(iterator_ends.UNTIMED) >= 5 * 0.0196e9


class RungError(Exception):
    """What the handler of a signal raises, as that of SIGINT raises a KeyboardInterrupt."""


def test_the_end_of_an_iterator_needs_no_name_of_a_module_that_may_be_gone() -> None:
    """Python ends before the iterator does where a cycle holds that."""
    iterator_ends.time_ends()
    end = type(iter(tf.data.Dataset.range(1))).__del__
    assert not {each.argval for each in dis.get_instructions(end) if each.opname == "LOAD_GLOBAL"}


def test_what_a_signals_handler_raises_while_an_iterator_ends_reaches_the_program() -> None:
    def ring(*_: Any) -> None:
        raise RungError

    iterator_ends.time_ends()
    iterator = iter(tf.data.Dataset.range(3))
    iterator._components = [object() for _ in range(3_000_000)]  # whose end takes some time, all of it in C
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(RungError):  # noqa: PT012 - the iterator goes, and then the program goes on
            signal.setitimer(signal.ITIMER_REAL, 0.002)  # on a busy machine it rings before anything ends
            del iterator
            for _ in range(500):
                time.sleep(0.01)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_under_run_what_callbacks_take_is_told_wherever_they_are_called_and_once() -> None:
    class Slow(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            time.sleep(0.2)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.5 if batch == 0 else 0.0)

    monitor = StarvationMonitor(out=None, quiet=True)
    network().fit(slowly(0.0, 4), epochs=2, verbose=0, callbacks=callback_marks.around([Slow()], monitor))
    first, second = wall_time_of(monitor).epochs
    assert first.step_callbacks_ns < 500 * 10**6 <= first.first_step_ns
    assert min(first.callbacks_ns, second.callbacks_ns) >= 200 * 10**6
    assert second.step_callbacks_ns >= 500 * 10**6
    parts = dict(wall_time.parts(wall_time_of(monitor)))
    assert parts[wall_time.CALLBACKS] >= 0.9
    assert sum(parts.values()) == pytest.approx(wall_time_of(monitor).seconds)


class BeginsSteps(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None: ...


class EndsSteps(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...


class IsAsyncSafe(EndsSteps):
    async_safe = True


@pytest.mark.parametrize("kind", [keras.callbacks.Callback, BeginsSteps, EndsSteps, IsAsyncSafe])
def test_callbacks_that_keras_calls_beside_the_training_stay_there_under_run(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lists, own = importlib.import_module("keras.src.callbacks.callback_list"), [kind()]
    monkeypatch.setattr(lists.backend, "IS_THREAD_SAFE", True)  # as on JAX
    alone, watched = (
        lists.CallbackList(each)._async_train
        for each in (own, callback_marks.around(own, StarvationMonitor(out=None, quiet=True)))
    )
    assert watched == alone == (kind is not EndsSteps)
