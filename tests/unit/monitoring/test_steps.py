"""The steps of a job: exact totals, bounded rows, what a loop asked for, and the figures that they come to."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.analysis.thresholds import NEEDED_STEPS
from pipeline_bench.monitoring.steps import AGAIN, ENDED, LEFT, NO_WAIT_NS, LoopSteps, StepLog, Totals
from pipeline_bench.monitoring.summary import summarise

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
    assert len(set(rows.count[:-1].tolist())) <= 1, "the mean of the rows would not be that of the steps"
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


def test_steps_within_which_the_process_was_stopped_are_left_out() -> None:
    """The sampler looked last a little before that, and after it a little late."""
    stops: list[tuple[int, int]] = []
    log = StepLog(stops=stops)
    log.extend([0], [100], [1])
    stops.append((95, 2150))
    log.extend([100, 2000, 2150], [2000, 2050, 2250], [1900, 1, 3], count=2)
    stops.append((9000, 9900))
    log.extend([2250], [9950], [3], count=2)
    assert log.rows().start_ns.tolist() == [0, 2000, 2150]
    assert log.totals == Totals(steps=4, time_ns=150, waits=4, wait_ns=4, waited_ns=150)
    assert log.left_out == 4


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


def test_a_batch_of_an_iterator_of_its_own_waits_for_that_and_lasts_until_the_next_one_is_made() -> None:
    log = StepLog()
    passes = LoopSteps(log)
    passes.receive(0, LEFT)
    passes.receive(10, 5, iterator=1)
    for made_ns in (100, 200, 300):
        passes.receive(made_ns, AGAIN)
        passes.receive(made_ns + 20, 5, iterator=made_ns)
    passes.flush()
    rows = log.rows()
    assert rows.start_ns.tolist() == [10, 100, 200]
    assert rows.end_ns.tolist() == [100, 200, 300]
    assert rows.wait_ns is not None
    assert rows.wait_ns.tolist() == [5, 25, 25]
    assert passes.single == 3


def test_a_step_that_takes_from_several_iterators_begins_with_the_first_and_waits_for_all() -> None:
    log = StepLog()
    steps = LoopSteps(log)
    steps.receive(0, LEFT)
    for start_ns in (100, 200):
        steps.receive(start_ns, 5, iterator=1)
        steps.receive(start_ns + 10, 40, iterator=2)
    steps.receive(300, 5, iterator=1)
    steps.receive(310, ENDED, iterator=2)  # as zip ends: the last batch of the first one is not used
    steps.flush()
    rows = log.rows()
    assert rows.start_ns.tolist() == [100, 200]
    assert rows.end_ns.tolist() == [200, 300]
    assert rows.wait_ns is not None
    assert rows.wait_ns.tolist() == [45, 45]


def of_two_loops(every: int, batches: int) -> Totals:
    """A loop over data that never end, of steps of 10, after some of which another takes batches of 100 each."""
    log = StepLog()
    steps, other, at_ns = LoopSteps(log), LoopSteps(StepLog()), 0
    for step in range(1, 101):
        steps.receive(at_ns, 2, loop=7)
        at_ns += 10
        if step % every == 0:
            for _ in range(batches):
                other.receive(at_ns, 5, loop=7)
                at_ns += 100
            other.receive(at_ns, ENDED, loop=7)
    steps.receive(at_ns, 2, loop=7)
    steps.flush()
    return log.totals


def test_a_step_with_a_validation_behind_it_ends_as_that_begins() -> None:
    found = of_two_loops(every=10, batches=20)
    assert (found.steps, found.time_ns) == (99, 99 * 10)


@pytest.mark.parametrize(("every", "batches"), [(10, 2), (1, 20)])
def test_an_example_beside_a_step_and_what_each_step_does_are_parts_of_it(every: int, batches: int) -> None:
    found = of_two_loops(every, batches)
    assert found.time_ns >= 99 * 10 + 90 // every * batches * 100


def test_a_step_with_an_evaluation_behind_it_ends_as_that_begins() -> None:
    log = StepLog()
    steps = LoopSteps(log)
    for number in range(11):
        steps.receive(number * 1000, 2, loop=7)
        if number % 5 == 4:
            LoopSteps.see_others(7, number * 1000 + 10)
            LoopSteps.see_others(8, number * 1000 + 5)
    steps.flush()
    assert log.totals.time_ns == 7 * 1000 + 2 * 10


def test_a_validation_whose_iterator_is_kept_has_no_epoch_of_the_training_in_its_last_step() -> None:
    logs = StepLog(), StepLog()
    (training, validation), at_ns = map(LoopSteps, logs), 0
    for _ in range(5):
        for _ in range(100):
            training.receive(at_ns, 300, loop=8)
            LoopSteps.see_training(8)
            at_ns += 2000
        for _ in range(10):
            validation.receive(at_ns, 400, loop=8)
            at_ns += 1000
    training.flush()
    validation.flush()
    trained, validated = (log.totals for log in logs)
    assert (trained.steps, trained.time_ns) == (498, 498 * 2000)
    # The last step of an epoch ends at the training's second one: the first may train on the batches of both.
    assert (validated.steps, validated.time_ns) == (48, 44 * 1000 + 4 * 3000)


def test_a_loop_that_goes_on_with_another_iterator_has_its_steps() -> None:
    log = StepLog()
    steps = LoopSteps(log)
    steps.receive(100, 5, iterator=1)
    for start_ns in (200, 300, 400):
        steps.receive(start_ns, 5, iterator=2)
    steps.receive(500, ENDED, iterator=2)
    steps.flush()
    assert log.rows().start_ns.tolist() == [100, 300, 400]


def totals(steps: int, step_us: int, wait_us: int) -> Totals:
    return Totals(steps, steps * step_us * 1000, steps, steps * wait_us * 1000, steps * step_us * 1000)


def test_the_line_says_wait_bound_device_and_verdict() -> None:
    line = summarise(totals(100, 4000, 1500), (43.0, "NVML samples"), None).line
    assert line == (
        "100 steps of 4.00 ms; input wait 1.50 ms (38 %); AU at most 0.62; device 43 % (NVML samples); "
        "severely input-bound"
    )


@pytest.mark.parametrize(
    ("wait_us", "words", "cause"),
    [
        (70, "not input-bound", "only-not-input"),
        (90, "probably not input-bound", "only-not-input"),
        (99, "inconclusive", "at-threshold"),
        (101, "inconclusive", "at-threshold"),
        (110, "probably input-bound", None),
        (199, "input-bound", None),
        (200, "severely input-bound", None),
    ],
)
def test_about_the_threshold_a_watched_job_has_the_three_grades(wait_us: int, words: str, cause: str | None) -> None:
    figures = summarise(totals(1000, 1000, wait_us), (None, None), None)
    assert (figures.verdict_name, figures.verdict.cause) == (words, cause)
    in_doubt = words.startswith("probably") or words == "inconclusive"
    assert ("the threshold is 10 %" in figures.verdict.text) == in_doubt
    assert ("(input wait is " in figures.line) == in_doubt


def test_a_gpu_that_idles_without_waiting_for_input_is_named() -> None:
    figures = summarise(totals(100, 1000, 10), (27.0, "NVML samples"), None)
    assert figures.line.endswith("not input-bound, but the GPU idles")
    assert "the copy of the batch" in figures.verdict.text
    busy = summarise(totals(100, 1000, 10), (50.0, "NVML samples"), None)
    on_cpu = summarise(totals(100, 1000, 10), (27.0, "CPU time"), None)
    assert (busy.verdict.cause, on_cpu.verdict.cause) == ("only-not-input", "only-not-input")


def test_what_is_not_input_bound_is_not_called_anything_else() -> None:
    figures = summarise(totals(100, 1000, 10), (None, None), None)
    assert figures.line.endswith("not input-bound")
    assert "is not known without a ceiling" in figures.verdict.text
    assert "pipeline-bench diagnose" in figures.verdict.text


def test_a_wait_that_was_not_measured_gives_its_reason_and_no_bound() -> None:
    figures = summarise(Totals(steps=50, time_ns=50 * 10**6), (None, None), "the input is distributed")
    assert figures.line == "50 steps of 1.00 ms; input wait not measured: the input is distributed"
    assert figures.utilization_at_most is None
    assert figures.verdict.kind == "not-measured"
    assert "the input is distributed" in figures.verdict.text


def test_a_few_steps_make_no_verdict() -> None:
    figures = summarise(totals(NEEDED_STEPS - 1, 1000, 400), (None, None), None)
    assert figures.verdict.kind == "inconclusive"
    assert figures.line.endswith("too few steps for a verdict, 30 are needed")
    figures = summarise(totals(9, 1000, 900), (None, None), None)
    assert figures.line.endswith("too few steps for a verdict, 30 are needed")


def test_few_steps_that_wait_for_most_of_their_time_probably_wait_for_their_input() -> None:
    figures = summarise(totals(19, 1000, 900), (None, None), None)
    assert (figures.verdict.kind, figures.verdict.certainty) == ("input-bound", "probable")
    assert figures.line.endswith("probably severely input-bound")
    assert figures.verdict.text.endswith("in doubt: only 19 steps.")


def test_nothing_yet_is_not_zero() -> None:
    figures = summarise(Totals(), (None, None), None)
    assert figures.line == "no step has ended"


def test_a_wait_beside_a_busy_gpu_bounds_nothing_and_is_never_severe() -> None:
    figures = summarise(totals(100, 1000, 900), (99.0, "NVML samples"), None, device_waits=False)
    assert figures.utilization_at_most is None
    assert (figures.verdict.kind, figures.verdict.severe) == ("input-bound", False)
    assert "severely" not in figures.line + figures.verdict.text
    assert "AU –" in figures.line


class BusyLog(StepLog):
    """While it first takes rows in, the loop goes on and another thread flushes."""

    steps: LoopSteps | None = None

    def extend(self, *rows: Any, **named: Any) -> None:
        steps, self.steps = self.steps, None
        if steps is not None:
            steps.receive(40, 1)
            steps.flush()
        super().extend(*rows, **named)


def test_who_flushes_while_another_does_takes_no_step_out_of_its_order() -> None:
    log = BusyLog()
    steps = log.steps = LoopSteps(log)
    for at_ns in (10, 20, 30):
        steps.receive(at_ns, 1)
    steps.flush()
    assert log.rows().start_ns.tolist() == [10, 20]
    steps.receive(50, ENDED)
    steps.flush()
    assert log.rows().start_ns.tolist() == [10, 20, 30, 40]


def test_a_step_that_waits_for_two_batches_at_once_waits_until_it_has_both() -> None:
    """As in a graph, which may ask for both at a time."""
    log = StepLog()
    steps = LoopSteps(log)
    for begun in range(0, 400, 100):
        steps.receive(begun, 30, iterator=0)
        steps.receive(begun + 10, 40, iterator=1)
        steps.receive(begun + 20, 5, iterator=2)
    steps.flush()
    rows = log.rows()
    assert rows.wait_ns is not None
    assert rows.wait_ns.tolist() == [50, 50, 50]


def test_what_one_loop_takes_from_two_iterators_is_one_batch_to_a_partner() -> None:
    one, other = LoopSteps(StepLog()), LoopSteps(StepLog())
    for begun in range(0, 1000, 100):
        one.receive(begun, 5, loop=7)
        other.receive(begun + 10, 5, loop=7, iterator=1)
        other.receive(begun + 20, 5, loop=7, iterator=2)
    assert one.is_partner(other)
    assert other.is_partner(one)
    one.flush()
    waits = one._log.rows().wait_ns
    assert waits is not None
    assert set(waits.tolist()[3:]) == {15}
