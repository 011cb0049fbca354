"""Two sessions -> a `Difference`: what changed, and whether it is fair to say so. Pure: `gates` adds the demands.

The trials of two sessions are not neighbours, so nothing pairs them, and a drift between the sessions does not cancel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import geometric_mean
from typing import Literal, NamedTuple

from pipeline_bench.analysis import measured, speedups, stats, verdicts
from pipeline_bench.analysis.conditions import ceilings_differ_in, conditions, shared_variants
from pipeline_bench.analysis.gates import Limits, gates
from pipeline_bench.analysis.thresholds import CERTAIN_CLAIM, CLAIM_CONFIDENCE, SAME_JOB_SCATTER, TIE
from pipeline_bench.errors import UsageError
from pipeline_bench.model.difference import Difference, Noise, Ratio, Shift, Side, VariantChange
from pipeline_bench.model.result import Estimate, Result
from pipeline_bench.model.session import Session
from pipeline_bench.text import NAME, one_line, units

_NAMES_LIMIT = 8
_TOO_FEW_TRIALS = "an interval needs at least 2 trials in each session"


def between(
    before: Session,
    after: Session,
    limits: Limits | None = None,
    *,
    strict: bool = False,
    paths: tuple[str, str] = ("before", "after"),
) -> Difference:
    """Hold two sessions against each other, variant by variant.

    Args:
        before: the session to compare with.
        after: the session that is judged.
        limits: the gates; none where it is None.
        strict: whether a gate that cannot be decided fails.
        paths: where the two were read from.

    Raises:
        UsageError: the sessions have no variant in common besides ceilings, or measured none in common.
    """
    sides: tuple[tuple[Literal["before", "after"], Session], ...] = (("before", before), ("after", after))
    shared = [
        name
        for name in shared_variants(before, after)
        if all(each.find_result(name) is not None for each in (before, after))
    ]
    if after.scenario.ceilings.issuperset(shared):
        besides = " besides ceilings" if shared else ""
        raise UsageError(
            f"{paths[0]} and {paths[1]} have no variant in common{besides}: {_names(before)} and {_names(after)}.",
            "Compare two sessions of one scenario, or of scenarios whose variants have the same names.",
        )
    runs = tuple(measured.of(each.scenario, each.trials, each.environment.cores) for each in (before, after))
    changes = tuple(change(before, after, name, *runs) for name in shared)
    if not any(found.measured_in_both for found in changes):
        raise UsageError(
            f"{paths[0]} and {paths[1]} have no measured figure in common: {changes[0].step_time.reason}.",
            "Compare sessions that ended well; `pipeline-bench report` shows what each has.",
        )
    return Difference(
        before=_side(before, paths[0]),
        after=_side(after, paths[1]),
        conditions=conditions(before, after),
        disturbances=tuple(
            Noise(side=side, disturbance=disturbance) for side, session in sides for disturbance in session.disturbances
        ),
        only_before=_only_in(before, shared),
        only_after=_only_in(after, shared),
        variants=changes,
        hosts=tuple(_efficiencies(before, after)),
        gates=gates(before, after, changes, limits or Limits(), strict),
    )


def _efficiencies(before: Session, after: Session) -> Iterator[str]:
    """Yield a line for each variant on as many hosts in both sessions."""
    if before.hosts is None or after.hosts is None:
        return
    earlier = {(result.variant, result.hosts): result for result in before.hosts.results}
    for now in after.hosts.results:
        then = earlier.get((now.variant, now.hosts))
        if then is None:
            continue
        was, became = then.efficiency, now.efficiency
        remark = ""
        if was.ci95 is not None and became.ci95 is not None:
            apart = became.ci95[0] > was.ci95[1] or became.ci95[1] < was.ci95[0]
            remark = "; the intervals are apart" if apart else "; not decided, the intervals overlap"
        yield (
            f"{now.variant} on {now.hosts} hosts: efficiency {units.with_ends(units.share, was.value, was.ci95)} → "
            f"{units.with_ends(units.share, became.value, became.ci95)}{remark}; {then.kind} → {now.kind}"
        )


def _names(session: Session) -> str:
    names = [repr(variant.name) for variant in session.scenario.variants]
    return ", ".join(names[:_NAMES_LIMIT] + ["…"] * (len(names) > _NAMES_LIMIT))


def _side(session: Session, path: str) -> Side:
    return Side(
        path=path,
        scenario=session.scenario.name,
        started_at=session.started_at,
        command=session.command,
        package=session.environment.package,
    )


def _only_in(session: Session, other: Iterable[str]) -> tuple[str, ...]:
    """Return the session's variants that are not among the names of the other's."""
    names = set(other)
    return tuple(variant.name for variant in session.scenario.variants if variant.name not in names)


# --- a variant in both -----------------------------------------------------------------------------------------------


class _Trials(NamedTuple):
    """The trials of one variant in one session that its figures are over: a value a trial, in the order of repeats."""

    step_ms: list[float]
    """Mean step times, warm-up left out."""
    in_ceilings: list[float]
    """The same in units of the ceiling trial of the same repeat, where there is one."""
    wait_shares: list[float]
    """Empty where the backend does not say how long a step waits."""


def _trials(session: Session, name: str, runs: measured.ByVariant) -> _Trials:
    own = [runs[name][repeat] for repeat in sorted(runs[name])]
    pairs = measured.pairs(runs, session.scenario.variant(name))
    shared = [run for run, _ in pairs] or own  # as `results` takes shares
    return _Trials(
        step_ms=[run.mean_ms for run in own],
        in_ceilings=[run.mean_ms / top.mean_ms for run, top in pairs],
        wait_shares=[run.mean_wait_ms / run.mean_ms for run in shared if run.mean_wait_ms is not None],
    )


def change(
    before: Session, after: Session, name: str, runs_before: measured.ByVariant, runs_after: measured.ByVariant
) -> VariantChange:
    """Return how a variant of both sessions changed."""
    one, other = before.result(name), after.result(name)
    was, now = _trials(before, name, runs_before), _trials(after, name, runs_after)
    step_time = _ratio(was.step_ms, now.step_ms, _missing(one, other))
    if step_time.value is not None and (why := _other_devices(one, other) or _other_batches(before, after, name)):
        step_time = Ratio(reason=why)
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
        step_ms_before=geometric_mean(was.step_ms) if was.step_ms else None,
        step_ms_after=geometric_mean(now.step_ms) if now.step_ms else None,
        step_time=step_time,
        beside_ceiling=beside,
        accelerator_utilization=_shift(one.accelerator_utilization, other.accelerator_utilization, *inverse),
        input_wait_share=_shift(one.input_wait_share, other.input_wait_share, was.wait_shares, now.wait_shares),
        verdict_before=one.verdict.kind,
        verdict_after=other.verdict.kind,
        verdict_words_before=verdicts.in_brief(one.verdict),
        verdict_words_after=verdicts.in_brief(other.verdict),
        text=_sentence(name, one, other, step_time, beside),
    )


def _missing(before: Result, after: Result) -> str:
    """Return which of the sessions did not measure a variant, and why."""
    parts = [
        f"it was not measured {side}: {result.reason or 'no trial of it has ended'}"
        for side, result in (("before", before), ("after", after))
        if result.step_ms.median is None
    ]
    return "; ".join(parts) or "no trial of it has a step after its warm-up"


def _other_devices(before: Result, after: Result) -> str | None:
    """Return why two step times are of different devices, and so are not divided; None where they are of one."""
    if before.emulated == after.emulated:
        return None
    was, now = (result.emulated or "a device that computed" for result in (before, after))
    return f"it trained on {was} before and on {now} after"


def _other_batches(before: Session, after: Session, name: str) -> str | None:
    """Return why two steps do not do the same work, with what became of the samples a second; None where they do."""
    sizes = [speedups.batch_size(session.scenario.variant(name)) for session in (before, after)]
    if sizes[0] == sizes[1]:
        return None
    rates = [session.result(name).samples_per_second for session in (before, after)]
    became = " → ".join(units.rate(rate) for rate in rates if rate is not None)
    return f"a step is of {sizes[0]:,} samples before and of {sizes[1]:,} after ({became} samples/s)"


def _ratio(before: Sequence[float], after: Sequence[float], missing: str | None) -> Ratio:
    if not before or not after:
        return Ratio(reason=missing)
    value, ci95 = stats.change_ratio(before, after), stats.change_ratio_interval(before, after)
    if ci95 is None:
        return Ratio(value=value, reason=_TOO_FEW_TRIALS)
    # The intervals are of what was measured; a claim is of the job, which differs a little between two sessions anyway.
    error = math.sqrt(2) * SAME_JOB_SCATTER
    claim = stats.change_ratio_interval(before, after, CLAIM_CONFIDENCE, error) or ci95
    smallest = stats.half_width(claim)
    if claim[0] <= 1 <= claim[1]:
        return Ratio(value=value, ci95=ci95, difference="none", smallest=smallest)
    certain = stats.change_ratio_interval(before, after, CERTAIN_CLAIM, error) or ci95
    return Ratio(
        value=value,
        ci95=ci95,
        difference="slower" if value > 1 else "faster",
        certainty="probable" if certain[0] <= 1 <= certain[1] else "certain",
        smallest=smallest,
    )


def _shift(one: Estimate, other: Estimate, before: Sequence[float], after: Sequence[float]) -> Shift:
    """Return the shares as the sessions' results say them; the interval of their change is over the trials."""
    if one.value is None or other.value is None:
        return Shift(before=one.value, after=other.value, reason=other.reason or one.reason)
    change = other.value - one.value
    ci95 = stats.change_interval(before, after) if before and after else None
    # A share that noise has brought beyond what can be was moved to there, and those of the trials were not.
    held = ci95 and (min(ci95[0], change), max(ci95[1], change))
    reason = None if ci95 else _TOO_FEW_TRIALS
    return Shift(before=one.value, after=other.value, change=change, ci95=held, reason=reason)


