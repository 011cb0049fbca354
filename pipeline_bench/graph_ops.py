"""Pieces of graphs in common: a wait that costs nothing, a probe of how long an input took, which ops run Python."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
"""The types of the ops that call Python; no other process can run them."""
RANDOM_OPS = re.compile(
    r"Random|TruncatedNormal|Multinomial|SampleDistorted|CandidateSampler|^Rng|^Stateful(Uniform|StandardNormal)"
)
"""Ops that draw random numbers, from a state of theirs or by a seed."""

# What share of a wait's error the next one is corrected by, once the first ones have shown about how much it is. It is
# small, so that the waits follow the machine and not each other's noise.
GAIN = 0.1
# An error counts as no more than this. A wait that came out far too long was interrupted, which says
# nothing of the next one.
LARGEST_ERROR_US = 1000.0


def delay(latency_us: Any) -> Any:
    """Return an op that takes `latency_us` microseconds at each run and holds neither a core nor the GIL meanwhile.

    Runs of it overlap freely, in a queue's threads as in the calls of a parallel map. A `SleepDataset` of one element
    is iterated afresh at each run; the `TakeDataset` behind it keeps the end of the sequence from sleeping once more.

    Args:
        latency_us: an int, or an int64 scalar tensor that may have another value at each run.
    """
    import tensorflow as tf

    signature: dict[str, Any] = {"output_types": [tf.int32], "output_shapes": [[]]}
    one = tf.data.Dataset.from_tensors(0)._variant_tensor
    sleeping = tf.raw_ops.SleepDataset(input_dataset=one, sleep_microseconds=tf.cast(latency_us, tf.int64), **signature)
    once = tf.raw_ops.TakeDataset(input_dataset=sleeping, count=tf.constant(1, tf.int64), **signature)
    return tf.raw_ops.DatasetToSingleElement(dataset=once, **signature)[0]


def steady_delay(latency_us: Any, name: str) -> Any:
    """Return a `delay` that takes `latency_us` in the mean; gives how long it took, in s, float64 [].

    A sleep overshoots by as much as the machine takes to wake, a tenth of a millisecond or more, and less when it is
    busy. Each run measures itself and shortens the next one accordingly, so that a wait is as long on a loaded machine
    as on an idle one. What is found once, before the trial, does not hold in it.

    Args:
        latency_us: a number, or a scalar tensor that may have another value at each run.
        name: of the variable that keeps the overshoot; delays of one name share it.
    """
    import tensorflow as tf

    kept = _overshoot(name)
    with tf.device("/cpu:0"):
        wanted_us = tf.cast(latency_us, tf.float64)
        before = kept.read_value()
        _, took_s = timed(lambda: [delay(_shortened(wanted_us, before))])
        with tf.control_dependencies([kept.assign(_learned(before, took_s * 1e6 - wanted_us), read_value=False)]):
            return tf.identity(took_s)


def fill_up(since_s: Any, latency_us: float, name: str) -> Any:
    """Wait, as `steady_delay` does, until `latency_us` have passed since a time stamp; not at all where they have.

    What is to come before the wait is said by the control dependencies that it is built under.

    Args:
        since_s: what `tf.timestamp` gave.
        latency_us: microseconds, what has passed since then counted in.
        name: of the variable that keeps the overshoot.

    Returns:
        The seconds since the stamp when the wait was over, float64 []: more than asked for where it came too late.
    """
    import tensorflow as tf

    kept = _overshoot(name)
    with tf.device("/cpu:0"):
        # By a clock that was set back meanwhile less than nothing has passed: who waited for that would wait for hours.
        left_us = latency_us - tf.maximum(tf.timestamp() - since_s, 0.0) * 1e6
        before = kept.read_value()
        wait_us = _shortened(left_us, before)
        waited = tf.cond(left_us > 0, lambda: delay(wait_us), lambda: tf.constant(0))
        with tf.control_dependencies([waited]):
            took_s = tf.timestamp() - since_s
        error_us = took_s * 1e6 - latency_us
        # What came too late, or could not have waited less, says nothing of how long a wait takes.
        after = tf.where((wait_us > 1) | (error_us < 0), _learned(before, error_us), before)
        with tf.control_dependencies([kept.assign(after, read_value=False)]):
            return tf.identity(took_s)


def _overshoot(name: str) -> Any:
    """Return the variable that holds by how many µs a wait is too long on average, and the number of waits."""
    import tensorflow as tf

    return shared_variable(name, [2], tf.float64)


def _shortened(wanted_us: Any, overshoot: Any) -> Any:
    """Return the wait to ask for, int64 []: 1 at least."""
    import tensorflow as tf

    return tf.cast(tf.round(tf.maximum(wanted_us - overshoot[0], 1.0)), tf.int64)


def _learned(overshoot: Any, error_us: Any) -> Any:
    """Return the overshoot after another wait, which was too long by `error_us`."""
    import tensorflow as tf

    now_us, waits = tf.unstack(overshoot)
    # The first wait sets its ops up, which says nothing of the others. Then a running mean: 1, 1/2, 1/3, ...
    gain = tf.where(waits > 0, tf.maximum(1 / tf.maximum(waits, 1.0), GAIN), 0.0)
    error_us = tf.clip_by_value(error_us, -LARGEST_ERROR_US, LARGEST_ERROR_US)
    return tf.stack([tf.clip_by_value(now_us + gain * error_us, 0.0, LARGEST_ERROR_US), waits + 1])


def call_counter(name: str) -> Any:
    """Return an op that gives 0, 1, 2 … at its runs, int64 []: each once, in whatever threads and functions it runs.

    Reading a variable that was added to is two ops, and between them another thread can add as well.
    """
    import tensorflow as tf

    calls = shared_variable(name, [], tf.int64)
    with tf.device("/cpu:0"):
        return tf.raw_ops.ResourceCountUpTo(resource=calls.handle, limit=2**62, T=tf.int64)


def shared_variable(name: str, shape: Sequence[int], dtype: Any, initial: Callable[[], Any] | None = None) -> Any:
    """Return a variable on the CPU; the same one for all that ask by its name, in the graph and in its functions.

    Where TensorFlow runs eagerly it is the process' own, which runs one trial, and also goes by `initial`.

    Args:
        name: the variable's.
        shape: of its value.
        dtype: of its value.
        initial: builds the value; by default zeros.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.init_scope(), tf.device("/cpu:0"):
        if tf.executing_eagerly():
            return _eager_variable(name, tuple(shape), dtype, initial)
        with v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE):
            initializer = v1.zeros_initializer() if initial is None else lambda *_, **__: initial()
            return v1.get_variable(name, shape, dtype, initializer, trainable=False, use_resource=True)


