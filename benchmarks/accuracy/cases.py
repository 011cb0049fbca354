"""Random cases whose truth follows from their construction: a variant each, and what it must come to."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline_bench.analysis.thresholds import BOUND_SHARE, COMPUTE_BOUND_AU
from pipeline_bench.planted import generator
from pipeline_bench.selftest.truth import FEED, SERIAL, Pipeline, Truth, fifo, readers, tf_data, workers

GENERATOR = Path(generator.__file__)

# As the files of `selftest.cases.write_files` have it.
BATCH = 16
# Of images, each of which waits by itself: two waits a batch.
IMAGE_BATCH = 2
# Of a generator, whose every sample costs Python and, through from_generator, TensorFlow some tenths of a millisecond.
GENERATOR_BATCH = 4
# Every other case keeps this far from every line, as a share of the step.
CLEAR = 0.04
# A threshold case has its figure this close to the line.
CLOSE = 0.01

STEPS = 58
BURSTY_STEPS = 100
# Several producers deliver several batches at once: of so many steps the last such bunch is still a small part.
STEPS_A_PRODUCER = 32
# The pattern of a bursty producer: its mean is 1.
BURST = (0.4, 0.4, 0.4, 0.4, 3.4)


def verdict(truth: Truth) -> str:
    """Return the verdict that these shares have: docs/method.md, "Verdicts", with no noise."""
    if max(truth.wait, truth.host) >= BOUND_SHARE:
        return "input-bound" if truth.wait >= truth.host else "host-bound"
    return "compute-bound" if truth.utilization >= COMPUTE_BOUND_AU else "mixed"


def margin(truth: Truth) -> float:
    """Return how far the figure that decides the verdict lies from its threshold, as a share of the step.

    Of an input-bound or host-bound variant: the larger part's distance from 10 %, and from the smaller part; of the
    others: the distance of all three figures from their lines.
    """
    larger = max(truth.wait, truth.host)
    if larger >= BOUND_SHARE:
        return min(larger - BOUND_SHARE, abs(truth.wait - truth.host))
    return min(BOUND_SHARE - larger, abs(truth.utilization - COMPUTE_BOUND_AU))


@dataclass(frozen=True)
class Case:
    """One variant, whole but for its device, which is that of its group; and its truth with an ideal host.

    `given_ceiling` works out the truth from the ms that a bare step takes on the machine at hand.
    """

    family: str
    backend: str
    variant: dict[str, Any]
    truth: Truth
    given_ceiling: Callable[[float], Truth] = field(compare=False)
    threshold: bool = False

    @property
    def verdict(self) -> str:
        return verdict(self.truth)

    def with_ceiling(self, ceiling_ms: float) -> Case:
        """The case on a machine whose bare step takes so long."""
        return replace(self, truth=self.given_ceiling(ceiling_ms))


GRAPH = (FEED, FEED, SERIAL, fifo(1), fifo(2), fifo(4), tf_data(1), tf_data(2), tf_data(4))
"""Those that carry a source of graph ops."""
OVERLAPPING = tuple(pipeline for pipeline in GRAPH if pipeline not in (FEED, SERIAL))
ONE_READER = (FEED, fifo(1), tf_data(1))
"""Those in which one thread reads, whatever the source."""
OF_IMAGES = (FEED, fifo(2), tf_data(1), *2 * (readers(1, IMAGE_BATCH), readers(2, IMAGE_BATCH), workers(1), workers(2)))
"""Those that carry records which wait one by one."""


def _producer(pipeline: Pipeline, device_ms: float, share: float, bursty: bool) -> tuple[float, ...]:
    """Ms to produce a batch, such that the input takes about `share` of the step."""
    if pipeline in (FEED, SERIAL):
        mean_ms = share / (1 - share) * device_ms
    else:
        mean_ms = pipeline.producers * device_ms / (1 - share)
    return tuple(round(mean_ms * factor, 2) for factor in (BURST if bursty else (1.0,)))


def waiting(rng: random.Random, device_ms: float) -> Case:
    """Input-bound by a slow read, steady or bursty, with one producer or several."""
    pipeline = rng.choice(GRAPH)
    bursty = pipeline.producers <= 2 and rng.random() < 0.4
    produce = _producer(pipeline, device_ms, rng.uniform(0.15, 0.5 if bursty else 0.7), bursty)
    return _planted("reading, bursty" if bursty else "reading", pipeline, produce, 0, device_ms)


def hidden(rng: random.Random, device_ms: float) -> Case:
    """Compute-bound: the producers are faster than the device, or as good as free."""
    pipeline = rng.choice(GRAPH)
    if pipeline in OVERLAPPING:
        produce = (round(rng.uniform(0.2, 0.8) * pipeline.producers * device_ms, 2),)
    else:
        produce = (round(rng.uniform(0.01, 0.045) * device_ms, 2),)
    return _planted("hidden", pipeline, produce, 0, device_ms)


def slow_host(rng: random.Random, device_ms: float) -> Case:
    """Host-bound: Python takes its time in each step; the input is hidden, or a smaller part."""
    pipeline = rng.choice(GRAPH)
    share = rng.uniform(0.16, 0.6)
    host_ms = share / (1 - share) * device_ms
    quick = rng.uniform(0.2, 0.8) * pipeline.producers * device_ms
    produce = (round(quick if pipeline in OVERLAPPING else rng.uniform(0.02, 0.4) * host_ms, 2),)
    return _planted("Python in the step", pipeline, produce, round(host_ms, 2), device_ms)


def copying(rng: random.Random, device_ms: float) -> Case:
    """Host-bound by what lies between the input and the model, behind any backend."""
    pipeline = rng.choice(GRAPH)
    share = rng.uniform(0.16, 0.6)
    copy_ms = round(share / (1 - share) * device_ms, 2)
    read_ms = round(rng.uniform(0.05, 0.3) * (device_ms if pipeline in OVERLAPPING else copy_ms), 2)
    source = {"kind": "planted", "read_ms": [read_ms], "copy_ms": copy_ms}
    return _case("copying", pipeline, source, (read_ms,), copy_ms, device_ms, copied=True)


def decoding(rng: random.Random, device_ms: float) -> Case:
    """A slow decode where the backend finishes its batches: in the input of some, in the step behind a queue."""
    pipeline = rng.choice((FEED, fifo(1), fifo(2), tf_data(1), tf_data(2)))
    share = rng.uniform(0.16, 0.6)
    read_ms = round(rng.uniform(0.05, 0.2) * device_ms, 2)
    if pipeline.backend == "fifo_queue":  # what the source's `finish` does comes between the queue and the model
        decode_ms = round(share / (1 - share) * device_ms, 2)
        produce_ms, host_ms = read_ms, decode_ms
    else:
        produce_ms, host_ms = _producer(pipeline, device_ms, share, bursty=False)[0], 0.0
        decode_ms = round(produce_ms - read_ms, 2)
    source = {"kind": "planted", "read_ms": [read_ms], "decode_ms": decode_ms}
    return _case("decoding", pipeline, source, (produce_ms,), host_ms, device_ms)


def python_reader(rng: random.Random, device_ms: float) -> Case:
    """A user's generator that takes its time, carried by a feed, by a Python thread and a queue, by from_generator."""
    pipeline = rng.choice(ONE_READER)
    bursty = rng.random() < 0.4
    produce = _producer(pipeline, device_ms, rng.uniform(0.15, 0.5), bursty)
    source = {
        "kind": "generator",
        "batch_size": GENERATOR_BATCH,
        "callable": f"{GENERATOR}:make",
        "arguments": {"batch_size": GENERATOR_BATCH, "read_ms": list(produce)},
    }
    return _case("Python generator", pipeline, source, produce, 0, device_ms)


