"""Which calls get arguments that are drawn anew, as the number of a frame: what is kept is seldom asked for again."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.user_code import python_draws_as_before, seed_python
from pipeline_bench.user_code.function_calls import Maker, compiled_with

_TIMES_AGAIN = 3
"""So often the same batch is made again: the few places that one draws may be the same by chance."""
_CALLS_COMPARED = 8
_LATER_SEEDS = (1, 1_000)
"""From which on the two passes have their seeds, behind the first call."""
_Taker = Callable[[], Callable[[], Any]]
_Given = dict[MemoizableCall, list[tuple[Any, ...]]]
"""What calls got, in the order in which they were made."""
Drawn = dict[MemoizableCall, bool | None]
"""Whether the arguments of each call are drawn; None where that is not known."""
_LEAST_COMPARED = 2
"""So many calls of each pass at the least: all that is drawn in front of the first one is the same."""


def in_the_same_batch(calls: Sequence[MemoizableCall], again: _Taker, end_s: float, alive: Callable[[], None]) -> Drawn:
    """Return of each call whether it gets other arguments where the same batch is made again; not known if that fails.

    Args:
        calls: in the user's Python.
        again: returns what makes the same batch each time.
        end_s: by the monotonic clock; each batch may be the last one then.
        alive: called after each batch, as a sign of life.
    """
    given: _Given = {call: [] for call in calls}
    try:
        with compiled_with({call: _noting(keys) for call, keys in given.items()}):
            take = again()
            take()
            first = {call: set(keys) for call, keys in given.items()}
            for _ in range(_TIMES_AGAIN):
                take()
                alive()
                if time.monotonic() > end_s:
                    break
    except Exception:  # whatever it is: that they are the same is not known then
        return dict.fromkeys(calls)
    return {call: set(keys) != first[call] for call, keys in given.items()}


def by_later_draws(calls: Sequence[MemoizableCall], taker: _Taker, end_s: float, alive: Callable[[], None]) -> Drawn:
    """Return of each call whether it gets others of its arguments if only what is drawn behind a first call differs.

    A generator that shuffles what it goes over has drawn before that, one that draws a place for each call has not.
    It is not known where it fails, draws from a random generator of its own, or made too few calls in the time.

    Args:
        calls: in the user's Python.
        taker: returns what makes a batch, from the first one on.
        end_s: by the monotonic clock; each batch may be the last one then.
        alive: called after each batch, as a sign of life.
    """
    passes: list[_Given] = []
    try:
        with python_draws_as_before():
            for later in _LATER_SEEDS:
                seeds = itertools.chain([0], itertools.count(later))
                given: _Given = {call: [] for call in calls}
                passes.append(given)
                seed_python(next(seeds))
                with compiled_with({call: _noting(keys, seeds) for call, keys in given.items()}):
                    take = taker()
                    for _ in range(_CALLS_COMPARED):
                        take()
                        alive()
                        if time.monotonic() > end_s or all(len(keys) >= _CALLS_COMPARED for keys in given.values()):
                            break
    except Exception:  # whatever it is: nothing is known of them then
        return dict.fromkeys(calls)
    return {call: _differ(*(given[call] for given in passes)) for call in calls}


def _differ(one: Sequence[tuple[Any, ...]], other: Sequence[tuple[Any, ...]]) -> bool | None:
    """Return whether one of two lists has what the other has not; in another order is the same.

    None where they do not begin alike, though all that is drawn from the generators that are seeded is alike till then.
    """
    count = min(len(one), len(other))
    if count < _LEAST_COMPARED or one[0] != other[0]:
        return None
    return set(one[:count]) != set(other[:count])


def _noting(keys: list[tuple[Any, ...]], seeds: Iterator[int] | None = None) -> Maker:
    """Return what makes a call, and notes what it is given; with seeds, all that is drawn behind it begins from one."""

    def note(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        keys.append(key)
        made = make()
        if seeds is not None:
            seed_python(next(seeds))
        return made

    return note
