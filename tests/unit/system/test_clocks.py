"""What lies between the wall clock and the monotonic one, where a reading is interrupted."""

from __future__ import annotations

import pytest

from pipeline_bench.system.clocks import wall_minus_monotonic_ns

OFFSET_NS = 1_795_000_000_000_000_000


@pytest.mark.parametrize("interrupted", range(6))
def test_a_lost_core_between_two_looks_changes_nothing(interrupted: int) -> None:
    now_ns, looks = 7_000, 0

    def look() -> int:
        nonlocal now_ns, looks
        looks += 1
        now_ns += 3_000_000 if looks in (interrupted, interrupted + 1) else 100
        return now_ns

    found = wall_minus_monotonic_ns(lambda: look() + OFFSET_NS, look)
    assert abs(found - OFFSET_NS) <= 100
