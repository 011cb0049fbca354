"""The only place that turns numbers into text: times, bytes, rates, shares and ratios."""

from __future__ import annotations

import math

NOT_MEASURED = "–"


def milliseconds(value_ms: float | None) -> str:
    """Three significant digits of a time in ms, in the unit that reads best: ``12.3 ms``, ``840 µs``, ``1.20 s``."""
    if value_ms is None or not math.isfinite(value_ms):
        return NOT_MEASURED
    magnitude = abs(value_ms)
    if magnitude >= 1000:
        return f"{_digits(value_ms / 1000)} s"
    if magnitude >= 1 or magnitude == 0:
        return f"{_digits(value_ms)} ms"
    return f"{_digits(value_ms * 1000)} µs"


def plain_milliseconds(value_ms: float | None) -> str:
    """A time for a column whose head says ms already: ``12.3``."""
    return NOT_MEASURED if value_ms is None or not math.isfinite(value_ms) else _digits(value_ms)


def clock(seconds: float) -> str:
    """A duration for a progress line: ``0:07``, ``1:02:03``."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, remainder = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{remainder:02}" if hours else f"{minutes}:{remainder:02}"


def share(value: float | None) -> str:
    """A share of 1 as a whole percentage, ``38 %``; a small one with a digit, ``0.4 %``; never ``-0 %``."""
    return NOT_MEASURED if value is None else percent(value * 100)


def percent(value_percent: float | None) -> str:
    """A percentage: ``38 %``, ``0.4 %``, ``0 %``."""
    if value_percent is None or not math.isfinite(value_percent):
        return NOT_MEASURED
    if abs(value_percent) < 0.05:
        return "0 %"
    text = f"{value_percent:.1f}" if abs(value_percent) < 1 else f"{value_percent:.0f}"
    return f"{text} %"


def ratio(value: float | None) -> str:
    """A ratio: ``1.57×``."""
    return NOT_MEASURED if value is None or not math.isfinite(value) else f"{value:.2f}×"


def rate(per_second: float | None) -> str:
    """Samples per second with three significant digits and a thousands mark: ``38.2k``, ``912``."""
    if per_second is None or not math.isfinite(per_second):
        return NOT_MEASURED
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= limit:
            return f"{_digits(per_second / limit)}{letter}"
    return _digits(per_second)


def size(value_bytes: float | None) -> str:
    """A size in binary units: ``1.50 GiB``."""
    if value_bytes is None:
        return NOT_MEASURED
    value = float(value_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{_digits(value)} {unit}" if unit != "B" else f"{value:.0f} B"
        value /= 1024
    return f"{_digits(value)} TiB"


def count(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun: ``1 trial``, ``3 trials``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def _digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 100 or value == 0:
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"