def _sentence(name: str, one: Result, other: Result, step_time: Ratio, beside: Ratio) -> str:
    was, now = verdicts.first_words(one.verdict), verdicts.first_words(other.verdict)
    verdict = f"stays {now}" if was == now else f"was {was}, is {now}"
    return f"{one_line(name, NAME)}: {change_text(step_time)}{_beside(step_time, beside)}; {verdict}."


def _beside(step_time: Ratio, beside: Ratio) -> str:
    """Return the change beside the ceiling, where it is one that the step time does not show."""
    if only_beside(step_time, beside) is None:
        return ""
    change, interval = units.changes(beside.value, beside.ci95)
    return f"; but beside the ceiling {outcome_words(beside)}: {change} ({interval})"


def only_beside(step_time: Ratio, beside: Ratio) -> Literal["faster", "slower"] | None:
    """Return what only the change beside the ceiling may claim, and not that of the step time; None for nothing."""
    if beside.difference in {None, "none", step_time.difference}:
        return None
    return "faster" if beside.difference == "faster" else "slower"


def outcome_words(ratio: Ratio) -> str:
    """Return what may be said of a ratio that has an interval: ``probably slower``, ``tie`` or ``not decided``."""
    if ratio.difference in ("faster", "slower"):
        return f"{verdicts.probably(ratio.certainty)}{ratio.difference}"
    ends = ratio.ci95 or (0.0, math.inf)
    return "tie" if ends[0] >= 1 / TIE and ends[1] <= TIE else "not decided"


def change_text(step_time: Ratio) -> str:
    """Return a change of a step time in words: ``slower: +12 % of step time (+8.0 to +16 %)``, or why there is none."""
    if step_time.value is None:
        return f"no change to report: {step_time.reason}"
    if step_time.ci95 is None:
        return f"{units.change(step_time.value)} of step time, without an interval: {step_time.reason}"
    change, interval = units.changes(step_time.value, step_time.ci95)
    return f"{outcome_words(step_time)}: {change} of step time ({interval})"
