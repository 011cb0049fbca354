"""How many elements a stage takes for one that it gives: counted, where its arguments do not tell."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.tfdata.throughput import Deadline, FlatIterator, KeptElements, OutOfTimeError

_ENOUGH_TAKEN = 8
"""Elements taken between two that were given: beside so many, one of which only a part was given is little."""


class CountedFeed:
    """A dataset as it is, that counts how many of its elements were taken."""

    def __init__(self, dataset: Any) -> None:
        import tensorflow as tf

        with tf.device("/CPU:0"):
            self._taken = tf.Variable(0, dtype=tf.int64, trainable=False)
        # A filter, because it hands on what no function can give back: windows, ragged elements.
        count = tf.autograph.experimental.do_not_convert(lambda *_: self._taken.assign_add(1) > 0)
        self.dataset = dataset.filter(count)

    @property
    def taken(self) -> int:
        """How many elements were taken so far."""
        return int(self._taken.numpy())


def inputs_per_output(
    make: Callable[[Sequence[Any]], Any],
    kept: Sequence[KeptElements],
    seconds: float,
    limit_s: float,
    *,
    repeats: bool = True,
) -> float:
    """Return how many elements a stage takes for one that it gives; an upper bound if it opened few and gave many.

    At the end of its input a stage may give what it holds, such as buckets that are nearly empty: where it comes to the
    end of what was kept, what it takes between elements of an input without end tells more.

    Args:
        make: makes the dataset of the stage upon its inputs.
        kept: elements of each input.
        seconds: about how long to count.
        limit_s: the most that the first element may take.
        repeats: whether the stage may have an input without end.

    Raises:
        PipelineBenchError: it gives none for those that are kept.
        OutOfTimeError: it gives none in the time.
    """
    taken, ended = _taken(make, [each.dataset() for each in kept], seconds, limit_s)
    if not ended:
        return for_one(taken)
    count = min(each.count for each in kept)
    if not taken:
        raise PipelineBenchError(f"it let none of its {count} input elements through")
    steady = None
    if repeats:
        with suppress(OutOfTimeError):
            again, _ = _taken(make, [each.dataset().repeat() for each in kept], seconds, limit_s)
            steady = _between(again, len(again) // 2)  # before, it may fill what it holds
    return steady or count / len(taken)


def for_one(taken: Sequence[int]) -> float:
    """Return how many elements a stage takes for one that it gives; an upper bound if it took few.

    Args:
        taken: how many it had taken when it gave each of its own, of an input that did not end.
    """
    half = len(taken) // 2  # before, it may open all that it reads at the same time
    given = len(taken) - 1 - half
    if (found := _between(taken, half)) is not None:
        return found
    whole = _between(taken, 0) or taken[-1] / len(taken)
    return min(whole, (taken[-1] - taken[half] + 1) / given) if given else whole


def _taken(
    make: Callable[[Sequence[Any]], Any], inputs: Sequence[Any], seconds: float, limit_s: float
) -> tuple[list[int], bool]:
    """Return how many elements of each input were taken when a stage gave each of its own, and whether it ended."""
    feeds = [CountedFeed(dataset) for dataset in inputs]
    iterator = FlatIterator(make([feed.dataset for feed in feeds]))
    taken: list[int] = []
    end_s = math.inf  # what it takes to begin is none of the time for counting
    try:
        with Deadline(limit_s) as deadline:
            while len(taken) <= 1 or time.monotonic() < end_s:
                iterator.take(deadline)
                taken.append(min(feed.taken for feed in feeds))
                end_s = min(end_s, time.monotonic() + seconds)
    except StopIteration:
        return taken, True
    except OutOfTimeError:
        if not taken:
            raise
    return taken, False


def _between(taken: Sequence[int], first: int) -> float | None:
    """Return what was taken for each element that was given after one; None if that is too little to tell.

    What a stage took before its first element may be a buffer that it fills, and belongs to none.
    """
    more = taken[-1] - taken[first]
    return more / (len(taken) - 1 - first) if more >= _ENOUGH_TAKEN else None
