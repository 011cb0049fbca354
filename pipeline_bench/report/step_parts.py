"""The parts of a step as reports draw them, and what they say of one.

That is the copy of its batch to the GPU, the way from a service's worker, and what of the GPU was busy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pipeline_bench import plugins
from pipeline_bench.analysis import conclusion
from pipeline_bench.analysis.thresholds import BOUND_SHARE, COMPUTE_BOUND_AU, SMS_IDLE_PERCENT
from pipeline_bench.model.result import Activity, Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import COMPUTE, COPY, HOST_SLOWDOWN, INPUT_WAIT, mean_step
from pipeline_bench.samplers.nvml_metrics import ACTIVITY
from pipeline_bench.scenario import Variant
from pipeline_bench.text import NAME, grouped, one_line, units


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


_SERVICE, _WITHOUT = "tf_data_service", "tf_data"


def of_service(session: Session) -> list[tuple[str, str]]:
    """Return a line for each variant with one worker that has its like without any; none where the model hides it.

    What crosses costs a step only as far as the step waits for its input, with the worker and without.
    """
    lines = []
    for variant in session.scenario.variants:
        options = variant.options
        if variant.backend != _SERVICE or options.get("dispatcher") or (options.get("workers") or 1) > 1:
            continue  # a running cluster may have any number of workers
        for other in _without_worker(session, variant):
            found, over = (session.find_result(each.name) for each in (variant, other))
            if found is not None and over is not None and _waits(found) and _waits(over):
                lines.append((one_line(variant.name, NAME), _longer(found, over)))
    return lines


def _without_worker(session: Session, variant: Variant) -> Iterator[Variant]:
    """Yield the variant whose own process does what the worker does, if there is one."""
    default = plugins.make("backends", _WITHOUT, {}).options.model_dump()
    wanted = default | {name: value for name, value in variant.options.items() if name in default}
    alike = variant.model_copy(update={"backend": _WITHOUT, "options": wanted})
    yield from (each for each in session.scenario.variants if each.model_copy(update={"name": variant.name}) == alike)


def _waits(result: Result) -> bool:
    return (result.input_wait_share.value or 0.0) >= BOUND_SHARE


def _longer(found: Result, over: Result) -> str:
    with_worker, without = mean_step(found), mean_step(over)
    like = f"{one_line(over.variant, NAME)}, whose own process makes the same batches"
    if with_worker.value is None or without.value is None:
        return f"it is not known how much longer a step is than that of {like}"
    more_ms, interval = with_worker.value - without.value, None
    if with_worker.ci95 is not None and without.ci95 is not None:
        below = math.hypot(with_worker.value - with_worker.ci95[0], without.ci95[1] - without.value)
        above = math.hypot(with_worker.ci95[1] - with_worker.value, without.value - without.ci95[0])
        interval = more_ms - below, more_ms + above
    differs = "longer" if more_ms >= 0 else "shorter"
    undecided = interval is not None and interval[0] <= 0 <= interval[1]
    doubt = "; that anything crosses at a cost is not shown" if undecided else ""
    if more_ms < 0 and interval is not None:
        interval = -interval[1], -interval[0]
    size = units.with_ends(units.milliseconds, abs(more_ms), interval)
    return f"a step takes {size} {differs} than that of {like}{doubt}"


_NOUNS = dict(zip(ACTIVITY, ("SMs busy", "warps", "tensor cores", "DRAM", "PCIe out", "PCIe in"), strict=True))
_KERNELS = "kernels ran"


def of_gpu(session: Session) -> list[tuple[str, str]]:
    """Return a line for those variants of a GPU of which the same is said: most often a variant each."""
    active = (each for each in session.results if each.device_utilization.activity)
    variants = grouped((_line(each), one_line(each.variant, NAME)) for each in active)
    return [("; ".join(names), line) for line, names in variants.items()]


def _line(result: Result) -> str:
    """Return what was busy; metrics of the same source, window and coverage, or the same reason, share these words."""
    used = result.device_utilization
    kernels = Activity(metric=_KERNELS, mean=used.mean_percent, **used.model_dump(include=_SHARED))
    said: dict[str, list[str]] = {}
    for each in (kernels, *used.activity):
        noun = _NOUNS.get(each.metric, each.metric)
        figure = noun if each.mean is None else f"{noun} {_figure(each.metric, each.mean)}"
        said.setdefault(_instrument(each), []).append(figure)
    return "; ".join(f"{', '.join(figures)} ({of})" for of, figures in said.items()) + _small_kernels(result)


_SHARED = {"source", "window_ms", "coverage", "reason"}


def _figure(metric: str, mean: float) -> str:
    return f"{mean:,.0f} MiB/s" if metric.endswith("mib_per_s") else units.percent(mean)


def _instrument(each: Activity) -> str:
    """Return which instrument said it, and of what time, or why it says nothing."""
    if each.mean is None:
        return f"not measured: {each.reason}"
    window = "" if each.window_ms is None else f", windows of {each.window_ms:.0f} ms"
    return f"{each.source}{window}, {units.share(each.coverage)} of the measured time"


def _small_kernels(result: Result) -> str:
    """Return what it means that a GPU was fed and its SMs were idle; empty where that is not so."""
    busy = next((each.mean for each in result.device_utilization.activity if each.metric == ACTIVITY[0]), None)
    utilization = result.accelerator_utilization.value
    if busy is None or utilization is None or utilization < COMPUTE_BOUND_AU or busy >= SMS_IDLE_PERCENT:
        return ""
    share = units.percent(busy)
    return f". Fed (AU {units.fraction(utilization)}), but {share} of the SMs busy: small kernels, not data"