def storage(rng: random.Random, device_ms: float) -> Case:
    """Files of one batch each on a storage whose first byte takes its time."""
    pipeline = rng.choice((FEED, fifo(1), fifo(2), tf_data(1)))
    produce = _producer(pipeline, device_ms, rng.uniform(0.2, 0.55), bursty=False)
    files = {"kind": "npz", "path": "{data}/arrays", "batch_size": BATCH}
    source = {"kind": "slow_storage", "latency_ms": produce[0], "files": files}
    return _case("storage", pipeline, source, produce, 0, device_ms)


def images(rng: random.Random, device_ms: float) -> Case:
    """Images in files of their own, each of which arrives late: for Python, TensorFlow 1's readers, tf.data, Keras."""
    pipeline = rng.choice(OF_IMAGES)
    produce = _producer(pipeline, device_ms, rng.uniform(0.2, 0.55), bursty=False)
    files = {"kind": "image_folder", "path": "{data}/images", "image_size": 8, "batch_size": IMAGE_BATCH}
    source = {"kind": "slow_storage", "latency_ms": round(produce[0] / IMAGE_BATCH, 3), "files": files}
    return _case("images", pipeline, source, produce, 0, device_ms)


def threshold(rng: random.Random, device_ms: float) -> Case:
    """Right at the line of 10 %, by waiting or by the host."""
    pipeline = rng.choice(GRAPH)
    share = BOUND_SHARE + rng.uniform(-CLOSE, CLOSE)
    if rng.random() < 0.5:
        return _planted("threshold", pipeline, _producer(pipeline, device_ms, share, False), 0, device_ms)
    host_ms = round(share / (1 - share) * device_ms, 2)
    produce = (0.5 * device_ms,) if pipeline in OVERLAPPING else (0.0,)
    return _planted("threshold", pipeline, produce, host_ms, device_ms)


