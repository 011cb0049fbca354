"""The sentences that every rendering of a difference shares; each on one line, of names made harmless."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pipeline_bench import units
from pipeline_bench.difference import Condition, Difference, Gate, Ratio, Shift, Side, VariantChange
from pipeline_bench.difference.variants import says
from pipeline_bench.report import disturbed

NAME_LIMIT = 80
TEXT_LIMIT = 600

_NOISES_SHOWN = 4

AU_NOTE = (
    "AU and the change beside the ceiling are taken against each session's own ceiling trials, so they hold on a "
    "machine that became slower or faster; the step time does not"
)
INTERVAL_NOTE = (
    "in brackets: 95 % intervals over trials, unpaired, because trials of two sessions are not neighbours; "
    "ms/step: geometric means of the trials' mean step times; changes of AU and input wait: percentage points"
)


def headline(difference: Difference) -> str:
    """What came out, in one line: what the gates say where there are any, and how many variants changed."""
    changes = [change.step_time for change in difference.variants if not change.is_ceiling]
    kinds = Counter(_kind(ratio) for ratio in changes)
    order = ("slower", "faster", "no difference found", "without an interval", "not measured in both")
    found = ", ".join(f"{kinds[kind]} {kind}" for kind in order if kinds[kind]) or "only ceilings in common"
    return f"{gates_line(difference)}{units.count(len(changes), 'variant')}: {found}."


def _kind(ratio: Ratio) -> str:
    if ratio.value is None:
        return "not measured in both"
    if ratio.difference is None:
        return "without an interval"
    return "no difference found" if ratio.difference == "none" else ratio.difference


def gates_line(difference: Difference) -> str:
    """How many gates failed, passed and are undecided: ``1 of 3 gates failed, 1 undecided. ``; empty without gates."""
    outcomes = Counter(gate.outcome for gate in difference.gates)
    if not outcomes:
        return ""
    count = units.count(len(difference.gates), "gate")
    undecided = f", {outcomes['undecided']} undecided" if outcomes["undecided"] else ""
    if outcomes["failed"]:
        return f"{outcomes['failed']} of {count} failed{undecided}. "
    return f"{outcomes['passed']} of {count} passed{undecided}. "


def demand(gate: Gate) -> str:
    """What a gate is about: ``not slower by more than 5 %``."""
    if gate.name == "slower":
        return f"not slower by more than {units.change(1 + gate.limit).lstrip('+')}"
    return f"AU not below {units.fraction(gate.limit)}"


def side(side: Side) -> str:
    """A session in one line."""
    facts = (side.path, side.scenario, side.started_at, f"pipeline-bench {side.package}")
    return ", ".join(units.one_line(fact, NAME_LIMIT) for fact in facts)


def unfair(difference: Difference) -> Iterator[str]:
    """What the sessions did not have in common, a line each, both values named."""
    shared = {change.variant for change in difference.variants}
    for condition in difference.conditions:
        values = f"{units.one_line(condition.before, TEXT_LIMIT)} → {units.one_line(condition.after, TEXT_LIMIT)}"
        yield f"{units.one_line(condition.name, NAME_LIMIT)}: {values}{_holds_for(condition, shared)}"


def _holds_for(condition: Condition, shared: set[str]) -> str:
    if not condition.variants or set(condition.variants) == shared:
        return ""
    return f" ({', '.join(units.one_line(name, NAME_LIMIT) for name in condition.variants)})"


def noises(difference: Difference) -> Iterator[str]:
    """What disturbed either session, a line each; of many, the costliest."""
    for word in ("before", "after"):
        found = [noise.disturbance for noise in difference.disturbances if noise.side == word]
        for where, text in disturbed.lines(found, _NOISES_SHOWN):
            yield f"{word}: {where}: {text}"


def alone(difference: Difference) -> Iterator[str]:
    """The variants that only one session has."""
    for word, names in (("before", difference.only_before), ("after", difference.only_after)):
        if names:
            yield f"only {word}: {', '.join(units.one_line(name, NAME_LIMIT) for name in names)}"


def machine(difference: Difference) -> Iterator[str]:
    """What the ceilings say of the machine's own drift: the same work in both sessions."""
    for change in difference.machine:
        said = units.one_line(says(change.step_time), TEXT_LIMIT)
        yield f"the machine itself, by {units.one_line(change.variant, NAME_LIMIT)}: {said}"


def between(ratio: Ratio) -> str:
    """The ends of a ratio's interval as changes: ``+1.2 % to +8.0 %``; empty where there is none."""
    return "" if ratio.ci95 is None else f"{units.change(ratio.ci95[0])} to {units.change(ratio.ci95[1])}"


def points(shift: Shift) -> str:
    """The change of a share in percentage points with the wider side of its interval: ``-4 ±2 points``."""
    if shift.change is None:
        return ""
    value = f"{shift.change * 100:+.1f}" if abs(shift.change) < 0.0995 else f"{shift.change * 100:+.0f}"  # noqa: PLR2004
    return f"{value if float(value) else '0'} {units.share_margin(shift.change, shift.ci95)}".rstrip()


def variants(difference: Difference) -> list[VariantChange]:
    """The variants in the order to show them: the ceilings last."""
    return sorted(difference.variants, key=lambda change: change.is_ceiling)
