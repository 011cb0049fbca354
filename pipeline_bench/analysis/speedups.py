"""Ratios of throughput, what may be claimed of them, and who is fastest. Pure.

A ratio is taken round by round: the trials of a round lie beside each other, so that what slows both cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pipeline_bench.analysis import stats, thresholds
from pipeline_bench.analysis.measured import ByVariant, Rounds, systematic_error
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING
from pipeline_bench.model.result import Estimate, Result, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.text import units

TOO_FEW_TRIALS = "an interval needs at least 2 trials"


def references(scenario: Scenario) -> frozenset[str]:
    """Return the names of the ceilings beside what is compared; none where there is nothing else to compare."""
    only_ceilings = all(variant.is_ceiling for variant in scenario.variants)
    return frozenset() if only_ceilings else scenario.ceilings


def over_baseline(scenario: Scenario, variant: Variant, measured: ByVariant) -> Speedup:
    """Return the throughput of a variant over that of the scenario's baseline."""
    over = scenario.baseline
    if variant.name == over.name:
        return Speedup(over=over.name, reason="this is the variant that the others are compared with")
    return throughput_over(variant, over, measured)


def unless_unequal(scenario: Scenario, results: Sequence[Result]) -> tuple[Result, ...]:
    """Return the results, without their speed-ups if the baseline did other work than it should."""
    baseline = scenario.baseline.name
    if not any(result.variant == baseline and result.work.status == "unequal" for result in results):
        return tuple(results)
    missing = Speedup(over=baseline, reason=f"the work of {baseline!r} was not equal")
    return tuple(
        result if result.variant == baseline else result.model_copy(update={"speedup": missing}) for result in results
    )


def against_fastest(scenario: Scenario, results: Sequence[Result], measured: ByVariant) -> tuple[Result, ...]:
    """Return the results with their throughput over that of the fastest variant."""
    baseline = scenario.baseline.name
    able = [
        each for each in comparable(scenario, results) if each.variant == baseline or each.speedup.value is not None
    ]
    best = _fastest(scenario, able)
    if best is None:
        return tuple(results)
    over = scenario.variant(best.variant)
    found = []
    for result in results:
        if result is best:
            against = Speedup(over=over.name, reason="this is the fastest variant")
        elif result in able:
            against = throughput_over(scenario.variant(result.variant), over, measured)
        else:
            against = Speedup(over=over.name, reason="it is not compared with the others")
        found.append(result.model_copy(update={"against_fastest": against}))
    return tuple(found)


def tie(speedup: Speedup) -> bool:
    """Return whether the two variants are known to be about as fast."""
    if speedup.ci95 is None or speedup.difference not in ("none", None):
        return False
    return speedup.ci95[0] >= 1 / thresholds.TIE and speedup.ci95[1] <= thresholds.TIE


def is_settled(speedup: Speedup) -> bool:
    """Return whether more rounds would change nothing: the difference is certain, or the two tie."""
    return tie(speedup) or (speedup.difference in ("faster", "slower") and speedup.certainty == "certain")


def may_gain(speedup: Speedup) -> bool:
    """Return whether the speed-up is above `thresholds.WORTH`, and so is an end of its interval if it has one."""
    is_open = speedup.ci95 is None or speedup.ci95[1] > thresholds.WORTH
    return is_open and (speedup.value or 0.0) > thresholds.WORTH


def is_open(speedup: Speedup) -> bool:
    """Return whether the interval holds both a gain of `thresholds.PROMISING` and a loss as large."""
    if speedup.ci95 is None:
        return False
    return speedup.ci95[0] < 1 / thresholds.PROMISING and speedup.ci95[1] > thresholds.PROMISING


def excludes_gain(speedup: Speedup) -> bool:
    """Return whether there are enough trials for an interval, and it ends below a gain of `thresholds.WORTH`."""
    return speedup.ci95 is not None and speedup.ci95[1] <= thresholds.WORTH


def most_over_ceiling(session: Session) -> float:
    """Return how many times as fast as written the model alone is, by their mean steps; infinite if not known."""
    step_ms = {result.variant: result.step_ms.mean for result in session.results}
    written_ms, ceiling_ms = step_ms.get(AS_WRITTEN), step_ms.get(CEILING)
    return written_ms / ceiling_ms if written_ms and ceiling_ms else math.inf


def beyond_ceiling(speedup: Speedup, session: Session) -> str:
    """Return that a fix cannot gain so much, where its step would be shorter than the model alone; else empty."""
    most = most_over_ceiling(session)
    if (speedup.value or 0.0) <= thresholds.WORTH * most:
        return ""
    came, bound = units.ratio(speedup.value), units.ratio(most)
    more = f"{came} is more than the {bound} that no input at all would give"
    return f"{more}: the machine's speed changed between trials"


def smallest(speedup: Speedup) -> str:
    """Return the smallest difference that the run could have found, in the words of every report."""
    return f"smallest detectable: {units.precision(speedup.smallest)}"


def no_claim(speedup: Speedup) -> str:
    """Return ``tie``, or that it is not decided, where neither variant was found to be faster; empty where one was."""
    if speedup.difference != "none":
        return ""
    return "tie" if tie(speedup) else f"not decided ({smallest(speedup)})"


