"""What the stages of Keras' own input cost, from what was measured of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_bench.inspection import keras_stages
from pipeline_bench.tfdata.keras_input import COPY, GET_ITEM, QUEUE
from pipeline_bench.tfdata.throughput import Rate


def with_workers(count: int, *, in_processes: bool = False) -> Any:
    """What is read by so many workers, in epochs of ten batches."""
    return SimpleNamespace(batches=10, pool={"workers": count}, pooled=count > 1, in_processes=in_processes)


def test_a_batch_that_workers_make_has_queued_for_a_core_as_long_as_alone() -> None:
    alone = Rate(20e6, 4e6, queued_ns=15e6)
    pooled = keras_stages._pooled(with_workers(4), {GET_ITEM: alone}, Rate(12e6, 4e6, 0.0), 30e6)
    assert pooled[GET_ITEM] == Rate(12e6, 4e6, 15e6)


@pytest.mark.parametrize(
    ("alone_ms", "cpu_ms", "period_ms", "handed_ms", "own_ms", "queue_ms"),
    [
        (40.0, 40.0, 60.0, 20.0, 10.0, 58.0),  # four make one in 10 ms, and one thread takes 60 ms to take it over
        (40.0, 2.0, 60.0, 12.0, 10.0, 58.0),
        (240.0, 240.0, 62.0, 20.0, 60.0, 0.0),  # taking over is hidden by making
        (240.0, 240.0, 50.0, 20.0, 50.0, 0.0),  # alone, it found a slower machine
        (160.0, 10.0, 42.0, 10.0, 40.0, 0.0),  # of what waits, more at the same time than there are cores
        (57.0, 57.0, 62.5, 0.05, 57.0, 0.2),  # other programs have the cores, and the batches are small
        (57.0, 57.0, 30.0, 1.0, 30.0, 1.0),  # they scale less than perfectly
        (10.0, 10.0, 60.0, 5.0, 10.0, 20.0),  # neither says what takes the time
    ],
)
def test_processes_make_batches_beside_each_other_and_what_is_longer_is_handing_them_over_if_that_takes_long(
    monkeypatch: pytest.MonkeyPatch,
    alone_ms: float,
    cpu_ms: float,
    period_ms: float,
    handed_ms: float,
    own_ms: float,
    queue_ms: float,
) -> None:
    monkeypatch.setattr(keras_stages, "allowed_cpus", lambda: 4)
    costs = {GET_ITEM: Rate(alone_ms * 1e6, cpu_ms * 1e6), COPY: Rate(2e6, 2e6)}
    read = with_workers(4, in_processes=True)
    pooled = keras_stages._pooled(read, costs, Rate(period_ms * 1e6, 4e6), 200e6, handed_ms * 1e6)
    assert pooled[GET_ITEM] == Rate(own_ms * 1e6, cpu_ms * 1e6)
    assert pooled[QUEUE].elapsed_ns == pytest.approx(queue_ms * 1e6)


@pytest.mark.parametrize(
    ("workers", "in_processes", "cpu_ms", "together_ms"),
    [
        (8, True, 1.0, 7.5),
        (8, True, 56.0, 14.0),  # they share four cores
        (8, False, 1.0, 7.5),
        (8, False, 56.0, 56.0),  # they share Python's lock
        (1, False, 1.0, 60.0),  # there is no pool
    ],
)
def test_of_a_pool_that_is_not_measured_the_least_is_told_that_its_workers_need(
    monkeypatch: pytest.MonkeyPatch, workers: int, in_processes: bool, cpu_ms: float, together_ms: float
) -> None:
    monkeypatch.setattr(keras_stages, "allowed_cpus", lambda: 4)
    alone = Rate(60e6, cpu_ms * 1e6)
    together = keras_stages._together(with_workers(workers, in_processes=in_processes), alone)
    assert together == Rate(together_ms * 1e6, cpu_ms * 1e6)


class WithoutBytes:
    """A batch that its class leaves no other process take."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not today")


def test_a_batch_takes_its_time_into_bytes_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras_stages, "_HANDED_S", 0.02)
    assert keras_stages._handed_ns(list(range(100_000))) > 10 * keras_stages._handed_ns([1]) > 0
    assert keras_stages._handed_ns(WithoutBytes()) == 0
