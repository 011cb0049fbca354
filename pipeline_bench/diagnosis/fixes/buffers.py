"""What is kept ahead: prefetches, read buffers, and buffers that cost more than they give."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pipeline_bench.diagnosis import segments, stage_graph
from pipeline_bench.diagnosis.fixes import Context, fix, kind, short
from pipeline_bench.diagnosis.segments import Segments
from pipeline_bench.model.calls import AUTOTUNE, Value
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import InsertAfter, PrefetchToDevice, Remove, SetArgument
from pipeline_bench.model.pipeline import Inspection, Stage

_LARGE_READ_BYTES = 8 * 2**20
"""tf.data reads 256 KiB at a time by default."""
_HUGE_BUFFER_BYTES = 512 * 2**20
"""A shuffle that keeps more than this is tried with a quarter of it: filling it delays the first element."""


@kind(saving=0.6)
def prefetch(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Let the pipeline work ahead: behind its end, and in the middle of what runs one after another."""
    ahead: dict[str, Value] = {"buffer_size": AUTOTUNE}
    ends = [stage for stage in stage_graph.trunk(inspection) if stage.method not in ("with_options", "apply")]
    if ends and ends[0].method not in ("prefetch", "prefetch_to_device"):
        default = "tf.data puts one there by default, so that it may gain nothing"
        yield fix(
            "prefetch at the end",
            "Prepare batches ahead of the model",
            InsertAfter(stage=inspection.sink, method="prefetch", arguments=ahead),
            caveat=default if inspection.default_parallelised else "",
        )
    middle = _middle(inspection, segments.of(inspection, context.cores))
    if middle is not None:
        number, smaller = middle
        stage = inspection.stage(number)
        in_front = {each.id for each in stage_graph.upstream(inspection, stage)}
        sides = [[each for each in inspection.stages if (each.id in in_front) == side] for side in (True, False)]
        threads = all(any(map(stage_graph.may_differ, side)) for side in sides)
        yield fix(
            f"prefetch after {stage.label}",
            f"Have {short(stage)} work ahead of the stages behind it",
            InsertAfter(stage=number, method="prefetch", arguments=ahead),
            stages=smaller,
            threads=threads,
            caveat="functions with Python or state then run beside each other" if threads else "",
        )


def _no_device(inspection: Inspection, context: Context) -> str | None:
    if not context.gpu:
        return "there is no GPU to copy to"
    if not context.model:
        return "without the step of a model nothing computes on the GPU"
    behind = "" if inspection.training is None else inspection.training.behind
    return f"the training puts {behind} behind its data, where nothing may come" if behind else None


@kind(saving=0.7, blocker=_no_device)
def device_prefetch(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Copy batches to the GPU while it still computes on the one before."""
    yield fix(
        "prefetch to the GPU",
        "Copy batches to the GPU ahead of the model",
        PrefetchToDevice(),
        caveat="nothing may come behind it, neither a call nor a tf.distribute strategy",
    )


@kind(saving=0.5)
def read_size(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Read files in larger pieces, in place of the default size or a smaller."""
    for stage in inspection.stages:
        present = stage.arguments.get("buffer_size")
        large = isinstance(present, int) and present >= _LARGE_READ_BYTES
        if stage.method in ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset") and not large:
            yield fix(
                f"large reads in {stage.label}",
                f"Have {short(stage)} read 8 MiB at a time",
                SetArgument(stage=stage.id, argument="buffer_size", value=_LARGE_READ_BYTES),
            )


@kind(saving=0.7)
def superfluous(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Leave out a buffer in the middle, a cache, a batch that is taken apart again; make a huge shuffle smaller."""
    for stage in inspection.stages:
        if stage.method == "cache" and inspection.cold:
            continue  # every trial leaves it out
        in_the_middle = stage.id != inspection.sink and stage_graph.consumers(inspection, stage)
        if stage.method in ("prefetch", "cache") and in_the_middle and not _holds_a_draw(inspection, stage):
            before = stage_graph.before(inspection, stage)
            name = f"{stage.method} after {before.label}" if before is not None else stage.method
            yield fix(f"no {name}", f"Leave the {name} out", Remove(stage=stage.id))
    pairs = [("batch", "unbatch"), ("unbatch", "batch")]
    for one, other in itertools.chain.from_iterable(stage_graph.pairs(inspection, *methods) for methods in pairs):
        if any(stage.arguments.get("drop_remainder") is True for stage in (one, other)):
            continue  # without it the last samples would arrive too
        before = stage_graph.before(inspection, one)
        if other.method == "batch" and not _all_of(before, other.arguments.get("batch_size")):
            continue  # shorter ones, as at the end of each file, would stay as they are
        yield fix(
            f"no {one.method} and {other.method}",
            f"Leave out {one.method} and the {other.method} that undoes it",
            Remove(stage=one.id),
            Remove(stage=other.id),
        )
    for stage in inspection.stages:
        size, cost = stage.arguments.get("buffer_size"), inspection.cost(stage.id)
        element_bytes = cost.element_bytes if cost is not None and stage.method == "shuffle" else None
        if isinstance(size, int) and element_bytes is not None and size * element_bytes > _HUGE_BUFFER_BYTES:
            smaller = max(1, int(_HUGE_BUFFER_BYTES / 4 / element_bytes))
            yield fix(
                f"shuffle over {smaller}",
                f"Shuffle over {smaller} elements, which take less memory",
                SetArgument(stage=stage.id, argument="buffer_size", value=smaller),
                reorders=True,
                caveat="samples are mixed over a shorter distance",
            )


def _holds_a_draw(inspection: Inspection, stage: Stage) -> bool:
    """Return whether a cache keeps one order, or one draw, for all epochs: without it each would have its own."""
    return stage.method == "cache" and any(each.varies for each in stage_graph.upstream(inspection, stage))


def _all_of(stage: Stage | None, size: Value) -> bool:
    """Return whether each part of a stage's elements has that leading size, by what is known of them all."""
    parts = [] if stage is None or stage.element is None else stage.element.tensors()
    return size is not None and {(each.shape or ())[:1] for each in parts} == {(size,)}


def _middle(inspection: Inspection, parts: Segments) -> tuple[int, tuple[int, ...]] | None:
    """Return where a buffer helps the longest segment most: the stage in front of it, and the stages that it hides."""
    run = [stage.id for stage in stage_graph.trunk(inspection) if stage.id in parts.longest]
    if len(run) != len(parts.longest):
        return None  # it branches: no one place cuts it
    best: tuple[float, int, tuple[int, ...]] | None = None
    for place in range(1, len(run)):
        halves = (tuple(run[:place]), tuple(run[place:]))
        costs = [sum(parts.elapsed_ns.get(number, 0.0) for number in half) for half in halves]
        hidden_ns, half = min(zip(costs, halves, strict=True))
        if hidden_ns > 0 and (best is None or hidden_ns > best[0]):
            best = (hidden_ns, run[place], tuple(number for number in half if number in parts.elapsed_ns))
    return None if best is None else best[1:]
