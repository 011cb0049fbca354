"""What takes the elements of a pipeline: nothing but a drain, the user's model, or the model on one batch alone.

Each runs steps and tells them to a recorder: ``record(start_ns, end_ns, wait_ns, loss)``, False when it was the last
one. A dataset that ends begins anew, which is part of the step that had to wait for it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from pipeline_bench.errors import UserCodeError
from pipeline_bench.user_pipeline import INFINITE, taking, user_code

Record = Callable[[int, int, int, float], bool]
Step = Callable[[Any], float]
Alive = Callable[[], None]
"""Called for every element of a warm-up, as a sign of life."""

NO_LOSS = float("nan")
NO_ELEMENT = "The dataset gives no element."
_USED_UP = "The dataset gave elements in its first pass and none in the next one, so it cannot be measured for long."
_USED_UP_HINT = "Does a generator go on where it ended? Have the function that from_generator calls begin anew."
_WINDOW_FROM_NS = 60_000
"""Elements that come faster than this are taken in windows: a call from Python for each costs about 12 us."""
_WINDOW_NS = 5_000_000
_WINDOW_MOST = 4096
_WINDOW_BYTES = 64 << 20
_WINDOWS_LEAST = 50
"""A shorter pipeline is taken one by one: its passes would end within a window."""
_LONGEST_MESSAGE = 600
_LONG_FIRST_NS = 4e9
"""A first element that took so long is counted as one of the others: waiting for more of them would take too long."""


def drain(dataset: Any, record: Record, warmup_s: float = 0.0, alive: Alive = lambda: None) -> None:
    """Take elements as fast as they come; a step is one element, all of it input wait.

    Args:
        dataset: finite or not.
        record: told of every step that begins after the warm-up.
        warmup_s: how long to take elements before.
        alive: see `Alive`.

    Raises:
        UserCodeError: it gives no element, or fails.
    """
    with user_code.element_errors():
        elements = _Endless(dataset)
        typical_ns, size_bytes = _warm_up(elements, warmup_s, alive)
        count = min(_WINDOW_MOST, round(_WINDOW_NS / typical_ns), int(_WINDOW_BYTES // max(1, size_bytes)))
        if typical_ns < _WINDOW_FROM_NS and count > 1 and _has_windows(dataset, count):
            _drain_windows(elements, dataset.window(count, drop_remainder=True), count, record)
        else:
            _drain_elements(elements, record)


class _Endless:
    """Takes elements of a dataset again and again."""

    def __init__(self, dataset: Any) -> None:
        self._taker = taking.Taker(dataset)
        self._gave = False

    def take(self) -> list[Any]:
        try:
            element = self._taker.take()
        except StopIteration:
            self._taker.again()
        else:
            self._gave = True
            return element
        try:
            return self._taker.take()
        except StopIteration:
            raise _none_left(self._gave) from None


def _none_left(gave: bool) -> UserCodeError:
    """What is wrong with a dataset that gives no element when it begins anew."""
    return UserCodeError(_USED_UP, _USED_UP_HINT) if gave else UserCodeError(NO_ELEMENT, "Check its files and filters.")


def _warm_up(elements: _Endless, seconds: float, alive: Alive) -> tuple[float, int]:
    """Take elements for so long, two at least; the median time of one in ns, and the bytes of the last.

    Where the first one takes very long, one must do.
    """
    begin_ns = time.perf_counter_ns()
    end_ns = begin_ns + seconds * 1e9
    times: list[int] = []
    element = elements.take()
    alive()
    first_ns = time.perf_counter_ns() - begin_ns
    if first_ns > _LONG_FIRST_NS:
        times.append(first_ns)
    while not times or time.perf_counter_ns() < end_ns:
        start_ns = time.perf_counter_ns()
        element = elements.take()
        times.append(time.perf_counter_ns() - start_ns)
        alive()
    # Of a parallel pipeline the mean: its elements come in bursts.
    typical_ns = max(statistics.median(times), statistics.fmean(times), 100.0)
    return typical_ns, taking.flat_nbytes(element)


def _drain_elements(elements: _Endless, record: Record) -> None:
    start_ns = time.monotonic_ns()
    more = True
    while more:
        elements.take()
        end_ns = time.monotonic_ns()
        more = record(start_ns, end_ns, end_ns - start_ns, NO_LOSS)
        start_ns = end_ns


def _drain_windows(elements: _Endless, windows: Any, count: int, record: Record) -> None:
    """Record the elements of a window as steps of equal length."""
    elements._taker = taking.Taker(windows)
    elements.take()
    start_ns = time.monotonic_ns()
    more = True
    while more:
        elements.take()
        end_ns = time.monotonic_ns()
        length_ns = end_ns - start_ns
        for index in range(count):
            begin = start_ns + length_ns * index // count
            end = start_ns + length_ns * (index + 1) // count
            more = record(begin, end, end - begin, NO_LOSS)
            if not more:
                return
        start_ns = end_ns


def _has_windows(dataset: Any, count: int) -> bool:
    """Whether a pass has so many whole windows that what is left over at its end, and not counted, is no matter."""
    if not hasattr(dataset, "window"):  # a distributed one
        return False
    cardinality = int(dataset.cardinality())
    return cardinality == INFINITE or cardinality >= _WINDOWS_LEAST * count


def train(dataset: Any, step: Step, record: Record, warmup_s: float = 0.0, alive: Alive = lambda: None) -> None:
    """Have the model step on the elements; the input wait is how long `next` took.

    Args:
        dataset: finite or not.
        step: as `step_of` makes it; returns when the loss is on the host.
        record: told of every step that begins after the warm-up, the first ones, which trace the model, never.
        warmup_s: how long to step before, after the first steps.
        alive: see `Alive`.

    Raises:
        UserCodeError: the dataset gives no element, or it or the model fails.
    """
    _iterate(_Batches(dataset).next, step, record, warmup_s, alive)


def ceiling(dataset: Any, step: Step, record: Record, warmup_s: float = 0.0, alive: Alive = lambda: None) -> None:
    """Have the model step on one batch that stays on the device.

    Raises:
        UserCodeError: the dataset gives no element, or it or the model fails.
    """
    batch = on_device(_Batches(dataset).next())
    alive()
    _iterate(lambda: batch, step, record, warmup_s, alive)


def on_device(batch: Any) -> Any:
    """The batch with its numbers on the first GPU, where there is one; strings stay where they are."""
    import tensorflow as tf

    if not tf.config.list_logical_devices("GPU"):
        return batch
    with tf.device("/gpu:0"):
        return tf.nest.map_structure(
            lambda part: part if part.dtype == tf.string else tf.identity(part), batch, expand_composites=True
        )


class _Batches:
    """Gives the batches of a dataset again and again, in their structure."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._gave = False
        with user_code.element_errors():
            self._iterator = iter(dataset)

    def next(self) -> Any:
        with user_code.element_errors():
            try:
                batch = next(self._iterator)
            except StopIteration:
                self._begin_anew()
            else:
                self._gave = True
                return batch
            try:
                return next(self._iterator)
            except StopIteration:
                raise _none_left(self._gave) from None

    def _begin_anew(self) -> None:
        if hasattr(self._iterator, "_iterator_resource"):
            taking.restart(self._iterator)
        else:  # of a distributed dataset
            self._iterator = iter(self._dataset)


