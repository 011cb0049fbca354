"""The course of a training: what belongs to an epoch, in bounded memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pipeline_bench.analysis import wall_time
from pipeline_bench.model.job import WallTime
from pipeline_bench.monitoring import epochs as kept
from pipeline_bench.monitoring.fit import Course, of_calls
from pipeline_bench.monitoring.ring import RingRows
from pipeline_bench.monitoring.steps import ENDED, NO_WAIT_NS, Totals

MS = 10**6


def trained(epochs: int, spent_ns: int = 5 * MS, waits: int = 3) -> WallTime:
    course = Course()
    for _ in range(epochs):
        course.begin_epoch()
        course.first_step(10**18, 7 * MS)
        course.spend("callbacks_ns", spent_ns)
        course.end_epoch(Totals(3, 30 * MS, waits, 6 * MS, 30 * MS))
    course.spend("callbacks_ns", 2)
    return course.wall_time()


def test_each_epoch_has_its_own_and_the_first_one_the_first_step() -> None:
    time = trained(3)
    first, second, third = time.epochs
    assert first.first_step_ns > 0
    assert second.first_step_ns == third.first_step_ns == 0
    assert {epoch.first_wait_ns for epoch in time.epochs} == {7 * MS}
    assert {epoch.callbacks_ns for epoch in time.epochs} == {5 * MS}
    assert {(epoch.steps, epoch.steps_ns, epoch.wait_ns) for epoch in time.epochs} == {(3, 30 * MS, 6 * MS)}
    assert time.last_callbacks_ns == 2
    assert time.begin_ns <= first.begin_ns <= first.end_ns <= second.begin_ns
    assert (first.memory_bytes or 0) > 10 * MS


def test_callbacks_that_begin_an_epoch_are_a_part_of_it_and_not_of_its_first_step() -> None:
    course = Course()
    for _ in range(2):
        course.spend("callbacks_ns", 5 * MS)
        course.begin_epoch()
        course.first_step(course._epoch_ns + 12 * MS, 0)
        course.end_epoch(Totals())
    first, second = (wall_time.of_epoch(epoch) for epoch in course.wall_time().epochs)
    assert first[wall_time.FIRST_STEP] == 0.007
    assert first[wall_time.CALLBACKS] == second[wall_time.CALLBACKS] == 0.005
    assert course.wall_time().last_callbacks_ns == 0


def test_iterators_that_ended_take_no_more_of_an_epoch_than_what_else_of_it_has_no_part() -> None:
    course = Course()
    course.begin_epoch()
    course._epoch_ns -= 10 * MS
    course.spend("callbacks_ns", 8 * MS)
    course.end_epoch(Totals(steps=1, time_ns=MS), 8 * MS)
    (epoch,) = course.wall_time().epochs
    assert 0 < epoch.iterator_end_ns <= epoch.end_ns - epoch.begin_ns - 8 * MS


def test_a_wait_that_was_not_measured_of_every_step_is_not_known() -> None:
    assert trained(1, waits=2).epochs[0].wait_ns is None


def test_an_epoch_that_is_not_ended_is_ended_with_the_training() -> None:
    course = Course()
    course.begin_epoch()
    course.begin_validation()
    course.end(Totals())
    time = course.wall_time()
    (epoch,) = time.epochs
    assert epoch.validation_ns > 0
    assert epoch.end_ns <= time.end_ns == course.wall_time().end_ns


def test_a_training_that_is_ended_within_its_first_step_spent_its_time_on_that() -> None:
    course = Course()
    course.begin_epoch()
    for _ in range(2):  # looked at while it goes on, and at its end
        (epoch,) = course.so_far(Totals(), None).wall_time().epochs
        assert epoch.first_step_ns > 0
    course.spend("callbacks_ns", 1)
    course.end(Totals())
    (epoch,) = course.wall_time().epochs
    assert 0 < epoch.first_step_ns < epoch.end_ns - epoch.begin_ns


@pytest.mark.parametrize("epochs", [9, 10, 100, 1001])
def test_of_many_epochs_neighbours_are_kept_together(epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_EPOCHS", 8)
    time = trained(epochs)
    assert len(time.epochs) <= 8
    assert sum(epoch.count for epoch in time.epochs) == epochs
    assert sum(epoch.callbacks_ns for epoch in time.epochs) == epochs * 5 * MS
    assert [epoch.begin_ns for epoch in time.epochs] == sorted(epoch.begin_ns for epoch in time.epochs)


def integers(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def test_a_batch_that_is_taken_beside_a_step_is_waited_for_from_that_steps_end_on() -> None:
    """The first batch of a call is waited for whole; the others come before, or 3 after, the step before them ends."""
    rows = RingRows(integers(0, 10, 30, 100, 110), integers(8, 18, 23, 6, 20))
    waits, taken = of_calls(rows, integers(30, 50, 60, 125, 140), integers(0, 100))
    assert waits.tolist() == [8 + 0 + 3, 6 + 5]
    assert taken.tolist() == [3, 2]


def test_asking_where_there_is_no_batch_is_no_step() -> None:
    rows = RingRows(integers(0, 10, 100, 110), integers(5, ENDED, 5, 5))
    waits, taken = of_calls(rows, integers(20, 120, 130), integers(0, 100))
    assert waits.tolist() == [5, 5]
    assert taken.tolist() == [1, 2]


def test_steps_that_take_their_batches_one_after_the_other_wait_for_all() -> None:
    waits, taken = of_calls(RingRows(integers(0, 10, 100), integers(5, 6, 7)), integers(), integers(0, 100))
    assert (waits.tolist(), taken.tolist()) == ([11, 7], [2, 1])


def test_a_call_without_a_row_has_no_wait() -> None:
    waits, taken = of_calls(RingRows(integers(0, 10), integers(5, 6)), integers(), integers(0, 100))
    assert (waits.tolist(), taken.tolist()) == ([11, NO_WAIT_NS], [2, 0])
