"""A user's generator whose every batch takes as long as asked, by a sleep that is right in the mean."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np


class Sleeper:
    """Sleeps the seconds of each call in the mean: what one sleep takes too long, the next one takes less.

    All of it at once, unlike `slow_storage.SteadySleep`: one planted delay after another has a known sum.
    """

    def __init__(self) -> None:
        self._owed_s = 0.0

    def __call__(self, seconds: float) -> None:
        start = time.monotonic()
        time.sleep(max(0.0, seconds - self._owed_s))
        self._owed_s = max(-seconds, min(seconds, self._owed_s + time.monotonic() - start - seconds))


def make(batch_size: int, read_ms: Sequence[float]) -> Iterator[tuple[np.ndarray, int]]:
    """Samples of 8 features; the first one of each batch comes after that batch's delay."""
    sleep = Sleeper()
    for number in count():
        batch, place = divmod(number, batch_size)
        if place == 0:
            sleep(read_ms[batch % len(read_ms)] / 1e3)
        yield np.full(8, number % 1000, dtype=np.float32), number % 2
