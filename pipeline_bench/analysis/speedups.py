"""How many times the throughput of another variant, round by round, and whether that may be called a difference. Pure.

The trials of a round lie beside each other, so that what slows both cancels in their ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pipeline_bench.analysis import belief, effects, stats
from pipeline_bench.analysis.measured import ByVariant
from pipeline_bench.model.result import Result, Speedup
from pipeline_bench.scenario import Scenario, Variant

# Rounds are added until the differences are told, and judged again after more and more of them (`decision.is_look`).
# Of two equal variants, whose ratio scatters between rounds by 3 % to 30 %, at most 2 in 100 are then said to differ
# (tests/unit/test_decision.py simulates it).
CERTAIN_CLAIM = 0.998
"""A difference is told plainly where an interval of that confidence leaves out 1."""
PROBABLE_CLAIM = 0.99
"""… and as probable from this confidence on."""

SAME_JOB_SCATTER = 0.01
"""Two copies of the same variant differ by this much for good, one standard deviation of the logarithm: where their
memory lies, which cores they got (docs/method.md, "Precision")."""

TIE = 1.10
"""Two variants tie where the whole 95 % interval of their ratio lies within this factor."""

_TOO_FEW_TRIALS = "an interval needs at least 2 trials"


def over_baseline(scenario: Scenario, variant: Variant, measured: ByVariant) -> Speedup:
    """Return the throughput of a variant over that of the scenario's baseline."""
    over = scenario.baseline
    if variant.name == over.name:
        return Speedup(over=over.name, reason="this is the variant that the others are compared with")
    return _speedup(variant, over, measured)


def against_fastest(scenario: Scenario, results: Sequence[Result], measured: ByVariant) -> tuple[Result, ...]:
    """Return the results with their throughput over that of the fastest variant."""
    able = {result.variant: result for result in results if _comparable(scenario, result)}
    fastest = max(able, key=lambda name: _times(able[name]), default=None)
    if fastest is None:
        return tuple(results)
    over = scenario.variant(fastest)
    found = []
    for result in results:
        if result.variant == fastest:
            against = Speedup(over=fastest, reason="this is the fastest variant")
        elif result.variant in able:
            against = _speedup(scenario.variant(result.variant), over, measured)
        else:
            against = Speedup(over=fastest, reason="it is not compared with the others")
        found.append(result.model_copy(update={"against_fastest": against}))
    return tuple(found)


def tie(speedup: Speedup) -> bool:
    """Return whether the two variants are known to be about as fast."""
    if speedup.ci95 is None or speedup.difference not in ("none", None):
        return False
    return speedup.ci95[0] >= 1 / TIE and speedup.ci95[1] <= TIE


def told(speedup: Speedup) -> bool:
    """Return whether more rounds would change nothing: the difference is certain, or the two tie."""
    return tie(speedup) or (speedup.difference in ("faster", "slower") and speedup.certainty == "certain")


def batch_size(variant: Variant) -> int:
    """Return the samples of a step, by the option of that name; a step of a source without it counts as one.

    A source that wraps another has that one's options in a table among its own.
    """
    options = variant.source.options
    tables = [options, *(value for value in options.values() if isinstance(value, dict))]
    return int(next((table["batch_size"] for table in tables if "batch_size" in table), 1))


def _comparable(scenario: Scenario, result: Result) -> bool:
    is_ceiling = scenario.variant(result.variant).is_ceiling
    is_baseline = result.variant == scenario.baseline.name
    return (
        not is_ceiling
        and result.work.status != "unequal"
        and ((is_baseline and result.trials > 0) or result.speedup.value is not None)
    )


def _times(result: Result) -> float:
    return 1.0 if result.speedup.value is None else result.speedup.value


def _speedup(variant: Variant, over: Variant, measured: ByVariant) -> Speedup:
    own, base = measured[variant.name], measured[over.name]
    shared = [repeat for repeat in sorted(own) if repeat in base]
    if not shared:
        return Speedup(over=over.name, reason=f"{over.name!r} was not measured")
    emulated = {own[shared[0]].emulated, base[shared[0]].emulated}
    if len(emulated) > 1:
        which = "one of the two is emulated" if None in emulated else "the two emulate different devices"
        return Speedup(over=over.name, reason=f"{which}: {over.name!r} is no measure for it")
    scale = batch_size(variant) / batch_size(over)
    logs = [math.log(scale * base[repeat].mean_ms / own[repeat].mean_ms) for repeat in shared]
    if len(logs) == 1:
        return Speedup(over=over.name, value=math.exp(logs[0]), reason=_TOO_FEW_TRIALS)
    taken = sum(own[repeat].taken + base[repeat].taken for repeat in shared) / (2 * len(shared))
    known = belief.of(logs, belief.RATIO_SCATTER, trimmed=True)
    # More rounds narrow the interval of what was measured here; a claim is of the variants, on any machine and any day.
    systematic = math.hypot(SAME_JOB_SCATTER, effects.of("ratio", own[shared[0]].device_kind) * taken)
    of_variants = known.widened(systematic)
    certain, probable = of_variants.interval(CERTAIN_CLAIM), of_variants.interval(PROBABLE_CLAIM)
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
