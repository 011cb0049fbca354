"""Fills the caches of a pipeline before it is measured, so that what is measured is every pass but the first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pipeline_bench.user_pipeline import taking, user_code


class Filled(NamedTuple):
    """How far one pass over a cache's dataset came."""

    whole: bool
    elements: int
    seconds: float


def of(dataset: Any) -> list[Any]:
    """The datasets of the caches in a pipeline, upstream first."""
    found: list[Any] = []
    seen: set[int] = set()

    def visit(one: Any) -> None:
        if id(one) in seen:
            return
        seen.add(id(one))
        for before in one._inputs() if hasattr(one, "_inputs") else []:
            visit(before)
        if type(one).__name__ == "CacheDataset":
            found.append(one)

    visit(dataset)
    return found


def fill(caches: Sequence[Any], limit_s: float, alive: Callable[[], None] = lambda: None) -> list[Filled]:
    """One pass over each of the caches, one after another; all of them share the time.

    Raises:
        UserCodeError: the pipeline before a cache fails.
    """
    end_s = time.monotonic() + limit_s
    passes = []
    for cache in caches:
        with user_code.element_errors(), taking.within(max(0.0, end_s - time.monotonic())) as deadline:
            passes.append(_pass_over(taking.Taker(cache), deadline, alive))
    return passes


def _pass_over(taker: taking.Taker, deadline: taking.Deadline, alive: Callable[[], None]) -> Filled:
    start_s = time.monotonic()
    count = 0
    try:
        while True:
            taker.take(deadline)
            count += 1
            alive()
    except StopIteration:
        return Filled(True, count, time.monotonic() - start_s)
    except taking.OutOfTimeError:
        return Filled(False, count, time.monotonic() - start_s)
