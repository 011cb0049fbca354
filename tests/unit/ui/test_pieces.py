from __future__ import annotations

import math

import pytest

from pipeline_bench.ui import sparkline


def test_spans_the_blocks() -> None:
    assert sparkline([0, 15, 30, 45, 55, 70, 80, 100], 8) == "▁▂▃▄▅▆▇█"


@pytest.mark.parametrize("count", [0, 1, 5, 10, 500])
def test_the_width_never_changes(count: int) -> None:
    assert len(sparkline([50.0] * count, 10)) == 10


def test_the_newest_value_is_at_the_right() -> None:
    assert sparkline([100, 0, 100], 2) == "▁█"
    assert sparkline([100], 3) == "  █"


def test_what_was_not_measured_is_blank_and_not_the_lowest_block() -> None:
    assert sparkline([0, None, math.nan, 0], 4) == "▁  ▁"


def test_values_out_of_range_are_held_at_the_ends() -> None:
    assert sparkline([-5, 180], 2) == "▁█"


def test_no_width_is_no_text() -> None:
    assert not sparkline([1, 2], 0)
