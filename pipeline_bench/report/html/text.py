"""Foreign text made harmless for each place that a page puts it: its HTML, a plot's labels, inlined JSON."""

from __future__ import annotations

import html
import json
import math
from typing import Any

from pipeline_bench.text import one_line

NAME_LIMIT = 80
"""A longer name of a variant ends in an ellipsis; what was run lists it to `TEXT_LIMIT`."""
LABEL_LIMIT = 24
TEXT_LIMIT = 1200

_SIGNIFICANT_DIGITS = 6
"""More than a plot of a few thousand pixels can show; fewer would move a time stamp of an hour's axis."""


def name(text: str) -> str:
    """A variant's name as the page shows it, on one line."""
    return one_line(text, NAME_LIMIT) or "(a name without a visible character)"


def line(text: str) -> str:
    """Any other text of a scenario, a driver or a failing process, on one line."""
    return one_line(text, TEXT_LIMIT)


def label(text: str, limit: int = LABEL_LIMIT) -> str:
    """Text inside a plot. plotly reads tags and entities in every label, so that the ones in a name must be escaped."""
    return html.escape(one_line(text, limit), quote=False)


def json_block(value: Any) -> str:
    """JSON that cannot leave the ``<script>`` element it stands in, numbers cut to six significant digits.

    A number that is not finite, which JSON has no word for, is null: plotly draws nothing there.
    """
    text = json.dumps(_rounded(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.{_SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
        case dict():
            return {key: _rounded(part) for key, part in value.items()}
        case list() | tuple():
            return [_rounded(part) for part in value]
    return value
