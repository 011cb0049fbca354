"""When records arrive from slow storage: the waits of a file add up to its latency and its bytes' time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.sources.records import RecordFile
from pipeline_bench.sources.slow_storage import Arrivals, SteadySleep


def laid_out(*sizes: tuple[int, int]) -> list[RecordFile]:
    """Files of so many records and bytes each."""
    firsts = np.cumsum([0, *(records for records, _ in sizes)]).tolist()
    return [RecordFile(f"f{i}", firsts[i], records, size) for i, (records, size) in enumerate(sizes)]


def waits_ms(pace: Arrivals, file: RecordFile) -> list[float]:
    return [pace.wait_us(place) / 1000 for place in range(file.first, file.first + file.records)]


FILES = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 10**8)), min_size=1, max_size=5)


@given(FILES, st.floats(0, 1000), st.floats(0.1, 1000) | st.none())
def test_a_file_takes_its_latency_and_the_time_of_its_bytes(
    sizes: list[tuple[int, int]], latency_ms: float, bandwidth_mb_s: float | None
) -> None:
    files = laid_out(*sizes)
    pace = Arrivals(files, latency_ms, bandwidth_mb_s, 0, 0)
    for file in files:
        of_bytes_ms = file.size_bytes / 1e3 / bandwidth_mb_s if bandwidth_mb_s else 0
        assert sum(waits_ms(pace, file)) == pytest.approx(latency_ms + of_bytes_ms, rel=1e-6, abs=1e-6)


@given(st.integers(2, 300), st.integers(1, 10**7), st.floats(0.1, 1000))
def test_no_wait_but_a_files_last_one_is_shorter_than_a_sleep_can_be(
    records: int, size_bytes: int, bandwidth_mb_s: float
) -> None:
    (file,) = laid_out((records, size_bytes))
    waits = [wait for wait in waits_ms(Arrivals([file], 0, bandwidth_mb_s, 0, 0), file) if wait]
    assert all(wait >= 2 - 1e-9 for wait in waits[:-1])


def test_a_record_does_not_arrive_before_its_bytes_could_have() -> None:
    (file,) = laid_out((100, 100_000))
    arrived_ms = np.cumsum(waits_ms(Arrivals([file], 30, 1, 0, 0), file))
    assert arrived_ms[0] >= 30 + 1
    assert (arrived_ms >= 30 + np.arange(1, 101) - 1e-9).all()


def test_a_request_by_itself_has_the_latency_and_its_own_bytes() -> None:
    pace = Arrivals(laid_out((4, 4000), (1, 10_000)), 20, 1, 0, 0)
    assert [pace.request_us(place) / 1000 for place in (0, 3, 4)] == [21, 21, 30]


def test_jitter_is_a_files_own_and_within_its_share() -> None:
    files = laid_out(*[(1, 0)] * 200)
    first, again, other = (Arrivals(files, 100, None, 0.3, seed).latency_us / 1000 for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.min(first) >= 70
    assert np.max(first) <= 130
    assert np.max(first) - np.min(first) > 40


def test_sleeps_that_take_too_long_shorten_the_next_ones() -> None:
    now_us, asked_us, overshoot_us = [0.0], list[float](), 300.0

    def sleep(seconds: float) -> None:
        asked_us.append(seconds * 1e6)
        now_us[0] += seconds * 1e6 + overshoot_us

    steady = SteadySleep(lambda: round(now_us[0] * 1000), sleep)
    for _ in range(20):
        steady(5000)
    assert asked_us[0] == 5000
    assert asked_us[1:] == pytest.approx([4700] * 19, abs=1)
    assert now_us[0] == pytest.approx(20 * 5000 + overshoot_us, abs=5)


def test_one_sleep_that_was_interrupted_moves_the_next_ones_little() -> None:
    now_us, asked_us, too_long_us = [0.0], list[float](), [0.0] * 10 + [80_000.0] + [0.0] * 5

    def sleep(seconds: float) -> None:
        now_us[0] += seconds * 1e6 + too_long_us[len(asked_us)]
        asked_us.append(seconds * 1e6)

    steady = SteadySleep(lambda: round(now_us[0] * 1000), sleep)
    for _ in too_long_us:
        steady(5000)
    assert min(asked_us) > 4800


def test_no_wait_is_no_sleep() -> None:
    steady = SteadySleep(sleep=lambda _: pytest.fail("it slept"))
    steady(0)
