"""Backends with options, and what each makes of a producer of known delays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline_bench.selftest import truth
from pipeline_bench.selftest.truth import Truth

QUEUE_CAPACITY = 4
PREFETCH = 2


@dataclass(frozen=True)
class Pipeline:
    """A backend with options, and what it makes of a producer, of the host's own time, and of decoding in `finish`."""

    name: str
    backend: str
    options: dict[str, Any]
    producers: int
    work_out: Callable[[tuple[float, ...], float, float], Truth]
    """From ms to produce, ms of the host, ms of the device."""
    decodes_in_step: bool = False
    """Whether what the source's `finish` does is done between the input and the model."""


def fifo(threads: int) -> Pipeline:
    """A queue that so many threads fill."""
    return Pipeline(
        f"fifo_queue, {threads}",
        "fifo_queue",
        {"threads": threads, "capacity": QUEUE_CAPACITY},
        threads,
        lambda produce, host, device: truth.queue(produce, threads, QUEUE_CAPACITY, host, device),
        decodes_in_step=True,
    )


def tf_data(calls: int) -> Pipeline:
    """tf.data with so many calls at a time."""
    return Pipeline(
        f"tf_data, {calls}",
        "tf_data",
        {"parallel_calls": calls, "prefetch": PREFETCH},
        calls,
        lambda produce, host, device: truth.prefetched(produce, calls, PREFETCH, host, device),
    )


def readers(threads: int, batch_size: int) -> Pipeline:
    """TensorFlow 1 readers; their queue holds samples."""
    return Pipeline(
        f"reader_queue, {threads}",
        "reader_queue",
        {"threads": threads, "capacity": QUEUE_CAPACITY * batch_size},
        threads,
        lambda produce, host, device: truth.queue(produce, threads, QUEUE_CAPACITY, host, device),
    )


def workers(count: int) -> Pipeline:
    """A PyDataset of Keras with so many threads."""
    return Pipeline(
        f"py_dataset, {count}",
        "py_dataset",
        {"workers": count, "max_queue_size": QUEUE_CAPACITY},
        count,
        lambda produce, host, device: truth.queue(produce, count, QUEUE_CAPACITY, host, device),
    )


FEED = Pipeline("feed_dict", "feed_dict", {}, 1, truth.synchronous)
SERIAL = Pipeline("tf_data, no prefetch", "tf_data", {"prefetch": 0}, 1, truth.synchronous)
