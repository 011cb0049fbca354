"""Where the time of a training went: parts that add up, and what is told of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.analysis import wall_time
from pipeline_bench.analysis.wall_time import parts, remarks
from pipeline_bench.model.job import Epoch, WallTime
from pipeline_bench.model.result import Estimate, StepTime
from tests.unit import sessions

SECOND = 10**9
GIB = 2**30
PART = st.integers(0, 50)


@given(
    spent=st.lists(st.tuples(*[PART] * 9), min_size=1, max_size=5),
    around=st.tuples(PART, PART, PART, PART),
    measured=st.booleans(),
)
def test_the_parts_add_up_to_the_whole(spent: list[tuple[int, ...]], around: tuple[int, ...], measured: bool) -> None:
    """Epochs: the ends of iterators, steps of a compute, a wait and callbacks; a validation, callbacks and a rest."""
    before, until_first, last_callbacks, after = around
    now, epochs, ended = until_first, [], []
    for place, (first, compute, wait, in_step, validation, callbacks, rest, between, end) in enumerate(spent):
        parts_s = {"steps": compute + wait + in_step, "first": 0 if place else first, "end": end}
        length = sum(parts_s.values()) + validation + callbacks + rest
        ended.append(end)
        epochs.append(
            Epoch(
                begin_ns=now * SECOND,
                end_ns=(now + length) * SECOND,
                first_step_ns=parts_s["first"] * SECOND,
                steps_ns=parts_s["steps"] * SECOND,
                wait_ns=wait * SECOND if measured else None,
                iterator_end_ns=end * SECOND,
                validation_ns=validation * SECOND,
                callbacks_ns=callbacks * SECOND,
                step_callbacks_ns=in_step * SECOND,
            )
        )
        now += length + (between if place < len(spent) - 1 else 0)
    until = now + last_callbacks + after
    time = WallTime(
        before_s=before,
        begin_ns=0,
        end_ns=until * SECOND,
        epochs=tuple(epochs),
        last_callbacks_ns=last_callbacks * SECOND,
    )
    found = dict(parts(time))
    assert sum(found.values()) == pytest.approx(before + until)
    columns = list(zip(*spent, strict=True))
    expected = {
        wall_time.START_UP: before,
        wall_time.FIRST_STEP: until_first + columns[0][0],
        wall_time.INPUT_WAIT: sum(columns[2]) if measured else 0,
        wall_time.COMPUTE: sum(columns[1]) + (0 if measured else sum(columns[2])),
        wall_time.ITERATOR_END: sum(ended),
        wall_time.VALIDATION: sum(columns[4]),
        wall_time.CALLBACKS: sum(columns[3]) + sum(columns[5]) + last_callbacks,
        wall_time.REST: sum(columns[6]) + after,
        wall_time.BETWEEN: sum(columns[7][:-1]),
    }
    assert found == pytest.approx({name: value for name, value in expected.items() if value})


def training(seconds: list[float], memory_gib: list[float] | None = None, **more: Any) -> WallTime:
    ends = np.cumsum(seconds)
    used: list[float | None] = [*memory_gib] if memory_gib else [None] * len(seconds)
    epochs = [
        Epoch(
            begin_ns=int((end - length) * SECOND),
            end_ns=int(end * SECOND),
            steps=10,
            steps_ns=int((length - 1) * SECOND),
            wait_ns=0,
            memory_bytes=None if gib is None else int(gib * GIB),
        )
        for end, length, gib in zip(ends, seconds, used, strict=True)
    ]
    epochs[0] = epochs[0].model_copy(update={"first_step_ns": SECOND})
    epochs = [epoch.model_copy(update=more) for epoch in epochs]
    return WallTime(begin_ns=0, end_ns=int(ends[-1] * SECOND), epochs=tuple(epochs))


def told(time: WallTime) -> list[str]:
    return list(remarks(time, 16 * GIB))


def test_a_training_like_others_has_no_remark() -> None:
    assert told(training([11.0, 10.5, 10.2], [4.0, 4.1, 4.0])) == []
    assert told(WallTime(begin_ns=0, end_ns=SECOND)) == []


def test_later_epochs_that_are_slower_are_told_of_with_what_grew() -> None:
    (remark,) = told(training([11.0, 15.0, 16.0, 15.5]))
    assert remark.startswith("later epochs are slower: 15.5 s (median), the first one 10.0 s")
    assert remark.endswith("4.5 s of the difference is compute and host")


@pytest.mark.parametrize(("steps", "a_call"), [(320, 160), (3, 1), (4, 4)])
@pytest.mark.parametrize("first_wait_s", [0.0, 3.0])
def test_of_equal_epochs_the_later_ones_are_not_slower_by_the_first_call(
    steps: int, a_call: int, first_wait_s: float
) -> None:
    """A step is 2 s, and the first one of an epoch waits for its batch as well; the very first call traces for 5 s."""
    epochs, now_s = [], 0.0
    for number in range(4):
        first_s = 5.0 + first_wait_s + 2.0 * a_call if number == 0 else 0.0
        others = steps - a_call if number == 0 else steps
        wait_s = 0.0 if number == 0 else first_wait_s
        end_s = now_s + first_s + 2.0 * others + wait_s + 1.0
        epochs.append(
            Epoch(
                begin_ns=int(now_s * SECOND),
                end_ns=int(end_s * SECOND),
                first_step_ns=int(first_s * SECOND),
                steps=others,
                steps_ns=int((2.0 * others + wait_s) * SECOND),
                wait_ns=int(wait_s * SECOND),
                first_wait_ns=int(first_wait_s * SECOND),
            )
        )
        now_s = end_s
    found = told(WallTime(begin_ns=0, end_ns=int(now_s * SECOND), epochs=tuple(epochs)))
    assert not [remark for remark in found if "slower" in remark]


@pytest.mark.parametrize(("later_s", "is_told"), [(20.0, False), (30.0, True)])
def test_later_epochs_are_compared_by_as_many_steps_as_the_first_one_has_without_its_first_call(
    later_s: float, is_told: bool
) -> None:
    time = training([11.0, later_s, later_s])
    first = time.epochs[0].model_copy(update={"steps": 5})
    found = told(time.model_copy(update={"epochs": (first, *time.epochs[1:])}))
    expected = "15.5 s (median), the first one 10.0 s, each without its first step; 4.5 s of the difference is compute"
    assert [expected in remark for remark in found] == [True] * is_told


def test_epochs_of_an_older_session_whose_steps_are_not_known_are_not_compared() -> None:
    assert told(training([11.0, 15.0, 16.0, 15.5], steps=None)) == []


@pytest.mark.parametrize(
    ("waits_s", "is_told"),
    [
        ((6.0, 0.3, 0.2), True),
        ((6.0, 3.0, 3.1), False),
        ((1.01, 0.99, 0.99), False),
        ((6.0,), False),
        ((0.1, 0.1), False),
        ((6.0, None), False),
    ],
)
def test_a_first_epoch_that_alone_waits_is_told(waits_s: tuple[float | None, ...], is_told: bool) -> None:
    time = training([11.0] * len(waits_s))
    waits_ns = [None if wait_s is None else int(wait_s * SECOND) for wait_s in waits_s]
    epochs = [epoch.model_copy(update={"wait_ns": ns}) for epoch, ns in zip(time.epochs, waits_ns, strict=True)]
    remarks = told(time.model_copy(update={"epochs": tuple(epochs)}))
    assert len(remarks) == is_told
    if is_told:
        assert remarks[0].startswith(
            "the first epoch waited for its input for 60 % of its steps' time, the later ones for 2 %: it fills"
        )


@pytest.mark.parametrize(
    ("step_ms", "wait_share", "steps_a_call", "expected"),
    [
        (3.0, 0.04, 1, True),
        (12.0, 0.04, 1, False),
        (3.0, 0.4, 1, False),
        (3.0, 0.04, 16, False),
        (3.0, 0.04, None, False),
    ],
)
def test_short_steps_that_do_not_wait_may_gain_by_several_in_a_call(
    step_ms: float, wait_share: float, steps_a_call: int | None, expected: bool
) -> None:
    time = training([11.0, 10.5, 10.2]).model_copy(update={"steps_a_call": steps_a_call})
    figures = {"step_ms": StepTime(mean=step_ms), "input_wait_share": Estimate(value=wait_share)}
    step = sessions.ceiling_result().model_copy(update=figures)
    found = list(remarks(time, 16 * GIB, step))
    assert [text.startswith("a step takes only 3.00 ms") for text in found] == [True] * expected
    assert all("steps_per_execution=16" in text for text in found)


QUEUE_ENDS = training([9.0], first_step_ns=SECOND, iterator_end_ns=5 * SECOND)


@pytest.mark.parametrize(
    ("time", "begins"),
    [
        (training([11.0, 10.0, 30.0, 10.0]), None),  # one slow epoch is no trend
        (training([100.0], first_wait_ns=90 * SECOND), "the first batch was waited for 90 s"),
        (training([1000.0], first_wait_ns=90 * SECOND, count=256), None),  # the first waits of so many epochs
        (
            training([11.0, 10.0, 10.0], first_wait_ns=3 * SECOND),
            "the later epochs waited 6.0 s in all for their first batches",
        ),
        (
            training([14.0, 14.0], steps_ns=6 * SECOND, validation_ns=7 * SECOND),
            "validation took 14.0 s, the steps of the training 12.0 s: how long validation waits",
        ),
        (training([14.0, 14.0], steps_ns=7 * SECOND, validation_ns=6 * SECOND), None),
        (
            training([11.0, 10.0, 10.0], iterator_end_ns=2 * SECOND),
            "the later epochs waited 4.0 s in all, up to 2.0 s in one, for TensorFlow to end an ",
        ),
        (training([11.0, 10.0, 10.0], iterator_end_ns=SECOND // 20), None),
        (QUEUE_ENDS, None),
        (
            QUEUE_ENDS.model_copy(update={"queue_of_keras_2": True}),
            "the epochs waited 5.0 s in all, up to 5.0 s in one, for Keras 2 to end iterators",
        ),
        (training([11.0, 10.0, 10.0], [12.0, 14.0, 16.0]), None),  # no epoch in the past for a full memory
    ],
)
def test_what_takes_much_time_is_told_and_nothing_else(time: WallTime, begins: str | None) -> None:
    remarks = told(time)
    assert len(remarks) == (begins is not None)
    assert all(remark.startswith(begins or "") for remark in remarks)


def test_memory_that_grows_in_every_epoch_is_told_of_with_when_it_is_full() -> None:
    (remark,) = told(training([11.0, 10.0, 10.0], [4.0, 6.0, 8.0]))
    assert remark == "memory grew by 2.00 GiB an epoch, to 8.00 GiB: at this rate the machine is full in epoch 7"
    (remark,) = told(training([11.0, 10.0, 10.0], [4.0, 8.0, 12.0], count=2))
    assert "grew by 2.00 GiB an epoch, to 12.0 GiB: at this rate the machine is full in epoch 8" in remark


def test_a_resumed_training_has_its_memory_full_in_an_epoch_as_keras_numbers_them() -> None:
    resumed = training([11.0, 10.0, 10.0], [4.0, 6.0, 8.0]).model_copy(update={"initial_epoch": 50})
    assert [remark.rpartition(" ")[2] for remark in told(resumed)] == ["57"]


def test_no_part_of_the_steps_is_counted_twice() -> None:
    both = Epoch(begin_ns=0, end_ns=10 * SECOND, steps_ns=9 * SECOND, wait_ns=8 * SECOND, step_callbacks_ns=3 * SECOND)
    time = WallTime(begin_ns=0, end_ns=10 * SECOND, epochs=(both,))
    assert sum(seconds for _, seconds in parts(time)) == pytest.approx(10)
