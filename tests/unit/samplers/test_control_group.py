"""Throttled time, from made-up control groups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_bench.samplers.host import NO_COUNTER, Throttling


def group(folder: Path, stat: str | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if stat is not None:
        (folder / "cpu.stat").write_text(stat)
    return folder


@pytest.mark.parametrize(
    ("stat", "seconds"),
    [
        ("usage_usec 99\nnr_periods 10\nnr_throttled 2\nthrottled_usec 2500000\n", 2.5),
        ("nr_periods 10\nnr_throttled 2\nthrottled_time 2500000000\n", 2.5),
        ("throttled_usec 0\n", 0.0),
    ],
)
def test_throttled_time_is_seconds_in_both_versions(tmp_path: Path, stat: str, seconds: float) -> None:
    assert Throttling([group(tmp_path, stat)]).poll() == seconds


def test_it_is_read_anew_at_each_poll(tmp_path: Path) -> None:
    throttling = Throttling([group(tmp_path, "throttled_usec 1000000\n")])
    group(tmp_path, "throttled_usec 3000000\n")
    assert throttling.poll() == 3.0


def test_the_groups_above_count_as_well_and_each_once(tmp_path: Path) -> None:
    outer = group(tmp_path, "throttled_usec 1000000\n")
    inner = group(tmp_path / "inner", "throttled_usec 2000000\n")
    assert Throttling([inner, outer, inner]).poll() == 3.0


@pytest.mark.parametrize("stat", [None, "", "usage_usec 5\n", "throttled_usec many\n", "throttled_usec\n"])
def test_without_a_counter_there_is_a_reason(tmp_path: Path, stat: str | None) -> None:
    assert Throttling([group(tmp_path, stat)]).poll() == NO_COUNTER


def test_a_group_that_goes_away_is_a_reason_and_no_smaller_sum(tmp_path: Path) -> None:
    throttling = Throttling([group(tmp_path / name, "throttled_usec 1000000\n") for name in ("a", "b")])
    (tmp_path / "b" / "cpu.stat").unlink()
    assert throttling.poll() == NO_COUNTER
