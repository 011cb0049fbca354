"""Rounds until everything is decided, or the speed-ups are known well enough: when another begins, and what ends it.

Pure: everything follows from the session, its trials and the results of these. A ratio is known to ±2 % when its 95 %
interval reaches 2 % to each side of its middle. Whether it does decides about more repeats; whether the interval holds
1 never does, because adding trials until a difference shows would find one where there is none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline_bench.analysis import speedups, stats, thresholds
from pipeline_bench.errors import UsageError
from pipeline_bench.model.result import EndedBy, Interval, Precision, Result
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial, plan, planned_rounds, round_of
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.text import NAME, grouped, joined, one_line, units

NEEDED_ROUNDS = 2
"""An interval needs two trials, whatever the budget."""

# Trials look alike by chance, the more easily the fewer they are, and whoever looks after each one stops where they
# do. Judged from 8 repeats on, the interval at the end holds the truth 90 to 96 times in 100
# (tests/unit/analysis/test_precision.py simulates it; the effect is in Starr, "The performance of a sequential
# procedure for the fixed-width interval estimation of the mean", 1966).
JUDGED_FROM_REPEATS = 8

SPEEDUP, UTILIZATION = "speed-up", "accelerator utilization"

_FIRST_LOOK, _LATER_LOOKS = 6, 1.45
_MUCH_LONGER, _FEWEST_STEPS = 2.0, thresholds.NEEDED_STEPS // NEEDED_ROUNDS + 5
"""Trials become shorter where two rounds would take so many times the budget, and never have fewer steps than a verdict
needs of each, with some for the warm-up."""

State = Literal["unfinished", "precision", "decided", "budget", "nothing to narrow"]


@dataclass(frozen=True)
class GoalRatio:
    """A ratio that the goal is for, and how well it is known."""

    variant: str
    what: str
    """`SPEEDUP`, or `UTILIZATION` where there is only one variant, which is held against its ceiling."""
    exists: bool
    """Whether any round has both of its trials, even if the figure that they give is impossible."""
    half_width: float
    """Relative; infinite while there is no interval, or no figure that can be."""
    reason: str | None
    """Why there is no figure, or no interval."""


def check(scenario: Scenario) -> None:
    """See that the scenario has a ratio to narrow.

    Raises:
        UsageError: it has a ceiling only, or no variant is on the baseline's device, emulated or not.
    """
    compared, baseline = _compared(scenario), scenario.baseline
    if not compared and baseline.is_ceiling:
        raise UsageError(
            f"--precision: {scenario.name} has only {baseline.name}, so there is no speed-up to measure.",
            "Compare at least one variant that is not a ceiling.",
        )
    if compared and baseline.emulated_device not in [variant.emulated_device for variant in compared]:
        raise UsageError(
            f"--precision: {scenario.name} has no other variant on the device of {baseline.name}, emulated or not, so "
            "there is no speed-up to measure.",
            "Leave out --precision: rounds are then added until each verdict is decided.",
        )


def ratios(session: Session) -> tuple[GoalRatio, ...]:
    """Return the ratios that the goal is for: every speed-up, or of a single variant that over its ceiling."""
    compared = _compared(session.scenario)
    names = [variant.name for variant in compared] or [session.scenario.baseline.name]
    of_result = _speedup if compared else _utilization
    return tuple(of_result(result) for result in session.results if result.variant in names)


def widest(session: Session) -> GoalRatio | None:
    """Return the ratio that is known least well among those that exist; None before any does."""
    return max((ratio for ratio in ratios(session) if ratio.exists), key=lambda ratio: ratio.half_width, default=None)


def widest_words(session: Session) -> str:
    """Return how well the least known ratio is known: ``widest ±2 %, tf_data's speed-up``."""
    worst = widest(session)
    if worst is None or not math.isfinite(worst.half_width):
        return "no interval yet"
    return f"widest ±{units.precision(worst.half_width)}, {one_line(worst.variant, NAME)}'s {worst.what}"


