"""What a variant's figures mean: one verdict and one plain sentence. The thresholds of the verdicts are here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_bench import units
from pipeline_bench.session import Disturbance, Estimate, Result, Verdict

# A step that waits a tenth of its time for input is worth mending; MLPerf Storage and DLIO pass a system at an
# accelerator utilization of 0.90, the same line seen from the other side.
BOUND_SHARE = 0.10
SEVERE_SHARE = 0.20
COMPUTE_BOUND_AU = 0.90

# Below this a percentile and a mean over a trial's steps say little.
NEEDED_STEPS = 30

# A backend may beat its ceiling by this much before the ceiling itself is in doubt.
CEILING_TOLERANCE = 0.02

# Trials of one variant whose shares lie this far apart, while their step times do not even overlap, are no repeats.
DISAGREEING_SHARE = 0.25


@dataclass(frozen=True)
class Spread:
    """How far apart the trials of one variant lie.

    `disjoint` is true where the 5th to 95th percentiles of the step times of two trials, each in units of the ceiling
    trial beside it, do not overlap; `share` names the share that differs most between the trials.
    """

    disjoint: bool
    share: str
    lowest: float
    highest: float

    @property
    def disagrees(self) -> bool:
        """Whether the trials differ by more than their own spread explains."""
        return self.disjoint and self.highest - self.lowest > DISAGREEING_SHARE


def judge(
    result: Result,
    is_ceiling: bool,
    spread: Spread | None,
    fewest_steps: int,
    disturbances: Sequence[Disturbance] = (),
    for_more: str = "raise --steps or --time",
) -> Verdict:
    """The verdict on one variant's figures, or the reason why there is none.

    Args:
        result: the variant's figures.
        is_ceiling: whether the variant is a ceiling, the reference itself.
        spread: see `Spread`; None where there is nothing to compare.
        fewest_steps: measured steps of the shortest trial.
        disturbances: of the trials that the figures are of, and of the ceiling's trials beside them.
        for_more: what to do for more steps.
    """
    refusal = _too_little(result, fewest_steps, for_more) or (
        None if is_ceiling else _doubtful(result, spread, disturbances)
    )
    if refusal is not None:
        return refusal
    if is_ceiling:
        return Verdict(kind="ceiling", text=f"steps in {_ms(result)} on average, with no input at all: the reference.")
    verdict = _unless_spoilt(_limit(result), result, disturbances)
    if result.accelerator_utilization.ci95 is None:
        caveat = "This rests on one trial beside its ceiling, so it has no interval."
        return verdict.model_copy(update={"text": f"{verdict.text} {caveat}"})
    return verdict


def judge_watched(
    step_ms: float | None, wait_ms: float | None, wait_share: float | None, steps: int, reason: str | None = None
) -> Verdict:
    """The verdict on a job that was watched from within, which has no ceiling beside it: input-bound, or not told.

    Args:
        step_ms: milliseconds a step on average.
        wait_ms: milliseconds that a step waited for its batch on average.
        wait_share: the same as a share of the step, 0 to 1; None where it was not measured.
        steps: how many steps that is over.
        reason: why the wait was not measured.
    """
    if wait_share is None:
        why = (reason or "no step has ended").removesuffix(".")
        return Verdict(kind="not-measured", text=f"its input wait was not measured: {why}.")
    if steps < NEEDED_STEPS:
        return _inconclusive(f"only {units.count(steps, 'step')} ended, {NEEDED_STEPS} are needed")
    waits = f"waits {units.milliseconds(wait_ms)} of its mean step of {units.milliseconds(step_ms)} for the batch"
    if wait_share < BOUND_SHARE:
        return _inconclusive(
            f"not input-bound: {waits} ({units.share(wait_share)}); whether the host or the model takes the rest "
            "cannot be told without a ceiling, which `pipeline-bench diagnose` measures with --model"
        )
    severe = wait_share >= SEVERE_SHARE
    faster = units.ratio(1 / max(1 - wait_share, 1e-9))
    text = (
        f"{'severely ' if severe else ''}input-bound: {waits} ({units.share(wait_share)}); without the wait it would "
        f"step at most {faster} as fast; `pipeline-bench diagnose` finds the stage and tries what helps."
    )
    return Verdict(kind="input-bound", severe=severe, text=text)


def _limit(result: Result) -> Verdict:
    wait, host = result.input_wait_share, result.host_slowdown_share
    waits_more = _value(wait) >= _value(host)
    if _above(wait if waits_more else host, BOUND_SHARE):
        return _input_bound(result) if waits_more else _host_bound(result)
    if _above(result.accelerator_utilization, COMPUTE_BOUND_AU):
        return _compute_bound(result)
    return _undecided(result)


def _too_little(result: Result, fewest_steps: int, for_more: str) -> Verdict | None:
    if result.trials == 0:
        reason = (result.reason or "no trial has ended yet").removesuffix(".")
        return Verdict(kind="not-measured", text=f"was not measured: {reason}.")
    if fewest_steps < NEEDED_STEPS:
        return _inconclusive(
            f"only {units.count(fewest_steps, 'step')} of a trial came after warm-up, {NEEDED_STEPS} are needed; "
            f"{for_more}"
        )
    return None


def _doubtful(result: Result, spread: Spread | None, disturbances: Sequence[Disturbance]) -> Verdict | None:
    au = result.accelerator_utilization
    if au.value is None or result.input_wait_share.value is None:
        return _inconclusive(au.reason or result.input_wait_share.reason or "there is no ceiling to compare with")
    if spread is not None and spread.disagrees:
        return _inconclusive(
            f"its trials disagree beyond their own spread: {spread.share} from {units.share(spread.lowest)} to "
            f"{units.share(spread.highest)}; {_worst(result, disturbances) or 'something else used the machine'}"
        )
    host = result.host_slowdown_share
    low = au.ci95[0] if au.ci95 else au.value
    slowdown = host.ci95[1] if host.ci95 else _value(host)
    if low > 1 + CEILING_TOLERANCE or slowdown < -CEILING_TOLERANCE:
        return _inconclusive(
            f"beside its wait it beats its ceiling (host slowdown {units.share(host.value)}), which cannot be: "
            f"{_worst(result, disturbances) or 'the ceiling was disturbed, or this variant does less work'}"
        )
    return None


def _input_bound(result: Result) -> Verdict:
    wait = result.input_wait_share
    severe = _severe(wait)
    text = (
        f"{'severely ' if severe else ''}input-bound: waits {units.milliseconds(result.input_wait_ms.value)} "
        f"of its mean step of {_ms(result)} for the batch ({units.share(wait.value)}); without the wait it would step "
        f"{units.ratio(1 / max(1 - _value(wait), 1e-9))} as fast{_also_slow(result)}."
    )
    return Verdict(kind="input-bound", severe=severe, text=text)


def _host_bound(result: Result) -> Verdict:
    host = result.host_slowdown_share
    severe = _severe(host)
    text = (
        f"{'severely ' if severe else ''}host-bound: the batch is there, but the host takes "
        f"{units.milliseconds(result.host_slowdown_ms.value)} of the mean step of {_ms(result)} "
        f"({units.share(host.value)}) beside the model: copies, Python, cores that the input threads "
        f"use{_also_waits(result)}."
    )
    return Verdict(kind="host-bound", severe=severe, text=text)


def _compute_bound(result: Result) -> Verdict:
    au = result.accelerator_utilization
    text = (
        f"compute-bound: runs at {units.share(au.value)} of the ceiling; a faster input would gain at most "
        f"{units.share(max(0.0, 1 / _value(au) - 1))}."
    )
    return Verdict(kind="compute-bound", text=text)


def _undecided(result: Result) -> Verdict:
    wait, host, au = result.input_wait_share, result.host_slowdown_share, result.accelerator_utilization
    straddled = _straddled(result)
    if straddled is not None:
        low, high = straddled.estimate.ci95 or (0.0, 0.0)
        return _inconclusive(
            f"{straddled.name} is {units.share(straddled.estimate.value)}, between {units.share(low)} and "
            f"{units.share(high)}, and the line is at {units.share(straddled.threshold)}; {_what_would_tell(result)}"
        )
    text = (
        f"mixed: runs at {units.share(au.value)} of the ceiling; input wait ({units.share(wait.value)}) and host "
        f"slowdown ({units.share(host.value)}) are each too small to be the cause alone."
    )
    return Verdict(kind="mixed", text=text)


@dataclass(frozen=True)
class _Check:
    """A figure and the line that decides about it."""

    name: str
    estimate: Estimate
    threshold: float


def _checks(result: Result) -> list[_Check]:
    """The larger bound first, as it would be named first."""
    bounds = [
        _Check("input wait", result.input_wait_share, BOUND_SHARE),
        _Check("host slowdown", result.host_slowdown_share, BOUND_SHARE),
    ]
    bounds.sort(key=lambda check: _value(check.estimate), reverse=True)
    return [*bounds, _Check("accelerator utilization", result.accelerator_utilization, COMPUTE_BOUND_AU)]


def _straddled(result: Result) -> _Check | None:
    """The first figure whose interval lies on both sides of its line."""
    for check in _checks(result):
        if check.estimate.ci95 and check.estimate.ci95[0] < check.threshold <= check.estimate.ci95[1]:
            return check
    return None


def _unless_spoilt(verdict: Verdict, result: Result, disturbances: Sequence[Disturbance]) -> Verdict:
    """The verdict, or none where what the disturbances cost could have decided it.

    A share cannot have moved by much more than what they cost in time, in either direction, so every interval is
    widened by that; a verdict that does not survive it is none.
    """
    if verdict.kind == "inconclusive":
        worst = _worst(result, disturbances)
        return (
            verdict.model_copy(update={"text": f"{verdict.text.removesuffix('.')}, and {worst}."}) if worst else verdict
        )
    widened = _widened(result, disturbances)
    shaken, moved = _limit(widened), _straddled(widened)
    if shaken.kind == verdict.kind or moved is None:
        return shaken if verdict.severe and not shaken.severe else verdict
    check = next(check for check in _checks(result) if check.name == moved.name)
    low, high = check.estimate.ci95 or (None, None)
    interval = f" ({units.share(low)} to {units.share(high)})" if low is not None else ""
    own = [each for each in disturbances if each.variant == result.variant]
    return _inconclusive(
        f"{check.name} is {units.share(check.estimate.value)}{interval}, but undisturbed it could lie on the other "
        f"side of the line at {units.share(check.threshold)}: "
        f"{_worst(result, own if check.estimate is result.input_wait_share else disturbances)}"
    )


def _widened(result: Result, disturbances: Sequence[Disturbance]) -> Result:
    """The figures with room for the disturbances: the ceiling's have no part in the share of the input wait."""
    own = _mean_cost(result, [each for each in disturbances if each.variant == result.variant])
    ceiling = _mean_cost(result, [each for each in disturbances if each.variant != result.variant])
    costs = {"input_wait_share": own, "host_slowdown_share": own + ceiling, "accelerator_utilization": own + ceiling}
    wider: dict[str, Estimate] = {}
    for name, cost in costs.items():
        estimate: Estimate = getattr(result, name)
        low, high = estimate.ci95 or (_value(estimate), _value(estimate))
        wider[name] = estimate.model_copy(update={"ci95": (low - cost, high + cost)}) if cost else estimate
    return result.model_copy(update=wider)


