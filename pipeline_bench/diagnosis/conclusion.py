"""What a diagnosis comes to: each attempt's outcome, the proposal, what no edit can change, in a sentence or two."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline_bench.analysis import speedups
from pipeline_bench.analysis.thresholds import NOT_THE_LIMIT, PROMISING, SIMPLER, WORTH
from pipeline_bench.diagnosis import (
    attempt_statistics,
    fixes,
    idea_bounds,
    limits,
    model_step,
    stage_graph,
    step_times,
    variants,
)
from pipeline_bench.diagnosis.attempt_statistics import AttemptStatistics
from pipeline_bench.diagnosis.fixes.order import elsewhere
from pipeline_bench.diagnosis.refusals import failure
from pipeline_bench.model.diagnosis import AS_WRITTEN, RULED_OUT, Attempt, Bottleneck, Diagnosis, NotTried, Outcome
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.text import sentence, units

_MORE_THAN_THE_WAIT = 1.2
"""What the model alone would save is another bound than the wait from so many times it on."""
_UNSTEADY = 3.0
"""Trials of one pipeline whose means differ by more have something in some of their steps that is not the pipeline's:
a compilation, or a machine that stood still."""
_BUDGET_MARGIN = 1.25
"""Of a larger budget that is advised: other attempts have a part of it, too."""
_BUDGET_STEP_S = 30
_CHEAPER = "Cheaper batches may shorten the step; no argument of fit makes them cheaper."
_NOT_TRIED: dict[NotTried, str] = {
    "budget": "The budget left no time for it.",
    "not-needed": "It was not needed.",
    "interrupted": "It was interrupted before it was its turn.",
    "at-limit": "The input is not what limits the training step.",
}
_BEST_FIRST: tuple[Outcome, ...] = (
    *("proposed", "faster", "pending", "no-gain", "slower"),
    *("refused", "not-applicable", "failed", "not-tried"),
)


def concluded(session: Session, diagnosis: Diagnosis, ended: NotTried | None) -> Diagnosis:
    """Return the diagnosis with everything that its trials say so far.

    Args:
        session: with its results brought up to date.
        diagnosis: with those attempts ruled out that are.
        ended: why no more trials come, for the attempts that never ran; None while the search goes on.
    """
    found = attempt_statistics.of(session, diagnosis)
    chosen = proposal(found) if ended is not None else None
    parts = {each.name: best_part(each, found) for each in found}
    at_limit = nothing_to_gain(session)
    attempts = [_settled(each, chosen, ended, at_limit, parts[each.name]) for each in found]
    gains = {each.name: attempt_statistics.by_gain(each) for each in found}
    if ended is not None:
        attempts.sort(key=lambda each: (_BEST_FIRST.index(each.outcome), gains[each.fix.variant]))
    after = diagnosis.model_copy(
        update={
            "attempts": tuple(attempts),
            "proposal": chosen.name if chosen is not None else None,
            "limits": limits.of(session, diagnosis),
            "reached_ms": step_times.mean_ms(session, AS_WRITTEN),
            "beyond": _beyond(session, diagnosis, chosen) if ended is not None else (),
        }
    )
    text, says_bottleneck = _text(session, after, chosen, ended)
    return after.model_copy(update={"text": text, "says_bottleneck": says_bottleneck})


def proposal(found: list[AttemptStatistics]) -> AttemptStatistics | None:
    """Return the attempt to propose: the fastest beyond chance, or a part of it if the rest adds nothing."""
    fit = sorted((each for each in found if each.proposable), key=attempt_statistics.by_gain)
    if not fit:
        return None
    best = fit[0]
    simpler = [each for each in fit if _parts(each) < _parts(best) and _in_all(each) * SIMPLER >= _in_all(best)]
    return min(simpler, key=lambda each: (len(_parts(each)), attempt_statistics.by_gain(each)), default=best)


def headroom(session: Session) -> float | None:
    """Return how many times as fast the training step would be without input; None if unknown, or without a model."""
    written, ceiling = step_times.mean_ms(session, AS_WRITTEN), step_times.ceiling_ms(session)
    return None if written is None or not ceiling else written / ceiling


def nothing_to_gain(session: Session) -> bool:
    """Return whether no input makes the training step 3 % faster; see `step_times.at_the_model`."""
    inspection = session.diagnosis.inspection if session.diagnosis is not None else None
    times, cores = step_times.of(session), session.environment.cores
    return inspection is not None and bool(step_times.at_the_model(inspection, cores, times))


def best_part(each: AttemptStatistics, found: list[AttemptStatistics]) -> AttemptStatistics | None:
    """Return the attempt with the highest gain among the true parts of a combination; None for a single fix."""
    if not each.attempt.fix.combines:
        return None
    parts = [other for other in found if other.possible and _parts(other) < _parts(each)]
    return min(parts, key=attempt_statistics.by_gain, default=None)


def beaten(each: AttemptStatistics, part: AttemptStatistics | None) -> bool:
    """Return whether a combination gains hardly more than the best part of it."""
    return part is not None and each.gain is not None and _in_all(each) < SIMPLER * _in_all(part)


def _parts(each: AttemptStatistics) -> frozenset[str]:
    return frozenset(each.attempt.fix.combines or (each.name,))


def _in_all(each: AttemptStatistics) -> float:
    return each.in_all or 0.0


def _settled(
    each: AttemptStatistics,
    chosen: AttemptStatistics | None,
    ended: NotTried | None,
    at_limit: bool,
    part: AttemptStatistics | None,
) -> Attempt:
    asks = each.attempt.outcome == "not-tried" and (each.attempt.fix.threads or each.attempt.fix.reorders)
    if ended and ((asks and at_limit) or (each.possible and each.gain is None)):  # no option would have it tried
        cause = "at-limit" if at_limit else ended
        return each.attempt.model_copy(update={"outcome": "not-tried", "cause": cause, "reason": _NOT_TRIED[cause]})
    if not each.possible:
        return each.attempt
    if part is not None and beaten(each, part) and ended is not None and (chosen is None or chosen.name != each.name):
        reason = f"It reached {units.ratio(each.in_all)}, hardly more than {part.name} alone."
        return each.attempt.model_copy(update={"outcome": "no-gain", "reason": reason})
    outcome, reason = _outcome(each, chosen, ended)
    return each.attempt.model_copy(update={"outcome": outcome, "reason": reason})


def _outcome(each: AttemptStatistics, chosen: AttemptStatistics | None, ended: NotTried | None) -> tuple[Outcome, str]:
    if each.proposable:
        return ("proposed" if chosen is not None and each.name == chosen.name else "faster"), ""
    if each.slower:
        return "slower", ""
    if ended is None and (each.contends or each.gain is None):
        return "pending", ""
    then = " and was not tried again"
    if each.contends and each.trials < attempt_statistics.CONFIRMED_TRIALS:
        then = f"; a proposal needs {attempt_statistics.CONFIRMED_TRIALS}"
        then += ": use a larger --budget" * (ended != "interrupted")
    elif each.contends:
        then = ", which may be chance"
    return "no-gain", f"It reached {units.ratio(each.gain)} in {units.count(each.trials, 'trial')}{then}."


def _text(
    session: Session, diagnosis: Diagnosis, chosen: AttemptStatistics | None, ended: NotTried | None
) -> tuple[str, bool]:
    """Return the conclusion, and whether it says what limits the pipeline."""
    if diagnosis.failure is not None:
        stages = limits.stages_alone(session, diagnosis.inspection)
        end = "" if diagnosis.failure.endswith((".", "?")) else "."
        return f"{sentence(diagnosis.failure)}{end} {stages}" if stages else diagnosis.failure, False
    found = diagnosis.bottleneck or Bottleneck()
    if ended is None:
        return found.text, True
    no_fix = "" if chosen is not None or nothing_to_gain(session) else _of_what_has_no_fix(session, diagnosis)
    says = not no_fix or found.stage is not None
    ending = [*_ended(session, diagnosis, chosen, no_fix)]
    ending.insert(0 if chosen is None else len(ending), model_step.freed_memory(session, diagnosis.inspection))
    parts = (
        model_step.of_a_part(session, diagnosis.inspection),
        found.text * says,
        model_step.whether_it_waits(diagnosis, chosen is not None or bool(_promising(session, diagnosis))),
        *ending,
        *limits.beside_the_fixes(session, diagnosis.inspection, diagnosis.proposal),
        _other_runs(session, diagnosis),
    )
    return " ".join(filter(None, parts)), says


def _other_runs(session: Session, diagnosis: Diagnosis) -> str:
    """Return that the user's code gives other samples each time it runs, and what follows; empty if it does not."""
    if attempt_statistics.order_varies(session, diagnosis.inspection):
        return "As written, the order of the samples differs from run to run, so that a fix may give another one too."
    if attempt_statistics.reproducible(session) is not False:
        return ""
    what = "The script is" if diagnosis.target.is_script else "Your code is"
    return (
        f"{what} not reproducible: even as written, another run gives other samples. So each fix was compared with the "
        "pipeline as written within one run."
    )


