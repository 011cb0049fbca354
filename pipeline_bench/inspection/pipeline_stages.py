"""What is found of a tf.data pipeline: whole, each stage alone, its disk, and what takes the time in its Python."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline_bench.inspection import disk, draws, pipeline_benchmark, python_stages
from pipeline_bench.inspection.stage_benchmark import StageBenchmark
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.tfdata import composing, rebuild, splitting
from pipeline_bench.tfdata.recipe import Recipe

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
        inspection = draws.with_draws(recipe, inspection, folder("draws"), lines_s / 2, alive)
        yield inspection
    yield from python_stages.of_tf_data(recipe, inspection, folder("python"), lines_s, alive)
