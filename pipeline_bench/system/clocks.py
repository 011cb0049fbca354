"""The two clocks of the system, what lies between them, and the start of the machine that one counts from."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

_READINGS = 3
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot(file: Path = _BOOT_ID) -> str | None:
    """Return 16 digits that are those of this start of this machine, in its containers too; None: the system has none.

    See random(4).
    """
    try:
        return hashlib.sha256(file.read_bytes().strip()).hexdigest()[:16]
    except OSError:
        return None


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