def _mean_cost(result: Result, disturbances: Sequence[Disturbance]) -> float:
    """The share of a trial's time that disturbances cost, in the mean over the trials, disturbed or not.

    Of several in one trial the largest counts: a burst and the other processes that caused it cost their time once.
    """
    costs: dict[int, float] = {}
    for each in disturbances:
        costs[each.repeat] = max(costs.get(each.repeat, 0.0), each.cost_share or 0.0)
    return sum(costs.values()) / max(1, result.trials)


def _worst(result: Result, disturbances: Sequence[Disturbance]) -> str:
    """The disturbance that cost most, in which trial, and how many others there were; "" where none cost anything."""
    costly = [each for each in disturbances if each.cost_share]
    if not costly:
        return ""
    worst = max(costly, key=lambda each: each.cost_share or 0.0)
    where = f"in repeat {worst.repeat + 1}{'' if worst.variant == result.variant else ' of its ceiling'}"
    others = len({(each.variant, each.repeat) for each in costly}) - 1
    more = f" ({units.count(others, 'more trial')} of these figures disturbed as well)" if others else ""
    return f"{where} {worst.text}{more}"


def _what_would_tell(result: Result) -> str:
    if result.trials == 2:  # noqa: PLR2004 - Student's t with 1 degree of freedom
        return "an interval over 2 trials is 12.7 standard errors wide to each side: use --repeats 3 or more"
    return "more --repeats or --steps will tell"


def _also_slow(result: Result) -> str:
    host = result.host_slowdown_share
    return f"; the host costs {units.share(host.value)} beside it" if _above(host, BOUND_SHARE) else ""


def _also_waits(result: Result) -> str:
    wait = result.input_wait_share
    return f"; it also waits {units.share(wait.value)} for input" if _above(wait, BOUND_SHARE) else ""


def _inconclusive(reason: str) -> Verdict:
    return Verdict(kind="inconclusive", text=f"inconclusive: {reason}.")


def _above(estimate: Estimate, threshold: float) -> bool:
    """Whether the whole interval is at or above the threshold; without an interval, the value."""
    low = estimate.ci95[0] if estimate.ci95 else _value(estimate)
    return low >= threshold


def _severe(estimate: Estimate) -> bool:
    """Like `_above`, but never without an interval."""
    return estimate.ci95 is not None and _above(estimate, SEVERE_SHARE)


def _value(estimate: Estimate) -> float:
    return estimate.value if estimate.value is not None else 0.0


def _ms(result: Result) -> str:
    """The mean step time, which the shares are of, rather than the median that the table shows."""
    return units.milliseconds(result.step_ms.mean)