_FIRST_STEPS = 2


def _iterate(next_batch: Callable[[], Any], step: Step, record: Record, warmup_s: float, alive: Alive) -> None:
    for _ in range(_FIRST_STEPS):
        batch = next_batch()
        alive()
        step(batch)
        alive()
    end_ns = time.monotonic_ns() + warmup_s * 1e9
    more = True
    while more:
        start_ns = time.monotonic_ns()
        batch = next_batch()
        have_ns = time.monotonic_ns()
        loss = step(batch)
        done_ns = time.monotonic_ns()
        if start_ns >= end_ns:
            more = record(start_ns, done_ns, have_ns - start_ns, loss)
        else:
            alive()


def step_of(model: Any) -> Step:
    """A training step of what the user's function for the model returned: it takes a batch and gives the loss.

    A Keras model steps as in `fit`: `train_step` in a `tf.function`, compiled by XLA or run eagerly where the model
    says so, on ``(x, y)``, ``(x, y, weights)`` or whatever the dataset gives. Anything else that can be called is
    called with the batch; what it returns is waited for, and is the loss where it is one number.

    Raises:
        UserCodeError: it is neither, or a model that was not compiled.
    """
    import keras

    if isinstance(model, keras.Model):
        return _keras_step(model)
    if callable(model):
        return _guarded(lambda batch: _number(model(batch)))
    raise UserCodeError(
        f"The model's function returned {type(model).__name__}, which is no model.",
        "Return a compiled Keras model, or a function that takes a batch and makes one training step.",
    )


def _keras_step(model: Any) -> Step:
    import tensorflow as tf

    if not getattr(model, "compiled", False):
        raise UserCodeError(
            f"The Keras model {model.name} was not compiled.",
            "Call model.compile(optimizer=…, loss=…) before it is returned.",
        )
    steps: list[Callable[[Any], Any]] = []

    def step(batch: Any) -> float:
        if not steps:
            # Keras makes the weights, the optimizer's and the metrics' variables outside of any tf.function.
            x, y, weights = _unpacked(batch)
            model.train_on_batch(x, y, sample_weight=weights)
            jit = bool(getattr(model, "jit_compile", False))
            own = tf.function(model.train_step, jit_compile=jit, reduce_retracing=True)
            steps.append(model.train_step if model.run_eagerly else own)
        return _number(steps[0](batch))

    return _guarded(step)


def _unpacked(batch: Any) -> tuple[Any, Any, Any]:
    import keras

    return keras.utils.unpack_x_y_sample_weight(batch)  # type: ignore[no-any-return]


def _number(result: Any) -> float:
    """The loss in what a step returned, once it is there; NaN where it is no single number."""
    import tensorflow as tf

    if isinstance(result, dict) and "loss" in result:
        result = result["loss"]
    values = [value.numpy() if hasattr(value, "numpy") else value for value in tf.nest.flatten(result)]
    try:
        return float(values[0]) if values else NO_LOSS
    except (TypeError, ValueError):
        return NO_LOSS


def _guarded(step: Step) -> Step:
    """The step with what it raises as the user's own error."""

    def guarded(batch: Any) -> float:
        try:
            return step(batch)
        except UserCodeError:
            raise
        except Exception as error:
            message = f"The model failed on a batch: {user_code.summary(error, _LONGEST_MESSAGE)}"
            raise UserCodeError(message, traceback=user_code.traceback_of(error)) from error

    return guarded
