"""A history of percentages as a line of block characters of fixed width."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The latest `width` values, the newest at the right; blank where there is none, so the width never changes.

    Args:
        values: 0 to 100, oldest first; None where nothing was measured.
        width: how many characters.
    """
    latest = values[-width:] if width > 0 else ()
    return "".join(map(_block, latest)).rjust(max(0, width))


def _block(value: float | None) -> str:
    if value is None or math.isnan(value):
        return " "
    level = int(min(100.0, max(0.0, value)) / 100 * len(_BLOCKS))
    return _BLOCKS[min(level, len(_BLOCKS) - 1)]
