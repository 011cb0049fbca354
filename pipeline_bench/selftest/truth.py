"""What a pipeline of known delays must come to: its steps, worked out one by one. Pure.

Every function gives the mean step and the mean input wait, in ms, of the steps after the first ones. A producer takes
`produce_ms[i % len]` for batch i; the consumer's step is its wait, then the host's own time, then the device's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# The queue or the prefetch buffer begins empty; by then it is as full, or as empty, as it will be.
FIRST_STEPS = 40
STEPS = 1040


@dataclass(frozen=True)
class Truth:
    """A mean step and its parts, in ms; `device_ms` is the ceiling."""

    step_ms: float
    wait_ms: float
    device_ms: float

    @property
    def wait(self) -> float:
        """Input wait, as a share of the step."""
        return self.wait_ms / self.step_ms

    @property
    def utilization(self) -> float:
        """Accelerator utilization, 0 to 1."""
        return self.device_ms / self.step_ms

    @property
    def host(self) -> float:
        """Host slowdown, as a share of the step."""
        return 1 - self.wait - self.utilization


def synchronous(produce_ms: Sequence[float], host_ms: float, device_ms: float) -> Truth:
    """feed_dict, or tf.data without prefetch: the step waits for all that its batch takes."""
    wait_ms = sum(produce_ms) / len(produce_ms)
    return Truth(wait_ms + host_ms + device_ms, wait_ms, device_ms)


def queue(produce_ms: Sequence[float], threads: int, capacity: int, host_ms: float, device_ms: float) -> Truth:
    """Simulate a queue: a thread begins a batch once its last one is enqueued, and blocks while the queue is full."""
    ready = [(_of(produce_ms, thread), thread) for thread in range(threads)]  # when each thread wants to enqueue
    heapq.heapify(ready)
    started = threads
    taken: list[float] = []  # when each element was dequeued, which makes room for the one `capacity` later
    waits: list[float] = []
    asked = 0.0
    for index in range(STEPS):
        at, thread = heapq.heappop(ready)
        enqueued = max(at, taken[index - capacity] if index >= capacity else 0.0)
        heapq.heappush(ready, (enqueued + _of(produce_ms, started), thread))
        started += 1
        taken.append(max(asked, enqueued))
        waits.append(taken[-1] - asked)
        asked = taken[-1] + host_ms + device_ms
    return _mean(waits, host_ms, device_ms)


def prefetched(produce_ms: Sequence[float], calls: int, buffer: int, host_ms: float, device_ms: float) -> Truth:
    """tf.data's map and prefetch: so many calls at a time, in order, each begun when a result was taken from the map.

    With one call the map is not parallel: the prefetch thread itself makes a batch, whenever its buffer has room.
    """
    moved: list[float] = []  # when each batch went from the map into the prefetch buffer
    taken: list[float] = []
    waits: list[float] = []
    asked = 0.0
    for index in range(STEPS):
        room = taken[index - buffer] if index >= buffer else 0.0
        free = max(room, moved[-1] if moved else 0.0)
        if calls == 1:
            moved.append(free + _of(produce_ms, index))
        else:
            begun = moved[index - calls] if index >= calls else 0.0
            moved.append(max(free, begun + _of(produce_ms, index)))
        taken.append(max(asked, moved[-1]))
        waits.append(taken[-1] - asked)
        asked = taken[-1] + host_ms + device_ms
    return _mean(waits, host_ms, device_ms)


def _of(produce_ms: Sequence[float], index: int) -> float:
    return produce_ms[index % len(produce_ms)]


def _mean(waits: Sequence[float], host_ms: float, device_ms: float) -> Truth:
    wait_ms = sum(waits[FIRST_STEPS:]) / (STEPS - FIRST_STEPS)
    return Truth(wait_ms + host_ms + device_ms, wait_ms, device_ms)


QUEUE_CAPACITY = 4
PREFETCH = 2


@dataclass(frozen=True)
class Pipeline:
    """A backend with options, and what it makes of a producer and of the host's own time."""

    name: str
    backend: str
    options: dict[str, Any]
    producers: int
    work_out: Callable[[tuple[float, ...], float, float], Truth]
    """From ms to produce, ms of the host, ms of the device."""


def _queued(backend: str, producers: int, **options: int) -> Pipeline:
    """Return a backend whose producers fill a queue of batches."""
    return Pipeline(
        f"{backend}, {producers}",
        backend,
        options,
        producers,
        lambda produce, host, device: queue(produce, producers, QUEUE_CAPACITY, host, device),
    )


def fifo(threads: int) -> Pipeline:
    """Return a queue that so many threads fill."""
    return _queued("fifo_queue", threads, threads=threads, capacity=QUEUE_CAPACITY)


def readers(threads: int, batch_size: int) -> Pipeline:
    """Return TensorFlow 1 readers; their queue holds samples."""
    return _queued("reader_queue", threads, threads=threads, capacity=QUEUE_CAPACITY * batch_size)


def workers(count: int) -> Pipeline:
    """Return a PyDataset of Keras with so many threads."""
    return _queued("py_dataset", count, workers=count, max_queue_size=QUEUE_CAPACITY)


def tf_data(calls: int) -> Pipeline:
    """Return tf.data with so many calls at a time."""
    return Pipeline(
        f"tf_data, {calls}",
        "tf_data",
        {"parallel_calls": calls, "prefetch": PREFETCH},
        calls,
        lambda produce, host, device: prefetched(produce, calls, PREFETCH, host, device),
    )


FEED = Pipeline("feed_dict", "feed_dict", {}, 1, synchronous)
SERIAL = Pipeline("tf_data, no prefetch", "tf_data", {"prefetch": 0}, 1, synchronous)

# One worker or thread reads ahead, as one thread of a queue does. How many batches it has ready matters only until
# they are used up, as it is slower than the device; loaders fill theirs before the first step: the smallest buffers.
SERVICE = _queued("tf_data_service", 1)
LOADERS = (
    _queued("grain", 1, num_threads=1, prefetch_buffer_size=1),
    _queued("data_loader", 1, num_workers=1, prefetch_factor=1),
)
