"""Why a stage takes its time: it computes, runs Python, reads, waits, fills a buffer, or hands elements over."""

from __future__ import annotations

from pipeline_bench.diagnosis import segments, stage_graph
from pipeline_bench.diagnosis.segments import Segments
from pipeline_bench.model.calls import WORKERS, WORKERS_QUEUE
from pipeline_bench.model.diagnosis import Cause
from pipeline_bench.model.pipeline import Inspection, Stage, StageCost
from pipeline_bench.text import units

MANY_ELEMENTS = 16
"""For one of the sink: fewer are handed over in less than a batch costs to make."""
_COMPUTES_LITTLE = 0.2
"""The part of its time up to which a stage that waits computes little."""


def find(inspection: Inspection, parts: Segments, stage: Stage, cost: StageCost) -> Cause:
    """Return why a stage takes its time."""
    if stage.method == WORKERS_QUEUE:
        return "handing-over"
    parallel = stage_graph.hands_over(stage, inspection.default_parallelised)
    if segments.waits(cost, parts.cores) and not (parallel and stage.method == "prefetch"):
        return "reading" if any(map(stage_graph.reads_by_itself, stage.with_inner())) else "waiting"
    if stage.runs_python:
        return "python"
    if segments.is_tiny(cost) and (cost.elements or 0) >= MANY_ELEMENTS:
        return "handing-over"
    return "filling" if stage.method == "shuffle" else "cpu"


def words(inspection: Inspection, parts: Segments, stage: Stage, cause: Cause) -> str:
    """Return why a stage takes its time, as the end of a sentence on it."""
    if stage.method == WORKERS_QUEUE:
        workers = stage_graph.before(inspection, stage)
        in_bytes = workers is not None and workers.arguments.get("use_multiprocessing") is True
        return f"it hands the workers' batches over, one at a time{', from their processes as bytes' * in_bytes}"
    behind = stage_graph.after(inspection, stage)
    runs = behind if behind is not None and behind.method == WORKERS else stage  # the workers run it
    alone = any(runs.arguments.get(name) == 1 for name in ("num_parallel_calls", "num_parallel_reads", "workers"))
    alone = alone or stage_graph.has_one_input(inspection, stage)
    parallel = stage_graph.hands_over(runs, inspection.default_parallelised) and not alone
    many = "in several processes" if runs.arguments.get("use_multiprocessing") is True else "on several threads"
    if stage_graph.parallel_by_default(runs, inspection.default_parallelised):
        many += " by TensorFlow's default"
    one_by_one = many if parallel else "one call at a time"
    cost = inspection.cost(stage.id)
    elements = f"{cost.elements:,.0f}" if cost is not None and cost.elements else "many"
    busy = ", and all cores are busy" * parts.cores_limit
    computes = f"computes{busy or f', {one_by_one}'}"
    return {
        "python": f"it runs Python, {one_by_one}",
        "waiting": f"it {_waits(stage, cost, parts.cores)}, {one_by_one}",
        "reading": f"it reads files, {'several at a time' if parallel else 'one after another'}",
        "filling": "it moves the elements through its buffer",
        "handing-over": f"it passes {elements} small elements on, one by one{busy}",
        "cpu": f"it reads files and {computes}" if stage_graph.reads_files(stage) else f"it {computes}",
    }[cause]


def _waits(stage: Stage, cost: StageCost | None, cores: int) -> str:
    part = None if cost is None else segments.computing(cost, cores)
    if part is not None and part >= _COMPUTES_LITTLE:
        return f"mostly waits: it computes for {units.share(part)} of its time"
    # Of Python it is not known for what.
    files = "computes little and waits, as for files or a network"
    return files if stage.runs_python else "neither computes nor reads files but waits"
