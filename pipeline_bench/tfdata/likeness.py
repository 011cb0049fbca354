"""How like a stage those of other datasets are that the same call makes: which edits of it are right for them too."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from pipeline_bench.model import element_flow
from pipeline_bench.model.pipeline import Shared, Stage
from pipeline_bench.model.user_function import UserFunction

_ORDER, _DRAWS, _ENDLESS = "order", "draws", "endless"
_SHUFFLES = frozenset({"shuffle", "apply(shuffle_and_repeat)"})
"""Of `RANDOM`, what only changes the order."""
_LIKENESS: tuple[Shared, ...] = "alike", "fixed", "varying"
"""The most like first."""
_Digested = tuple[UserFunction, str]
"""A function, with a digest of what it does."""


class Made(NamedTuple):
    """What decides whether an edit of a call is right for another dataset, which the same call makes.

    Attributes:
        method: of the call.
        function: that it is given.
        own: what in it may give something else in each epoch: `_ORDER`, `_DRAWS`, a function that keeps a state; or
            `_ENDLESS`.
        varying: the same of it and of all in front.
    """

    method: str
    function: _Digested | None
    own: frozenset[_Digested | str]
    varying: frozenset[_Digested | str]

    def shared(self, others: Collection[Made]) -> bool | Shared:
        """Return `Stage.shared` of a stage whose call makes these others too, of which there is one at least."""
        like = {self._likeness(other) for other in others}
        return None in like or max(filter(None, like), key=_LIKENESS.index)

    def _likeness(self, other: Made) -> Shared | None:
        """Return how like this stage that of another dataset is; None where it is as none of `Shared`."""
        more = other.varying - self.varying
        if (self.method, self.function) == (other.method, other.function):
            return "varying" if more else "alike"
        if self.method != other.method or other.own or not more <= {_ORDER, _DRAWS, _ENDLESS}:
            return None
        return "varying" if self.varying or other.varying else "fixed"


def made(stage: Stage, digest: str, inputs: Iterable[Made]) -> Made:
    """Return what decides of a stage, by its graph and method.

    Args:
        stage: any.
        digest: of what its function does.
        inputs: the same of the stages that it takes its elements from.
    """
    within = [*stage.with_inner()]
    own: set[_Digested | str] = {(each.function, digest) for each in within if each.function and each.keeps_state}
    marks = {
        _ORDER: stage.shuffles_files or not stage.random_methods.isdisjoint(_SHUFFLES),
        _DRAWS: any(each.draws for each in within) or not stage.random_methods <= _SHUFFLES,
        _ENDLESS: element_flow.endless([stage], stage.id),
    }
    own |= {mark for mark, is_so in marks.items() if is_so}
    function = None if stage.function is None else (stage.function, digest)
    return Made(stage.method, function, frozenset(own), frozenset(own).union(*(each.varying for each in inputs)))
