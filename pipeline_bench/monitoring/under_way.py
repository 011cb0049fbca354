"""A step that has begun, and of which other loops of its thread it takes a batch too. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

_SEVERAL = 3
"""Steps of other loops of its thread within a step: more than the examples that one may show beside it."""
_PARTNER_SHARE, _PARTNER_STEPS = 0.9, 3
"""A loop of which so many steps in all, and so many of them, take one batch is a partner of theirs."""


class _Beside(NamedTuple):
    """What a step took of another loop: how many batches, how long it waited for them, when it asked last."""

    batches: int = 0
    wait_ns: int = 0
    at_ns: int = 0


@dataclass(slots=True)
class Asked:
    """A step that has begun."""

    at_ns: int
    wait_ns: int
    iterators: list[int]
    """Those that it has a batch of."""
    others: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By another loop of its thread: how many steps it began since this step first trained, and when the first; an
    evaluation counts as several."""
    trained: bool = False
    """Whether anything was seen to train since it began."""
    beside: dict[int, _Beside] = field(default_factory=dict)
    """What it took of other loops of its thread, by their numbers."""
    until_ns: int = 0
    """Up to when it waited."""

    @property
    def others_ns(self) -> int | None:
        """When the first other loop began that went on; None where none did."""
        return min((at_ns for steps, at_ns in self.others.values() if steps >= _SEVERAL), default=None)

    def see_others(self, of: int, at_ns: int, steps: int = _SEVERAL) -> None:
        """Take in so many steps of another loop, or an evaluation (0)."""
        before, since_ns = self.others.get(of, (0, at_ns))
        self.others[of] = before + steps, since_ns

    def see_wait(self, of: int, at_ns: int, wait_ns: int, batches: int) -> None:
        """Take in a wait for another loop's batch, or (`batches` is 0) for one more part of it."""
        if at_ns > self.at_ns:  # else this loop's own batch is made of it
            before = self.beside.get(of, _Beside())
            self.beside[of] = _Beside(before.batches + batches, before.wait_ns + wait_ns, at_ns)

    def take_also(self, iterator: int, at_ns: int, wait_ns: int) -> int:
        """Take in a batch of one more iterator; return how much longer the step waits for it: a graph may ask both."""
        until_ns = max(self.until_ns, at_ns + wait_ns)
        longer_ns = until_ns - max(at_ns, self.until_ns) if until_ns > self.until_ns else 0
        self.iterators.append(iterator)
        self.wait_ns, self.until_ns = self.wait_ns + longer_ns, until_ns
        return longer_ns


class Partners:
    """The loops of which nearly every step of a loop takes one batch too, as from two iterators, each with its line.

    Attributes:
        own_ns: how long the loop's steps waited for its own batches.
    """

    def __init__(self) -> None:
        self.own_ns = self._steps = 0
        self._shared: Counter[int] = Counter()

    def __contains__(self, number: int) -> bool:
        return self._steps >= _PARTNER_STEPS and self._shared[number] >= _PARTNER_SHARE * self._steps

    def end_step(self, asked: Asked, end_ns: int) -> int:
        """Take in that a step has ended; return how long it waited for its partners' batches."""
        self.own_ns += asked.wait_ns
        self._steps += 1
        if not asked.beside:
            return 0
        # Not what the next batch is made of.
        taken = {number: each for number, each in asked.beside.items() if each.batches == 1 and each.at_ns < end_ns}
        self._shared.update(taken.keys())
        return sum(each.wait_ns for number, each in taken.items() if number in self)
