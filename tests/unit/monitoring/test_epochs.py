"""The passes of a loop of the program's own: the epochs that its time is divided into."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_bench.analysis import wall_time
from pipeline_bench.model.job import Epoch
from pipeline_bench.monitoring.epochs import Passes, memory_bytes
from pipeline_bench.monitoring.steps import AGAIN, ENDED, LEFT, LoopSteps, StepLog

S = 10**9


@pytest.fixture(autouse=True)
def no_loop_went_on_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Passes, "_counted", False)


def loop() -> LoopSteps:
    steps = LoopSteps(StepLog())
    steps.passes = Passes(held_bytes=lambda: 7, started_ns=lambda: -20 * S)
    steps.passes.counts_start_up = True
    return steps


def take(steps: LoopSteps, start_s: float, waits_s: Sequence[float], step_s: float, ends: bool = True) -> float:
    """Pass over the data from then on, half a second after the iterator was made; return when that is over."""
    at_s = start_s
    steps.receive(int((at_s - 0.5) * S), LEFT)
    for wait_s in waits_s:
        steps.receive(int(at_s * S), int(wait_s * S))
        at_s += step_s
    if ends:
        steps.receive(int(at_s * S), ENDED)
    return at_s


def epochs(steps: LoopSteps) -> tuple[Epoch, ...]:
    time = steps.passes.wall_time()
    assert time is not None
    return time.epochs


def test_whole_steps_are_one_pass_and_their_loop_has_the_start_of_the_process() -> None:
    steps = loop()
    for at_s in (1, 4, 8):
        steps.took(at_s * S, (at_s + 3) * S, S)
    (epoch,) = epochs(steps)
    assert (epoch.begin_ns, epoch.end_ns, epoch.first_step_ns, epoch.steps_ns) == (S, 11 * S, 3 * S, 6 * S)
    assert (steps.begun, steps.last > 0, steps.is_over) == (3, True, True)
    later = loop()
    take(later, 20.0, [1.0, 1.0, 1.0, 1.0], 3.0)
    found = [each.passes.wall_time() for each in (steps, later)]
    assert [time and time.before_s for time in found] == [21.0, None]


def test_a_pass_is_an_epoch_and_the_first_one_has_the_first_step() -> None:
    steps = loop()
    assert steps.passes.wall_time() is None
    end_s = take(steps, 1.0, [2.0, 1.0, 1.0], 3.0)
    take(steps, end_s + 4.5, [0.5, 0.5], 3.0)
    first, second = epochs(steps)
    assert (first.begin_ns, first.end_ns, first.memory_bytes) == (0.5 * S, 10 * S, 7)
    assert (first.steps, second.steps) == (2, 2)
    assert (first.first_step_ns, first.steps_ns, first.wait_ns, first.first_wait_ns) == (3.5 * S, 6 * S, 2 * S, 2 * S)
    assert (second.first_step_ns, second.steps_ns, second.wait_ns, second.first_wait_ns) == (0, 6 * S, S, S // 2)
    time = steps.passes.wall_time()
    assert time is not None
    assert dict(wall_time.parts(time)) == {
        wall_time.START_UP: 20.5,
        wall_time.FIRST_STEP: 3.5,
        wall_time.INPUT_WAIT: 3.0,
        wall_time.COMPUTE: 9.0,
        wall_time.REST: 0.5,
        wall_time.BETWEEN: 4.0,
    }


def test_the_start_up_is_a_part_of_the_first_loop_that_goes_on() -> None:
    looks, trains, trains_too = loop(), loop(), loop()
    for number, (steps, taken) in enumerate(((looks, 2), (trains, 4), (trains_too, 4))):
        take(steps, 1.0 + 20 * number, [0.0] * taken, 2.0)
    times = [steps.passes.wall_time() for steps in (looks, trains, trains_too)]
    assert [time and time.before_s for time in times] == [None, 40.5, None]


def test_a_pass_that_the_loop_leaves_ends_with_its_last_whole_step() -> None:
    steps = loop()
    take(steps, 1.0, [0.1] * 3, 2.0, ends=False)
    assert [epoch.end_ns for epoch in epochs(steps)] == [5 * S], "while it goes on"
    take(steps, 30.0, [0.1] * 3, 2.0)
    assert [epoch.end_ns for epoch in epochs(steps)] == [5 * S, 36 * S]


def test_an_iterator_that_is_made_elsewhere_begins_the_pass() -> None:
    steps = loop()
    steps.receive(1 * S, LEFT, loop=5)
    for second in range(3, 6):
        steps.receive(second * S, 1)
    assert [(epoch.begin_ns, epoch.end_ns) for epoch in epochs(steps)] == [(S, 5 * S)]


def test_one_who_looks_at_an_example_makes_no_epoch_and_another_thread_none_either() -> None:
    steps = loop()
    take(steps, 1.0, [0.1], 2.0, ends=False)
    take(steps, 3.0, [0.1], 2.0, ends=False)
    assert steps.passes.wall_time() is None
    for second in range(4):
        steps.receive(second * S, 1, loop=5)
    assert steps.passes.wall_time() is None
    assert steps.begun == 2 + 4


def test_a_loop_that_makes_an_iterator_for_each_batch_is_one_pass() -> None:
    steps = loop()
    for second in range(0, 20, 2):
        steps.receive(second * S, AGAIN)
        steps.receive(second * S, S)
    (epoch,) = epochs(steps)
    assert (epoch.begin_ns, epoch.end_ns, epoch.steps_ns) == (0, 18 * S, 16 * S)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.booleans()), min_size=1, max_size=6))
def test_its_steps_are_those_of_the_log_and_the_parts_add_up(passes: list[tuple[list[int], bool]]) -> None:
    log = StepLog()
    steps = LoopSteps(log)
    at_s = 1.0
    for waits_s, ends in passes:
        at_s = take(steps, at_s, waits_s, 6.0, ends) + 2.0
    steps.flush()
    time = steps.passes.wall_time()
    if time is None:
        assert not log.rows().count.size
        return
    assert sum(epoch.steps_ns for epoch in time.epochs) == log.totals.time_ns
    assert sum(epoch.wait_ns or 0 for epoch in time.epochs) == log.totals.wait_ns
    assert abs(sum(part_s for _, part_s in wall_time.parts(time)) - time.seconds) < 1e-6


@pytest.mark.parametrize(("pass_s", "expected"), [(0.2, [1, 2, 3, 4]), (0.06, [1, 1, 2, 2]), (0.001, [1, 1, 1, 1])])
def test_what_the_process_holds_is_not_asked_anew_for_each_of_many_short_passes(
    pass_s: float, expected: list[int]
) -> None:
    """A call that trains is such a pass."""
    asked: list[int] = []

    def held() -> int:
        asked.append(0)
        return len(asked)

    steps = loop()
    steps.passes = Passes(held_bytes=held)
    for number in range(4):
        steps.receive(int((1 + number * pass_s) * S), 0)
        steps.receive(int((1 + (number + 1) * pass_s) * S), ENDED)
    time = steps.passes.wall_time()
    assert time is not None
    assert [epoch.memory_bytes for epoch in time.epochs] == expected


def test_the_pages_of_mapped_files_are_not_held_in_memory(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path) is None
    (tmp_path / "statm").write_text("900 25 7 1 0 80 0\n")
    (tmp_path / "status").write_text("Name:\ta\nVmRSS:\t  100 kB\n")
    either = memory_bytes(tmp_path)
    assert either is not None
    assert either % 25 == 0
    (tmp_path / "status").write_text("Name:\ta\nRssAnon:\t  40 kB\nRssFile:\t  900 kB\nRssShmem:\t  2 kB\n")
    assert memory_bytes(tmp_path) == 42 * 1024