def next_trial(session: Session) -> Trial | None:
    """Return the trial that comes next; None when the session has all that it should have.

    Without a goal it is the next of the scenario's plan. With one, a round that has begun is brought to its end.
    """
    done = len(session.trials)
    if session.precision is None:
        return next(iter(plan(session.scenario)[done:]), None)
    complete = rounds(session)
    of_this_round = {record.variant for record in session.trials if record.repeat == complete}
    if not of_this_round and _state(session, session.precision) != "unfinished":
        return None
    whole = round_of(session.scenario, complete, done)  # a variant may have joined since the round began
    due = next(trial for trial in whole if trial.variant.name not in of_this_round)
    return due.model_copy(update={"index": done})


def with_shorter_trials(session: Session) -> Session:
    """Return the session with fewer steps a trial, if by its first trials two rounds take several times the budget.

    Steps of seconds, as of large pictures, would have a comparison of a minute take half an hour. A session with a plan
    or a goal of its own stays as it is.
    """
    asked = session.precision
    known_s = {trial.variant: float(trial.step_ns.mean()) / 1e9 for trial in session.trials if trial.measured}
    if asked is None or asked.goal is not None or not known_s or rounds(session):
        return session
    usual_s = math.fsum(known_s.values()) / len(known_s)
    step_of_each_s = math.fsum(known_s.get(trial.variant.name, usual_s) for trial in round_of(session.scenario, 0, 0))
    fitting = asked.budget_s / (NEEDED_ROUNDS * step_of_each_s)
    fewer = {each.name: steps for each in session.scenario.variants if (steps := _fewer_steps(each, fitting))}
    if not fewer:
        return session
    shorter = with_steps(session, fewer)
    longest = max(variant.run.steps or 0 for variant in shorter.scenario.variants)
    note = (
        f"A step takes {units.seconds(usual_s)}, so a trial has no more than {longest} steps now; two rounds take "
        f"about {units.seconds(NEEDED_ROUNDS * longest * step_of_each_s)} all the same. Smaller batches take less."
    )
    return shorter.model_copy(update={"notes": (*session.notes, note)})


def with_steps(session: Session, steps: Mapping[str, int]) -> Session:
    """Return the session with so many steps in each further trial of these variants."""
    variants = tuple(
        each.model_copy(update={"run": each.run.model_copy(update={"steps": steps.get(each.name, each.run.steps)})})
        for each in session.scenario.variants
    )
    return session.model_copy(update={"scenario": session.scenario.model_copy(update={"variants": variants})})


def _fewer_steps(variant: Variant, fitting: float) -> int | None:
    """Return how many steps the variant's trials are to have where so many fit; None where they stay as they are."""
    steps = variant.run.steps
    if steps is None or steps <= _MUCH_LONGER * fitting:
        return None
    fewer = math.ceil(max(fitting, _FEWEST_STEPS) / variant.steps_in_a_call) * variant.steps_in_a_call
    return fewer if fewer < steps else None


def rounds(session: Session) -> int:
    """Return how many rounds are complete: each of their trials has ended, and was not interrupted."""
    ended = [record.repeat for record in session.trials if record.status != "interrupted"]
    complete = 0
    while ended.count(complete) == len(round_of(session.scenario, complete, 0)):
        complete += 1
    return complete


def updated(session: Session, interrupted: bool = False) -> Session:
    """Return the session with what can now be said of its precision; as it is when no goal was set.

    Args:
        session: with its results brought up to date.
        interrupted: the user has ended it.
    """
    before = session.precision
    if before is None:
        return session
    complete = rounds(session)
    between_rounds = all(record.repeat < complete for record in session.trials)
    state: State = _state(session, before) if between_rounds else "unfinished"
    ended_by: EndedBy | None = "interrupted" if interrupted else None
    if state == "precision" or state == "decided" or state == "budget":  # noqa: PLR1714 - this way the types follow
        ended_by = state  # also where the interrupt came after the last trial
    after = before.model_copy(update={"repeats": complete, "ended_by": ended_by})
    text = _text(session, after, state)
    return session.model_copy(update={"precision": after.model_copy(update={"text": text})})


