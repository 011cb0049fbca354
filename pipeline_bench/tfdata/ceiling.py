"""The user's model on one batch that stays on the device: its ceiling, and what the copy of a batch adds to a step."""

from __future__ import annotations

import statistics
from time import monotonic_ns  # by itself: a user's code may replace that of the module
from typing import Any

from pipeline_bench.model.events import Copied
from pipeline_bench.tfdata import passes, user_code
from pipeline_bench.tfdata.consumers import Alive, Record, Step, iterate
from pipeline_bench.tfdata.describe import nbytes

_PAIRS_NS, _MOST_PAIRS_NS, _FEWEST_PAIRS = 4e8, 2e9, 3
"""For how long the cost of a copy is measured, at most so long, and in so many pairs of steps at least."""


def run(
    dataset: Any,
    step: Step,
    record: Record,
    warmup_s: float = 0.0,
    alive: Alive = lambda: None,
    device: str | None = None,
) -> Copied | None:
    """Have the model step on one batch that stays on the device, and then by turns on that and on one in host memory.

    Args:
        dataset: gives the batch.
        step: as `step_of` makes it.
        record: called for every step on the device's batch that begins after the warm-up.
        warmup_s: how long to step before.
        alive: see `Alive`.
        device: of the model; by default the first GPU.

    Returns:
        What the copy of the batch costs; None where the model is on no GPU, the pipeline copies its batches itself, or
        a step takes so long that no copy shows beside it.

    Raises:
        UserCodeError: the dataset gives no element, or it or the model fails.
    """
    with user_code.element_errors():
        made = passes.batches(dataset)()
    device = device or _gpu()
    batch = made if device is None else _on_device(made, device)
    alive()
    iterate(lambda: batch, step, record, warmup_s, alive)
    return None if device is None or _is_on(made, device) else _copied(made, batch, step, alive)


def _gpu() -> str | None:
    """Return the device of a model of TensorFlow's, where it has a GPU."""
    import keras
    import tensorflow as tf

    has = tf.config.list_logical_devices("GPU") and keras.backend.backend() == "tensorflow"
    return "/gpu:0" if has else None


def _on_device(batch: Any, device: str) -> Any:
    """Return the batch with its numbers on the device; strings stay where they are."""
    import tensorflow as tf

    with tf.device(device):
        return tf.nest.map_structure(
            lambda part: part if part.dtype == tf.string else tf.identity(part), batch, expand_composites=True
        )


def _is_on(batch: Any, device: str) -> bool:
    """Return whether some part of the batch is on the device."""
    import tensorflow as tf

    parts = tf.nest.flatten(batch, expand_composites=True)
    return any(part.device.lower().endswith(device.lower().removeprefix("/")) for part in parts)


def _copied(in_host_memory: Any, on_device: Any, step: Step, alive: Alive) -> Copied | None:
    """Return what steps on the one batch take longer than those on the other, by the median of pairs."""
    longer_ns: list[int] = []
    begun_ns = monotonic_ns()
    step(in_host_memory)
    while monotonic_ns() - begun_ns < _PAIRS_NS or len(longer_ns) < _FEWEST_PAIRS:
        if monotonic_ns() - begun_ns > _MOST_PAIRS_NS:
            return None
        ends_ns = [monotonic_ns()]
        for batch in (on_device, in_host_memory):
            step(batch)
            ends_ns.append(monotonic_ns())
        alive()
        start, between, end = ends_ns
        longer_ns.append((end - between) - (between - start))
    return Copied(size_bytes=nbytes(in_host_memory), ms=statistics.median(longer_ns) / 1e6)
