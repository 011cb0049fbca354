"""When a between_graph worker has taken its last step, and what it tells of them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.worker.cluster_messages import Assignment, StepsTaken
from pipeline_bench.worker.cluster_worker import Reporter

MS = 1_000_000


class Pipe:
    """A pipe that keeps what was sent; `ordered` is whether the trial has said something."""

    def __init__(self) -> None:
        self.sent: list[StepsTaken] = []
        self.ordered = False

    def send(self, message: StepsTaken) -> None:
        self.sent.append(message)

    def poll(self) -> bool:
        return self.ordered


def assignment(number: int = 0, synchronous: bool = True, tickets: int = -1, **run: Any) -> Assignment:
    runtime = {"replicas": 2, "replication": "between_graph", "synchronous": synchronous}
    document = {"name": "t", "run": run, "variants": [{"name": "v", "backend": "tf_data", "runtime": runtime}]}
    return Assignment("worker", number, resolve(document).variants[0], tickets)


def take(reporter: Reporter, number: int, took_ms: int = 10, digest: Any = None) -> bool:
    return reporter((number - 1) * took_ms * MS, number * took_ms * MS, 0, 0.5, digest)


def test_synchronous_workers_take_as_many_steps_as_the_trial() -> None:
    reporter = Reporter(Pipe(), assignment(steps=3), None)
    assert reporter.may_go_on()
    assert [take(reporter, number) for number in (1, 2, 3)] == [True, True, False]


def test_asynchronous_workers_share_the_steps_that_are_left() -> None:
    tickets = os.eventfd(3, os.EFD_SEMAPHORE | os.EFD_NONBLOCK)
    first, second = (Reporter(Pipe(), assignment(number, False, tickets, steps=3), None) for number in (0, 1))
    assert first.may_go_on()
    assert second.may_go_on()
    assert take(first, 1)
    assert not take(second, 1)
    assert not take(first, 2)
    late = Reporter(Pipe(), assignment(1, False, tickets, steps=3), None)
    assert not late.may_go_on()
    os.close(tickets)


@pytest.mark.parametrize(
    ("number", "synchronous", "goes_on"),
    [(0, True, False), (1, True, True), (0, False, False), (1, False, False)],
)
def test_the_end_of_a_time_is_heard_by_those_whom_nobody_waits_for(
    number: int, synchronous: bool, goes_on: bool
) -> None:
    """A synchronous worker that stopped by itself would leave worker 0 waiting for its gradients."""
    pipe = Pipe()
    reporter = Reporter(pipe, assignment(number, synchronous, time_s=1), None)
    assert take(reporter, 1)
    pipe.ordered = True
    assert take(reporter, 2) is goes_on


def test_steps_travel_several_at_a_time_and_each_once() -> None:
    pipe = Pipe()
    reporter = Reporter(pipe, assignment(steps=100), None)
    for number in range(1, 21):
        take(reporter, number)
    reporter.report(1e18)
    told = [step.end_ns // (10 * MS) for took in pipe.sent for step in took.steps]
    assert told == list(range(1, 21))
    assert len(pipe.sent) < 10
    assert pipe.sent[-1].until_ns == 1e18


def test_short_steps_are_sampled_now_and_then_long_ones_always() -> None:
    for took_ms, cost_us, every in ((10, 1000.0, 10), (10, 1.0, 1)):
        reporter = Reporter(Pipe(), assignment(steps=100), cost_us)
        looked = []
        for number in range(1, 51):
            looked.append(reporter.should_sample)
            take(reporter, number, took_ms)
        assert looked[2] is (every == 1)
        assert looked[10:] == [step % every == 0 for step in range(10, 50)]


def test_what_shows_nothing_is_never_sampled() -> None:
    reporter = Reporter(Pipe(), assignment(steps=100), None)
    assert not reporter.should_sample
    take(reporter, 1)
    assert not reporter.should_sample
