"""The sentences that every rendering of a difference shares; each on one line, of names made harmless."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pipeline_bench.analysis.difference import only_beside, says
from pipeline_bench.analysis.gates import limit_text
from pipeline_bench.model.difference import Condition, Difference, Gate, Ratio, Shift, Side, VariantChange
from pipeline_bench.report import disturbed
from pipeline_bench.text import one_line, units

NAME_LIMIT = 80
TEXT_LIMIT = 600

_NOISE_LINES = 6
_OTHER_DEVICE = "on another device"
_COUNTED_UNDECIDED = "undecided, counted as failed"

INTERVAL_NOTE = (
    "in brackets: 95 % intervals over trials, unpaired, because trials of two sessions are not neighbours; "
    "faster and slower are claimed at 98 %; ms/step: geometric means of the trials' mean step times"
)
POINTS_NOTE = "changes of AU and input wait: percentage points"
_SAME_CEILINGS_NOTE = (
    "AU and the change beside the ceiling are taken against each session's own ceiling trials, so they hold on a "
    "machine that became slower or faster; the step time does not"
)
_OTHER_CEILINGS_NOTE = (
    "AU is taken against each session's own ceiling trials, which are of different jobs here: AU before and after have "
    "different references, and neither it nor the step time tells a change of the input from one of the machine"
)


def headline(difference: Difference) -> str:
    """What came out, in one line: what the gates say where there are any, and how many variants changed."""
    changes = [change for change in difference.variants if not change.is_ceiling]
    kinds = Counter(map(_kind, changes))
    order = ("slower", "faster", "no difference found", "without an interval", _OTHER_DEVICE, "not measured in both")
    found = ", ".join(f"{kinds[kind]} {kind}{_but_beside(changes, kind)}" for kind in order if kinds[kind])
    return f"{gates_line(difference)}{units.count(len(changes), 'variant')}: {found}."


def _kind(change: VariantChange) -> str:
    ratio = change.step_time
    if ratio.value is None:
        return _OTHER_DEVICE if change.measured_in_both else "not measured in both"
    if ratio.difference is None:
        return "without an interval"
    return "no difference found" if ratio.difference == "none" else ratio.difference


def _but_beside(changes: Iterable[VariantChange], kind: str) -> str:
    """Those of a kind that changed otherwise beside the ceiling: `` (1 faster beside the ceiling)``."""
    found = Counter(only_beside(change.step_time, change.beside_ceiling) for change in changes if _kind(change) == kind)
    said = [f"{found[word]} {word}" for word in ("slower", "faster") if found[word]]
    return f" ({', '.join(said)} beside the ceiling)" if said else ""


def gates_line(difference: Difference) -> str:
    """How many gates failed, passed and are undecided: ``1 of 3 gates failed, 1 undecided. ``; empty without gates."""
    if not difference.gates:
        return ""
    found = Counter(map(outcome, difference.gates))
    rest = "".join(f", {found[word]} {word}" for word in ("undecided", _COUNTED_UNDECIDED) if found[word])
    word = "failed" if difference.outcome == "failed" else "passed"
    return f"{found[word]} of {units.count(len(difference.gates), 'gate')} {word}{rest}. "


def outcome(gate: Gate) -> str:
    """What became of a gate: ``failed``, or ``undecided, counted as failed``."""
    return _COUNTED_UNDECIDED if gate.only_undecided else gate.outcome


def demand(gate: Gate) -> str:
    """What a gate is about: ``not slower by more than 5 %``."""
    if gate.name == "slower":
        return f"not slower by more than {limit_text(gate.limit)}"
    return f"AU not below {units.fraction(gate.limit)}"


def side(side: Side) -> str:
    """A session in one line."""
    facts = (side.path, side.scenario, side.started_at, f"pipeline-bench {side.package}")
    return ", ".join(one_line(fact, NAME_LIMIT) for fact in facts)


def unfair(difference: Difference) -> Iterator[str]:
    """What the sessions did not have in common, a line each, both values named."""
    shared = {change.variant for change in difference.variants}
    for condition in difference.conditions:
        values = f"{one_line(condition.before, TEXT_LIMIT)} → {one_line(condition.after, TEXT_LIMIT)}"
        yield f"{one_line(condition.name, NAME_LIMIT)}: {values}{_holds_for(condition, shared)}"


def _holds_for(condition: Condition, shared: set[str]) -> str:
    if not condition.variants or set(condition.variants) == shared:
        return ""
    return f" ({', '.join(one_line(name, NAME_LIMIT) for name in condition.variants)})"


def noises(difference: Difference) -> Iterator[str]:
    """What disturbed either session, a line each, six at most; of many, the costliest of either."""
    sides = [(word, [n.disturbance for n in difference.disturbances if n.side == word]) for word in ("before", "after")]
    sides = [(word, found) for word, found in sides if found]
    for word, found in sides:
        # One line of each side is for how many were left out.
        for where, text in disturbed.lines(found, _NOISE_LINES // len(sides) - 1):
            yield f"{word}: {where}: {text}"


def alone(difference: Difference) -> Iterator[str]:
    """The variants that only one session has."""
    for word, names in (("before", difference.only_before), ("after", difference.only_after)):
        if names:
            yield f"only {word}: {', '.join(one_line(name, NAME_LIMIT) for name in names)}"


def machine(difference: Difference) -> Iterator[str]:
    """What the ceilings say of the machine's own drift; nothing where they are of different jobs."""
    for change in difference.machine:
        name = one_line(change.variant, NAME_LIMIT)
        if change.ceilings_differ_in:
            keys = one_line(", ".join(change.ceilings_differ_in), TEXT_LIMIT)
            yield f"the machine itself: {name} is of different jobs before and after ({keys}), so it tells nothing"
        else:
            yield f"the machine itself, by {name}: {one_line(says(change.step_time), TEXT_LIMIT)}"


def au_note(difference: Difference) -> str:
    """What AU and the change beside the ceiling can be relied on for."""
    if any(change.ceilings_differ_in for change in difference.variants):
        return _OTHER_CEILINGS_NOTE
    return _SAME_CEILINGS_NOTE


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
