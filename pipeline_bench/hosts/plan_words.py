"""What a plan says in sentences: how many feed how many, and the assumption that decides."""

from __future__ import annotations

from collections.abc import Callable

from pipeline_bench.analysis import thresholds
from pipeline_bench.analysis.capacity import HostStep
from pipeline_bench.model.hosts import Range, VariantPlan
from pipeline_bench.text import units


def number(value: float) -> str:
    """Return a number of accelerators with two digits: ``0.052``, ``0.46``, ``3.2``, ``14``."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004 - two digits


def between(figure: Range, words: str = "") -> str:
    """Return a number with its ends: ``3.2 (2.9 to 3.5)``, ``at least 2.9``, ``2.9 to 3.5``."""
    return f"at least {number(figure.low)}{words}" if figure.high is None else _with_ends(figure, number, words)


def utilization(figure: Range) -> str:
    """Return an accelerator utilization with its ends: ``0.61 (0.58 to 0.64)``, ``0.08 to 1.00``."""
    return _with_ends(figure, _fraction)


def _with_ends(figure: Range, write: Callable[[float], str], words: str = "") -> str:
    low, high = write(figure.low), write(figure.high or 0.0)
    if figure.value is None:
        return f"{units.between(low, high)}{words}"
    value = write(figure.value)
    return f"{value}{words}" if low == high == value else f"{value}{words} ({units.between(low, high)})"


def _fraction(value: float) -> str:
    return f"{value:.1g}" if value < 0.01 else units.fraction(value)  # noqa: PLR2004 - what has no two decimals


def rate(figure: Range) -> str:
    """Return samples a second: ``319``, ``at least 459``, ``261 to 3.20k``."""
    if figure.value is not None:
        return units.rate(figure.value)
    if figure.high is None:
        return f"at least {units.rate(figure.low)}"
    return units.between(units.rate(figure.low), units.rate(figure.high))


def answer(plan: VariantPlan, step: HostStep, accelerators: int) -> str:
    """Return how many feed how many, and where what they share ends."""
    own = _of_workers(plan, accelerators) if plan.unit != "host" else _of_host(plan, step, accelerators)
    return f"{own} {_of_total(plan)}".strip()


def _of_host(plan: VariantPlan, step: HostStep, accelerators: int) -> str:
    feeds, reached = plan.feeds, f"AU {utilization(plan.alone.utilization)}"
    fed = feeds.low if feeds.value is None else feeds.value
    if fed >= accelerators:
        enough = between(feeds, " accelerators")
        slow = f"one host's input is enough for {enough}, but copies and launches by the host limit it to {reached}."
        return slow if plan.alone.limit == "host" else f"one host feeds {enough}."
    if fed >= 1:
        return f"one host feeds {between(feeds)} of its {accelerators} accelerators: {reached}."
    if feeds.value is None and (plan.alone.utilization.high or 0.0) >= thresholds.COMPUTE_BOUND_AU:
        return f"whether one host feeds an accelerator is not known: {reached}."
    starved = f"one host does not feed an accelerator: {reached}"
    if feeds.value is None:
        return f"{starved}."
    if not step.works_ahead:
        return f"{starved}; the next batch is made after the step, so the input must be {1 / fed:.1f} times as fast."
    return f"{starved}; it needs the input of {1 / fed:.1f} hosts."


def _of_workers(plan: VariantPlan, accelerators: int) -> str:
    whom = "an accelerator needs" if accelerators == 1 else f"{accelerators} accelerators need"
    if plan.needed is None:
        if plan.feeds.value is None:
            return f"one input worker feeds {between(plan.feeds, ' accelerators')}; no worker was saturated."
        return f"no number of input workers feeds {units.count(accelerators, 'accelerator')}: each gives {_each(plan)}."
    each = f"each gives {_each(plan)} and feeds {between(plan.feeds)}"
    return f"{whom} {units.count(plan.needed, 'input worker')}: {each}."


def _each(plan: VariantPlan) -> str:
    return f"{rate(plan.own)} samples/s"


def _of_total(plan: VariantPlan) -> str:
    """Return where the storage, or the way from the workers, saturates; empty after one count, or if none is shared."""
    what = _of_all(plan)
    what = what[0].upper() + what[1:]
    if plan.total_from is not None:
        enough = between(plan.total_feeds, " accelerators")
        return (
            f"{what} saturates at {rate(plan.total)} samples/s, enough for {enough}: "
            f"it is the limit from {_with_ends(plan.total_from, '{:.0f}'.format)} {plan.unit}s on."
        )
    if len(plan.measured_counts) == 1 or not plan.shared:
        return ""
    most = f"{plan.measured_counts[-1]} {plan.unit}s"
    seen = f"{units.rate(plan.total.low)} samples/s, enough for {number(plan.total_feeds.low)} accelerators"
    if plan.doubt is not None:
        return f"{what} gives at least {seen}: that it saturates is not shown."
    return f"{what} was not saturated with {most}: {seen}."


def assumption(plan: VariantPlan) -> str:
    """Return what decides beyond what was measured."""
    if plan.alone.limit == "not-known":
        return _not_known(plan)
    most = plan.measured_counts[-1]
    if plan.total.is_known:
        return _reached(plan)
    if not any(row.basis == "extrapolated" for row in plan.rows):
        return "Assumes that only the accelerator's step changes."
    if plan.unit != "host":
        return f"Assumes that each input worker beyond the {most} measured adds as much: their total was not saturated."
    if not plan.shared:
        return "Assumes that each further host adds as much: the input reads nothing that hosts share."
    known = "the first" if most == 1 else f"the {most} measured: it was never saturated"
    if plan.doubt is not None:
        known = "the first, and that something else held up hosts that were measured"
    return f"Assumes that {plan.shares} gives each further host as much as {known}; low ends: no higher total."


def _not_known(plan: VariantPlan) -> str:
    if plan.works_ahead is None:
        return (
            "It is not known whether the next batch is made during the step. The figures are the range between both "
            "cases; two models with different step times in one scenario decide it."
        )
    return (
        f"It is not known how much more than {units.rate(plan.own.low)} samples/s the input of one {plan.unit} gives: "
        "it limited no step. Measure with a faster accelerator, such as one emulated with a shorter step."
    )


def _reached(plan: VariantPlan) -> str:
    last, gives = f"{plan.measured_counts[-1]} {plan.unit}s", f"{rate(plan.total)} samples/s"
    if plan.trend in ("rising", "falling"):
        went = "still rose" if plan.trend == "rising" else "fell"
        return f"Assumes that {_of_all(plan)} stays at the {gives} of {last}, although it {went} until there."
    return f"Assumes that {_of_all(plan)} stays at {gives} beyond the {last} measured."


def _of_all(plan: VariantPlan) -> str:
    """Return what gives the total."""
    return plan.shares if plan.unit == "host" else "the workers' total"


def explained() -> str:
    """Return what the words of a plan mean."""
    line = units.fraction(thresholds.COMPUTE_BOUND_AU)
    brackets = "In brackets: 95 %, and queueing if the input does not work ahead"
    return f"AU: share of the time in which an accelerator computes; fed: AU of {line} or more. {brackets}"
