"""What is found of a tf.data pipeline: whole, each stage alone, its disk, its Python's lines, calls and draws."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline_bench.inspection import disk, pipeline_benchmark, python_stages
from pipeline_bench.inspection.stage_benchmark import StageBenchmark
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text.units import NS_PER_S
from pipeline_bench.tfdata import composing, fingerprint, rebuild, splitting
from pipeline_bench.tfdata.recipe import Recipe
from pipeline_bench.tfdata.throughput import Deadline, FlatIterator, KeptElements
from pipeline_bench.user_code import memoize

_WHOLE_S = 1.5
_WHOLE_SHARE = 0.2
"""Of the time for inspecting: what the whole pipeline may run at most."""
_SPLITS_SHARE = 0.3
"""Of the time for inspecting: what looking for where a random map can be divided may take, which is traced for that."""
_STAGES_SHARE = 0.5
"""Of the time for inspecting: what the stages have at least, also where the pipeline's first element took all of it."""
_PYTHON_SHARE, _GRAPH_SHARE = 0.2, 0.1
"""Of the time for inspecting: what looking into the costliest stage may take, where one runs Python, or a graph."""
_DISK_S = 1.0
_LESS_AHEAD = (
    "What comes ahead of its first element takes too long for a trial, so in the trials its shuffles hold, and its "
    "skips leave out, {} elements at the most. As written, the first element of an epoch takes longer; and where a "
    "shuffle holds much of an epoch, as much of its end comes from the buffer, for which nothing in front of it works."
)

_COMPARED = 2
"""Elements that calls are made for, and passes of a generator."""
_CALLS = 4
"""Calls for one element that are compared: of two elements, one that is flipped or not is alike in one of 64."""
_Take = Callable[[FlatIterator], list[Any]]


def inspect(
    recipe: Recipe,
    inspection: Inspection,
    limit_s: float,
    folder: Callable[[str], Path],
    alive: Callable[[], None],
    begins: Callable[[], None],
) -> Iterator[Inspection]:
    """Measure one thing after another; give the inspection with all that is known after each.

    Args:
        recipe: how the user made the pipeline.
        inspection: as `pipeline_benchmark.described` gives it.
        limit_s: about the most time.
        folder: returns a folder of a name, for files of caches.
        alive: called now and then, as a sign of life.
        begins: called before each of the measurements.

    Raises:
        UserCodeError: the pipeline gives no element, or fails.
    """
    # With files of its own: a cache in one that is not full yet stays locked until its iterator has ended.
    ahead = pipeline_benchmark.ahead_elements(recipe, rebuild.rebuild(recipe, (), folder("first")).dataset)
    if ahead is not None:
        notes = (*inspection.notes, _LESS_AHEAD.format(ahead))
        inspection = inspection.model_copy(update={"ahead_elements": ahead, "notes": notes})
    whole = rebuild.rebuild(recipe, (), folder("whole"), ahead_elements=ahead).dataset
    alive()
    end_s = time.monotonic() + limit_s
    whole_s = min(_WHOLE_S, limit_s * _WHOLE_SHARE)
    inspection, each_ns = pipeline_benchmark.run(whole, inspection, whole_s, folder("run"), alive)
    del whole
    stages = composing.with_batches(recipe, splitting.with_splits(recipe, limit_s * _SPLITS_SHARE, alive))
    inspection = inspection.model_copy(update={"stages": stages})
    yield inspection
    if not inspection.files or end_s - time.monotonic() > _DISK_S:
        bytes_per_s, reason = disk.bandwidth(inspection.files)
        inspection = inspection.model_copy(update={"disk_bytes_per_s": bytes_per_s, "disk_reason": reason})
    begins()
    runs_python, maps = any(stage.runs_python for stage in stages), any(stage.method == "map" for stage in stages)
    lines_s = limit_s * (_PYTHON_SHARE if runs_python else _GRAPH_SHARE * maps)
    numbers = itertools.count()
    counts = {stage.id: composing.static(recipe.dataset(stage.id).cardinality()) for stage in recipe.stages}
    benchmark = StageBenchmark(
        recipe.stages,
        recipe.sink,
        lambda stage, inputs: rebuild.stage(recipe, stage, inputs, folder(f"stage-{next(numbers)}"), ahead),
        recipe.dataset(recipe.sink).options(),
        max(end_s - lines_s - time.monotonic(), limit_s * _STAGES_SHARE),
        begins,
        (inspection.first_ns or 0.0) / 1e9,
        {number: count for number, count in counts.items() if count is not None and count > 0},
    )
    for costs in benchmark.run():
        inspection = inspection.model_copy(update={"costs": costs})
        yield inspection
    if ahead is not None and each_ns is not None:
        inspection = pipeline_benchmark.with_all_ahead(inspection, each_ns)
        yield inspection
    begins()
    if runs_python:
        inspection = with_draws(recipe, inspection, folder("draws"), lines_s / 2, alive)
        yield inspection
    yield from python_stages.of_tf_data(recipe, inspection, folder("python"), lines_s, alive)


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
