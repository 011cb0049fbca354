"""The first look at a user's pipeline: its stages, what each costs by itself, and the whole of it for a moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pipeline_bench.model.events import Inspected
from pipeline_bench.user_pipeline import Inspection, disk, elements, isolation, rewriting, whole
from pipeline_bench.user_pipeline.recording import Recipe
from pipeline_bench.worker.recorder import Channel, Recorder

_WHOLE_S = 1.5
_WHOLE_SHARE = 0.2
_DISK_S = 1.0


def inspect(
    recipe: Recipe, make_ns: float, limit_s: float, scratch: Path, channel: Channel, recorder: Recorder
) -> None:
    """Tell what is found as it is found: what is sent last holds everything.

    Raises:
        UserCodeError: the pipeline gives no element, or fails.
    """
    end_s = time.monotonic() + limit_s
    recorder.phase("inspect")
    inspection = described(recipe, make_ns)
    channel.send(Inspected(inspection=inspection))
    dataset = rewriting.rebuild(recipe, (), _folder(scratch, "whole"))
    whole_s = min(_WHOLE_S, limit_s * _WHOLE_SHARE)
    ran = whole.run(dataset, recipe.stages, recipe.sink, whole_s, scratch, recorder.heartbeat)
    del dataset
    inspection = ran.entered(inspection)
    channel.send(Inspected(inspection=inspection))
    if ran.files and end_s - time.monotonic() > _DISK_S:
        found = disk.bandwidth(ran.files)
        inspection = inspection.model_copy(update={"disk_bytes_per_s": found.bytes_per_s, "disk_reason": found.reason})
    elif not ran.files:
        inspection = inspection.model_copy(update={"disk_reason": "no file was seen to be read"})
    recorder.phase("inspect")
    alone = isolation.Isolation(
        _pieces(recipe, _folder(scratch, "alone")), end_s - time.monotonic(), lambda: recorder.phase("inspect")
    )
    for costs in alone.run():
        inspection = inspection.model_copy(update={"costs": costs})
        channel.send(Inspected(inspection=inspection))


def described(recipe: Recipe, make_ns: float) -> Inspection:
    """What is known of the pipeline before anything is run."""
    sink = recipe.dataset(recipe.sink)
    cardinality = int(sink.cardinality())
    optimization = sink.options().experimental_optimization
    return Inspection(
        stages=recipe.stages,
        sink=recipe.sink,
        element=elements.describe(sink.element_spec),
        batch_size=elements.batch_size(sink.element_spec),
        cardinality=None if cardinality < -1 else cardinality,
        make_ns=make_ns,
        default_parallelised=optimization.apply_default_optimizations is not False
        and optimization.map_parallelization is not False,
        notes=recipe.notes,
    )


def _pieces(recipe: Recipe, scratch: Path) -> isolation.Pieces:
    return isolation.Pieces(
        stages=recipe.stages,
        sink=recipe.sink,
        on=lambda stage, inputs: rewriting.on(
            recipe, stage, inputs, _folder(scratch, f"on-{stage}-{os.urandom(4).hex()}")
        ),
        upstream=lambda stage: rewriting.upstream(recipe, stage, _folder(scratch, f"up-{stage}")),
        options=recipe.dataset(recipe.sink).options(),
    )


def _folder(scratch: Path, name: str) -> Path:
    folder = scratch / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
