"""Graph pieces that sources and backends share: a wait that costs nothing, and a probe of how long an input took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

# Above this the overshoot of a sleep is below 1 % of it, and measuring it would only delay the trial.
_CALIBRATE_UP_TO_US = 50_000
_CALIBRATION_RUNS = 7


def delay(latency_us: Any) -> Any:
    """An op that takes `latency_us` microseconds at each run and holds neither a core nor the GIL meanwhile.

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


def delay_overshoot_us(latency_us: int, config: Any) -> int:
    """How many microseconds too long `delay(latency_us)` takes on this machine, seen from who waits for it.

    Waking an idle core costs a few hundred microseconds on a virtual machine, 5 % of a 10 ms wait. The median of a few
    runs, less what a run without a delay takes.

    Args:
        latency_us: the delay.
        config: the trial's ConfigProto. TensorFlow sizes its thread pools by the first session of a process, and this
            is the first: with another configuration the trial's threads would be ignored.
    """
    if not 0 < latency_us <= _CALIBRATE_UP_TO_US:
        return 0
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        waiting, idle = delay(latency_us).op, tf.no_op()
        with v1.Session(config=config) as session:
            waited_us, idle_us = (_median_run_us(session, op) for op in (waiting, idle))
    return min(max(round(waited_us - idle_us) - latency_us, 0), latency_us - 1)


def _median_run_us(session: Any, op: Any) -> float:
    session.run(op)  # the first run sets the kernel up
    runs_ns = []
    for _ in range(_CALIBRATION_RUNS):
        start_ns = time.monotonic_ns()
        session.run(op)
        runs_ns.append(time.monotonic_ns() - start_ns)
    return statistics.median(runs_ns) / 1e3


def call_counter(name: str) -> Any:
    """An op that gives 0, 1, 2 … at its runs, int64 []: each once, in whatever threads and functions it runs.

    Reading a variable that was added to is two ops, and between them another thread can add as well.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.init_scope(), tf.device("/cpu:0"), v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE):
        calls = v1.get_variable(name, [], tf.int64, v1.zeros_initializer(), trainable=False, use_resource=True)
    with tf.device("/cpu:0"):
        return tf.raw_ops.ResourceCountUpTo(resource=calls.handle, limit=2**62, T=tf.int64)


def timed(fetch: Callable[[], Sequence[Any]]) -> tuple[list[Any], Any]:
    """Build what `fetch` builds, between two time stamps of the graph.

    Returns:
        The tensors, which become available only after the second stamp, so that no consumer of them runs before it;
        and the seconds between the stamps, a float64 scalar with a resolution of about 1 µs.
    """
    import tensorflow as tf

    with tf.device("/cpu:0"):
        before = tf.timestamp()
    with tf.control_dependencies([before]):
        tensors = list(fetch())
    with tf.control_dependencies(tensors), tf.device("/cpu:0"):
        after = tf.timestamp()
        elapsed_s = after - before
    with tf.control_dependencies([after]):
        return [tf.identity(tensor) for tensor in tensors], elapsed_s
