"""The demands that a comparison can be held to, and what each decides.

A gate has three outcomes. It *failed* where the runs show that the demand is not met, or where they have no figure to
show that it is, or where trials of AFTER broke. It *passed* where they show that it is met. It is *undecided* where the
interval allows both, where what disturbed the trials could explain the outcome, or where one session has nothing to
hold against the other. That fails nothing, because noise would then fail every other run; `strict` has it fail all the
same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pipeline_bench.analysis import conditions, stats
from pipeline_bench.analysis.measured import AllSteps, Measured
from pipeline_bench.analysis.thresholds import CLAIM_CONFIDENCE
from pipeline_bench.model.diagnosis import AS_WRITTEN
from pipeline_bench.model.difference import Gate, Outcome, Ratio, VariantChange
from pipeline_bench.model.result import Disturbance, Result
from pipeline_bench.model.session import Session
from pipeline_bench.text import NAME, one_line, units

_LEAST_LEFT = 0.01  # of a time that disturbances are said to have taken whole


@dataclass(frozen=True)
class Limits:
    """The gates that were asked for, as shares: 0.05 for 5 %; None where one was not."""

    slower: float | None = None
    au_below: float | None = None


def limit_text(limit: float) -> str:
    """Return a limit as a user writes it, no digit more: ``5 %``, ``7.5 %``."""
    return f"{limit * 100:.6g} %"


def au_limit_text(limit: float) -> str:
    """Return a limit of AU with the digits that a user wrote, two decimals at least: ``0.90``, ``0.925``."""
    return max(f"{limit:.10g}", units.fraction(limit), key=len)


def gates(
    before: Session, after: Session, changes: tuple[VariantChange, ...], limits: Limits, strict: bool = False
) -> tuple[Gate, ...]:
    """Return what becomes of the demands on the variants of AFTER; ceilings, the references, are held to none.

    Args:
        before: the session that `slower` is against.
        after: the session that is judged.
        changes: the variants of both, see `difference`.
        limits: what was asked for.
        strict: whether a gate that cannot be decided fails.
    """
    found = [
        *_slower_gates(before, after, changes, limits.slower),
        *_au_gates(after, limits.au_below),
        *_gone_gates(before, after, limits),
    ]
    failed = {"outcome": "failed", "only_undecided": True}
    return tuple(gate.model_copy(update=failed) if strict and gate.outcome == "undecided" else gate for gate in found)


def _gone_gates(before: Session, after: Session, limits: Limits) -> Iterator[Gate]:
    """Yield the gates of a variant that AFTER does not have: nothing decides them."""
    there = {variant.name for variant in after.scenario.variants}
    gone = [v.name for v in before.scenario.variants if not v.is_ceiling and v.name not in there]
    gone = [name for name in gone if _is_judged(name, before, after)]
    demands: tuple[tuple[Literal["slower", "au-below"], float | None], ...] = (
        ("slower", limits.slower),
        ("au-below", limits.au_below),
    )
    for name, limit in demands:
        if limit is not None:
            for variant in gone:
                text = _named(variant, "only the session before has it")
                yield Gate(name=name, limit=limit, variant=variant, outcome="undecided", text=text)


def _slower_gates(
    before: Session, after: Session, changes: tuple[VariantChange, ...], limit: float | None
) -> Iterator[Gate]:
    if limit is None:
        return
    machine = {change.variant: change.step_time for change in changes if change.is_ceiling}
    for change in changes:
        if change.is_ceiling or not _is_judged(change.variant, before, after):
            continue
        ceiling = machine.get(after.scenario.variant(change.variant).ceiling or "")
        outcome, text = (
            _broken(after, change.variant)
            or _without_figures(after.result(change.variant))
            or _other_work(before, after, change.variant)
            or _judged(before, after, change, limit)
        )
        if change.step_time.value is not None:
            text = f"{text.rstrip('.')}{_beside(change, ceiling)}"
        yield Gate(
            name="slower", limit=limit, variant=change.variant, outcome=outcome, text=_named(change.variant, text)
        )


def _is_judged(variant: str, *sessions: Session) -> bool:
    """Return whether a limit is for a variant: of diagnoses only for the pipeline as written, and for no attempt."""
    return variant == AS_WRITTEN or all(session.diagnosis is None for session in sessions)


def _beside(change: VariantChange, ceiling: Ratio | None) -> str:
    """Return the change beside the ceiling, and whether the ceiling itself changed, which no input makes it do."""
    if (
        change.ceilings_differ_in or change.beside_ceiling.value is None
    ):  # of another job it says nothing of the machine
        return ""
    said = f"; beside its ceiling {units.change(change.beside_ceiling.value)}"
    if ceiling is None or ceiling.difference not in ("faster", "slower"):
        return said
    changed = f"{ceiling.difference}, {units.change(ceiling.value)}"
    return f"{said}: its ceiling also became {changed}, because of the machine, TensorFlow or the model's own code"


def _slower(change: VariantChange, limit: float) -> tuple[Outcome, str]:
    """Return failed where the point is beyond the limit and the change may be claimed (`thresholds.CLAIM_CONFIDENCE`).

    Passed where the whole 95 % interval is within the limit; without an interval, by the point.
    """
    step_time, most = change.step_time, f"+{limit_text(limit)}"
    if step_time.value is None:
        return "undecided", f"there is no change to judge: {step_time.reason or ''}"
    shown, beyond = units.change(step_time.value), step_time.value > 1 + limit
    if step_time.ci95 is None:
        side = "more than" if beyond else "not more than"
        return (
            "failed" if beyond else "passed",
            f"its step time changed by {shown}, {side} {most}; decided without an interval: {step_time.reason}",
        )
    low, high = step_time.ci95
    shown = "{} ({})".format(*units.changes(step_time.value, step_time.ci95))
    if beyond and step_time.difference == "slower":
        return "failed", f"its step time changed by {shown}, more than {most}"
    if high <= 1 + limit:
        return "passed", f"its step time changed by {shown}, not more than {most}"
    why = f"and {most} lies within the interval"
    if low > 1 + limit:
        why = f"more than {most}, but not certain at {units.share(CLAIM_CONFIDENCE)}"
    return "undecided", f"its step time changed by {shown}, {why}; {_MORE_TRIALS}"


def _judged(before: Session, after: Session, change: VariantChange, limit: float) -> tuple[Outcome, str]:
    """Return what the step times say; undecided where it would be otherwise if disturbances had cost neither anything.

    A machine that is as busy in both sessions explains no change. The cost is a share of the time of all steps, so that
    it is taken from all: the figures may be of those that nothing disturbed.
    """
    outcome, text = _slower(change, limit)
    if outcome == "undecided":
        return outcome, text
    cost, worst = _disturbed(after, change.variant)
    cost_before, worst_before = _disturbed(before, change.variant)
    every_step_ms = (
        [Measured(AllSteps(trial)).mean_ms for trial in session.trials_of(change.variant) if trial.measured]
        for session in (before, after)
    )
    beyond = stats.change_ratio(*every_step_ms) * (1 - cost) / max(1 - cost_before, _LEAST_LEFT) > 1 + limit
    costs = (("after", cost), ("before", cost_before))
    taken = " and ".join(f"{units.share(part)} of its time {when}" for when, part in costs if part)
    doubt = f"{text}, but disturbances from outside took about {taken}"
    if outcome == "failed" and not beyond and worst is not None:
        return "undecided", f"{doubt} and may be the cause: {_repeat(worst)}"
    if outcome == "passed" and beyond and worst_before is not None:
        return "undecided", f"{doubt} and may hide a slowdown: before, {_repeat(worst_before)}"
    return outcome, text


def _repeat(disturbance: Disturbance) -> str:
    return f"in repeat {disturbance.repeat + 1} {disturbance.text.rstrip('.')}"


def _disturbed(session: Session, variant: str) -> tuple[float, Disturbance | None]:
    """Return the share of its time that disturbances cost a variant, in the mean over its trials, and the costliest.

    Of several in one trial the largest counts: a burst and the processes that caused it cost their time once.
    """
    repeats = {trial.repeat for trial in session.trials_of(variant) if trial.status == "ok"}
    own = [each for each in session.disturbances if each.variant == variant and each.repeat in repeats]
    own = sorted((each for each in own if each.cost_share), key=lambda each: each.cost_share or 0.0)
    if not own:
        return 0.0, None
    largest = {each.repeat: each.cost_share or 0.0 for each in own}
    return sum(largest.values()) / len(repeats), own[-1]


def _au_gates(after: Session, limit: float | None) -> Iterator[Gate]:
    if limit is None:
        return
    for result in after.results:
        if result.variant not in after.scenario.ceilings and _is_judged(result.variant, after):
            outcome, text = (
                _broken(after, result.variant) or _without_figures(result) or _unreliable(result) or _au(result, limit)
            )
            text = _named(result.variant, text)
            yield Gate(name="au-below", limit=limit, variant=result.variant, outcome=outcome, text=text)


def _unreliable(result: Result) -> tuple[Outcome, str] | None:
    """Return why the AU cannot be relied on, in the words of a verdict that was refused; None where it can.

    Where nothing but the width of an interval leaves the limit open, the AU is as good as that interval, which decides.
    It is without the wait of a step too, which its verdict needs.
    """
    verdict, au = result.verdict, result.accelerator_utilization
    if au.impossible:
        return "undecided", f"it has no AU: {au.reason or ''}"
    if verdict.kind != "inconclusive" or verdict.doubt is not None or au.value is None or verdict.cause == "no-wait":
        return None
    unsure = f"its AU of {units.fraction(au.value)} is not reliable"
    return "undecided", f"{unsure}: its verdict is {verdict.text}"


def _au(result: Result, limit: float) -> tuple[Outcome, str]:
    """Return failed where the whole interval is below the limit, passed where none of it is; or by the point."""
    au, line = result.accelerator_utilization, au_limit_text(limit)
    show = partial(_beside_limit, limit)
    if au.value is None:
        return "failed", f"its AU is not known: {au.reason or 'no reason is known'}"
    low, high = au.ci95 or (au.value, au.value)
    shown = f"its AU is {show(au.value)}{units.ends(show, au.ci95)}"
    aside = "" if au.ci95 else f"; decided without an interval: {au.reason or 'it has no interval'}"
    if high < limit:
        return "failed", f"{shown}, below {line}{aside}"
    if low >= limit:
        return "passed", f"{shown}, not below {line}{aside}"
    return "undecided", f"{shown}, and {line} lies within the interval; {_MORE_TRIALS}"


def _beside_limit(limit: float, value: float) -> str:
    """Return an AU in as many digits as show on which side of the limit it is."""
    texts = (units.fraction(value), *(f"{value:.{decimals}f}" for decimals in range(3, 10)))
    side = (value > limit) - (value < limit)
    return next((text for text in texts if (float(text) > limit) - (float(text) < limit) == side), texts[0])


_MORE_TRIALS = "more --repeats make it narrower"


def _broken(after: Session, variant: str) -> tuple[Outcome, str] | None:
    """Return failed for a variant of which trials of AFTER failed or stalled, beside others with figures."""
    trials = after.trials_of(variant)
    broken = [trial for trial in trials if trial.broke]
    if not broken or after.result(variant).step_ms.median is None:
        return None
    reason = broken[0].reason or "no reason is known"
    return "failed", f"in the session after {len(broken)} of its {len(trials)} trials failed or stalled: {reason}"


def _without_figures(result: Result) -> tuple[Outcome, str] | None:
    """Return failed for a variant of AFTER that has no figures, or figures of other work."""
    if result.step_ms.median is None:
        return "failed", f"it was not measured in the session after: {_reason(result)}"
    if result.work.status == "unequal":
        return "failed", f"it did not train on the samples it should: {_work(result)}"
    return None


def _other_work(before: Session, after: Session, variant: str) -> tuple[Outcome, str] | None:
    """Return undecided for a variant that did other work in BEFORE: it has no step time to hold another against."""
    result = before.result(variant)
    if result.work.status == "unequal":
        return "undecided", f"in the session before it did not train on the samples it should: {_work(result)}"
    was, now = (conditions.skipped(session, variant) for session in (before, after))
    if was != now:
        return "undecided", f"of an epoch it skipped {units.count(was, 'record')} before and {now:,} after"
    return None


def _reason(result: Result) -> str:
    reason = result.reason or "no reason is known"
    return f"{result.status}, {reason}" if result.status != "ok" else reason


def _work(result: Result) -> str:
    return result.work.text or "no reason is known"


def _named(variant: str, text: str) -> str:
    return f"{one_line(variant, NAME)}: {text.rstrip('.')}."
