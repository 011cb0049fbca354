"""A user's generator whose every batch takes as long as it is told: Python that waits for something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np

from pipeline_bench.planted.sleeper import Sleeper


def make(batch_size: int, read_ms: Sequence[float]) -> Iterator[tuple[np.ndarray, int]]:
    """Samples of 8 features; the first one of each batch comes after that batch's delay."""
    sleep = Sleeper(0.0)
    for number in count():
        batch, place = divmod(number, batch_size)
        if place == 0:
            sleep(read_ms[batch % len(read_ms)] / 1e3)
        yield np.full(8, number % 1000, dtype=np.float32), number % 2
