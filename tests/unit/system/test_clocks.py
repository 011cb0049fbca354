"""What lies between the wall clock and the monotonic one, where a reading is interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_bench.system.clocks import boot, wall_minus_monotonic_ns

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


def test_a_start_of_the_machine_is_known_by_digits_that_are_no_identifier_of_it(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("3f2b0c1e-7d57-4c0e-9a5e-0f5d6a3c9b11\n")
    found = boot(tmp_path / "boot_id")
    assert found == boot(tmp_path / "boot_id")
    assert found is not None
    assert len(found) == 16
    assert "3f2b" not in found
    assert boot(tmp_path / "none") is None
