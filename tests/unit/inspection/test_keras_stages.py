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
    return SimpleNamespace(batches=10, pool={"workers": count}, in_processes=in_processes)


def test_a_batch_that_workers_make_has_queued_for_a_core_as_long_as_alone() -> None:
    alone = Rate(20e6, 4e6, queued_ns=15e6)
    pooled = keras_stages._pooled(with_workers(4), {GET_ITEM: alone}, Rate(12e6, 4e6, 0.0), 30e6)
    assert pooled[GET_ITEM] == Rate(12e6, 4e6, 15e6)


@pytest.mark.parametrize(
    ("alone_ms", "cpu_ms", "period_ms", "own_ms", "queue_ms"),
    [
        (40.0, 40.0, 60.0, 10.0, 58.0),  # four make one in 10 ms, and one thread takes 60 ms to take it over
        (40.0, 2.0, 60.0, 10.0, 58.0),
        (240.0, 240.0, 62.0, 60.0, 0.0),  # taking over is hidden by making
        (240.0, 240.0, 50.0, 50.0, 0.0),  # alone, it found a slower machine
        (160.0, 10.0, 42.0, 40.0, 0.0),  # of what waits, more at the same time than there are cores
    ],
)
def test_processes_make_batches_beside_each_other_and_what_is_longer_is_handing_them_over(
    monkeypatch: pytest.MonkeyPatch,
    alone_ms: float,
    cpu_ms: float,
    period_ms: float,
    own_ms: float,
    queue_ms: float,
) -> None:
    monkeypatch.setattr(keras_stages, "allowed_cpus", lambda: 4)
    costs = {GET_ITEM: Rate(alone_ms * 1e6, cpu_ms * 1e6), COPY: Rate(2e6, 2e6)}
    read = with_workers(4, in_processes=True)
    pooled = keras_stages._pooled(read, costs, Rate(period_ms * 1e6, 4e6), 200e6)
    assert pooled[GET_ITEM] == Rate(own_ms * 1e6, cpu_ms * 1e6)
    assert pooled[QUEUE] == Rate(queue_ms * 1e6, 0.0)
