"""The two clocks of the system, and what lies between them."""

from __future__ import annotations

import time
from collections.abc import Callable

_READINGS = 3


def wall_minus_monotonic_ns(
    wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
) -> int:
    """Return the wall clock less the monotonic one, in ns.

    Of several readings that counts between whose halves the least time passed: on a busy machine this thread may lose
    its core between two looks at a clock, for milliseconds.
    """
    best: tuple[int, int] | None = None
    for _ in range(_READINGS):
        before = monotonic_ns()
        wall = wall_ns()
        passed = monotonic_ns() - before
        if best is None or passed < best[0]:
            best = passed, wall - before - passed // 2
    assert best is not None
    return best[1]
