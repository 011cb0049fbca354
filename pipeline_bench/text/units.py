"""Turns numbers into text, the same for all reports: times, bytes, rates, shares and ratios."""

# ruff: noqa: PLR2004 - the magnitudes at which a number is written otherwise read best where they stand

from __future__ import annotations

import functools
import math
import re
import signal
from collections.abc import Callable, Sequence

NOT_MEASURED = "–"

NS_PER_MS = 1e6
NS_PER_S = 1e9

_MAGNITUDES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))

_UNIT = re.compile(r"(?<=\d)(?: \S+|×)$")
"""Behind a figure; a magnitude, as that of ``28.7k``, is a part of the figure."""

_LOPSIDED = 1.5
"""A ratio's interval that reaches so many times as far to one side is shown by its ends: ± would say that a variant
which is surely faster may be slower."""


def _dash_where_unknown(show: Callable[[float], str]) -> Callable[[float | None], str]:
    """Wrap `show`: it gives a dash for what was not measured, or is no finite number."""

    @functools.wraps(show)
    def shown(value: float | None) -> str:
        return NOT_MEASURED if value is None or not math.isfinite(value) else show(value)

    return shown


@_dash_where_unknown
def milliseconds(value_ms: float) -> str:
    """Return a time in ms with three digits, in the unit that reads best: ``12.3 ms``, ``840 µs``, ``1.20 s``."""
    magnitude = abs(value_ms)
    if magnitude >= 999.5:  # what would round to 1000 ms is 1.00 s
        return f"{_digits(value_ms / 1000)} s"
    if magnitude >= 0.9995 or magnitude == 0:
        return f"{_digits(value_ms)} ms"
    return f"{_digits(value_ms * 1000)} µs"


@_dash_where_unknown
def plain_milliseconds(value_ms: float) -> str:
    """Return a time for a column whose head says ms already: ``12.3``; ``0.0042`` where two decimals say nothing."""
    return f"{value_ms:.4f}" if 0 < abs(value_ms) < 0.00995 else _digits(value_ms)


def seconds(value_s: float | None) -> str:
    """Return a time in seconds with three digits: ``18.0 s``, ``840 ms``."""
    return milliseconds(None if value_s is None else value_s * 1000)


