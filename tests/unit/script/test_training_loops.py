"""When what trains without a dataset is a training that cannot be looked at."""

from __future__ import annotations

import time

import pytest

from pipeline_bench.script.training_loops import Loops


@pytest.mark.parametrize(
    ("step_s", "steps"),
    [
        (0.001, 51),
        (6.8, 4),  # a detector on a CPU: fifty of its steps take six minutes
        (15.0, 4),
        (0.5, 42),
    ],
)
def test_few_steps_that_take_long_are_a_training_as_many_short_ones_are(
    monkeypatch: pytest.MonkeyPatch, step_s: float, steps: int
) -> None:
    now_s, told = 100.0, list[str]()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    loops = Loops(lambda _: None, lambda _: None, lambda line, _: told.append(line), lambda _: False)
    step, made = loops._gradient(lambda: None), 0
    while not told:
        step()
        made += 1
        now_s += step_s
    assert made == steps
