"""What a comparison has not decided yet: whose limit is in doubt, and which two variants are not told apart. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline_bench.analysis import speedups
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session

_FIRST_LOOK = 6
_LATER_LOOKS = 1.45


@dataclass(frozen=True)
class OpenQuestion:
    """Something that more rounds may tell."""

    variant: str
    against: str | None = None
    """The variant that it is not told from; None where it is the variant's own limit."""


def open_questions(session: Session) -> tuple[OpenQuestion, ...]:
    """Return what is open of a session whose results are up to date, in its scenario's order.

    A verdict is open while there is a doubt, and not where it was refused: more rounds change nothing of files that
    were not cold. A ratio is open until the difference is certain, or the two are known to tie.
    """
    found: list[OpenQuestion] = []
    for result in session.results:
        if result.trials:
            found += _of(result, is_ceiling=session.scenario.variant(result.variant).is_ceiling)
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


def _of(result: Result, *, is_ceiling: bool) -> Iterator[OpenQuestion]:
    if result.verdict.doubt is not None:
        yield OpenQuestion(result.variant)
    if is_ceiling or result.work.status == "unequal":
        return
    for speedup in (result.speedup, result.against_fastest):
        if speedup.value is not None and speedup.over is not None and not speedups.told(speedup):
            yield OpenQuestion(result.variant, speedup.over)
