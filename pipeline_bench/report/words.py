"""The sentences that every report of a session shares, so that they say the same."""

from __future__ import annotations

from pipeline_bench import units
from pipeline_bench.conclusion import smallest
from pipeline_bench.session import Result


def no_difference(result: Result) -> str:
    """That a speed-up is none that this run could tell, and what it could have told; on one line."""
    over = units.one_line(result.speedup.over or "the baseline", 40)
    return f"No difference from {over} found ({smallest(result.speedup)})."