# --- what is open ----------------------------------------------------------------------------------------------------


def open_questions(session: Session) -> tuple[tuple[str, str | None], ...]:
    """Return what more rounds may decide of a session whose results are up to date, in its scenario's order.

    Each is a variant and the one that it may be as fast as; None in its place where it is the variant's own limit.
    A verdict is open while there is a doubt or there are too few steps, and not where it was refused: more rounds
    change nothing of files that were not cold. A ratio is open until the difference is certain, or the two are known to
    tie.
    """
    found: list[tuple[str, str | None]] = []
    for result in session.results:
        if result.trials:
            found += _open(session.scenario, result)
    return tuple(dict.fromkeys(found))


def is_look(rounds: int, fewest: int) -> bool:
    """Return whether the questions are asked after so many rounds.

    Whoever looks after every round stops where chance has moved the figures most. So the looks are few: after 6 rounds,
    or as many as the scenario asks for, and then after 1.45 times as many as the last time.

    Args:
        rounds: that are complete.
        fewest: that the scenario asks for.
    """
    look = max(_FIRST_LOOK, fewest)
    while look < rounds:
        look = round(look * _LATER_LOOKS)
    return look == rounds


def _open(scenario: Scenario, result: Result) -> Iterator[tuple[str, str | None]]:
    lacks_steps = result.verdict.cause == "too-few-steps" and result.variant not in scenario.ceilings
    if result.verdict.doubt is not None or lacks_steps:
        yield result.variant, None
    if result.variant in speedups.references(scenario) or result.work.status == "unequal":
        return
    for speedup in (result.speedup, result.against_fastest):
        if speedup.value is not None and speedup.over is not None and not speedups.is_settled(speedup):
            yield result.variant, speedup.over


def open_words(session: Session, most: int | None = None) -> str:
    """Return the open questions, a pair once, and from `most` on their number: ``the limit of a, a against b``."""
    words: dict[frozenset[str | None], str] = {}
    for variant, against in open_questions(session):
        text = f"{variant} against {against}" if against is not None else f"the limit of {variant}"
        words[frozenset({variant, against})] = text
    shown = list(words.values())
    left = len(shown) - (most or len(shown))
    return f"{joined(shown[:most])} and {left} more" if left > 1 else joined(shown)


def judged_from(scenario: Scenario) -> int:
    """Return the number of repeats from which on the precision counts: those of the scenario, and never too few."""
    return max(planned_rounds(scenario), JUDGED_FROM_REPEATS)


def _compared(scenario: Scenario) -> list[Variant]:
    """Return the variants whose speed-ups count: not the baseline, and no references."""
    left_out = speedups.references(scenario) | {scenario.baseline.name}
    return [variant for variant in scenario.variants if variant.name not in left_out]


def _speedup(result: Result) -> GoalRatio:
    found = result.speedup
    return GoalRatio(result.variant, SPEEDUP, found.value is not None, _half_width(found.ci95), found.reason)


def _utilization(result: Result) -> GoalRatio:
    found = result.accelerator_utilization
    # One that cannot be is of noise, as a rule: more repeats make it one that can. Its interval is then not its own.
    known, half_width = found.value is not None, math.inf
    if found.value is not None and found.ci95 is not None:
        # What lies above the ceiling was cut off, which is no knowledge: it reaches as far up as down.
        low, high = found.ci95
        half_width = _half_width((low, max(high, 2 * found.value - low)))
    return GoalRatio(result.variant, UTILIZATION, known or found.impossible, half_width, found.reason)


def _half_width(ci95: Interval | None) -> float:
    if ci95 is None or ci95[0] <= 0:
        return math.inf
    return stats.half_width(ci95)