def xprof(device_ms: float) -> list[Case]:
    """The two that XProf 2.24 calls not input-bound: a queue and a feed_dict whose producer sleeps 10 ms."""
    return [_planted("XProf's two", pipeline, (10.0,), 0, device_ms) for pipeline in (FEED, fifo(1))]


def _planted(family: str, pipeline: Pipeline, produce: tuple[float, ...], host_ms: float, device_ms: float) -> Case:
    source = {"kind": "planted", "read_ms": list(produce)}
    loop = {"kind": "planted_host", "host_ms": host_ms}
    return _case(family, pipeline, source, produce, host_ms, device_ms, loop=loop)


def _case(
    family: str,
    pipeline: Pipeline,
    source: dict[str, Any],
    produce: tuple[float, ...],
    host_ms: float,
    device_ms: float,
    *,
    loop: dict[str, Any] | None = None,
    copied: bool = False,
) -> Case:
    inner = {"inner": pipeline.backend, "inner_options": pipeline.options}
    variant: dict[str, Any] = {
        "name": pipeline.name,
        "backend": "planted_copy" if copied else pipeline.backend,
        "options": inner if copied else pipeline.options,
        "source": source,
        "loop": loop or {"kind": "planted_host"},
        "run": {"steps": BURSTY_STEPS if len(produce) > 1 else max(STEPS, STEPS_A_PRODUCER * pipeline.producers)},
    }

    def given_ceiling(ceiling_ms: float) -> Truth:
        # What a bare session.run takes beyond the delay in it. feed_dict has another one, for its batch.
        run_ms = ceiling_ms - device_ms if pipeline is FEED and source["kind"] == "planted" else 0.0
        return pipeline.work_out(tuple(ms + run_ms for ms in produce), host_ms, ceiling_ms)

    return Case(family, pipeline.backend, variant, given_ceiling(device_ms), given_ceiling, family == "threshold")


# Fetching a batch costs the host some 0.5 ms that no delay plants, reading files and generators in Python 1 to 2 ms.
# Both are a smaller part of longer steps; cases whose planted parts are small, or that read, need those.
SHORT_MS, LONG_MS, LONGEST_MS = (10, 20), (24, 32), (40, 50)

FAMILIES: tuple[tuple[Callable[[random.Random, float], Case], int, tuple[int, int]], ...] = (
    (waiting, 28, SHORT_MS),
    (hidden, 16, LONG_MS),
    (slow_host, 8, SHORT_MS),
    (copying, 8, SHORT_MS),
    (decoding, 8, SHORT_MS),
    (python_reader, 10, LONGEST_MS),
    (storage, 8, LONGEST_MS),
    (images, 14, LONGEST_MS),
    (threshold, 10, LONG_MS),
)
"""What draws a case, how many of a hundred are drawn of it, and the range of the device's ms a step."""


def drawn(count: int, seed: int | str) -> list[tuple[float, list[Case]]]:
    """So many random cases beside XProf's two, in groups that share a device: its ms a step, and the group's cases.

    Only threshold cases lie within `CLEAR` of a line.
    """
    rng = random.Random(seed)
    groups = [(2.5, xprof(2.5))]
    for draw, share, device_range_ms in FAMILIES:
        wanted = max(2, round(count * share / sum(number for _, number, _ in FAMILIES)))
        while wanted > 0:
            device_ms = round(rng.uniform(*device_range_ms), 1)
            size = min(wanted, 8)
            groups.append((device_ms, [_clear(draw, rng, device_ms) for _ in range(size)]))
            wanted -= size
    return groups


def _clear(draw: Callable[[random.Random, float], Case], rng: random.Random, device_ms: float) -> Case:
    while True:
        case = draw(rng, device_ms)
        if case.threshold or margin(case.truth) >= CLEAR:
            return case