def _ended(session: Session, diagnosis: Diagnosis, chosen: AttemptStatistics | None, no_fix: str) -> Iterator[str]:
    """Yield what no fix, or which one, makes faster; `no_fix` says why none can, of what has none."""
    if no_fix:
        yield from (no_fix, _promising(session, diagnosis).strip(), *diagnosis.beyond)
    elif nothing_to_gain(session):
        yield "No fix of the input makes the training step faster."
    elif chosen is None:
        promising = _promising(session, diagnosis) or _no_time_for(session, diagnosis)
        yield from (f"{_none_helps(session, diagnosis)}{promising}{_left(diagnosis)}", *diagnosis.beyond)
    else:
        yield from (_proposed(session.result(chosen.name), diagnosis, chosen), *diagnosis.beyond)


def _none_helps(session: Session, diagnosis: Diagnosis) -> str:
    """Return the sentence that no fix is proposed, and why: none was tried, may be used, or is proven to gain."""
    tried = [each for each in diagnosis.attempts if each.outcome not in ("not-tried", "pending")]
    if not tried:
        reasons = {each.reason for each in diagnosis.attempts if not diagnosis.options_for(each.fix)}
        if _none_limits(diagnosis):
            return "No fix was tried: none can gain much."
        if any(each.cause == "budget" for each in diagnosis.attempts):
            return f"No fix was tried: the budget left no time for one. {sentence(_more_time(session, diagnosis))}."
        return f"No fix was tried: {reasons.pop()}" if len(reasons) == 1 else "No fix was tried."
    ruled_out = all(each.outcome in RULED_OUT for each in tried)
    if len(tried) > 1:
        return f"{'All' if ruled_out else 'None of the'} {len(tried)} fixes tried " + (
            "were refused, do not apply, or failed." if ruled_out else "is proven to make it faster."
        )
    if not ruled_out:
        return "The only fix tried is not proven to make it faster."
    (only,) = tried
    became = {"refused": "is refused", "not-applicable": "does not apply"}.get(only.outcome, "failed")
    status, why = failure(session.trials_of(only.fix.variant)) or ("ok", "")
    reason = f"{why}." if only.outcome == status == "failed" and why else only.reason
    return f"The only fix tried, {only.fix.variant}, {became}: {reason}"


