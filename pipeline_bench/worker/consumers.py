"""What takes the elements of a pipeline: nothing but a drain, or the user's model; on one batch alone: `model_ceiling`.

Each runs steps and records them: ``record(start_ns, end_ns, wait_ns, loss)``, which returns False when it was the last
one. A dataset that ends begins anew, which is part of the step that had to wait for it.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable
from time import monotonic_ns, perf_counter_ns  # by themselves: a user's code may replace those of the module
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.job import Eager
from pipeline_bench.model.pipeline import INFINITE, UNKNOWN
from pipeline_bench.script.loop_step import LoopStep
from pipeline_bench.script.training_data import Does
from pipeline_bench.tfdata import passes
from pipeline_bench.tfdata.describe import nbytes
from pipeline_bench.tfdata.passes import Repeated, UsedUpError
from pipeline_bench.tfdata.throughput import can_window, window_size
from pipeline_bench.user_code import legacy_keras, thread_state
from pipeline_bench.worker import keras_step

Record = Callable[[int, int, int, float], bool]
StepFunction = Callable[[Any], float]
Alive = Callable[[], None]
"""Called for every element of a warm-up, as a sign of life."""


class NoModelError(UserCodeError):
    """What the user's function returned is no model that could be trained."""


NO_LOSS = float("nan")
_WINDOW_FROM_NS = 60_000
"""Elements that come faster than this are taken in windows: a call from Python for each costs about 12 us."""
_WINDOWS_LEAST = 50
"""A shorter pipeline is taken one by one: its passes would end within a window."""
_LONG_FIRST_NS = 4e9
"""A first element that took so long is counted as one of the others: waiting for more of them would take too long."""
_SHORT_PASS_NS = 2e9
_SLOW_BEGINNING = 0.1
"""Of a short pass: from this share on whole passes are measured, as what they begin with counts: a buffer is filled."""
_FIRST_STEPS = 2
"""Steps that trace the model, and are never recorded."""
_DROPPING_NS = 1e9
"""For so long at the most batches are dropped that were made while the model was traced."""


def drain(
    dataset: Any, record: Record, warmup_s: float = 0.0, alive: Alive = lambda: None, *, may_end: bool = False
) -> int | None:
    """Take elements as fast as they come; a step is one element, all of it input wait.

    Args:
        dataset: finite or not.
        record: called for every step that begins after the warm-up.
        warmup_s: how long to take elements before.
        alive: see `Alive`.
        may_end: whether the input may end before and cannot be begun anew, as a generator that `fit` was given.

    Returns:
        How many elements there were, where it ended so, as `train` does.

    Raises:
        UserCodeError: it gives no element, fails, or ends though it may not.
    """
    edges, measured = [monotonic_ns()], 0

    def taken() -> None:
        edges.append(monotonic_ns())
        alive()

    def recorded(start_ns: int, end_ns: int, wait_ns: int, loss: float) -> bool:
        nonlocal measured
        measured += 1
        return record(start_ns, end_ns, wait_ns, loss)

    with user_code.element_errors():
        try:
            _drain(dataset, recorded, warmup_s, taken, alive)
        except UsedUpError:
            if may_end and (measured or _record_each(edges, record)):
                return len(edges) - 1 + measured
            raise
    return None


def _drain(dataset: Any, record: Record, warmup_s: float, taken: Alive, alive: Alive) -> None:
    """Do what `drain` does, and call `taken` after each element before the steps."""
    take = passes.flat_elements(dataset)
    first_ns, typical_ns, size_bytes = _warm_up(take, warmup_s, taken)
    window = window_size(typical_ns, size_bytes) if typical_ns < _WINDOW_FROM_NS else 1
    if window > 1 and not _has_windows(dataset, window):
        window = 1
    if window > 1:
        take = passes.flat_elements(dataset.window(window, drop_remainder=True))
        take()
    at_once, count = 1, int(dataset.cardinality())
    if count == UNKNOWN:
        count = _counted(take, first_ns, taken)
    pass_ns = first_ns + (count - 1) * typical_ns
    if window == 1 and count > 1 and pass_ns < _SHORT_PASS_NS and first_ns > _SLOW_BEGINNING * pass_ns:
        for _ in range(count - take.in_pass):
            take()
            taken()
        at_once = window = count
    start_ns = monotonic_ns()
    more = True
    while more:
        take()
        for _ in range(at_once - 1):
            take()
            alive()
        end_ns = monotonic_ns()
        if at_once > 1 or take.counts():
            more = _record_parts(start_ns, end_ns, window, record)
        start_ns = end_ns


