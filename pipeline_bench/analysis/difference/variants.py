"""One variant in two sessions: how its step time, its utilization and its waiting changed, and what that means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline_bench.analysis import stats
from pipeline_bench.analysis.difference import intervals
from pipeline_bench.analysis.difference.conditions import ceilings_differ_in
from pipeline_bench.analysis.stats import CLAIM_CONFIDENCE
from pipeline_bench.errors import SessionError
from pipeline_bench.model.difference import Ratio, Shift, VariantChange
from pipeline_bench.model.result import Estimate, Interval, Result
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.text import one_line, units

_NS_PER_MS = 1e6
_NAME_LIMIT = 80


@dataclass(frozen=True)
class Trials:
    """The trials of one variant in one session that its figures are over: a value a trial, in the order of repeats.

    `step_ms` are mean step times, warm-up left out; `in_ceilings` the same in units of the ceiling trial of the same
    repeat, where there is one; `wait_shares` are empty where the backend does not say how long a step waits.
    """

    step_ms: tuple[float, ...]
    in_ceilings: tuple[float, ...]
    wait_shares: tuple[float, ...]


def trials(session: Session, name: str) -> Trials:
    """What the trials of a variant measured.

    Raises:
        SessionError: a packed column of the session is damaged.
    """
    ceiling = session.scenario.variant(name).ceiling
    own = {record.repeat: _means(record) for record in session.trials if _usable(record, name)}
    tops = {record.repeat: _means(record)[0] for record in session.trials if ceiling and _usable(record, ceiling)}
    repeats = sorted(own)
    waits = [(own[repeat][1], own[repeat][0]) for repeat in repeats]
    return Trials(
        step_ms=tuple(own[repeat][0] for repeat in repeats),
        in_ceilings=tuple(own[repeat][0] / tops[repeat] for repeat in repeats if repeat in tops),
        wait_shares=tuple(wait / step for wait, step in waits if wait is not None),
    )


def _usable(record: TrialRecord, variant: str) -> bool:
    return record.variant == variant and record.measured


def _means(record: TrialRecord) -> tuple[float, float | None]:
    """The mean step time and the mean input wait in ms, warm-up left out; a step takes at least a nanosecond."""
    steps = record.steps
    assert steps is not None
    try:
        took_ns = (steps.end_ns.unpack() - steps.start_ns.unpack())[record.warmup_steps :]
        wait_ns = None if steps.wait_ns is None else steps.wait_ns.unpack()[record.warmup_steps :]
    except ValueError as error:
        trial = f"{one_line(record.variant, _NAME_LIMIT)}, repeat {record.repeat + 1}"
        raise SessionError(f"The trial {trial} is damaged: {error}.", "Give an undamaged session.json.") from None
    step_ms = max(float(np.mean(took_ns)), 1.0) / _NS_PER_MS
    return step_ms, None if wait_ns is None or wait_ns.size == 0 else float(np.mean(wait_ns)) / _NS_PER_MS


def change(before: Session, after: Session, name: str) -> VariantChange:
    """How a variant of both sessions changed.

    Raises:
        SessionError: a packed column of a session is damaged.
    """
    one, other = before.result(name), after.result(name)
    was, now = trials(before, name), trials(after, name)
    step_time = _ratio(was.step_ms, now.step_ms, _missing(one, other))
    if step_time.value is not None and (devices := _other_devices(one, other)) is not None:
        step_time = Ratio(reason=devices)
    is_ceiling = after.scenario.variant(name).is_ceiling
    differ_in = ceilings_differ_in(before, after, name)
    no_ceiling = "this is the ceiling itself" if is_ceiling else "its ceiling was not measured beside it in both"
    if step_time.value is None:
        beside = Ratio(reason=step_time.reason)
    elif differ_in and not is_ceiling:
        beside = Ratio(reason=f"its ceilings are of different jobs ({', '.join(differ_in)})")
    else:
        beside = _ratio(was.in_ceilings, now.in_ceilings, no_ceiling)
    inverse = [[1 / value for value in group] for group in (was.in_ceilings, now.in_ceilings)]
    return VariantChange(
        variant=name,
        is_ceiling=is_ceiling,
        ceilings_differ_in=differ_in,
        step_ms_before=stats.geometric_mean(was.step_ms) if was.step_ms else None,
        step_ms_after=stats.geometric_mean(now.step_ms) if now.step_ms else None,
        step_time=step_time,
        beside_ceiling=beside,
        accelerator_utilization=_shift(one.accelerator_utilization, other.accelerator_utilization, *inverse),
        input_wait_share=_shift(one.input_wait_share, other.input_wait_share, was.wait_shares, now.wait_shares),
        verdict_before=one.verdict.kind,
        verdict_after=other.verdict.kind,
        text=_sentence(name, one, other, step_time, beside),
    )


def _missing(before: Result, after: Result) -> str:
    """In which of the sessions a variant was not measured, and why."""
    parts = [
        f"it was not measured {side}: {result.reason or 'no trial of it has ended'}"
        for side, result in (("before", before), ("after", after))
        if result.step_ms.median is None
    ]
    return "; ".join(parts) or "no trial of it has a step after its warm-up"


def _other_devices(before: Result, after: Result) -> str | None:
    """Why two step times are of other devices, where one is emulated; as in one session, they are not divided then."""
    if before.emulated == after.emulated:
        return None
    was, now = (result.emulated or "a device that computed" for result in (before, after))
    return f"it trained on {was} before and on {now} after"


def _ratio(before: Sequence[float], after: Sequence[float], missing: str | None) -> Ratio:
    if not before or not after:
        return Ratio(reason=missing)
    value, ci95 = intervals.ratio(before, after), intervals.ratio_interval(before, after)
    if ci95 is None:
        return Ratio(value=value, reason=intervals.TOO_FEW_TRIALS)
    claim = intervals.ratio_interval(before, after, CLAIM_CONFIDENCE) or ci95
    smallest = stats.half_width(claim)
    if holds(claim, 1.0):
        return Ratio(value=value, ci95=ci95, difference="none", smallest=smallest)
    return Ratio(value=value, ci95=ci95, difference="slower" if value > 1 else "faster", smallest=smallest)


def holds(interval: Interval, value: float) -> bool:
    """Whether an interval holds a value, its ends included."""
    return interval[0] <= value <= interval[1]


def _shift(one: Estimate, other: Estimate, before: Sequence[float], after: Sequence[float]) -> Shift:
    """The shares as the sessions' results say them; the interval of their change is over the trials."""
    if one.value is None or other.value is None:
        return Shift(before=one.value, after=other.value, reason=other.reason or one.reason)
    ci95 = intervals.difference_interval(before, after) if before and after else None
    reason = None if ci95 else intervals.TOO_FEW_TRIALS
    return Shift(before=one.value, after=other.value, change=other.value - one.value, ci95=ci95, reason=reason)


