"""Which time of a worker at collectives counts to which steps."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_bench.monitoring.collectives import Account
from pipeline_bench.monitoring.steps import StepRows

MS = 1_000_000


def steps(*spans_ms: tuple[int, int], count: int = 1) -> StepRows:
    start, end = (np.array(each, np.int64) * MS for each in zip(*spans_ms, strict=True))
    return StepRows(start, end, None, np.full(len(spans_ms), count, np.int64))


def account(*spans_ms: tuple[int, int], eager: bool = False) -> Account:
    made = Account()
    made.add(np.array(spans_ms, np.int64).reshape(-1, 2) * MS, eager=eager)
    return made


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        (((12, 14), (22, 28)), 4.0),  # one a step
        (((12, 14), (13, 16)), 2.0),  # two at once
        (((12, 18), (13, 14)), 3.0),  # one within another
        (((2, 9), (12, 14)), 1.0),  # before the first step that counts
        (((12, 14), (31, 39)), 1.0),  # a validation's, after the steps
    ],
)
def test_time_at_collectives_counts_once_and_to_the_steps_in_which_it_lies(
    spans: tuple[tuple[int, int], ...], expected: float
) -> None:
    assert account(*spans).step_ms(steps((0, 10), (10, 20), (20, 30)), 1) == pytest.approx(expected)


def test_a_row_that_stands_for_several_steps_lasts_as_long_as_all_of_them() -> None:
    assert account((5, 6), (25, 26)).step_ms(steps((0, 10), count=3), 0) == pytest.approx(2 / 3)


def test_eager_collectives_count_though_later_ones_of_a_graph_are_known_first() -> None:
    both = account((25, 27))
    both.add(np.array([[12, 14]], np.int64) * MS, eager=True)
    assert both.step_ms(steps((10, 20), (20, 30)), 0) == pytest.approx(2.0)


def test_without_collectives_nothing_is_known() -> None:
    assert account().step_ms(steps((0, 10)), 0) is None
    assert account((12, 14)).step_ms(steps((0, 10)), 0) is None