def clock(seconds: float) -> str:
    """Return a duration for a progress line: ``0:07``, ``1:02:03``."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, remainder = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{remainder:02}" if hours else f"{minutes}:{remainder:02}"


@_dash_where_unknown
def share(value: float) -> str:
    """Return a share of 1 as a whole percentage, ``38 %``; a small one with a digit, ``0.4 %``; never ``-0 %``."""
    return percent(value * 100)


def between(low: str, high: str) -> str:
    """Return an interval, a unit that both ends have once: ``48 to 80 %``, ``1.73 to 2.00×``, ``840 µs to 1.20 ms``."""
    unit = _UNIT.search(high)
    return f"{low.removesuffix(unit[0]) if unit else low} to {high}"


def ends(show: Callable[[float], str], interval: tuple[float, float] | None, form: str = " ({})") -> str:
    """Return an interval as it follows its figure, `` (48 to 80 %)``; empty where there is none."""
    return "" if interval is None else form.format(between(*map(show, interval)))


def with_ends(show: Callable[[float | None], str], value: float | None, interval: tuple[float, float] | None) -> str:
    """Return a figure with its interval, where there is one: ``62 % (48 to 80 %)``, ``2.35 ms (2.20 to 2.46 ms)``."""
    return show(value) + ends(show, interval)


@_dash_where_unknown
def percent(value_percent: float) -> str:
    """Return a percentage: ``38 %``, ``0.4 %``, ``0 %``."""
    if abs(value_percent) < 0.05:
        return "0 %"
    text = f"{value_percent:.1f}" if abs(value_percent) < 1 else f"{value_percent:.0f}"
    return f"{text} %"


def confidence(level: float) -> str:
    """Return the level of an interval or of a verdict with all its digits: ``95 %``, ``99.8 %``."""
    return f"{100 * level:.4g} %"


@_dash_where_unknown
def fraction(value: float) -> str:
    """Return a figure between 0 and 1 that is read as such, like AU: ``0.62``; three decimals below 0.1, ``0.031``."""
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3f}"


@_dash_where_unknown
def loss(value: float) -> str:
    """Return a loss with four significant digits, two where it is tiny: ``0.6931``, ``12.35``, ``1.9e-05``."""
    return f"{value:.4g}" if abs(value) >= 0.001 or value == 0 else f"{value:.2g}"


def margin(value: float | None, interval: tuple[float, float] | None) -> str:
    """Return the wider side of an interval in its figure's own digits: ``±0.4``; empty if either is None.

    Where that is as much as the figure itself, it is the two ends: ``0.4–6.7``.
    """
    if value is None or interval is None:
        return ""
    reach = _reach(value, interval)
    if 0 < reach >= abs(value):
        return _two_ends(interval)
    whole = abs(value) >= 100
    text = f"{reach:.0f}" if whole else f"{reach:.1f}" if abs(value) >= 10 else f"{reach:.2f}"
    smallest = "1" if whole else "0.1" if abs(value) >= 10 else "0.01"
    return f"±{text}" if float(text) or not reach else f"±<{smallest}"


def ratio_margin(value: float | None, interval: tuple[float, float] | None) -> str:
    """Return the wider side of a ratio's interval, ``±0.14``; its two ends, ``1.23–3.14``, where the sides differ."""
    if value is None or interval is None:
        return ""
    if _reach(value, interval) > _LOPSIDED * min(value - interval[0], interval[1] - value):
        return _two_ends(interval, decimals=2)  # fewer would round an end that is above 1 to 1
    return margin(value, interval)


def percent_margin(value_percent: float | None, interval: tuple[float, float] | None) -> str:
    """Return the wider side of a percentage's interval in percentage points, ``±2``, or its two ends, ``0–51``."""
    if value_percent is None or interval is None:
        return ""
    reach = _reach(value_percent, interval)
    if 1 <= reach >= abs(value_percent):
        return _two_ends((round(interval[0]), round(interval[1])))
    return _points(reach)


def share_margin(value: float | None, interval: tuple[float, float] | None) -> str:
    """Return `percent_margin` for a share of 1."""
    return percent_margin(value and 100 * value, interval and (100 * interval[0], 100 * interval[1]))


def change_margin(change: float | None, interval: tuple[float, float] | None) -> str:
    """Return the wider side of the interval of a share's change in percentage points: ``±2``."""
    return "" if change is None or interval is None else _points(100 * _reach(change, interval))


def _points(reach: float) -> str:
    if reach > 100:
        return "±>100"
    text = f"{reach:.0f}" if reach >= 1 or reach == 0 else f"{reach:.1f}"
    return f"±{text}" if float(text) or not reach else "±<0.1"


@_dash_where_unknown
def precision(value: float) -> str:
    """Return how well a ratio is known, relative, two digits, rounded up: ``3.4 %``, ``0.26 %``.

    What is not even known to a tenth or a tenfold is ``>1000 %``: its digits are those of noise.
    """
    if value <= 0:
        return "0 %"
    if value > 10:
        return ">1000 %"
    digit = 10.0 ** (math.floor(math.log10(value * 100)) - 1)
    steps = value * 100 / digit
    # What is a whole number of digits but for the rounding of floats is not raised to the next one.
    upward = round(steps) if math.isclose(steps, round(steps), rel_tol=1e-9) else math.ceil(steps)
    return f"{upward * digit:.10g} %"


@_dash_where_unknown
def ratio(value: float) -> str:
    """Return a ratio, with three significant digits from 1 on: ``0.64×``, ``1.57×``, ``12.3×``, ``105×``."""
    places = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{places}f}×"


