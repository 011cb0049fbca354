"""The parts of a step as reports draw them, and what they say of one: the copy of a batch to the GPU."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline_bench.analysis import conclusion
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.text import NAME, one_line, units

NAMES = ("input wait", "compute", "host slowdown", "copy")
"""The parts of a step in their order; the copy to a GPU, where it is known, is taken out of the host slowdown."""


def of(result: Result) -> list[tuple[float, float]]:
    """Return each part of the step: its share as measured, and its length, of 1; empty where one was not measured.

    A part below nothing, which noise can make, has no length.
    """
    shares = (result.input_wait_share, result.accelerator_utilization, result.host_slowdown_share)
    values = [max(0.0, share.value) for share in shares if share.value is not None]
    if len(values) < len(shares) or not sum(values):
        return []
    if (copy := result.device_copy.share.value) is not None:
        copied = min(copy, values[-1])
        values[-1:] = [values[-1] - copied, copied]
    return [(value, value / sum(values)) for value in values]


def names(results: Iterable[Result]) -> tuple[str, ...]:
    """Return the names of the parts that some result has."""
    return NAMES if any(result.device_copy.share.value is not None for result in results) else NAMES[:-1]


def copies(session: Session) -> list[tuple[str, str]]:
    """Return a line for each variant of which the copy was measured; none where no model was on a GPU."""
    return [
        (one_line(result.variant, NAME), _text(result))
        for result in session.results
        if result.device_copy.ms.value is not None
    ]


def _text(result: Result) -> str:
    copy = result.device_copy
    takes = units.milliseconds(copy.ms.value)
    if copy.share.value is not None:
        share = f"{units.share(copy.share.value)} of it{units.ends(units.share, copy.share.ci95)}"
        return f"{takes} of each step, {share}; nothing overlaps"
    if copy.overlapped_share.value is None:
        return f"{takes} a batch, ahead of the step; {copy.overlapped_share.reason}"
    return f"{takes} a batch, ahead of the step; {conclusion.overlap(copy)}"
