"""How long a program does something else between its calls of `fit`, and where."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from pipeline_bench.injection import between_fits
from pipeline_bench.injection.between_fits import BetweenFits
from pipeline_bench.monitoring import sampling
from pipeline_bench.monitoring.wait_lines import WaitLines


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test sets."""
    now = [10.0]
    monkeypatch.setattr(between_fits, "monotonic_ns", lambda: int(now[0] * 1e9))
    return now


def test_what_goes_by_between_two_fits_is_neither_theirs_nor_what_a_model_computes(now_s: list[float]) -> None:
    between = BetweenFits()
    with between.fit():
        now_s[0] += 1.0
        with between.fit(), between.computing():  # a callback's
            now_s[0] += 2.0
    assert between.record() is None
    now_s[0] += 4.0
    with between.computing():  # an evaluation
        now_s[0] += 8.0
    with between.fit():
        now_s[0] += 16.0
    now_s[0] += 32.0
    between.end()
    assert between.record() == {"seconds": 4.0, "fits_s": 19.0}


def test_the_line_that_most_of_it_goes_to_is_told(monkeypatch: pytest.MonkeyPatch, now_s: list[float]) -> None:
    monkeypatch.setattr(sampling, "PERIOD_S", 60.0)  # the looks are the test's own
    between = BetweenFits()

    def look(times: int) -> None:
        for _ in range(times):
            between._lines.sample()

    for _ in range(2):
        with between.fit():
            now_s[0] += 1.0
        now_s[0] += 1.0
        look(30)  # as what loads
        look(10)
    between.end()
    found: dict[str, Any] = between.record() or {}
    assert (found["line"].partition(":")[0], found["line_share"]) == ("test_between_fits.py", 1.0)


def test_what_models_compute_within_each_other_counts_once(now_s: list[float]) -> None:
    between = BetweenFits()
    with between.fit():
        now_s[0] += 1.0
    with between.computing(), between.computing():  # a callback of `evaluate` predicts
        now_s[0] += 2.0
    now_s[0] += 4.0
    with between.computing(), between.fit():  # and may train: that is a part of it
        now_s[0] += 8.0
    with between.fit():
        now_s[0] += 1.0
    between.end()
    assert between.record() == {"seconds": 4.0, "fits_s": 2.0}


def test_threads_that_train_once_leave_nothing_behind_and_one_alone_is_looked_at(now_s: list[float]) -> None:
    between = BetweenFits()

    def train() -> None:
        with between.fit():
            now_s[0] += 1.0

    train()
    running = len(sampling.running)
    for _ in range(5):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert len(sampling.running) == running
    between.end()
    assert len(sampling.running) == running - 1


def test_long_after_a_fit_nothing_more_is_kept(monkeypatch: pytest.MonkeyPatch, now_s: list[float]) -> None:
    monkeypatch.setattr(sampling, "PERIOD_S", 60.0)
    between = BetweenFits()
    with between.fit():
        now_s[0] += 1.0
    (samples,) = between._lines._waits.values()
    for now, expected in ((10.0, 1), (600.0, 2), (612.0, 2)):
        now_s[0] = now
        between._look()
        assert samples.total() == expected
    between.end()


def test_a_sample_that_comes_as_the_next_fit_begins_stays_out_of_the_program(
    monkeypatch: pytest.MonkeyPatch, now_s: list[float]
) -> None:
    monkeypatch.setattr(sampling, "PERIOD_S", 60.0)
    between = BetweenFits()
    with between.fit():
        now_s[0] += 1.0
    (samples,) = between._lines._waits.values()
    is_counted = False

    class Place(tuple[str, int]):
        """While it is counted, the sampler's thread adds another."""

        __slots__ = ()

        def __hash__(self) -> int:
            if is_counted:
                samples[f"load.py:{len(samples)}", 7] += 1
            return super().__hash__()

    samples[Place(("load.py", 3))] += 1
    is_counted = True
    with between.fit():
        is_counted = False
    between.end()
    assert between._lines._seen == {("load.py", 3): 1}


def test_what_goes_wrong_in_the_looking_stays_out_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    between = BetweenFits()
    with between.fit():
        pass
    monkeypatch.setattr(WaitLines, "end", fail)
    with between.fit():
        trained = True
    between.end()
    assert trained


def test_what_a_handler_of_the_programs_raises_reaches_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    class OutOfTimeError(Exception):
        pass

    def raises(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGUSR2, raises)
    try:
        monkeypatch.setattr(sampling, "SamplerThread", lambda *_: signal.raise_signal(signal.SIGUSR2))
        with pytest.raises(OutOfTimeError), BetweenFits().fit():
            pass
    finally:
        signal.signal(signal.SIGUSR2, before)
