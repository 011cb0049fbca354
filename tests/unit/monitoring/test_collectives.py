"""Which time of a worker at collectives counts to which steps."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pipeline_bench.monitoring.collectives import Account, Ahead, Collectives
from pipeline_bench.monitoring.ring import RingRows
from pipeline_bench.monitoring.steps import ENDED, StepRows
from pipeline_bench.system.forks import ForkedLock

MS = 1_000_000


def steps(*spans_ms: tuple[int, int], count: int = 1) -> StepRows:
    start, end = (np.array(each, np.int64) * MS for each in zip(*spans_ms, strict=True))
    return StepRows(start, end, None, np.full(len(spans_ms), count, np.int64))


def account(*spans_ms: tuple[int, int]) -> Account:
    made = Account()
    made.add(np.array(spans_ms, np.int64).reshape(-1, 2) * MS, "step")
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
    both.add(np.array([[12, 14]], np.int64) * MS, "eager")
    assert both.step_ms(steps((10, 20), (20, 30)), 0) == pytest.approx(2.0)


class CountedSlowly(deque[tuple[int, int]]):
    def __len__(self) -> int:
        count = super().__len__()
        time.sleep(0.1)
        return count


def test_two_loops_samplers_take_each_collective_once() -> None:
    """The second would take what the first has counted, and raise."""
    both = Collectives.__new__(Collectives)  # without TensorFlow's rings
    both.account, both._rings, both._reading = Account(), {}, ForkedLock()
    both._eager = CountedSlowly([(12 * MS, 14 * MS)])
    with ThreadPoolExecutor(2) as threads:
        for read in [threads.submit(both.read, settled=True) for _ in range(2)]:
            read.result()
    assert both.account.step_ms(steps((10, 20), (20, 30)), 0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ends_ms", "blocked_ms"),
    [
        ((9, 80), 0),  # the step's collective is after that
        ((9, 30), 28),
        ((9, 25, 30), 28),  # of several the last
        ((9, 30, 80), 0),
        ((9, 130), 48),  # the step had none
        ((), 48),
    ],
)
def test_a_wait_for_the_next_batch_counts_from_the_last_collective_of_the_step_beside_it(
    ends_ms: tuple[int, ...], blocked_ms: int
) -> None:
    """It was asked for at 10 ms and came at 58; the next one was asked for at 90 ms."""
    made = account(*((end - 1, end) for end in ends_ms))
    made.add(np.array([[85, 90]], np.int64) * MS, "ask")
    rows = RingRows(np.array([10, 90]) * MS, np.array([48 * MS, ENDED]))
    assert made.blocked_ns(rows).tolist() == [blocked_ms * MS, ENDED]


def test_what_a_step_left_of_a_wait_is_judged_when_the_loop_has_asked_again() -> None:
    """The collective at 130 ms, which is known by then, is of the next step."""
    ahead, made = Ahead(), account((29, 30), (129, 130))
    first, second = (RingRows(np.array([at]) * MS, np.array([wait])) for at, wait in ((10, 48 * MS), (90, ENDED)))
    assert ahead.blocked(first, made, settled=False).wait_ns.tolist() == []
    told = ahead.blocked(second, made, settled=True)
    assert (told.at_ns.tolist(), told.wait_ns.tolist()) == ([10 * MS, 90 * MS], [28 * MS, ENDED])
    assert ahead.blocked(RingRows(first.at_ns[:0], first.wait_ns[:0]), made, settled=True).at_ns.size == 0
    assert Ahead().blocked(first, None, settled=True).wait_ns.tolist() == [48 * MS]


def test_without_collectives_nothing_is_known() -> None:
    assert account().step_ms(steps((0, 10)), 0) is None
    assert account((12, 14)).step_ms(steps((0, 10)), 0) is None
