"""What inputs give is found from simulated hosts, and what more of them come to lies where the simulation has it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.analysis import capacity
from pipeline_bench.analysis.capacity import HostStep, Point, Supply
from pipeline_bench.model.hosts import Range
from tests.unit.storage_simulation import Machine, simulate

SAMPLES = 16
NO_HOST = Range(value=0.0, low=0.0, high=0.0)
ROUNDS = 3


def points_of(machine: Machine, counts: Sequence[int]) -> list[Point]:
    """As a merged session has them: some rounds of each count."""
    alone = simulate(machine, 1).wait_share
    points = []
    for count in counts:
        rounds = [simulate(machine, count, seed) for seed in range(ROUNDS)]
        rates = {number: SAMPLES * each.batches_per_s for number, each in enumerate(rounds)}
        wait = sum(each.wait_share for each in rounds) / ROUNDS
        points.append(Point(count, rates, wait, wait - alone if count > 1 else 1.0))
    return points


def supply_of(machine: Machine, counts: Sequence[int]) -> tuple[Supply, HostStep]:
    busy_ms = None if machine.ahead else machine.step_ms
    supply = capacity.fit(points_of(machine, counts), "host", SAMPLES, busy_ms)
    return supply, HostStep(machine.step_ms, NO_HOST, bool(machine.ahead))


times = st.floats(2, 100)
machines = st.builds(
    Machine,
    step_ms=times,
    own_ms=times,
    turn_ms=st.floats(0.2, 60),
    ahead=st.sampled_from([0, 2, 4]),
    jitter=st.sampled_from([0.0, 0.2]),
)


@given(machine=machines, hosts=st.integers(3, 24))
def test_what_more_hosts_reach_lies_between_the_ends_that_two_of_them_leave(machine: Machine, hosts: int) -> None:
    supply, step = supply_of(machine, (1, 2))
    planned = capacity.utilization(supply, step, hosts, SAMPLES)
    reached = simulate(machine, hosts, seed=7).utilization
    # Who asks by chance at once waits, where a sum of times does not: up to a tenth near the end of the storage.
    assert 0.9 * planned.low <= reached <= 1.1 * (planned.high or 0.0)


@given(
    knee=st.floats(1.5, 7),
    ahead=st.sampled_from([0, 2, 4]),
    own_ms=st.floats(1, 70),
    jitter=st.sampled_from([0.0, 0.2]),
    beside=st.integers(-1, 2),
)
def test_where_hosts_just_suffice_the_plan_from_one_to_eight_has_what_is_reached(
    knee: float, ahead: int, own_ms: float, jitter: float, beside: int
) -> None:
    """The storage serves so many hosts in the time that a step takes by itself; those asked for lie around that."""
    alone_ms = max(60.0, own_ms) if ahead else 60.0 + own_ms
    machine = Machine(60, own_ms, alone_ms / knee, ahead, jitter)
    supply, step = supply_of(machine, (1, 2, 4, 8))
    hosts = max(1, int(knee) + beside)
    planned = capacity.utilization(supply, step, hosts, SAMPLES)
    reached = simulate(machine, hosts, seed=7).utilization
    # Who asks by chance at once waits: some hundredths between the last number without an end and the knee.
    assert planned.low - 0.06 <= reached <= (planned.high or 0.0) + 0.02


@pytest.mark.parametrize("hosts", [1, 4, 6, 8])
def test_hosts_that_wait_by_chance_before_the_storage_ends_are_planned_as_they_were_seen(hosts: int) -> None:
    """Reading takes as long as a step, and both vary: eight reach 0.81 beside 0.91 alone, which is no end yet."""
    machine = Machine(60, 56.6, 60 / 6.5, 2, 0.2)
    supply, step = supply_of(machine, (1, 2, 4, 8))
    planned = capacity.utilization(supply, step, hosts, SAMPLES)
    assert planned.low == pytest.approx(simulate(machine, hosts, seed=7).utilization, abs=0.07)
    assert planned.low <= simulate(machine, hosts, seed=7).utilization + 0.01


@pytest.mark.parametrize("hosts", [2, 4, 5, 6, 7])
def test_hosts_that_queue_by_chance_beside_another_accelerator_lie_between_the_ends(hosts: int) -> None:
    """Nothing is made ahead: 200 ms a step and 42 to read, 40 of them at the storage, which six would just not fill."""
    supply, step = supply_of(Machine(60, 2, 40, 0, 0.2), (1, 2, 4))
    planned = capacity.utilization(supply, HostStep(200, NO_HOST, step.works_ahead), hosts, SAMPLES)
    reached = simulate(Machine(200, 2, 40, 0, 0.2), hosts, seed=7).utilization
    assert planned.low <= reached <= (planned.high or 0.0)


@given(count=st.integers(1, 40), alone_ms=st.floats(10, 500), share=st.floats(0.01, 1))
def test_a_low_end_with_queueing_is_at_most_what_mean_value_analysis_gives(
    count: int, alone_ms: float, share: float
) -> None:
    """By its recursion over the hosts, from none in the queue on."""
    turn_ms, queue, takes_ms = share * alone_ms, 0.0, 0.0
    for hosts in range(1, count + 1):
        at_storage_ms = turn_ms * (1 + queue)
        takes_ms = alone_ms - turn_ms + at_storage_ms
        queue = hosts * at_storage_ms / takes_ms
    assert 0.999 * takes_ms <= capacity._queued_ms(count, alone_ms, turn_ms) <= 1.1 * takes_ms


@st.composite
def exhausted(draw: st.DrawFn) -> Machine:
    """Two turns at the storage take at least 1.33 times what a host takes alone."""
    turn_ms, ahead = draw(st.floats(5, 60)), draw(st.sampled_from([0, 2, 4]))
    own_ms = turn_ms * draw(st.floats(0.02, 0.4 if ahead else 0.2))
    step_ms = turn_ms * draw(st.floats(0.1, 1.4 if ahead else 0.25))
    return Machine(step_ms, own_ms, turn_ms, ahead, draw(st.sampled_from([0.0, 0.2])))


@given(machine=exhausted(), hosts=st.integers(3, 24))
def test_a_storage_that_two_exhaust_is_known_and_more_hosts_within_five_points(machine: Machine, hosts: int) -> None:
    supply, step = supply_of(machine, (1, 2))
    assert supply.total.value == pytest.approx(1000 * SAMPLES / machine.turn_ms, rel=0.05)
    planned = capacity.utilization(supply, step, hosts, SAMPLES)
    assert planned.value == pytest.approx(simulate(machine, hosts, seed=7).utilization, abs=0.05)


@given(machine=machines, other_ms=times)
def test_another_accelerator_beside_the_same_input_lies_between_the_ends(machine: Machine, other_ms: float) -> None:
    """Also one that is faster, of an input whose end was never seen."""
    supply, step = supply_of(machine, (1, 2))
    other = Machine(other_ms, machine.own_ms, machine.turn_ms, machine.ahead, machine.jitter)
    planned = capacity.utilization(supply, HostStep(other_ms, NO_HOST, step.works_ahead), 1, SAMPLES)
    reached = simulate(other, 1, seed=7).utilization
    assert 0.9 * planned.low <= reached <= 1.1 * (planned.high or 0.0)


def test_an_input_that_no_step_waits_for_is_known_from_below_only() -> None:
    """60 ms a step hide the 10 that a batch takes; a step of 5 could have 10 or more."""
    supply, _ = supply_of(Machine(60, 9, 1), (1,))
    assert supply.own.value is None
    assert supply.own.low == pytest.approx(SAMPLES / 0.060, rel=0.01)
    fast = capacity.utilization(supply, HostStep(5, NO_HOST, True), 1, SAMPLES)
    assert fast.value is None
    assert fast.low == pytest.approx(5 / 60, rel=0.01)
    assert fast.high == pytest.approx(1.0)
    assert capacity.limit(supply, HostStep(5, NO_HOST, True), 1, SAMPLES) == "not-known"


@pytest.mark.parametrize(("ahead", "own_rate"), [(2, SAMPLES / 0.100), (0, SAMPLES / 0.100)])
def test_the_input_of_a_batch_is_the_step_where_it_is_hidden_and_the_wait_where_it_follows(
    ahead: int, own_rate: float
) -> None:
    """100 ms of input beside a step of 50: a step takes 100 with prefetch, 150 without; the input is the same."""
    machine = Machine(50, 100, 0, ahead)
    supply, _ = supply_of(machine, (1,))
    assert supply.own.value == pytest.approx(own_rate, rel=0.02)


def test_without_prefetch_a_faster_accelerator_gains_what_it_saves() -> None:
    supply, _ = supply_of(Machine(50, 100, 0, 0), (1,))
    behind = capacity.utilization(supply, HostStep(5, NO_HOST, False), 1, SAMPLES)
    assert behind.value == pytest.approx(5 / 105, rel=0.03)
    feeds = capacity.feeds(supply.own, HostStep(50, NO_HOST, False), SAMPLES)
    assert feeds.value == pytest.approx(50 / 9 / 100, rel=0.03)


@pytest.mark.parametrize("works_ahead", [True, False])
def test_whether_the_input_works_ahead_is_seen_beside_two_models(works_ahead: bool) -> None:
    seen = [simulate(Machine(step_ms, 100, 0, 2 if works_ahead else 0), 1) for step_ms in (20, 50)]
    steps = [(1000 / each.batches_per_s * each.wait_share, step) for each, step in zip(seen, (20, 50), strict=True)]
    assert capacity.works_ahead(steps) is works_ahead


def test_one_model_or_two_alike_tell_nothing_of_working_ahead() -> None:
    assert capacity.works_ahead([]) is None
    assert capacity.works_ahead([(50.0, 20.0)]) is None
    assert capacity.works_ahead([(50.0, 20.0), (48.0, 21.0)]) is None


def test_the_storage_limits_from_the_number_of_hosts_whose_turns_outlast_a_step() -> None:
    """25 ms a turn, 60 a step: the third host is one too many."""
    supply, step = supply_of(Machine(60, 1, 25), (1, 2, 3, 4))
    found = capacity.total_from(supply, step, SAMPLES)
    assert found is not None
    assert found.value == 3
    assert capacity.limit(supply, step, 4, SAMPLES) == "storage"
    assert capacity.limit(supply, step, 2, SAMPLES) == "accelerator"


@pytest.mark.parametrize(("last", "trend"), [(1000.0, "flat"), (1500.0, "rising"), (700.0, "falling")])
def test_a_total_that_still_moves_is_the_last_one_and_says_so(last: float, trend: str) -> None:
    def point(count: int, rate: float) -> Point:
        return Point(count, dict.fromkeys(range(3), rate), 0.6 if count > 1 else 0.0, 0.6)

    supply = capacity.fit([point(1, 900.0), point(2, 1000.0), point(4, last)], "host", SAMPLES, None)
    assert supply.trend == trend
    assert supply.total.value == pytest.approx(last)


def test_a_total_that_more_hosts_exceed_without_an_end_was_none() -> None:
    """Two hosts that are slow, or were disturbed, beside an input that all wait for alone; four reach all of theirs."""

    def point(count: int, rate: float) -> Point:
        return Point(count, dict.fromkeys(range(3), rate), 0.6)

    supply = capacity.fit([point(1, 300.0), point(2, 420.0), point(4, 1200.0)], "host", SAMPLES, None)
    assert not supply.total.is_known
    assert supply.total.low == pytest.approx(1200.0)
    assert capacity.total_from(supply, HostStep(10, NO_HOST, True), SAMPLES) is None


def test_a_round_in_which_a_host_alone_was_held_up_hides_no_end_of_the_storage() -> None:
    """Two hosts reach 62 % of what they reach alone, as their efficiency has it: from five rounds on it is trimmed."""
    alone = Point(1, dict(enumerate([1000.0, 1000.0, 1000.0, 1000.0, 330.0])), 0.0)
    both = Point(2, dict.fromkeys(range(5), 1240.0), 0.38, 0.38)
    assert capacity.fit([alone, both], "host", SAMPLES, None).total.value == pytest.approx(1240.0)


def test_workers_add_up_until_what_they_send_ends() -> None:
    def point(count: int, rate: float) -> Point:
        return Point(count, dict.fromkeys(range(3), rate), 0.5)

    supply = capacity.fit([point(1, 300.0), point(2, 600.0), point(8, 900.0)], "input worker", SAMPLES, None)
    assert supply.own.value == pytest.approx(300.0)
    assert supply.total.value == pytest.approx(900.0)
    step = HostStep(10, NO_HOST, True)  # 1600 samples a second
    assert capacity.utilization(supply, step, 2, SAMPLES).value == pytest.approx(600 / 1600)
    assert capacity.utilization(supply, step, 64, SAMPLES).value == pytest.approx(900 / 1600)
    found = capacity.total_from(supply, step, SAMPLES)
    assert found is not None
    assert found.value in (3, 4)


@given(
    own=st.floats(1, 1e5),
    spread=st.floats(1, 2),
    total=st.floats(1, 1e6),
    step_ms=st.floats(0.1, 1e3),
    host_ms=st.floats(0, 50),
    works_ahead=st.booleans(),
    count=st.integers(1, 1_000_000),
)
def test_a_utilization_is_between_0_and_1_and_never_grows_with_more_hosts(
    own: float, spread: float, total: float, step_ms: float, host_ms: float, works_ahead: bool, count: int
) -> None:
    supply = Supply(
        "host",
        Range(value=own, low=own / spread, high=own * spread),
        Range(value=total, low=total / spread, high=total * spread),
        None,
    )
    step = HostStep(step_ms, Range(value=host_ms, low=host_ms / spread, high=host_ms * spread), works_ahead)
    found = capacity.utilization(supply, step, count, SAMPLES)
    more = capacity.utilization(supply, step, count + 1, SAMPLES)
    assert found.value is not None
    assert 0 < found.low <= found.value * (1 + 1e-9)
    assert found.value <= (found.high or math.inf) * (1 + 1e-9) <= 1 + 1e-6
    assert (more.value or 0.0) <= found.value
