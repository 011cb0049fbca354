"""Rounds until everything is decided, or the speed-ups are known well enough: when another begins, and what ends it.

Pure: everything follows from the session, its trials and the results of these. A ratio is known to ±2 % when its 95 %
interval reaches 2 % to each side of its middle. Whether it does decides about more repeats; whether the interval holds
1 never does, because adding trials until a difference shows would find one where there is none.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline_bench.analysis import decision, stats
from pipeline_bench.errors import UsageError
from pipeline_bench.model.result import Interval, Precision
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial, plan, planned_rounds, round_of
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.text import one_line, units

DEFAULT_BUDGET_S = 600.0
"""Seconds, where a goal is given without a budget."""
DECIDING_BUDGET_S = 60.0
"""Seconds, where neither a goal nor a plan is given."""
NARROWEST, WIDEST = 0.001, 0.5
"""The goals that make sense. 0.1 % is less than two copies of one process differ by; ±50 % says nothing."""

NEEDED_ROUNDS = 2
"""An interval needs two trials, whatever the budget."""

# Trials look alike by chance, the more easily the fewer they are, and whoever looks after each one stops where they
# do. Of normal trials whose goal takes 20, the interval at the end holds the truth 90 times in 100 when they are judged
# from 3 repeats on, 92 times from 5 on and 94 from 8 on (tests/unit/test_precision.py simulates it; the effect is in
# Starr, "The performance of a sequential procedure for the fixed-width interval estimation of the mean", 1966).
JUDGED_FROM_REPEATS = 8

SPEEDUP, UTILIZATION = "speed-up", "accelerator utilization"

_LENGTHS = ("steps", "time_s", "repeats")

_GIVEN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)\s*")

EndedBy = Literal["precision", "decided", "budget", "interrupted"]
State = Literal["unfinished", "precision", "decided", "budget", "nothing to narrow"]


@dataclass(frozen=True)
class Ratio:
    """A ratio that the goal is for, and how well it is known."""

    variant: str
    what: str
    """`SPEEDUP`, or `UTILIZATION` where there is only one variant, which is held against its ceiling."""
    value: float | None
    half_width: float
    """Relative; infinite while there is no interval."""

    @property
    def exists(self) -> bool:
        """Whether any repeat has both of the trials that it is taken over."""
        return self.value is not None


def wanted(goal: str, budget_s: float | None) -> Precision:
    """What the options ``--precision`` and ``--budget`` ask for.

    Args:
        goal: as given: ``2%``, ``2 %`` or ``0.02``.
        budget_s: as given, or None for the default.

    Raises:
        UsageError: the goal is no share, or one that makes no sense.
    """
    match = _GIVEN.fullmatch(goal)
    if match is None:
        raise UsageError(f"--precision {goal!r} is no share.", "Write it as 2% or as 0.02.")
    value = float(match[1]) / (100 if match[2] else 1)
    if not NARROWEST <= value <= WIDEST:
        percent = "" if match[2] else f" ({value:g} without a % is {value * 100:g} %)"
        raise UsageError(
            f"--precision {goal!r}: a goal is from {NARROWEST:.1%} to {WIDEST:.0%}{percent}.",
            "2% is a usual one; on a busy machine 5%.",
        )
    return Precision(goal=value, budget_s=DEFAULT_BUDGET_S if budget_s is None else budget_s)


def until_decided(budget_s: float | None = None) -> Precision:
    """Return what is asked for where neither a goal nor a plan is given: rounds until everything is decided."""
    return Precision(goal=None, budget_s=DECIDING_BUDGET_S if budget_s is None else budget_s)


def fixing(run: Mapping[str, object], settings: Sequence[str]) -> list[str]:
    """Return the keys that a user gave of those that fix how long a session takes, such as ``run.repeats``.

    Args:
        run: the keys of a scenario's ``run`` that were given.
        settings: as ``--set`` takes them.
    """
    keys = [*(f"run.{key}" for key in run), *(setting.split("=")[0].strip() for setting in settings)]
    return [key for key in keys if key.removeprefix("run.") in _LENGTHS]


def check(scenario: Scenario) -> None:
    """See that the scenario has a ratio to narrow.

    Raises:
        UsageError: it has a ceiling only.
    """
    if not _compared(scenario) and scenario.baseline.is_ceiling:
        raise UsageError(
            f"--precision: {scenario.name} has only {scenario.baseline.name}, so there is no ratio to narrow.",
            "Compare at least one variant that is no ceiling.",
        )


def ratios(session: Session) -> tuple[Ratio, ...]:
    """The ratios that the goal is for: every speed-up, or of a single variant that over its ceiling."""
    compared = _compared(session.scenario)
    names = [variant.name for variant in compared] or [session.scenario.baseline.name]
    found = []
    for result in session.results:
        if result.variant in names:
            figure = result.speedup if compared else result.accelerator_utilization
            what = SPEEDUP if compared else UTILIZATION
            found.append(Ratio(result.variant, what, figure.value, _half_width(figure.ci95)))
    return tuple(found)


def widest(session: Session) -> Ratio | None:
    """The ratio that is known least well among those that exist; None before any does."""
    return max((ratio for ratio in ratios(session) if ratio.exists), key=lambda ratio: ratio.half_width, default=None)


def next_trial(session: Session) -> Trial | None:
    """The trial that comes next; None when the session has all that it should have.

    Without a goal it is the next of the scenario's plan. With one, a round that has begun is brought to its end.
    """
    done = len(session.trials)
    if session.precision is None:
        return next(iter(plan(session.scenario)[done:]), None)
    complete = rounds(session)
    of_this_round = sum(record.repeat == complete for record in session.trials)
    if of_this_round == 0 and _state(session, session.precision) != "unfinished":
        return None
    return round_of(session.scenario, complete, done - of_this_round)[of_this_round]


def rounds(session: Session) -> int:
    """How many rounds are complete: each of their trials has ended, and was not interrupted."""
    ended = [record.repeat for record in session.trials if record.status != "interrupted"]
    complete = 0
    while ended.count(complete) == len(round_of(session.scenario, complete, 0)):
        complete += 1
    return complete


def elapsed_s(session: Session) -> float:
    """Seconds from the start of the first trial to the end of the last one: what the budget is spent on."""
    trials = session.trials
    return (trials[-1].ended_ns - trials[0].started_ns) / 1e9 if trials else 0.0


def updated(session: Session, interrupted: bool = False) -> Session:
    """The session with what can now be said of its precision; as it is when no goal was set.

    Args:
        session: with its results brought up to date.
        interrupted: the user has ended it.
    """
    before = session.precision
    if before is None:
        return session
    complete = rounds(session)
    state: State = "unfinished"
    if all(record.repeat < complete for record in session.trials):
        state = _state(session, before)
    ended_by: EndedBy | None = "interrupted" if interrupted else None
    if state == "precision" or state == "decided" or state == "budget":  # noqa: PLR1714 - this way the types follow
        ended_by = state  # also where the interrupt came after the last trial
    after = before.model_copy(update={"repeats": complete, "ended_by": ended_by})
    text = _text(session, after, state)
    return session.model_copy(update={"precision": after.model_copy(update={"text": text})})


def judged_from(scenario: Scenario) -> int:
    """After how many repeats the precision counts: all that the scenario asks for, and enough of them."""
    return max(planned_rounds(scenario), JUDGED_FROM_REPEATS)


def _compared(scenario: Scenario) -> list[Variant]:
    """The variants whose speed-ups count: no ceilings, unless there are only such; not the baseline."""
    some = [variant for variant in scenario.variants if not variant.is_ceiling] or list(scenario.variants)
    return [variant for variant in some if variant.name != scenario.baseline.name]


def _half_width(ci95: Interval | None) -> float:
    if ci95 is None or ci95[0] <= 0:
        return math.inf
    return stats.half_width(ci95)


def _state(session: Session, precision: Precision) -> State:
    """Return where the session stands between two rounds."""
    if rounds(session) < NEEDED_ROUNDS:
        return "unfinished"
    reached = _decided(session) if precision.goal is None else _narrowed(session, precision.goal)
    if reached == "unfinished" and elapsed_s(session) + _next_round_s(session) > precision.budget_s:
        return "budget"
    return reached


def _decided(session: Session) -> State:
    at_look = decision.is_look(rounds(session), planned_rounds(session.scenario))
    return "decided" if at_look and not decision.open_questions(session) else "unfinished"


def _narrowed(session: Session, goal: float) -> State:
    worst, complete = widest(session), rounds(session)
    if worst is None and complete >= planned_rounds(session.scenario):
        return "nothing to narrow"
    if worst is not None and worst.half_width <= goal and complete >= judged_from(session.scenario):
        return "precision"
    return "unfinished"


def _next_round_s(session: Session) -> float:
    """How long the next round should take: a trial of each variant due, as its own took so far, and what lies between.

    Called between two rounds, when every variant has had a trial.
    """
    took_s: dict[str, list[float]] = {}
    for record in session.trials:
        took_s.setdefault(record.variant, []).append((record.ended_ns - record.started_ns) / 1e9)
    due = round_of(session.scenario, rounds(session), 0)
    expected_s = math.fsum(math.fsum(took_s[trial.variant.name]) / len(took_s[trial.variant.name]) for trial in due)
    return expected_s * elapsed_s(session) / math.fsum(itertools.chain(*took_s.values()))


def _text(session: Session, precision: Precision, state: State) -> str:
    """What ended the adding of repeats, or how it stands, and what is known: one line in plain words."""
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
            head = f"there is no ratio to narrow {after}, so no more were added"
        case _:
            head = f"not ended {after}"
    return "; ".join([": ".join([head, *_known(session, precision)]), *_left_out(session)])


def _decided_text(session: Session, precision: Precision) -> str:
    """Return what is open, and what ended the rounds; empty where everything is decided."""
    after = f"after {units.count(precision.repeats, 'round')}"
    ended = {
        "budget": f"the budget of {precision.budget_s:g} s was spent {after}",
        "interrupted": f"it was interrupted {after}",
    }.get(precision.ended_by or "", f"it was seen {after}")
    still = open_words(session)
    return "; ".join([*([f"open when {ended}: {still}"] if still else []), *_left_out(session)])


def open_words(session: Session) -> str:
    """Return the open questions in a few words: ``the limit of tf_data, fifo_queue against tf_data``."""
    return ", ".join(
        f"{one_line(each.variant)} against {one_line(each.against)}"
        if each.against is not None
        else f"the limit of {one_line(each.variant)}"
        for each in decision.open_questions(session)
    )


def _known(session: Session, precision: Precision) -> Iterator[str]:
    """How well the least known ratio is known."""
    worst = widest(session)
    if worst is None:
        return
    name = one_line(worst.variant)
    if not math.isfinite(worst.half_width):
        yield f"{name}'s {worst.what} is not known yet"
        return
    others = sum(ratio.exists for ratio in ratios(session)) > 1
    text = f"{name}'s {worst.what} is known to ±{units.precision(worst.half_width)}"
    text += ", the others better" if others else ""
    if precision.goal is not None and worst.half_width <= precision.goal and precision.ended_by != "precision":
        text += f", which counts only from {judged_from(session.scenario)} repeats on"
    yield text


def _left_out(session: Session) -> Iterator[str]:
    """The variants that no ratio could be had of in the rounds that an interval needs."""
    if rounds(session) < NEEDED_ROUNDS:
        return
    for ratio in ratios(session):
        if ratio.exists:
            continue
        result = session.result(ratio.variant)
        over = result.speedup.over if ratio.what == SPEEDUP else session.scenario.variant(ratio.variant).ceiling
        why = "it has no good trial" if result.trials == 0 else f"no good trial of {over} lies beside its own"
        yield one_line(f"{ratio.variant} is left out: {why}")