def _warm_up(take: Callable[[], Any], seconds: float, alive: Alive) -> tuple[float, float, int]:
    """Take elements for so long, two at least; return the time of the first and of a typical one in ns, and its bytes.

    Where the first one takes very long, one must do.
    """
    begin_ns = perf_counter_ns()
    end_ns = begin_ns + seconds * 1e9
    element = take()
    alive()
    first_ns = perf_counter_ns() - begin_ns
    times = [first_ns] if first_ns > _LONG_FIRST_NS else []
    while not times or perf_counter_ns() < end_ns:
        start_ns = perf_counter_ns()
        element = take()
        times.append(perf_counter_ns() - start_ns)
        alive()
    # Of a parallel pipeline the mean: its elements come in bursts.
    user_code.restore_imports()
    return first_ns, max(statistics.median(times), statistics.fmean(times)), nbytes(element)


def _counted(take: Repeated, first_ns: float, alive: Alive) -> int:
    """Return how many elements a pass has that TensorFlow cannot count; 0 where it is long, or begins fast."""
    while not take.whole and monotonic_ns() - take.begun_ns < min(_SHORT_PASS_NS, first_ns / _SLOW_BEGINNING):
        take()
        alive()
    return take.whole


def _record_parts(start_ns: int, end_ns: int, count: int, record: Record) -> bool:
    """Record the elements of a window as steps of equal length; whether there are more to come."""
    return _record_each([start_ns + (end_ns - start_ns) * index // count for index in range(count + 1)], record)


def _record_each(edges: Iterable[int], record: Record) -> bool:
    """Record the elements between some moments as steps; whether there are more to come."""
    return all(record(begin, end, end - begin, NO_LOSS) for begin, end in itertools.pairwise(edges))


def _has_windows(dataset: Any, count: int) -> bool:
    """Return whether a pass has so many whole windows that the uncounted rest at its end does not matter."""
    cardinality = int(dataset.cardinality())
    return can_window(dataset) and (cardinality == INFINITE or cardinality >= _WINDOWS_LEAST * count)


def train(
    dataset: Any,
    step: StepFunction,
    record: Record,
    warmup_s: float = 0.0,
    alive: Alive = lambda: None,
    held: int = 0,
    spec: Any = None,
) -> int | None:
    """Train on the elements; the input wait is how long taking one took.

    Args:
        dataset: finite or not.
        step: as `step_of` makes it; returns when the loss is on the host.
        record: called for every step that begins after the warm-up; never for the first ones, which trace the model.
        warmup_s: how long to step before, after the first steps.
        alive: see `Alive`.
        held: how many batches a queue may hold. It fills while the model is traced, and would feed a short trial for
            all its steps, however slowly batches are made: so many are dropped first.
        spec: of the elements, where it stands for a `fit` that takes them in a graph. Python's `next` spends 0.1 to 0.3
            ms on a batch that is ready, most of it on making a batch of its tensors. Such a `fit` does not wait for
            that: it is then no part of a step.

    Returns:
        How many batches there were, where the input is so short that it ended before and cannot be begun anew; the
        steps of the warm-up are then recorded too if it ended in that. None where there were enough.

    Raises:
        UserCodeError: the dataset gives no element, or none after the first steps; or it or the model fails.
    """
    with user_code.element_errors():
        if spec is None:
            batches = passes.batches(dataset)
            return iterate(batches, step, record, warmup_s, alive, batches.counts, held)
        tensors = passes.flat_elements(dataset)
        return iterate(tensors, step, record, warmup_s, alive, tensors.counts, held, _maker_of_batches(spec))


def _maker_of_batches(spec: Any) -> Callable[[Any], Any]:
    """Return a function that makes an element of its tensors as tf.data moves them."""
    from tensorflow.python.data.util import structure

    return lambda tensors: structure.from_compatible_tensor_list(spec, tensors)


def iterate(
    next_batch: Callable[[], Any],
    step: StepFunction,
    record: Record,
    warmup_s: float,
    alive: Alive,
    counts: Callable[[], bool] = lambda: True,
    held: int = 0,
    made: Callable[[Any], Any] = lambda batch: batch,
) -> int | None:
    """Train on what `next_batch` gives; return what `train` does.

    Args:
        next_batch: gives a batch, or raises UsedUpError.
        step: as `step_of` makes it.
        record: called for every step that begins after the warm-up and `counts`.
        warmup_s: how long to step before, after the first steps.
        alive: see `Alive`.
        counts: whether the step that has just ended is one to be recorded.
        held: as of `train`.
        made: makes a batch of what `next_batch` gives; the time that it takes belongs to no step.
    """
    for _ in range(_FIRST_STEPS):
        begun_ns = monotonic_ns()
        batch = made(next_batch())
        alive()
        step(batch)
        alive()
    if held:
        end_ns = monotonic_ns() + _DROPPING_NS
        for _ in range(held):
            if monotonic_ns() >= end_ns:
                break
            next_batch()  # where the input ends here, no step can be measured
            alive()
        begun_ns = monotonic_ns()
    end_ns = begun_ns + warmup_s * 1e9  # the second step warms up as well: of a large model it is long enough
    more, count = True, _FIRST_STEPS
    warm_up: list[tuple[int, int, int, float]] = []
    while more:
        start_ns = monotonic_ns()
        try:
            batch = next_batch()
        except UsedUpError:
            if count == _FIRST_STEPS:
                raise
            for taken in warm_up:
                record(*taken)
            return count
        have_ns = monotonic_ns()
        batch = made(batch)
        making_ns = monotonic_ns() - have_ns
        loss = step(batch)
        done_ns = monotonic_ns() - making_ns
        count += 1
        if start_ns >= end_ns:
            warm_up = []
            more = not counts() or record(start_ns, done_ns, have_ns - start_ns, loss)
        else:
            warm_up.append((start_ns, done_ns, have_ns - start_ns, loss))
            alive()
    return None


def step_of(model: Any, does: Does = "train", spec: Any = None, *, in_graph: bool = False) -> StepFunction:
    """Return a step of what the user's function for the model returned: it takes a batch, gives the loss.

    A Keras model steps as in `fit`: `train_step` in a `tf.function`, compiled by XLA or run eagerly where the model
    says so, on ``(x, y)``, ``(x, y, weights)`` or whatever the dataset gives. Anything else that can be called is
    called with the batch; what it returns is waited for, and the first single number in it is the loss.

    Args:
        model: see above.
        does: what a Keras model does with a batch.
        spec: of the dataset's elements, for which `fit` traces the model: shapes that the dataset does not promise are
            not known then, which may take TensorFlow many times as long. None: the batches' own shapes.
        in_graph: whether a Keras model on TensorFlow is to step as a graph though it runs as eager code.

    Raises:
        NoModelError: it is neither, or a model that was not compiled.
    """
    import keras

    if isinstance(model, keras.Model) or legacy_keras.is_model(model):
        _require_compiled(model, does)
        step = thread_state.on_device_of(model, keras_step.step_of(model, does, spec, in_graph))
    elif callable(model):
        step = thread_state.on_device_of(model, model) if isinstance(model, LoopStep) else model
    else:
        raise NoModelError(
            f"The model's function returned {type(model).__name__}, which is no model.",
            "Return a compiled Keras model, or a function that takes a batch and makes one training step.",
        )

    def guarded(batch: Any) -> float:
        try:
            return _number(step(batch))
        except UserCodeError:
            raise
        except Exception as error:
            message = f"The model failed on a batch: {user_code.summary(error, user_code.LONGEST_MESSAGE)}"
            raise UserCodeError(message, traceback=user_code.traceback_of(error)) from error

    return guarded


def require_model(make: Callable[[], Any]) -> None:
    """Refuse what the user's function makes if it is no model; where it fails, the trials that train will tell.

    Raises:
        NoModelError: see `step_of`.
    """
    try:
        step_of(make())
    except NoModelError:
        raise
    except Exception:
        return


def is_traced(model: Any, does: Does) -> bool:
    """Return whether Keras has TensorFlow trace a model for what the dataset promises of its batches.

    The `predict` of Keras 3 hands it each batch as it is, and JAX compiles for each batch's own shapes.
    """
    import keras

    if legacy_keras.is_model(model):
        return user_code.runs_eagerly(model) is None
    is_on_tensorflow = isinstance(model, keras.Model) and keras_step.is_on_tensorflow(model)
    return is_on_tensorflow and user_code.runs_eagerly(model) is None and does != "predict"


def why_eager(model: Any) -> Eager | None:
    """Return why a Keras model on TensorFlow runs as eager code; None where it does not, and of any other model."""
    import keras

    is_keras = isinstance(model, keras.Model) or legacy_keras.is_model(model)
    return user_code.runs_eagerly(model) if is_keras and keras_step.is_on_tensorflow(model) else None


def _require_compiled(model: Any, does: Does) -> None:
    # The second one is that of Keras 2.
    if does != "predict" and not (getattr(model, "compiled", False) or getattr(model, "_is_compiled", False)):
        raise NoModelError(
            f"The Keras model {model.name} was not compiled.",
            "Call model.compile(optimizer=…, loss=…) before it is returned.",
        )


def _number(result: Any) -> float:
    """Return the loss in what a step returned, once it is there: the first single number in it, NaN without one."""
    import tensorflow as tf

    if isinstance(result, dict) and "loss" in result:
        result = result["loss"]
    values = [value.numpy() if hasattr(value, "numpy") else value for value in tf.nest.flatten(result)]
    return next((loss for loss in map(_as_number, values) if loss is not None), NO_LOSS)


def _as_number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
