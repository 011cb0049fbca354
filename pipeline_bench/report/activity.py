"""What of a GPU was busy beneath AU, in words: how long kernels ran, and what GPM says, each with what it speaks of."""

from __future__ import annotations

from pipeline_bench.analysis.thresholds import COMPUTE_BOUND_AU, SMS_IDLE_PERCENT
from pipeline_bench.model.result import Activity, Result
from pipeline_bench.model.session import Session
from pipeline_bench.samplers.nvml_metrics import ACTIVITY
from pipeline_bench.text import NAME, one_line, units

_NOUNS = dict(zip(ACTIVITY, ("SMs busy", "warps", "tensor cores", "DRAM", "PCIe out", "PCIe in"), strict=True))
_KERNELS = "kernels ran"


def facts(session: Session) -> list[tuple[str, str]]:
    """Return a line for those variants of a GPU of which the same is said: most often a variant each."""
    variants: dict[str, list[str]] = {}
    for result in session.results:
        if result.device_utilization.activity:
            variants.setdefault(_line(result), []).append(one_line(result.variant, NAME))
    return [("; ".join(names), line) for line, names in variants.items()]


def _line(result: Result) -> str:
    """Return what was busy; metrics of the same source, window and coverage, or the same reason, share these words."""
    used = result.device_utilization
    kernels = Activity(metric=_KERNELS, mean=used.mean_percent, **used.model_dump(include=_SHARED))
    said: dict[str, list[str]] = {}
    for each in (kernels, *used.activity):
        noun = _NOUNS.get(each.metric, each.metric)
        figure = noun if each.mean is None else f"{noun} {_figure(each.metric, each.mean)}"
        said.setdefault(_of(each), []).append(figure)
    return "; ".join(f"{', '.join(figures)} ({of})" for of, figures in said.items()) + _small_kernels(result)


_SHARED = {"source", "window_ms", "coverage", "reason"}


def _figure(metric: str, mean: float) -> str:
    return f"{mean:,.0f} MiB/s" if metric.endswith("mib_per_s") else units.percent(mean)


def _of(each: Activity) -> str:
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
