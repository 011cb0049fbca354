"""What the stages of Keras' own input cost, from what was measured of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pipeline_bench.inspection import keras_stages
from pipeline_bench.tfdata.keras_input import GET_ITEM
from pipeline_bench.tfdata.throughput import Rate


def test_a_batch_that_workers_make_has_queued_for_a_core_as_long_as_alone() -> None:
    alone = Rate(20e6, 4e6, queued_ns=15e6)
    read: Any = SimpleNamespace(data=SimpleNamespace(num_batches=10))
    pooled = keras_stages._pooled(read, {GET_ITEM: alone}, Rate(12e6, 4e6, 0.0), 30e6)
    assert pooled[GET_ITEM] == Rate(12e6, 4e6, 15e6)