def _of_what_has_no_fix(session: Session, diagnosis: Diagnosis) -> str:
    """Return how long a `fit` waits for arrays or a generator, of which no edit makes another input."""
    inspection, found, times = diagnosis.inspection, diagnosis.bottleneck, step_times.of(session)
    step_ms, wait_ms, begins = times.as_written_ms, times.wait_ms, times.most_wait_at_beginnings
    if inspection is None or inspection.api not in ("arrays", "generator") or step_ms is None or wait_ms is None:
        return ""
    api, means_ms = inspection.api, step_times.trial_means_ms(session, AS_WRITTEN)
    if max(means_ms) > _UNSTEADY * min(means_ms):
        between = units.ends(units.milliseconds, (min(means_ms), max(means_ms)), "{}")
        return f"How long its steps wait is not decided: its trials differ, with means of {between} a step."
    step = f"{units.milliseconds(step_ms)} ({units.share(wait_ms / step_ms)})"
    waits = f"The steps of fit wait {units.milliseconds(wait_ms)} of {step} for the {api}"
    if begins:
        waits += f", most of it where an epoch begins (median {units.milliseconds(times.typical_wait_ms)})"
    if found is not None and found.stage is not None and not found.limits:  # which says what the input takes
        return _CHEAPER
    if wait_ms <= (1 - NOT_THE_LIMIT) * step_ms:
        computes_ms = step_times.taken_ms(inspection, elapsed=False)
        most_ms = math.inf if computes_ms is None else wait_ms + computes_ms
        nothing = most_ms <= (1 - NOT_THE_LIMIT) * step_ms
        return waits + (": there is nothing to gain." if nothing else _computed_beside(computes_ms, times.ceiling_ms))
    if api == "arrays":
        rest = ", which Keras cuts into batches; no argument of fit changes that"
        if found is not None and found.stage is None:
            made_ms = step_times.taken_ms(inspection, elapsed=True)
            made = "" if made_ms is None else f", {units.milliseconds(made_ms)} of it for making batches"
            own = f"{made}; Keras hands them to the step, and no argument of fit changes that"
            rest = ": Keras makes an iterator for each" if begins else own
        return f"{waits}{rest}."
    kept = " No call in it was found to give the same in each epoch, so none was kept." * (not diagnosis.attempts)
    return f"{waits}. In a PyDataset with workers, {_at_best(step_ms, wait_ms, times)}.{kept}"


