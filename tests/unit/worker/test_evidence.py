"""How many steps are looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.sources.memory import Memory
from pipeline_bench.sources.synthetic import Synthetic
from pipeline_bench.worker import evidence


@given(st.floats(0, 1e6), st.floats(0, 1e9))
def test_looking_costs_at_most_one_percent_of_the_steps(cost_us: float, step_us: float) -> None:
    every = evidence.every(cost_us, step_us)
    assert every >= 1
    assert cost_us / every <= evidence.COST_SHARE * max(step_us, 1e-3) * (1 + 1e-6)


def test_long_steps_are_all_looked_at_and_short_ones_now_and_then() -> None:
    assert evidence.every(10, 1000) == 1
    assert evidence.every(10, 999) == 2
    assert evidence.every(10, 100) == 10


def test_the_moments_of_a_batch_cost_more_than_its_numbers() -> None:
    assert evidence.cost_us(Memory(), 1024) < evidence.cost_us(Synthetic(), 1024)
