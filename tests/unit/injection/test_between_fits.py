"""How long a program does something else between its calls of `fit`, and where."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.injection import between_fits
from pipeline_bench.injection.between_fits import BetweenFits
from pipeline_bench.monitoring import sampling


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