def _at_best(step_ms: float, wait_ms: float, times: step_times.StepTimes) -> str:
    """Return what a step would take at best without the wait for a generator, and with less work in it."""
    hidden = units.milliseconds(step_ms - wait_ms)
    saves_ms = step_ms - (times.ceiling_ms or step_ms)
    if times.ceiling_ms is None or saves_ms <= _MORE_THAN_THE_WAIT * wait_ms:
        return f"or with less work, a step would take {hidden} at best"
    return (
        f"a step would take {hidden} at best; with less work, which leaves the model its cores too, "
        f"{units.milliseconds(times.ceiling_ms)}, as the model alone does"
    )


def _computed_beside(computes_ms: float | None, ceiling_ms: float | None) -> str:
    """Return what an input that is hardly waited for takes from the model, as the end of a sentence about its wait."""
    alone = "" if ceiling_ms is None else f" The model alone takes {units.milliseconds(ceiling_ms)}."
    if computes_ms is None:
        return f"; what making a batch takes from the model meanwhile was not measured.{alone}"
    return (
        f", but making a batch takes {units.milliseconds(computes_ms)} of CPU time meanwhile, on cores that the model "
        f"may need. {_CHEAPER}{alone}"
    )


def _beyond(session: Session, diagnosis: Diagnosis, chosen: AttemptStatistics | None) -> tuple[str, ...]:
    if diagnosis.inspection is None or nothing_to_gain(session):
        return ()
    inspection, times, copy_ms = diagnosis.inspection, step_times.of(session), step_times.copy_ms(session)
    cores, written_ms, ceiling_ms = session.environment.cores, times.as_written_ms, times.ceiling_ms
    gained = (chosen.gain or 0.0) if chosen is not None else 1.0
    beside, begins = step_times.beside_model(inspection, times), step_times.beginning(inspection, times)
    ideas = idea_bounds.ideas(beside, cores, written_ms, ceiling_ms, gained, copy_ms, diagnosis.attempts)
    return (*ideas, *idea_bounds.of_beginning(inspection, begins, written_ms, gained, diagnosis.attempts))


def _proposed(result: Result, diagnosis: Diagnosis, chosen: AttemptStatistics) -> str:
    inspection = diagnosis.inspection
    what, unknown = "the pipeline" if diagnosis.model is None else "the training step", ""
    if model_step.is_of_unknown_use(diagnosis):
        what, unknown = "the pipeline alone", "; `pipeline-bench run` tells whether the training waits for it"
    ends = units.ends(units.ratio, result.speedup.ci95)
    first = inspection is not None and inspection.cold
    caches = chosen.attempt.fix.keeps
    since = ", from the second epoch on" if caches else ", in the first epoch" if first else ""
    if caches and (passes := stage_graph.passes(inspection) if inspection is not None else None) and chosen.in_all:
        since += f" ({units.ratio(chosen.in_all)} over {_of_epochs(passes)})"
    times = units.ratio(result.speedup.value)
    makes = "probably makes" if result.speedup.certainty == "probable" else "makes"
    if model_step.part(inspection):
        what, times = "the training", f"at most {times}"
    gain = f"Proposed: {chosen.attempt.fix.title}. It {makes} {what} {times} as fast{ends}{since}{unknown}."
    return " ".join([gain, *_prices(diagnosis, chosen)])


def _of_epochs(passes: float) -> str:
    return f"all {passes:.0f} epochs" if passes.is_integer() else f"{passes:.1f} passes over the data"


