"""Where the time of a training went: parts that add up, and what is told of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.injection.wall_time import Epoch, FitTime, fit_time, parts, remarks

SECOND = 10**9
GIB = 2**30


@given(
    steps=st.lists(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=5), min_size=1),
    gaps=st.tuples(*[st.integers(0, 30)] * 4),
    measured=st.booleans(),
)
def test_the_parts_add_up_to_the_whole(
    steps: list[list[tuple[int, int]]], gaps: tuple[int, int, int, int], measured: bool
) -> None:
    """Epochs of steps of a compute and a wait, with a pause before, a validation, and a pause between two epochs."""
    before, rest, validation, between = gaps
    now, epochs, rows = before, [], []
    for epoch in steps:
        begin = now
        for compute, wait in epoch:
            rows.append((now, now + compute + wait, wait))
            now += compute + wait
        now += rest + validation
        epochs.append(Epoch(begin_ns=begin * SECOND, end_ns=now * SECOND, validation_ns=validation * SECOND))
        now += between
    end = now - between
    starts, ends, waits = (np.array(column, dtype=np.int64) * SECOND for column in zip(*rows, strict=True))
    later_s, later_wait_s = float((ends - starts)[1:].sum()) / 1e9, float(waits[1:].sum()) / 1e9
    found = fit_time(
        0, end * SECOND, epochs, starts, ends, waits if measured else None, later_s, later_wait_s if measured else None
    )
    assert sum(part_s for _, part_s in parts(found)) == pytest.approx(end)
    assert found.first_step_s == pytest.approx(before + sum(steps[0][0]))
    assert found.validation_s == pytest.approx(validation * len(steps))
    assert found.between_epochs_s == pytest.approx(between * (len(steps) - 1))
    assert found.rest_s == pytest.approx(rest * len(steps))
    if measured:
        assert found.epoch_starts_s == pytest.approx(sum(epoch[0][1] for epoch in steps[1:]))


def fit(seconds: list[float], memory_gib: list[float] | None = None, **given: Any) -> FitTime:
    ends = np.cumsum(seconds)
    used: list[float | None] = [*memory_gib] if memory_gib else [None] * len(seconds)
    epochs = tuple(
        Epoch(
            begin_ns=int((end - length) * SECOND),
            end_ns=int(end * SECOND),
            memory_bytes=None if gib is None else int(gib * GIB),
        )
        for end, length, gib in zip(ends, seconds, used, strict=True)
    )
    fields: dict[str, Any] = {
        "total_s": sum(seconds),
        "first_step_s": 1.0,
        "first_wait_s": 0.5,
        "input_wait_s": 2.0,
        "compute_s": 3.0,
        "epoch_starts_s": 0.0,
        "validation_s": 0.0,
        "between_epochs_s": 0.0,
        "rest_s": 0.0,
    }
    return FitTime(**{**fields, "epochs": epochs, **given})


def told(found: FitTime) -> list[str]:
    return list(remarks(found, 16 * GIB))


def test_a_training_like_others_has_no_remark() -> None:
    assert told(fit([11.0, 10.5, 10.2], [4.0, 4.1, 4.0])) == []


def test_later_epochs_that_are_slower_are_told_of() -> None:
    (remark,) = told(fit([11.0, 15.0, 16.0, 15.5]))
    assert remark.startswith("later epochs are slower: 15.5 s in the middle, and 10.0 s for the first one")


def test_one_slow_epoch_is_no_trend() -> None:
    assert told(fit([11.0, 10.0, 30.0, 10.0])) == []


def test_a_first_batch_of_minutes_is_told_of() -> None:
    (remark,) = told(fit([100.0], first_wait_s=90.0, first_step_s=91.0))
    assert remark.startswith("the first batch was waited for 90 s")


def test_buffers_that_are_filled_anew_in_each_epoch_are_told_of() -> None:
    (remark,) = told(fit([11.0, 10.0, 10.0], epoch_starts_s=6.0))
    assert remark.startswith("6.0 s of the later epochs waited for their first batches")


def test_memory_that_grows_in_every_epoch_is_told_of_with_when_it_is_full() -> None:
    (remark,) = told(fit([11.0, 10.0, 10.0], [4.0, 6.0, 8.0]))
    assert remark == "memory grew by 2.00 GiB an epoch, to 8.00 GiB: at this rate the machine is full in epoch 7"
