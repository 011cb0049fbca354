"""The steps of a job: exact totals, bounded rows, and what a loop's questions come to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.monitoring.steps import ENDED, LEFT, NO_WAIT_NS, LoopSteps, StepLog, Totals

STEP = st.tuples(st.integers(1, 10**7), st.integers(0, 10**6))


def filled(steps: list[tuple[int, int]], max_rows: int = 100_000, block: int = 7) -> StepLog:
    """A log of steps (duration, wait) that follow on each other, given in blocks."""
    log = StepLog(max_rows)
    ends = np.cumsum([0, *(duration for duration, _ in steps)])
    for first in range(0, len(steps), block):
        part = slice(first, first + block)
        log.extend(ends[:-1][part], ends[1:][part], [wait for _, wait in steps][part])
    return log


@given(st.lists(STEP, min_size=1, max_size=200), st.integers(2, 40))
def test_totals_are_those_of_every_step_but_the_first_however_few_rows_are_kept(
    steps: list[tuple[int, int]], max_rows: int
) -> None:
    totals = filled(steps, max_rows).totals
    assert totals.steps == totals.waits == len(steps) - 1
    assert totals.time_ns == totals.waited_ns == sum(duration for duration, _ in steps[1:])
    assert totals.wait_ns == sum(wait for _, wait in steps[1:])


@given(st.lists(STEP, min_size=1, max_size=200), st.integers(2, 40))
def test_rows_are_bounded_and_stand_for_all_steps(steps: list[tuple[int, int]], max_rows: int) -> None:
    rows = filled(steps, max_rows).rows()
    assert len(rows.count) <= max_rows
    assert rows.count.sum() == len(steps)
    assert (np.diff(rows.start_ns) > 0).all()
    whole = sum(duration for duration, _ in steps)
    # Each row's mean is rounded down to a nanosecond.
    assert whole - len(steps) <= ((rows.end_ns - rows.start_ns) * rows.count).sum() <= whole
    assert rows.wait_ns is not None
    waited = sum(wait for _, wait in steps)
    assert waited - len(steps) <= (rows.wait_ns * rows.count).sum() <= waited


def test_few_steps_are_kept_one_by_one() -> None:
    rows = filled([(5, 1), (7, 2), (9, 0)]).rows()
    assert (rows.end_ns - rows.start_ns).tolist() == [5, 7, 9]
    assert rows.count.tolist() == [1, 1, 1]
    assert rows.wait_ns is not None
    assert rows.wait_ns.tolist() == [1, 2, 0]


def test_a_row_of_several_steps_is_their_mean() -> None:
    log = StepLog()
    log.extend([0], [40], [20], count=4)
    log.extend([40], [100], [30], count=6)
    rows = log.rows()
    assert (rows.end_ns - rows.start_ns).tolist() == [10, 10]
    assert log.totals == Totals(steps=6, time_ns=60, waits=6, wait_ns=30, waited_ns=60)


def test_a_wait_that_was_not_measured_is_none_and_not_zero() -> None:
    log = StepLog()
    log.extend([0, 10], [10, 20], NO_WAIT_NS)
    assert log.rows().wait_ns is None
    assert log.totals.wait_share is None
    assert log.totals.wait_ms is None
    assert log.totals.step_ms == pytest.approx(1e-5)


def test_merging_a_measured_wait_with_one_that_was_not_leaves_none() -> None:
    log = StepLog(max_rows=2)
    log.extend([0, 10, 20, 30], [10, 20, 30, 40], [1, NO_WAIT_NS, 3, 4])
    assert log.rows().wait_ns is None


def test_an_epochs_totals_are_what_came_after_its_beginning() -> None:
    log = filled([(10, 1)] * 5)
    before = log.totals
    log.extend([50], [70], [4])
    assert log.totals.since(before) == Totals(steps=1, time_ns=20, waits=1, wait_ns=4, waited_ns=20)


def test_a_step_lasts_until_the_next_batch_is_asked_for() -> None:
    log = StepLog()
    passes = LoopSteps(log)
    passes.receive(100, 5)
    passes.receive(130, 6)
    passes.receive(170, ENDED)
    passes.flush()
    rows = log.rows()
    assert rows.start_ns.tolist() == [100, 130]
    assert rows.end_ns.tolist() == [130, 170]


def test_the_step_that_a_loop_leaves_has_no_end_and_the_pause_after_it_is_no_step() -> None:
    log = StepLog()
    passes = LoopSteps(log)
    passes.receive(100, 5)
    passes.receive(130, 6)
    passes.receive(0, LEFT)
    passes.receive(10_000, 7)
    passes.receive(10_040, ENDED)
    passes.flush()
    assert (log.rows().end_ns - log.rows().start_ns).tolist() == [30, 40]
