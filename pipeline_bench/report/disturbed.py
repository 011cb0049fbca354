"""Disturbances in few lines: those of one variant and one kind together, with the words of the costliest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline_bench.model.result import Disturbance
from pipeline_bench.text import one_line, units

_NAME_LIMIT = 80
_TEXT_LIMIT = 300


def lines(
    disturbances: Iterable[Disturbance], most: int, rest: str = "in the session file", by_kind: bool = False
) -> list[tuple[str, str]]:
    """The costliest first, as (which variant and repeats, what happened); those whose cost is not known come last.

    Args:
        disturbances: of one session.
        most: how many lines there may be; what is left out is counted in one more.
        rest: where what is left out is found.
        by_kind: those of all variants together, where there are many variants of few trials: those of a diagnosis.
    """
    groups: dict[tuple[str, str], list[Disturbance]] = {}
    for each in disturbances:
        groups.setdefault(("" if by_kind else each.variant, each.kind), []).append(each)
    ordered = sorted(groups.values(), key=lambda group: -_cost(_worst(group)))
    shown = [_line(group) for group in ordered[:most]]
    left_out = len(ordered) - len(shown)
    if left_out > 0:
        shown.append(("besides", f"{units.count(left_out, 'smaller disturbance')} {rest}"))
    return shown


def _line(group: Sequence[Disturbance]) -> tuple[str, str]:
    worst = _worst(group)
    variants = {each.variant for each in group}
    if len(variants) > 1:
        trials = len({(each.variant, each.repeat) for each in group})
        head = f"{units.count(trials, 'trial')} of {units.count(len(variants), 'variant')}"
        most = f"{one_line(worst.variant, _NAME_LIMIT)}, repeat {worst.repeat + 1}"
        return head, one_line(f"{worst.kind}: most in {most}: {worst.text}", _TEXT_LIMIT)
    repeats = [str(number) for number in sorted({each.repeat + 1 for each in group})]
    where, text = f"repeat {repeats[0]}", worst.text
    if len(repeats) > 1:
        where = f"repeats {', '.join(repeats[:-1])} and {repeats[-1]}"
        text = f"in repeat {worst.repeat + 1} {text}"
    head = f"{one_line(worst.variant, _NAME_LIMIT)}, {one_line(where, _NAME_LIMIT)}"
    return head, one_line(f"{worst.kind}: {text}", _TEXT_LIMIT)


def _worst(group: Sequence[Disturbance]) -> Disturbance:
    return max(group, key=_cost)


def _cost(disturbance: Disturbance) -> float:
    return -1.0 if disturbance.cost_share is None else disturbance.cost_share