def _state(session: Session, precision: Precision) -> State:
    """Return the session's state between two rounds."""
    if rounds(session) < NEEDED_ROUNDS:
        return "unfinished"
    reached = _decided(session) if precision.goal is None else _narrowed(session, precision.goal)
    if reached == "unfinished" and session.elapsed_s + _next_round_s(session) > precision.budget_s:
        return "budget"
    return reached


def _decided(session: Session) -> State:
    at_look = is_look(rounds(session), planned_rounds(session.scenario))
    return "decided" if at_look and not open_questions(session) else "unfinished"


def _narrowed(session: Session, goal: float) -> State:
    worst, complete = widest(session), rounds(session)
    if worst is None and complete >= planned_rounds(session.scenario):
        return "nothing to narrow"
    if worst is not None and worst.half_width <= goal and complete >= judged_from(session.scenario):
        return "precision"
    return "unfinished"


def _next_round_s(session: Session) -> float:
    """Return how long the next round should take, by what the trials of its variants took and what lay between them.

    Called between two rounds, when every variant has had a trial.
    """
    took_s = grouped((record.variant, record.took_s) for record in session.trials)
    due = round_of(session.scenario, rounds(session), 0)
    expected_s = math.fsum(math.fsum(took_s[trial.variant.name]) / len(took_s[trial.variant.name]) for trial in due)
    return expected_s * session.elapsed_s / math.fsum(itertools.chain(*took_s.values()))


def _text(session: Session, precision: Precision, state: State) -> str:
    """Return what ended the adding of repeats, or the state so far, and what is known: one line in plain words."""
    after = f"after {units.count(precision.repeats, 'repeat')}"
    if precision.goal is None:
        return _decided_text(session, precision)
    match precision.ended_by, state:
        case "precision", _:
            head = f"precision of {units.precision(precision.goal)} reached {after}"
        case "budget", _:
            goal = units.precision(precision.goal)
            head = f"precision of {goal} not reached, the budget of {precision.budget_s:g} s was spent {after}"
        case "interrupted", _:
            head = f"interrupted {after}"
        case _, "nothing to narrow":
            what = next(ratio.what for ratio in ratios(session))
            head = f"there is no {what} to measure {after}, so no more repeats were added"
        case _:
            head = f"not ended {after}"
    return "; ".join([": ".join([head, *_known(session, precision)]), *_left_out(session)])


def _decided_text(session: Session, precision: Precision) -> str:
    """Return what is open, and what ended the rounds; empty where everything is decided."""
    after = f"after {units.count(precision.repeats, 'round')}"
    ended = {"budget": f", with the budget of {precision.budget_s:g} s spent", "interrupted": " and an interruption"}
    why = ended.get(precision.ended_by or "", "")
    still = open_words(session)
    return "; ".join([*([f"not decided {after}{why}: {still}"] if still else []), *_left_out(session)])


def _known(session: Session, precision: Precision) -> Iterator[str]:
    """Yield how well the least known ratio is known."""
    worst = widest(session)
    if worst is None:
        return
    name = worst.variant
    if not math.isfinite(worst.half_width):
        yield f"{name}'s {worst.what} is not known yet"
        return
    others = sum(ratio.exists for ratio in ratios(session)) > 1
    text = f"{name}'s {worst.what} is known within ±{units.precision(worst.half_width)}"
    text += ", the others are known better" if others else ""
    if precision.goal is not None and worst.half_width <= precision.goal and precision.ended_by != "precision":
        text += f", but the precision counts only from {judged_from(session.scenario)} repeats on"
    yield text


def _left_out(session: Session) -> Iterator[str]:
    """Yield the variants that no ratio could be had of in the rounds that an interval needs."""
    if rounds(session) < NEEDED_ROUNDS:
        return
    for ratio in ratios(session):
        if ratio.exists:
            continue
        why = "it has no good trial" if session.result(ratio.variant).trials == 0 else ratio.reason
        yield f"{ratio.variant} is left out: {why}"
