"""The parts of a step as reports draw them, and what they say of one: the copy of a batch to the GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pipeline_bench.analysis import conclusion
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import COMPUTE, COPY, HOST_SLOWDOWN, INPUT_WAIT
from pipeline_bench.text import NAME, one_line, units


class PartStyle(NamedTuple):
    """How reports draw a part: its block in a terminal, its mark in a legend and its pattern on a page."""

    name: str
    short: str
    """The name where there is little room."""
    colour: str
    block: str
    mark: str
    pattern: str


PARTS = (
    PartStyle("input wait", "wait", INPUT_WAIT, "▓", "stripes", "/"),
    PartStyle("compute", "compute", COMPUTE, "█", "square", ""),
    PartStyle("host slowdown", "host", HOST_SLOWDOWN, "░", "dots", "."),
    PartStyle("copy", "copy", COPY, "▒", "square", "x"),
)
"""The parts of a step in their order; the copy to a GPU, where it is known, is taken out of the host slowdown."""


class StepPart(NamedTuple):
    """A part of a mean step, as measured; None where it was not."""

    ms: float | None = None
    share: float | None = None


def measured(result: Result) -> list[StepPart]:
    """Return each part of the step, the copy last; it is no more than the host slowdown that it is taken out of."""
    *others, host = (
        StepPart(result.input_wait_ms.value, result.input_wait_share.value),
        StepPart(result.ceiling_ms.value, result.accelerator_utilization.value),
        StepPart(result.host_slowdown_ms.value, result.host_slowdown_share.value),
    )
    copy, share = result.device_copy.ms.value or 0.0, result.device_copy.share.value
    if share is None or host.share is None or host.ms is None:
        return [*others, host, StepPart()]
    own = min(1.0, max(0.0, host.share) / share) if share else 1.0
    copied = StepPart(copy * own, share * own)
    return [*others, StepPart(host.ms - copy * own, host.share - share * own), copied]


def of(result: Result) -> list[tuple[float, float]]:
    """Return each part of the step: its share as measured, and its length, of 1; empty where one was not measured.

    A part below nothing, which noise can make, has no length.
    """
    values = [max(0.0, part.share) for part in measured(result) if part.share is not None]
    if len(values) < len(PARTS) - 1 or not sum(values):
        return []
    return [(value, value / sum(values)) for value in values]


def drawn(results: Iterable[Result]) -> tuple[PartStyle, ...]:
    """Return the parts that some result has."""
    return PARTS if any(result.device_copy.share.value is not None for result in results) else PARTS[:-1]


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