def batch_size(variant: Variant) -> int:
    """Return the samples of a step, by the option of that name; a step of a source without it counts as one.

    A source that wraps another has that one's options in a table among its own.
    """
    options = variant.source.options
    tables = [options, *(value for value in options.values() if isinstance(value, dict))]
    return int(next((table["batch_size"] for table in tables if "batch_size" in table), 1))


def estimate_of(known: stats.Belief) -> Estimate:
    """Return a belief as an estimate; that of one round has no interval, but the reason why."""
    if known.rounds == 1:
        return Estimate(value=known.value, reason=TOO_FEW_TRIALS)
    return Estimate(value=known.value, ci95=known.interval())


def within(estimate: Estimate, highest: float = 1.0, furthest: float = 1.0) -> Estimate:
    """Return an estimate limited to what is possible, which noise may exceed: from 0 to `highest`.

    Args:
        estimate: which may have no value.
        highest: the most that its value can be.
        furthest: the most that its interval can reach to.
    """
    if estimate.value is None:
        return estimate
    ci95 = estimate.ci95 and (
        min(max(estimate.ci95[0], 0.0), highest),
        min(max(estimate.ci95[1], 0.0), furthest),
    )
    return estimate.model_copy(update={"value": min(max(estimate.value, 0.0), highest), "ci95": ci95})


def throughput_over(variant: Variant, over: Variant, measured: ByVariant) -> Speedup:
    """Return the throughput of a variant over that of another one, or why there is none."""
    own, base = measured[variant.name], measured[over.name]
    shared = _shared(own, base)
    if not shared:
        missing = "no round has a good trial of both it and {!r}" if base else "{!r} was not measured"
        return Speedup(over=over.name, reason=missing.format(over.name))
    emulated = {own[shared[0]].emulated, base[shared[0]].emulated}
    if len(emulated) > 1:
        which = "one of the two is emulated" if None in emulated else "the two emulate different devices"
        return Speedup(over=over.name, reason=f"{which}: {over.name!r} is not comparable with it")
    ratios = {name: _logs(each, base) for name, each in measured.items() if name != over.name}
    scale = math.log(batch_size(variant) / batch_size(over))
    logs = [scale + log for log in ratios[variant.name]]
    if len(logs) == 1:
        return Speedup(over=over.name, value=math.exp(logs[0]), reason=TOO_FEW_TRIALS)
    taken = sum(own[repeat].taken + base[repeat].taken for repeat in shared) / (2 * len(shared))
    scatter = stats.usual_scatter(list(ratios.values()), thresholds.RATIO_SCATTER)
    known = stats.believe(logs, scatter, trimmed=True)
    known = known.widened(systematic_error("ratio", own[shared[0]].device_kind, taken))
    # More rounds narrow the interval of what was measured here; a claim is of the variants, on any machine and any day.
    of_any_day = known.widened(thresholds.SAME_JOB_SCATTER)
    certain, probable = map(of_any_day.interval, (thresholds.CERTAIN_CLAIM, thresholds.PROBABLE_CLAIM))
    difference: Literal["faster", "slower", "none"] = "none"
    if not probable[0] <= 0 <= probable[1]:
        difference = "faster" if known.value > 0 else "slower"
    surely = difference == "none" or not certain[0] <= 0 <= certain[1]
    low, high = (math.exp(end) for end in known.interval())
    return Speedup(
        over=over.name,
        value=math.exp(known.value),
        ci95=(low, high),
        difference=difference,
        certainty="certain" if surely else "probable",
        smallest=stats.half_width((math.exp(probable[0]), math.exp(probable[1]))),
    )


def _shared(own: Rounds, base: Rounds) -> list[int]:
    return [repeat for repeat in sorted(own) if repeat in base]


def _logs(own: Rounds, base: Rounds) -> list[float]:
    """Return the logarithm of the ratio of two variants' steps a second, one for each round that has both."""
    return [math.log(base[repeat].mean_ms / own[repeat].mean_ms) for repeat in _shared(own, base)]


# --- who is fastest --------------------------------------------------------------------------------------------------


def fastest(session: Session) -> Result | None:
    """Return the variant with the highest speed-up among those that did the work they should; None where none is known.

    A ceiling beside others is none to compare; what did other work than it should is not faster, nor is what trained
    on another emulated device than the baseline. Where the baseline was not measured there are no speed-ups, and the
    throughput decides.
    """
    return _fastest(session.scenario, comparable(session.scenario, session.results))


def _fastest(scenario: Scenario, able: Sequence[Result]) -> Result | None:
    baseline = scenario.baseline.name
    if all(result.speedup.value is None for result in able):
        return max(
            able, key=lambda result: (result.samples_per_second or 0.0, result.variant == baseline), default=None
        )
    return max(able, key=lambda result: 1.0 if result.variant == baseline else result.speedup.value or 0.0)


def able_to_compare(scenario: Scenario, results: Sequence[Result]) -> list[Result]:
    """Return the results that may be compared: measured, no `references`, and with the work that they should do."""
    beside = references(scenario)
    return [
        result
        for result in results
        if result.samples_per_second is not None and result.work.status != "unequal" and result.variant not in beside
    ]


def comparable(scenario: Scenario, results: Sequence[Result]) -> list[Result]:
    """Return those of `able_to_compare` that trained on the same device as the baseline, emulated or not."""
    able = able_to_compare(scenario, results)
    base = next((result for result in able if result.variant == scenario.baseline.name), None)
    return [result for result in able if base is None or result.emulated == base.emulated]