@_dash_where_unknown
def change(after_over_before: float) -> str:
    """Return a ratio as a signed change: ``+5.4 %`` for 1.054, ``-32 %`` for 0.68, ``0 %``, ``12×``."""
    if after_over_before >= 10:  # a percentage of so much is read as a multiple
        return f"{after_over_before:.0f}×" if after_over_before < 99.5 else ">99×"
    value_percent = (after_over_before - 1) * 100
    text = f"{value_percent:+.1f}" if abs(value_percent) < 9.95 else f"{value_percent:+.0f}"
    return f"{text} %" if float(text) else "0 %"


def changes(after_over_before: float | None, interval: tuple[float, float] | None) -> tuple[str, str]:
    """Return a ratio and its interval as signed changes, ``+12 %`` and ``+8.0 to +16 %``; as multiples if one is."""
    ratios = (after_over_before, *(interval or ()))
    shown = [change(each) for each in ratios]
    if any(each.endswith("×") for each in shown):
        shown = [each if each.startswith(">") else ratio(value) for each, value in zip(shown, ratios, strict=True)]
    return shown[0], between(*shown[1:]) if interval is not None else ""


@_dash_where_unknown
def rate(per_second: float) -> str:
    """Samples per second with three significant digits and a thousands mark: ``38.2k``, ``912``."""
    for limit, letter in _MAGNITUDES:
        if per_second >= 0.9995 * limit:
            return f"{_digits(per_second / limit)}{letter}"
    return _digits(per_second)


def rate_margin(per_second: float | None, interval: tuple[float, float] | None) -> str:
    """Return the wider side of a rate's interval, with the digits of a rate: ``±3.8k``; its two ends, ``12–62k``."""
    if per_second is None or interval is None:
        return ""
    reach = _reach(per_second, interval)
    if reach < per_second:
        return f"±{rate(reach)}"
    scale, letter = next((each for each in _MAGNITUDES if interval[1] >= each[0]), (1.0, ""))
    return _two_ends((interval[0] / scale, interval[1] / scale)) + letter


def size(value_bytes: float | None) -> str:
    """Return a size in binary units: ``1.50 GiB``."""
    if value_bytes is None:
        return NOT_MEASURED
    value = float(value_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{_digits(value)} {unit}" if unit != "B" else f"{value:.0f} B"
        value /= 1024
    return f"{_digits(value)} TiB"


def count(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 trial``, ``3 trials``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def ending(code: int) -> str:
    """Return how a process ended, by its exit code: ``was killed by SIGSEGV``, ``ended with exit code 1``."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'}"


def without_shared_start(names: Sequence[str]) -> list[str]:
    """Return the names without the words that all begin with: ``a busy 1 ms``, ``a busy 4 ms`` as ``1 ms``, ``4 ms``.

    A single name, and one that would have nothing left, stays whole.
    """
    words = [name.split(" ") for name in names]
    shared = 0
    while len(set(names)) > 1 and all(len(own) > shared + 1 and own[shared] == words[0][shared] for own in words):
        shared += 1
    return [" ".join(own[shared:]) for own in words]


def _reach(value: float, interval: tuple[float, float]) -> float:
    return max(value - interval[0], interval[1] - value, 0.0)


def _two_ends(interval: tuple[float, float], decimals: int = 1) -> str:
    """Return an interval in the few digits that one so wide has: ``0.4–6.7``, ``0–51``; empty where it has no end."""
    if not all(map(math.isfinite, interval)):
        return ""
    return (" to " if interval[1] < 0 else "–").join(_end(end, decimals) for end in interval)


def _end(end: float, decimals: int) -> str:
    if abs(end) >= 10:
        return f"{end:.0f}"
    return f"{end:.1g}" if abs(end) < 1 and decimals == 1 else f"{end:.{decimals}f}".removesuffix(".0")


def _digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 99.95 or value == 0:  # what would round to 100.0 is 100
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"
