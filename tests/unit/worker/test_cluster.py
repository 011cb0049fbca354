"""Steps of several workers, put together as the steps of one trial."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.worker.cluster import Groups
from pipeline_bench.worker.cluster_messages import ClusterStep


def step(start: int, end: int, wait: int = 0, loss: float = 0.0, digest: tuple[float, ...] = ()) -> ClusterStep:
    return ClusterStep(start, end, wait, loss, digest)


def test_a_synchronous_group_has_one_step_of_each_worker_and_ends_with_the_last_of_them() -> None:
    groups = Groups(2, synchronous=True)
    assert list(groups.take(0, [step(10, 20, loss=1.0), step(20, 30, loss=3.0)], 30)) == []
    (first,) = groups.take(1, [step(12, 25, loss=2.0)], 25)
    assert (first.start_ns, first.end_ns, first.loss) == (10, 25, 1.5)
    (second,) = groups.take(1, [step(25, 34, loss=5.0)], 34)
    assert (second.start_ns, second.end_ns, second.loss) == (25, 34, 4.0)


def test_asynchronous_groups_are_of_the_steps_that_ended_next_whoever_took_them() -> None:
    groups = Groups(2, synchronous=False)
    fast = [step(0, 10, loss=1.0), step(10, 20, loss=2.0), step(20, 30, loss=3.0)]
    assert list(groups.take(0, fast, 30)) == []  # nobody knows yet what the other did meanwhile
    first, second = groups.take(1, [step(0, 25, loss=9.0)], 40)
    assert (first.end_ns, first.loss) == (20, 1.5)
    assert (second.start_ns, second.end_ns, second.loss) == (20, 30, 6.0)


def test_a_worker_that_has_ended_holds_up_nobody() -> None:
    groups = Groups(2, synchronous=False)
    list(groups.take(1, [], math.inf))
    (only,) = groups.take(0, [step(0, 10), step(10, 20)], 20)
    assert (only.start_ns, only.end_ns) == (0, 20)


def test_the_wait_is_the_mean_and_what_is_longer_than_its_group_counts_for_the_next() -> None:
    groups = Groups(2, synchronous=False)
    list(groups.take(1, [step(0, 12, wait=10), step(12, 30, wait=0)], math.inf))
    first, second = groups.take(0, [step(0, 10, wait=6), step(10, 13, wait=24)], math.inf)
    assert (first.wait_ns, first.end_ns) == (8, 12)
    # 12 ns of mean wait are more than the next group lasts if it is short; here it lasts 18.
    assert (second.wait_ns, second.end_ns - second.start_ns) == (12, 18)


def test_a_wait_is_never_longer_than_its_group() -> None:
    groups = Groups(1, synchronous=True)
    first, second, third = groups.take(0, [step(0, 10, wait=5), step(10, 11, wait=9), step(11, 31, wait=4)], 31)
    assert [group.wait_ns for group in (first, second, third)] == [5, 1, 12]


def test_evidence_is_kept_of_every_step_that_has_some() -> None:
    groups = Groups(2, synchronous=True)
    list(groups.take(0, [step(0, 1, digest=(1.0, 2.0))], 1))
    (group,) = groups.take(1, [step(0, 1)], 1)
    assert group.digest == (1.0, 2.0)


@st.composite
def histories(draw: st.DrawFn) -> list[list[ClusterStep]]:
    """What each of some workers did: steps one after the other, with waits inside of them."""
    workers = []
    for _ in range(draw(st.integers(1, 4))):
        at, steps = 0, []
        for length in draw(st.lists(st.integers(1, 50), max_size=12)):
            steps.append(step(at, at + length, draw(st.integers(0, length)), float(length)))
            at += length
        workers.append(steps)
    return workers


@pytest.mark.parametrize("synchronous", [True, False])
@given(st.data())
def test_groups_follow_each_other_whatever_the_workers_did(synchronous: bool, data: st.DataObject) -> None:
    told = data.draw(histories())
    groups = Groups(len(told), synchronous)
    found: list[ClusterStep] = []
    for worker, steps in enumerate(told):
        middle = data.draw(st.integers(0, len(steps)))
        for part in (steps[:middle], steps[middle:]):
            found += groups.take(worker, part, part[-1].end_ns if part else 0)
    for worker in range(len(told)):
        found += groups.take(worker, [], math.inf)
    taken = min(map(len, told)) if synchronous else sum(map(len, told)) // len(told)
    assert len(found) == taken
    assert all(group.end_ns > group.start_ns for group in found)
    assert all(0 <= group.wait_ns <= group.end_ns - group.start_ns for group in found)
    assert all(later.start_ns == earlier.end_ns for earlier, later in pairwise(found))
    assert sum(group.wait_ns for group in found) <= sum(step.wait_ns for steps in told for step in steps) / len(told)
