"""The truth that the accuracy benchmark holds the program against: worked out step by step, so it is tested itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy import cases
from pipeline_bench.selftest import truth
from pipeline_bench.selftest.truth import Truth

milliseconds = st.floats(0.1, 100)
patterns = st.lists(milliseconds, min_size=1, max_size=6)
counts = st.integers(1, 5)


def test_a_synchronous_step_is_the_sum_of_its_parts() -> None:
    found = truth.synchronous([2.4], host_ms=0.1, device_ms=1.1)
    assert found.step_ms == pytest.approx(3.6)
    assert found.wait_ms == pytest.approx(2.4)
    assert found.utilization == pytest.approx(1.1 / 3.6)
    assert found.host == pytest.approx(0.1 / 3.6)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_an_overlapped_step_is_the_slower_of_the_two(threads: int) -> None:
    for found in (
        truth.queue([12.0], threads, capacity=4, host_ms=1, device_ms=4),
        truth.prefetched([12.0], threads, buffer=2, host_ms=1, device_ms=4),
    ):
        slower = max(12.0 / threads, 5.0)
        assert found.step_ms == pytest.approx(slower, rel=0.01)
        assert found.wait_ms == pytest.approx(slower - 5.0, abs=0.05)


def test_a_queue_evens_out_bursts_as_far_as_it_is_long() -> None:
    """One batch in five takes 30 ms, the others nothing; five steps of the device take 50 ms."""
    burst = [0.0, 0.0, 0.0, 0.0, 30.0]
    short = truth.queue(burst, threads=1, capacity=1, host_ms=0, device_ms=10)
    long = truth.queue(burst, threads=1, capacity=4, host_ms=0, device_ms=10)
    assert short.wait_ms == pytest.approx(2.0)  # one batch lies ready, one is at the device: 10 of the 30 ms are seen
    assert long.wait_ms == pytest.approx(0.0)


@given(patterns, counts, counts, milliseconds, milliseconds)
def test_no_pipeline_is_faster_than_its_device_or_its_producers(
    pattern: list[float], producers: int, room: int, host_ms: float, device_ms: float
) -> None:
    mean_ms = sum(pattern) / len(pattern)
    for found in (
        truth.queue(pattern, producers, room, host_ms, device_ms),
        truth.prefetched(pattern, producers, room, host_ms, device_ms),
    ):
        assert found.step_ms >= host_ms + device_ms - 1e-9
        assert found.wait_ms >= 0
        # The buffers' content at the start may have been made beforehand.
        ahead = (producers + room) * max(pattern) / (truth.STEPS - truth.FIRST_STEPS)
        assert found.step_ms >= mean_ms / producers - ahead - 1e-9
        serial = truth.synchronous(pattern, host_ms, device_ms)
        assert found.step_ms <= serial.step_ms + max(pattern) * len(pattern) / 500 + 1e-9
        assert found.wait + found.host + found.utilization == pytest.approx(1)


@pytest.mark.parametrize(
    ("wait_ms", "host_ms", "expected"),
    [(2, 1, "input-bound"), (1, 2, "host-bound"), (0.5, 0.1, "compute-bound"), (0.9, 0.9, "mixed")],
)
def test_the_verdict_follows_from_the_shares(wait_ms: float, host_ms: float, expected: str) -> None:
    found = Truth(step_ms=10, wait_ms=wait_ms, device_ms=10 - wait_ms - host_ms)
    assert cases.verdict(found) == expected


@given(st.integers(0, 10**6))
def test_every_case_but_those_at_a_threshold_keeps_clear_of_the_lines(seed: int) -> None:
    groups = cases.drawn(30, seed)
    drawn = [case for _, group in groups for case in group]
    assert len(drawn) >= 30
    assert {case.family for case in drawn} >= {"XProf's two", "threshold", "copying", "decoding", "storage"}
    for case in drawn:
        if not case.threshold:
            assert cases.margin(case.truth) >= cases.CLEAR


def test_the_same_seed_gives_the_same_cases_and_another_seed_others() -> None:
    assert cases.drawn(30, 1) == cases.drawn(30, 1)
    assert cases.drawn(30, 1) != cases.drawn(30, 2)
