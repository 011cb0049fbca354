"""What watching a job from within costs: steps of 2 ms with and without, in blocks by turns, in one process.

``python -m benchmarks.overhead.job [--rounds N] [--step-ms MS]``. The step is a model of Keras' whose time is mostly a
matrix product of the given length; the input is in memory, so that a step hides nothing of what is added to it. Each
block of steps has one of the others beside it, and which goes first alternates. `bare again` shows the benchmark's own
error. The figure of a block is its median step where each step can be timed, else its mean. What the sampler's thread
takes, five times a second beside the steps, is told by itself.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from pipeline_bench import monitor
from pipeline_bench.analysis import stats, thresholds
from pipeline_bench.keras import StarvationMonitor
from pipeline_bench.monitoring.sampling import PERIOD_S
from pipeline_bench.samplers.host import HostSampler

BLOCK_STEPS = 150
Block = Callable[[], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--step-ms", type=float, default=2.0)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)  # a core is left to tf.data and to the sampler
    work = work_of(arguments.step_ms / 1e3)
    for name, blocks in {"Keras": keras_blocks(work), "eager loop": eager_blocks(work), **graph_blocks(work)}.items():
        report(name, measure(blocks, arguments.rounds))
    report_sampler()


def work_of(seconds: float) -> Callable[[Any], Any]:
    """A function of a batch [b, 4] that takes about so long on this machine."""
    side = tf.ones([96, 96])

    def work(products: int) -> Any:
        return tf.while_loop(lambda i, _: i < products, lambda i, m: (i + 1, m @ side * 0.01), (0, side))[1]

    timed = tf.function(work)
    timed(tf.constant(200))
    began = time.perf_counter()
    timed(tf.constant(2000))
    products = int(2000 * seconds / (time.perf_counter() - began))
    return lambda batch: tf.reduce_sum(batch) + tf.reduce_sum(work(tf.constant(products)))


def dataset() -> Any:
    return tf.data.Dataset.from_tensors((tf.ones([8, 4]), tf.ones([8, 1]))).repeat(BLOCK_STEPS).prefetch(2)


def keras_blocks(work: Callable[[Any], Any]) -> dict[str, Block]:
    class Model(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.head = keras.layers.Dense(1)

        def call(self, batch: Any) -> Any:
            return self.head(batch) + 0.0 * work(batch)

    model, data = Model(), dataset()
    model.compile("sgd", "mse")
    callback = StarvationMonitor(out=None, quiet=True)

    def fit(callbacks: list[Any]) -> float:
        stamps = Stamps()
        model.fit(data, epochs=2, verbose=0, callbacks=[*callbacks, stamps])
        return stamps.step_us

    return {"bare": lambda: fit([]), "watched": lambda: fit([callback]), "bare again": lambda: fit([])}


class Stamps(keras.callbacks.Callback):  # type: ignore[misc]
    """The median step of the second epoch; the first one traces."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.stamps: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.stamps.append(time.perf_counter())

    @property
    def step_us(self) -> float:
        return float(np.median(np.diff(self.stamps))) * 1e6


def eager_blocks(work: Callable[[Any], Any]) -> dict[str, Block]:
    step = tf.function(work)

    def loop(batches: Any) -> float:
        stamps = []
        for batch, _ in batches:
            step(batch)
            stamps.append(time.perf_counter())
        return float(np.median(np.diff(stamps))) * 1e6

    return by_turns(loop)


def graph_blocks(work: Callable[[Any], Any]) -> dict[str, dict[str, Block]]:
    def over_a_dataset(batches: Any) -> Any:
        total = tf.constant(0.0)
        for batch, _ in batches:
            total += work(batch)
        return total

    def in_a_function(kind: Callable[[Any], Any]) -> dict[str, Block]:
        def loop(batches: Any) -> float:
            whole = tf.function(over_a_dataset)
            traced = whole.get_concrete_function(kind(batches))
            given = kind(batches)
            began = time.perf_counter()
            traced(given)
            return (time.perf_counter() - began) / BLOCK_STEPS * 1e6

        return by_turns(loop)

    return {"tf.function, dataset": in_a_function(lambda data: data), "tf.function, iterator": in_a_function(iter)}


def by_turns(loop: Callable[[Any], float]) -> dict[str, Block]:
    def watched() -> float:
        with monitor(dataset(), out=None, quiet=True) as batches:
            return loop(batches)

    return {"bare": lambda: loop(dataset()), "watched": watched, "bare again": lambda: loop(dataset())}


def report_sampler() -> None:
    sampler = HostSampler(os.getpid())
    took_us = []
    for _ in range(50):
        began = time.perf_counter()
        sampler.poll()
        took_us.append((time.perf_counter() - began) * 1e6)
        time.sleep(0.02)
    poll_us = float(np.median(took_us))
    print(f"a poll of the host takes {poll_us:.0f} µs: {poll_us / 1e6 / PERIOD_S:.2%} of one core")


def measure(blocks: dict[str, Block], rounds: int) -> dict[str, list[float]]:
    """Mean µs a step of each block."""
    for block in blocks.values():
        block()
    found: dict[str, list[float]] = {name: [] for name in blocks}
    for turn in range(rounds):
        for name in list(blocks) if turn % 2 else list(blocks)[::-1]:
            found[name].append(blocks[name]())
    return found


def report(title: str, found: dict[str, list[float]]) -> None:
    bare = found["bare"]
    for name, own in found.items():
        ratios = [each / plain for each, plain in zip(own, bare, strict=True)]
        ratio, (low, high) = stats.believe_ratio(ratios, thresholds.RATIO_SCATTER)
        added_us = float(np.median(np.subtract(own, bare)))
        print(
            f"{title:<22} {name:<11} {np.median(own):>8.1f} µs {ratio:>7.4f} "
            f"{low:>7.4f}–{high:.4f} {added_us:>+7.1f} µs",
            flush=True,
        )


if __name__ == "__main__":
    main()
