"""Numbers as text."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.text import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0 ms"),
        (0.0405, "40.5 µs"),
        (0.9996, "1.00 ms"),
        (1.2, "1.20 ms"),
        (9.999, "10.0 ms"),
        (12.34, "12.3 ms"),
        (99.97, "100 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (18_000, "18.0 s"),
        (-3.21, "-3.21 ms"),
    ],
)
def test_milliseconds(value: float | None, text: str) -> None:
    assert units.milliseconds(value) == text


@given(st.floats(1e-3, 9e5))
def test_a_time_has_three_digits(value_ms: float) -> None:
    digits = re.sub(r"[^0-9]", "", units.milliseconds(value_ms))
    assert len(digits) == 3


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (12.34, "12.3"), (0.04, "0.04"), (math.inf, "–")])
def test_plain_milliseconds(value: float | None, text: str) -> None:
    assert units.plain_milliseconds(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (3723, "1:02:03")])
def test_clock(seconds: float, text: str) -> None:
    assert units.clock(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0, "0 %"), (-0.0001, "0 %"), (0.004, "0.4 %"), (0.38, "38 %"), (1.0, "100 %")]
)
def test_share(value: float | None, text: str) -> None:
    assert units.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1.565, "1.56×"),
        (9.994, "9.99×"),
        (12.34, "12.3×"),
        (99.99, "100×"),
        (246.66, "247×"),
        (math.nan, "–"),
    ],
)
def test_ratio(value: float | None, text: str) -> None:
    assert units.ratio(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (912, "912"), (999.7, "1.00k"), (38_200, "38.2k"), (2.5e6, "2.50M"), (3e9, "3.00G")],
)
def test_rate(value: float | None, text: str) -> None:
    assert units.rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (2**31, "2.00 GiB"), (2**41, "2.00 TiB")],
)
def test_size(value: float | None, text: str) -> None:
    assert units.size(value) == text


def test_count() -> None:
    assert [units.count(1, "trial"), units.count(3, "trial"), units.count(0, "batch", "batches")] == [
        "1 trial",
        "3 trials",
        "0 batches",
    ]


@pytest.mark.parametrize(
    ("after_over_before", "text"),
    [
        (1.054, "+5.4 %"),
        (0.68, "-32 %"),
        (1.0, "0 %"),
        (0.9999, "0 %"),
        (1.0994, "+9.9 %"),
        (1.0996, "+10 %"),
        (2.5, "+150 %"),
        (12.3, "12×"),
        (1e300, ">99×"),
        (None, units.NOT_MEASURED),
        (math.nan, units.NOT_MEASURED),
    ],
)
def test_change(after_over_before: float | None, text: str) -> None:
    assert units.change(after_over_before) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.inf, "–"),
        (0.0, "0 %"),
        (0.02, "2 %"),
        (0.07, "7 %"),
        (0.0204, "2.1 %"),
        (0.034, "3.4 %"),
        (0.0995, "10 %"),
        (0.1789, "18 %"),
        (0.0026, "0.26 %"),
        (1.234, "130 %"),
        (10.0, "1000 %"),
        (1.9e8, ">1000 %"),
    ],
)
def test_how_well_a_ratio_is_known_is_never_said_to_be_better_than_it_is(value: float | None, text: str) -> None:
    assert units.precision(value) == text


@pytest.mark.parametrize(
    ("value", "interval", "shown"),
    [
        (36500.0, (33000.0, 40460.0), "±3.96k"),
        (912.0, (900.0, 920.0), "±12.0"),
        (5.0, (0.1, 1000.0), "±>10×"),
        (5.0, None, ""),
        (None, (1.0, 2.0), ""),
    ],
)
def test_the_margin_of_a_rate(value: float | None, interval: tuple[float, float] | None, shown: str) -> None:
    assert units.rate_margin(value, interval) == shown


def test_the_margin_of_a_percentage_is_in_points() -> None:
    assert units.percent_margin(84.0, (82.0, 86.4)) == "±2"
    assert units.percent_margin(84.0, (83.96, 84.03)) == "±<0.1"
    assert units.percent_margin(None, (1.0, 2.0)) == ""


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a busy 1 ms", "a busy 4 ms"], ["1 ms", "4 ms"]),
        (["a busy 1 ms", "a busy 10 ms"], ["1 ms", "10 ms"]),
        (["a busy", "a busy day"], ["busy", "busy day"]),
        (["a", "b"], ["a", "b"]),
        (["a b"], ["a b"]),
        (["a b", "a b"], ["a b", "a b"]),
        ([], []),
    ],
)
def test_names_are_told_apart_by_where_they_begin_to_differ(names: list[str], shown: list[str]) -> None:
    assert units.without_shared_start(names) == shown


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (63, "signal 63"), (200, "signal 200")])
def test_signals_are_named(number: int, name: str) -> None:
    assert units.signal_name(number) == name


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (12.3, (12.0, 12.7), "±0.4"),
        (123.0, (100.0, 130.0), "±23"),
        (0.57, (0.5, 0.6), "±0.07"),
        (12.3, (12.299, 12.301), "±<0.1"),
        (12.3, (12.3, 12.3), "±0.0"),
        (12.3, None, ""),
        (None, (1.0, 2.0), ""),
    ],
)
def test_margins_have_the_digits_of_their_figure(
    value: float | None, interval: tuple[float, float] | None, text: str
) -> None:
    assert units.margin(value, interval) == text


def test_margins_of_shares_are_in_percentage_points() -> None:
    assert units.share_margin(0.3, (0.2, 0.33)) == "±10"
    assert units.share_margin(0.3, (0.2996, 0.3001)) == "±<0.1"


@pytest.mark.parametrize(("value", "text"), [(0.69314, "0.6931"), (1.946e-05, "1.9e-05"), (0.0, "0"), (None, "–")])
def test_losses(value: float | None, text: str) -> None:
    assert units.loss(value) == text