@cache
def _eager_variable(name: str, shape: tuple[int, ...], dtype: Any, initial: Callable[[], Any] | None) -> Any:
    """Return the variable of that name, which is kept only by what holds it; a graph keeps its own."""
    import tensorflow as tf

    return tf.Variable(tf.zeros(shape, dtype) if initial is None else initial(), trainable=False, name=name)


def timed(fetch: Callable[[], Any]) -> tuple[Any, Any]:
    """Build what `fetch` builds, a structure of tensors, between two time stamps of the graph.

    Returns:
        The structure, whose tensors become available only after the second stamp, so that no consumer of them runs
        before it; and the seconds between the stamps, a float64 scalar with a resolution of about 1 µs.
    """
    import tensorflow as tf

    structure, before, after = between_stamps(fetch)
    with tf.device("/cpu:0"):
        elapsed_s = after - before
    with tf.control_dependencies([after]):
        return tf.nest.map_structure(tf.identity, structure, expand_composites=True), elapsed_s


def between_stamps(fetch: Callable[[], Any]) -> tuple[Any, Any, Any]:
    """Build what `fetch` builds; return it, when it was begun and when it was there, in s since 1970."""
    import tensorflow as tf

    with tf.device("/cpu:0"):
        before = clock_s()
    with tf.control_dependencies([before]):
        structure = fetch()
    tensors = [each for each in tf.nest.flatten(structure, expand_composites=True) if tf.is_tensor(each)]
    with tf.control_dependencies([before, *tensors]), tf.device("/cpu:0"):
        after = clock_s()
    return structure, before, after


def clock_s() -> Any:
    """Return the seconds since 1970 as an op of the graph reads them, float64 [].

    By Python, where TensorFlow is to be deterministic: it then refuses its own op (tensorflow/core/kernels/
    logging_ops.cc, `TimestampOp`). No other process can run that, so a function that is saved must not hold it.
    """
    import tensorflow as tf

    if not is_deterministic():
        return tf.timestamp()
    return tf.ensure_shape(tf.numpy_function(_now_s, [], tf.float64), [])


def is_deterministic() -> bool:
    """Return whether TensorFlow's ops are to give the same in each run: `enable_op_determinism`, or the variable."""
    from tensorflow.python.framework import config

    return bool(config.is_op_determinism_enabled())


def _now_s() -> Any:
    return np.float64(time.time())
