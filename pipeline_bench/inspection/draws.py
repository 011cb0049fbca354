"""Which of a pipeline's Python gives the same each time, and which draws random numbers or goes on from a state.

A cache in front of random augmentation keeps what does, and freezes no draw.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline_bench.inspection import python_stages
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text.units import NS_PER_S
from pipeline_bench.tfdata import fingerprint, rebuild
from pipeline_bench.tfdata.recipe import Recipe
from pipeline_bench.tfdata.throughput import Deadline, FlatIterator, KeptElements
from pipeline_bench.user_code import memoize

_COMPARED = 2
"""Elements that calls are made for, and passes of a generator."""
_CALLS = 4
"""Calls for one element that are compared: of two elements, one that is flipped or not is alike in one of 64."""
_Take = Callable[[FlatIterator], list[Any]]


def with_draws(
    recipe: Recipe, inspection: Inspection, scratch: Path, seconds: float, alive: Callable[[], None]
) -> Inspection:
    """Return the inspection with which maps that run Python, and which generators, give something else each time.

    Args:
        recipe: of the pipeline.
        inspection: of it, with the costs of its stages.
        scratch: a folder for the files of caches.
        seconds: about the most time; of what would take longer it stays unknown.
        alive: called after each element, as a sign of life.
    """
    end_s = time.monotonic() + seconds
    for stage in inspection.stages:
        of, cost = _DIFFERS.get(stage.method), inspection.cost(stage.id)
        if of is None or cost is None or not stage.runs_python or stage.draws:
            continue
        each_ns = max(cost.elapsed_ns or 0.0, cost.first_epoch_ns or 0.0) / (cost.elements or 1.0)
        begins_ns = _COMPARED * ((inspection.first_ns if stage.inputs else cost.first_ns) or 0.0)
        left_s = end_s - time.monotonic()
        if not each_ns or begins_ns + 2 * _COMPARED * _CALLS * each_ns > left_s * NS_PER_S:
            continue
        before, differs = memoize.random_states(), None
        with suppress(Exception), Deadline(left_s) as deadline:  # of the user's code: it is not known then
            differs = of(recipe, stage, scratch, functools.partial(_taken, deadline, alive))
        if differs is False and memoize.random_states() != before:  # it drew, though that did not show
            differs = None
        inspection = python_stages.with_function(inspection, stage.id, draws_in_python=differs)
    return inspection


def _taken(deadline: Deadline, alive: Callable[[], None], iterator: FlatIterator) -> list[Any]:
    """Return the next element, by the deadline, after a sign of life."""
    alive()
    return iterator.take(deadline)


def _map_differs(recipe: Recipe, stage: Stage, scratch: Path, take: _Take) -> bool:
    """Return whether a map gives something else for the same element: its Python draws, or goes on from a state."""
    elements = rebuild.up_to(recipe, recipe.same_kind_before(recipe.calls[stage.id]), scratch)
    before = FlatIterator(elements)
    for _ in range(_COMPARED):
        one = KeptElements(elements.element_spec, [take(before)]).dataset().repeat()  # calls may overlap
        made = FlatIterator(rebuild.stage(recipe, stage.id, [one], scratch))
        first = fingerprint.digests(take(made))
        if any(fingerprint.digests(take(made)) != first for _ in range(_CALLS - 1)):
            return True
    return False


def _generator_differs(recipe: Recipe, stage: Stage, scratch: Path, take: _Take) -> bool | None:
    """Return whether a generator gives other elements in another pass; None of another order alone.

    It may make that at the end of a pass. Nor is it known where a pass does not end in the time.
    """
    dataset = rebuild.up_to(recipe, stage.id, scratch)
    both = []
    for _ in range(_COMPARED):
        one, found = FlatIterator(dataset), list[list[bytes]]()
        with suppress(StopIteration):
            while True:
                found.append(fingerprint.digests(take(one)))
        both.append(found)
    if both[0] == both[1]:
        return False
    return None if sorted(both[0]) == sorted(both[1]) else True


_DIFFERS = {"map": _map_differs, "from_generator": _generator_differs}
"""How it is found whether a stage that runs Python gives the same each time, by its method."""