def _sentence(name: str, one: Result, other: Result, step_time: Ratio, beside: Ratio) -> str:
    verdict = f"stays {other.verdict.kind}" if one.verdict.kind == other.verdict.kind else None
    verdict = verdict or f"was {one.verdict.kind}, is {other.verdict.kind}"
    return f"{one_line(name, _NAME_LIMIT)}: {says(step_time)}{_beside(step_time, beside)}; {verdict}."


def _beside(step_time: Ratio, beside: Ratio) -> str:
    """The change beside the ceiling, where it is one that the step time does not show."""
    claimed = only_beside(step_time, beside)
    if claimed is None:
        return ""
    return f"; but beside the ceiling {claimed}: {units.change(beside.value)} ({_ends(beside)})"


def only_beside(step_time: Ratio, beside: Ratio) -> Literal["faster", "slower"] | None:
    """What the change beside the ceiling may claim and that of the step time does not, as on a slower machine."""
    if beside.difference in {None, "none", step_time.difference}:
        return None
    return "faster" if beside.difference == "faster" else "slower"


def _ends(ratio: Ratio) -> str:
    low, high = ratio.ci95 or (None, None)
    return f"{units.change(low)} to {units.change(high)}"


def says(step_time: Ratio) -> str:
    """A change of a step time in words: ``12 % slower (8 to 16 %)``, or that none was found, or why there is none."""
    if step_time.value is None:
        return f"no change to give, {step_time.reason}"
    if step_time.ci95 is None:
        return f"{units.change(step_time.value)} of step time, without an interval: {step_time.reason}"
    between = _ends(step_time)
    if step_time.difference == "none":
        smallest = units.precision(step_time.smallest)
        level = units.share(CLAIM_CONFIDENCE)
        return f"no difference found (smallest these runs could have seen at {level}: {smallest}; interval {between})"
    return f"{step_time.difference}: {units.change(step_time.value)} of step time ({between})"
