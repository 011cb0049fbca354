"""How long a session is to last, as a user gives it: a goal of precision, a budget, or a fixed length."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pipeline_bench.errors import UsageError
from pipeline_bench.model.result import Precision
from pipeline_bench.text import NAME, one_line

DEFAULT_BUDGET_S = 600.0
"""Seconds, where a goal is given without a budget."""
DECIDING_BUDGET_S = 60.0
"""Seconds, where neither a goal nor a plan is given."""
NARROWEST, WIDEST = 0.001, 0.5
"""The goals that make sense. 0.1 % is less than two copies of one process differ by; ±50 % says nothing."""

_LENGTHS = ("steps", "time_s", "repeats")
_SHARE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)\s*", re.ASCII)


def share(
    text: str, option: str, highest: float = 1.0, examples: tuple[str, str] = ("5%", "0.05"), lowest: float = 0.0
) -> float:
    """Return a share that a user wrote as ``5%``, ``5 %`` or ``0.05``.

    Args:
        text: what was given.
        option: the option's name, for the message.
        highest: the largest that makes sense, as a share. One without a % sign is at most 1 in any case.
        examples: the same share in two ways, for the message.
        lowest: the smallest that makes sense.

    Raises:
        UsageError: it is no such share.
    """
    given = f"{option} {one_line(text, NAME)!r}"
    between = f"from {f'{lowest:.1%}' if lowest else 0} to {highest:.0%}"
    allowed = f"Give a percentage or a share, {between}: {examples[0]}, or {examples[1]} for the same."
    match = _SHARE.fullmatch(text)
    if match is None:
        raise UsageError(f"{given} is neither a percentage nor a share.", allowed)
    number = float(match[1])
    if not match[2] and 1 < number <= highest * 100:
        raise UsageError(f"{given} could be a percentage or a multiple.", f"Write {match[1]}% for a percentage.")
    value = number / 100 if match[2] else number
    if not lowest <= value <= highest:
        raise UsageError(f"{given} is too {'little' if value < lowest else 'much'}.", allowed)
    return value


def parse_goal(goal: str, budget_s: float | None) -> Precision:
    """Return what the options ``--precision`` and ``--budget`` ask for.

    Args:
        goal: as given: ``2%``, ``2 %`` or ``0.02``.
        budget_s: as given, or None for the default.

    Raises:
        UsageError: the goal is no share, or one that makes no sense.
    """
    value = share(goal, "--precision", WIDEST, ("2%", "0.02"), NARROWEST)
    return Precision(goal=value, budget_s=DEFAULT_BUDGET_S if budget_s is None else budget_s)


def until_decided(budget_s: float | None = None, fixed: Sequence[str] = ()) -> Precision | None:
    """Return what is asked for without a goal: rounds until everything is decided; None where a plan is given.

    Args:
        budget_s: as given, or None for the default.
        fixed: the keys that give a plan, see `length_keys`.

    Raises:
        UsageError: both were given.
    """
    if budget_s is not None and fixed:
        raise UsageError(
            f"--budget was given beside {' and '.join(fixed)}, which already sets the length.",
            "Leave out one of the two; with --precision 2% both are used.",
        )
    return None if fixed else Precision(goal=None, budget_s=DECIDING_BUDGET_S if budget_s is None else budget_s)


def length_keys(run: Mapping[str, object], settings: Sequence[str]) -> list[str]:
    """Return the keys that a user gave of those that fix how long a session takes, such as ``run.repeats``.

    Args:
        run: the keys of a scenario's ``run`` that were given.
        settings: as ``--set`` takes them.
    """
    keys = [*(f"run.{key}" for key in run), *(setting.split("=")[0].strip() for setting in settings)]
    return [key for key in keys if key.removeprefix("run.") in _LENGTHS]