def _prices(diagnosis: Diagnosis, of: AttemptStatistics) -> Iterator[str]:
    """Yield what trials do not show of an attempt's fixes, a sentence each: the memory that a cache takes."""
    priced = {each.name for each in fixes.kinds() if each.has_price}
    found = [diagnosis.attempt(name).fix for name in of.attempt.fix.combines or (of.name,)]
    for fix in found:
        if fix.because and fix.kind in priced:
            yield f"It {fix.because}." if fix.keeps else f"{sentence(fix.because)}."
    if diagnosis.inspection is not None and (other := elsewhere(found, diagnosis.inspection)):
        yield other


def _none_limits(diagnosis: Diagnosis) -> bool:
    """Return whether it is known that no stage limits the step: the costliest takes next to nothing of it."""
    found = diagnosis.bottleneck
    return found is not None and found.stage is None and found.share is not None


def _promising(session: Session, diagnosis: Diagnosis) -> str:
    """Return that an attempt gained, though not enough, or in too few trials, for a proposal; empty if none did."""
    able = [each for each in attempt_statistics.of(session, diagnosis) if each.contends]
    best = max(able, key=lambda each: each.likely_gain, default=None)
    room = min(headroom(session) or math.inf, speedups.most_over_ceiling(session))
    if best is None or _none_limits(diagnosis) or model_step.part(diagnosis.inspection):
        return ""
    # What it gained beyond the model alone is noise: a little of it, as in the report's list of the attempts, and more.
    gain = _in_all(best) if _in_all(best) <= WORTH * room else room
    if gain < PROMISING:
        return ""
    most = "at most " if gain < _in_all(best) else ""
    inspection, keeps = diagnosis.inspection, best.attempt.fix.keeps
    passes = stage_graph.passes(inspection) if inspection is not None else None
    over = f" over {_of_epochs(passes)}" if passes and keeps else ""
    came = f"{best.name}, {most}{units.ratio(gain)}{over} in {units.count(best.trials, 'trial')}"
    of, then = "", f"{_more_time(session, diagnosis, best)}."
    if inspection is not None and inspection.cold and not keeps and (passes or 0) > 1:
        of, then = " of the first epoch alone", "later ones take less."
    elif model_step.is_of_unknown_use(diagnosis):
        of, then = " of the pipeline alone", f"if `pipeline-bench run` shows that the training waits, {then}"
    return "".join([f" The most promising is {came}{of}: {then}", *(f" {price}" for price in _prices(diagnosis, best))])


def _no_time_for(session: Session, diagnosis: Diagnosis) -> str:
    """Return how many fixes the budget left no time for, where others were tried; empty if none."""
    left = [each for each in diagnosis.attempts if each.cause == "budget"]
    tried = any(each.outcome not in ("not-tried", "pending") for each in diagnosis.attempts)
    if not left or not tried or _none_limits(diagnosis):
        return ""
    more = units.count(len(left), "more fix", "more fixes")
    return f" The budget left no time for {more}: {_more_time(session, diagnosis)}."


def _more_time(session: Session, diagnosis: Diagnosis, best: AttemptStatistics | None = None) -> str:
    """Return what gives an attempt, or any of them, the budget that it is likely to need for a proposal.

    It has the trials that it lacks, or as many again where it has all and may still have gained by chance, each in a
    round as long as those before.
    """
    if session.trials[-1].status == "interrupted":
        return "let it run to its end"
    took_s = attempt_statistics.seconds_a_trial(session, diagnosis)
    trials, own_s = (0, None) if best is None else (best.trials, took_s.get(best.name))
    missing = max(attempt_statistics.CONFIRMED_TRIALS - trials, trials)
    base_s = [took_s.get(name, variants.expected_s(diagnosis)) for name in variants.base_of(diagnosis)]
    round_s = sum(base_s) + (max(base_s) if own_s is None else own_s)
    needed_s = _BUDGET_MARGIN * max(session.charged_s + missing * round_s, diagnosis.budget_s)
    return f"use --budget {math.ceil(needed_s / _BUDGET_STEP_S) * _BUDGET_STEP_S}"


def _left(diagnosis: Diagnosis) -> str:
    """Return which options would have further fixes tried, where nothing else helped; empty if none would."""
    left = [each.fix for each in diagnosis.attempts if each.outcome == "not-tried"]
    needed = [options for fix in left if (options := diagnosis.options_for(fix))]
    if not needed or _none_limits(diagnosis):
        return ""
    asked = " and ".join(sorted({each for options in needed for each in options}, reverse=True))
    return f" With {asked} {units.count(len(needed), 'more fix', 'more fixes')} can be tried."
