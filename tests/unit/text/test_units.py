"""Numbers as text."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.text import units


@pytest.mark.parametrize(
    ("of", "given_values", "texts"),
    [
        (units.milliseconds, [None, math.nan, 0.0, 0.0405, 0.9996, 1.2], "– | – | 0 ms | 40.5 µs | 1.00 ms | 1.20 ms"),
        (units.milliseconds, [9.999, 12.34, 99.97, 999.4], "10.0 ms | 12.3 ms | 100 ms | 999 ms"),
        (units.milliseconds, [999.6, 18_000, -3.21], "1.00 s | 18.0 s | -3.21 ms"),
        (units.plain_milliseconds, [None, 12.34, 0.04, math.inf, 0.0], "– | 12.3 | 0.04 | – | 0"),
        (units.plain_milliseconds, [0.0042, 0.00994, 0.00996], "0.0042 | 0.0099 | 0.01"),
        (units.clock, [-1, 7.4, 59.6, 3723], "0:00 | 0:07 | 1:00 | 1:02:03"),
        (units.share, [None, 0.0, -0.0001, 0.004, 0.38, 1.0], "– | 0 % | 0 % | 0.4 % | 38 % | 100 %"),
        (
            units.ratio,
            [None, math.nan, 1.565, 9.994, 12.34, 99.99, 246.66],
            "– | – | 1.56× | 9.99× | 12.3× | 100× | 247×",
        ),
        (units.rate, [None, 912, 999.7, 38_200, 2.5e6, 3e9], "– | 912 | 1.00k | 38.2k | 2.50M | 3.00G"),
        (units.size, [None, 0, 1023, 1536, 2**31, 2**41], "– | 0 B | 1023 B | 1.50 KiB | 2.00 GiB | 2.00 TiB"),
        (units.change, [1.054, 0.68, 1.0, 0.9999, 1.0994, 1.0996], "+5.4 % | -32 % | 0 % | 0 % | +9.9 % | +10 %"),
        (units.change, [2.5, 12.3, 1e300, None, math.nan], "+150 % | 12× | >99× | – | –"),
        # How well a ratio is known is never said to be better than it is.
        (units.precision, [None, math.inf, 0.0, 0.02, 0.07, 0.0204], "– | – | 0 % | 2 % | 7 % | 2.1 %"),
        (units.precision, [0.034, 0.0995, 0.1789, 0.0026], "3.4 % | 10 % | 18 % | 0.26 %"),
        (units.precision, [1.234, 10.0, 1.9e8], "130 % | 1000 % | >1000 %"),
        (units.confidence, [0.85, 0.95, 0.975, 0.998], "85 % | 95 % | 97.5 % | 99.8 %"),
        (units.loss, [0.69314, 1.946e-05, 0.0, None], "0.6931 | 1.9e-05 | 0 | –"),
        (units.ending, [-9, -63, -200], "was killed by SIGKILL | was killed by signal 63 | was killed by signal 200"),
        (units.ending, [0, 2], "ended with exit code 0 | ended with exit code 2"),
    ],
)
def test_a_number_as_text(of: Callable[[Any], str], given_values: list[Any], texts: str) -> None:
    assert [of(value) for value in given_values] == texts.split(" | ")


@pytest.mark.parametrize(
    ("of", "value", "interval", "text"),
    [
        (units.rate_margin, 36500.0, (33000.0, 40460.0), "±3.96k"),
        (units.rate_margin, 912.0, (900.0, 920.0), "±12.0"),
        (units.rate_margin, 28_700.0, (12_400.0, 62_000.0), "12–62k"),  # ± would be more than the figure
        (units.rate_margin, 5.0, (0.1, 1000.0), "0.0001–1k"),
        (units.rate_margin, 5.0, None, ""),
        (units.rate_margin, None, (1.0, 2.0), ""),
        (units.percent_margin, 84.0, (82.0, 86.4), "±2"),  # in points
        (units.percent_margin, 84.0, (83.96, 84.03), "±<0.1"),
        (units.percent_margin, None, (1.0, 2.0), ""),
        (units.percent_margin, 6.0, (0.0, 51.0), "0–51"),
        (units.percent_margin, 0.0, (0.0, 0.0), "±0"),
        (units.share_margin, 0.06, (0.0, 0.51), "0–51"),
        (units.change_margin, 0.3, (0.2, 0.33), "±10"),
        (units.change_margin, 0.3, (0.2996, 0.3001), "±<0.1"),
        (units.change_margin, -0.02, (-0.1, 0.06), "±8"),  # a change is often less than what it is known by
        (units.margin, 12.3, (12.0, 12.7), "±0.4"),  # with the digits of their figure
        (units.margin, 123.0, (100.0, 130.0), "±23"),
        (units.margin, 0.57, (0.5, 0.6), "±0.07"),
        (units.margin, 12.3, (12.299, 12.301), "±<0.1"),
        (units.margin, 12.3, (12.3, 12.3), "±0.0"),
        (units.margin, 12.3, None, ""),
        (units.margin, 2.14, (0.69, 6.67), "0.7–6.7"),
        (units.margin, 0.31, (0.0, 0.64), "0–0.6"),
        (units.margin, 2.0, (1.0, math.inf), ""),
        (units.ratio_margin, 1.86, (1.73, 2.0), "±0.14"),
        (units.ratio_margin, 1.96, (1.23, 3.14), "1.23–3.14"),  # ±1.18 would say that it may be slower
        (units.ratio_margin, 2.88, (0.16, 52.6), "0.16–53"),
        (units.margin, None, (1.0, 2.0), ""),
    ],
)
def test_a_margin_as_text(of: Callable[..., str], value: Any, interval: tuple[float, float] | None, text: str) -> None:
    assert of(value, interval) == text


@pytest.mark.parametrize(
    ("ratio", "interval", "texts"),
    [
        (1.12, (1.08, 1.16), ("+12 %", "+8.0 to +16 %")),
        (11.0, (9.01, 13.4), ("11.0×", "9.01 to 13.4×")),
        (1.9, (0.4, 250.0), ("1.90×", "0.40 to >99×")),
        (12.3, None, ("12.3×", "")),
        (None, None, ("–", "")),
    ],
)
def test_a_change_and_its_interval_have_one_unit(
    ratio: float | None, interval: tuple[float, float] | None, texts: tuple[str, str]
) -> None:
    assert units.changes(ratio, interval) == texts


def test_count() -> None:
    assert units.count(1, "trial") == "1 trial"
    assert [units.count(3, "trial"), units.count(0, "batch", "batches")] == ["3 trials", "0 batches"]


@given(st.floats(1e-3, 9e5))
def test_a_time_has_three_digits(value_ms: float) -> None:
    digits = re.sub(r"[^0-9]", "", units.milliseconds(value_ms))
    assert len(digits) == 3


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


@pytest.mark.parametrize(
    ("show", "value", "interval", "text"),
    [
        (units.share, 0.62, (0.48, 0.8), "62 % (48 to 80 %)"),
        (units.share, 0.009, (0.008, 0.0098), "0.9 % (0.8 to 1.0 %)"),
        (units.share, 0.0, (-0.0004, 0.02), "0 % (0 to 2 %)"),
        (units.share, 0.62, None, "62 %"),
        (units.ratio, 1.86, (1.73, 2.0), "1.86× (1.73 to 2.00×)"),
        (units.milliseconds, 2.35, (2.2, 2.46), "2.35 ms (2.20 to 2.46 ms)"),
        (units.milliseconds, 1.0, (0.84, 1.2), "1.00 ms (840 µs to 1.20 ms)"),
        (units.rate, 30_000.0, (28_700.0, 31_000.0), "30.0k (28.7k to 31.0k)"),  # without its k it is another figure
        (units.fraction, 0.61, (0.58, 0.64), "0.61 (0.58 to 0.64)"),
        (units.milliseconds, 2.35, (math.nan, math.nan), "2.35 ms (– to –)"),
    ],
)
def test_an_interval_has_a_unit_that_both_ends_have_once(
    show: Callable[[float | None], str], value: float, interval: tuple[float, float] | None, text: str
) -> None:
    assert units.with_ends(show, value, interval) == text
