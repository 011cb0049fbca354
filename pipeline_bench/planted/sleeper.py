"""A sleep that is right in the mean."""

from __future__ import annotations

import time


class Sleeper:
    """Sleeps the given seconds in the mean: what one sleep takes too long, the next one takes less."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._owed_s = 0.0

    def __call__(self, seconds: float | None = None) -> None:
        wanted = self._seconds if seconds is None else seconds
        start = time.monotonic()
        time.sleep(max(0.0, wanted - self._owed_s))
        self._owed_s = max(-wanted, min(wanted, self._owed_s + time.monotonic() - start - wanted))
