"""Calls of several steps: how long each of them took, what they bring, and how many are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.loops import StepRecorder, record_call, step_ends, steps_of_call
from pipeline_bench.model import Series

S = 1_000_000_000
EPOCH = 1_790_000_000 * S
"""About what the graph's clock shows where Python's shows 0."""


class Kept(StepRecorder):
    """Keeps what it is given, and has had enough after some steps."""

    should_sample = False

    def __init__(self, enough: int = 10**9, steps_left: int | None = None) -> None:
        self.steps: list[tuple[Any, ...]] = []
        self._enough, self._left = enough, steps_left

    def __call__(
        self,
        start_ns: int,
        end_ns: int,
        wait_ns: int,
        loss: float,
        digest: Sequence[float] | None = None,
        busy_ns: int = 0,
    ) -> bool:
        self.steps.append((start_ns, end_ns, wait_ns, loss, digest, busy_ns))
        return len(self.steps) < self._enough

    @property
    def steps_left(self) -> int | None:
        return self._left


def rows(*ends_s: float) -> Any:
    return np.array([[0.5 + i, 0.001 * i, 0.0, end] for i, end in enumerate(ends_s)])


def test_a_call_is_divided_where_its_steps_ended_and_its_own_cost_is_in_the_first_and_the_last() -> None:
    ends = step_ends(100, 900, np.array([1.0000004, 1.0000006, 1.0000007]), S)
    assert ends[:2] == pytest.approx([400, 600], abs=1)
    assert ends[-1] == 900


def test_stamps_outside_of_the_call_are_held_in_it() -> None:
    """The graph's clock may be set back or forth while a call runs."""
    assert step_ends(100, 200, np.array([5.0, 1.0, 5.0]), 3 * S) == [200, 200, 200]
    assert step_ends(100, 200, np.array([1.0, 1.0, 1.0]), 3 * S) == [100, 100, 200]


@given(
    st.lists(st.floats(1.79e9 - 10, 1.79e9 + 10, allow_nan=False), min_size=1, max_size=20),
    st.integers(0, S),
    st.integers(0, S),
)
def test_steps_never_overlap_and_fill_their_call(stamps_s: list[float], start_ns: int, length_ns: int) -> None:
    ends = step_ends(start_ns, start_ns + length_ns, np.array(stamps_s), EPOCH)
    assert ends == sorted(ends)
    assert start_ns <= ends[0]
    assert ends[-1] == start_ns + length_ns
    assert sum(np.diff([start_ns, *ends])) == length_ns


def test_every_step_of_a_call_is_told_also_those_behind_the_end() -> None:
    """They have trained: a trial whose length is a time ends with the call in which the time is over."""
    told = Kept(enough=2)
    assert not record_call(told, 0, 300, rows(0.0, 0.0, 0.0), None)
    assert [(step[2], step[3], step[4]) for step in told.steps] == [
        (0, 0.5, None),
        (1_000_000, 1.5, None),
        (2_000_000, 2.5, None),
    ]
    starts, ends = zip(*((step[0], step[1]) for step in told.steps), strict=True)
    assert starts == (0, *ends[:-1])
    Series.pack(np.array(ends))  # whole numbers, as the recorder keeps them


def test_a_call_that_was_sampled_brings_the_digest_of_each_step() -> None:
    told = Kept()
    assert record_call(told, 0, 300, rows(0.0, 0.0), np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert [list(step[4]) for step in told.steps] == [[1.0, 2.0], [3.0, 4.0]]


def test_a_call_that_was_not_sampled_brings_none() -> None:
    told = Kept()
    record_call(told, 0, 300, rows(0.0, 0.0), np.zeros((2, 0)))
    assert [step[4] for step in told.steps] == [None, None]


@pytest.mark.parametrize(("left", "asked"), [(None, 100), (250, 100), (50, 50), (1, 1)])
def test_the_last_call_is_as_short_as_it_must_be(left: int | None, asked: int) -> None:
    assert steps_of_call(100, Kept(steps_left=left)) == asked
