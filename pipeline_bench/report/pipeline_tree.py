"""A user's pipeline as rows from source to sink, each with guides to its inputs: what every report draws its tree from.

A chain runs straight down, so that thirty stages stay readable; each further input is a branch that is indented and
joins where the inputs meet:

    ┬ list_files
    ├ map(decode)
    │ ┬ TextLineDataset
    │ ├ map(parse)
    ├─┴ zip
    └ batch
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.model.calls import AUTOTUNE
from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.pipeline import Inspection, Location, Stage, StageCost, Tuned
from pipeline_bench.text import NAME, grouped, one_line, units
from pipeline_bench.text.units import NS_PER_MS

_PARALLEL = ("num_parallel_calls", "num_parallel_reads", "workers")
_READS_IN_PARALLEL = {"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"}
_ONE_AT_A_TIME = {"map", "interleave", "batch", "padded_batch", "ragged_batch", *_READS_IN_PARALLEL}


@dataclass(frozen=True)
class StageRow:
    """One stage of the tree, its figures as text; an empty text is nothing to say, a dash is not measured."""

    guide: str
    label: str
    """As in the code, ``map(decode)``; with its line where another stage is called the same, ``map(<lambda>):14``."""
    place: str
    stage: int
    depth: int
    """How many branches it is indented by."""
    joins: int = 0
    """How many further inputs meet in it."""
    own_ms: float | None = None
    cpu_ms: float | None = None
    share: float | None = None
    """What it takes alone, of the time between two elements of the sink, 0 to 1."""
    is_of_stages: bool = False
    """Whether the share is of what all stages cost together, because that time was not measured."""
    reason: str = ""
    """Why it has no cost."""
    parallelism: str = ""
    """As written, and as AUTOTUNE set it: ``auto (1→4)``."""
    buffer: str = ""
    element: str = ""
    is_bottleneck: bool = False
    is_inner: bool = False
    begins: bool = False
    """Whether it is the first stage of its chain."""

    @property
    def figures(self) -> dict[str, str]:
        """The text of each column behind the stage's name and place; none of a stage within another."""
        if self.is_inner:
            return {}
        return {
            "own ms": units.plain_milliseconds(self.own_ms),
            "share": units.share(self.share),
            "CPU ms": units.plain_milliseconds(self.cpu_ms),
            "parallel": self.parallelism,
            "buffer": self.buffer,
            "element": self.element,
        }


HEADS = tuple(StageRow("", "", "", 0, 0).figures)
"""Of the columns of figures."""


def captions(drawn: Sequence[StageRow]) -> Iterator[str]:
    """Yield what the heads have no room to say, and why stages have no cost."""
    if any(row.is_of_stages for row in drawn):
        yield "share: what a stage costs alone, of what all cost together; the time between two batches is not known"
    else:
        yield "share: what a stage costs alone, of the time between two batches as written"
    yield "parallel: as written, or auto by TensorFlow's default; then as AUTOTUNE set it from first to last"
    if any(row.buffer for row in drawn):
        yield "buffer: elements in it on average, taken as fast as they come (– is not known), of how many it holds"
    reasons = grouped((row.reason, row.label) for row in drawn if row.reason)
    yield from (f"{units.NOT_MEASURED} {', '.join(labels)}: {reason}" for reason, labels in reasons.items())


def rows(diagnosis: Diagnosis) -> list[StageRow]:
    """Return the tree from source to sink; empty before the pipeline was inspected."""
    inspection = diagnosis.inspection
    if inspection is None or not inspection.stages:
        return []
    made = list(_branch(_Tree(inspection, diagnosis.reached_ms), inspection.sink, 0))
    if all(row.is_inner for row in made):  # anybody may have written the file: it lacks its sink, or runs in a circle
        return made
    last = max(index for index, row in enumerate(made) if not row.is_inner)
    ends = {"┬": "─", "├": "└"}
    made[last] = replace(made[last], guide=ends.get(made[last].guide[:1], "") + made[last].guide[1:])
    blank = [replace(row, guide=" " + row.guide[1:]) for row in made[last + 1 :]]
    found = diagnosis.bottleneck
    stage = found.stage if found is not None and found.limits else None
    return [replace(row, is_bottleneck=row.stage == stage and not row.is_inner) for row in (*made[: last + 1], *blank)]


class _Tree:
    def __init__(self, inspection: Inspection, reached_ms: float | None) -> None:
        self.inspection = inspection
        self.labels = Counter(stage.label for stage in inspection.stages if stage.function is not None)
        self.stages = {stage.id: stage for stage in inspection.stages}
        self.seen: set[int] = set()
        costs = [cost.elapsed_ns for cost in inspection.costs if cost.elapsed_ns is not None]
        self.of_stages = not reached_ms
        self.total_ns = reached_ms * 1e6 if reached_ms else sum(costs)


def _branch(tree: _Tree, number: int, depth: int) -> Iterator[StageRow]:
    """Yield the chain that ends in a stage; not recursive along a chain, which may be long."""
    chain = [number]
    while (stage := tree.stages.get(chain[-1])) is not None and stage.inputs and stage.id not in tree.seen:
        tree.seen.add(stage.id)
        chain.append(stage.inputs[0])
    prefix = "│ " * depth
    for place, each in enumerate(reversed(chain)):
        own = tree.stages.get(each)
        if own is None:
            continue
        others = own.inputs[1:] if place else ()
        for further, other in enumerate(others, 1):
            yield from _branch(tree, other, depth + further)
        again = place == 0 and bool(own.inputs)
        guide = prefix + ("┬" if place == 0 else "├") + "─┴" * len(others)
        yield replace(_row(tree, own, guide, depth, len(others), again), begins=place == 0)
        tree.seen.add(each)
        for inner in () if again else own.inner:
            yield from _inner(inner, prefix + "│   ", depth)


def _inner(stage: Stage, guide: str, depth: int) -> Iterator[StageRow]:
    label = f"· {one_line(stage.label, NAME)}"
    yield StageRow(guide, label, where(stage.place), stage.id, depth, is_inner=True)
    for inner in stage.inner:
        yield from _inner(inner, guide + "  ", depth)


def _row(tree: _Tree, stage: Stage, guide: str, depth: int, joins: int, again: bool) -> StageRow:
    label = one_line(stage.label, NAME)
    if tree.labels[stage.label] > 1 and stage.place is not None:
        label += f":{stage.place.line}"
    if again:
        return StageRow(guide, f"{label}, as above", where(stage.place), stage.id, depth, is_inner=True)
    inspection, cost = tree.inspection, tree.inspection.cost(stage.id) or StageCost(stage=stage.id)
    share = min(1.0, cost.elapsed_ns / tree.total_ns) if cost.elapsed_ns is not None and tree.total_ns > 0 else None
    return StageRow(
        guide,
        label,
        where(stage.place),
        stage.id,
        depth,
        joins,
        own_ms=None if cost.elapsed_ns is None else cost.elapsed_ns / NS_PER_MS,
        cpu_ms=None if cost.cpu_ns is None else cost.cpu_ns / NS_PER_MS,
        share=share,
        is_of_stages=tree.of_stages,
        reason=cost.reason or "it was not measured" if cost.elapsed_ns is None else "",
        parallelism=_parallelism(inspection, stage),
        buffer=_buffer(inspection, stage),
        element=_element(cost),
    )


def where(place: Location | None) -> str:
    """Return the place in the source, ``train.py:14``; empty where it is not known."""
    return "" if place is None else f"{one_line(PurePath(place.file).name, NAME)}:{place.line}"


def series(inspection: Inspection, stage: int, parameter: str) -> tuple[Tuned, np.ndarray] | None:
    """Return what AUTOTUNE set over time for one parameter of a stage; None where it is not known."""
    for tuned in inspection.tuned:
        if tuned.stage == stage and tuned.parameter == parameter:
            values = np.asarray(tuned.values.unpack(), dtype=float)
            if values.size:
                return tuned, values
    return None


def _parallelism(inspection: Inspection, stage: Stage) -> str:
    given = next((stage.arguments[name] for name in _PARALLEL if name in stage.arguments and not stage.serial), None)
    said = "auto" if given == AUTOTUNE else one_line(str(given), NAME) if given is not None else ""
    if not said and stage_graph.parallel_by_default(stage, inspection.default_parallelised):
        said = "auto"
    elif not said and stage.method in _ONE_AT_A_TIME:
        said = "1"
    found = series(inspection, stage.id, "parallelism")
    if found is None:
        return said
    first, last = f"{found[1][0]:g}", f"{found[1][-1]:g}"
    course = first if first == last else f"{first}→{last}"
    if course in (said, ""):
        return said
    return f"{said} ({course})" if said else course


def _buffer(inspection: Inspection, stage: Stage) -> str:
    """Return how full its buffer was on average, of how much it holds."""
    full = series(inspection, stage.id, "buffered_elements")
    size = series(inspection, stage.id, "buffer_size")
    given = stage.arguments.get("buffer_size") if stage.method in ("prefetch", "shuffle") else None
    holds = (
        f"{size[1][-1]:g}" if size is not None else "auto" if given == AUTOTUNE else one_line(str(given or ""), NAME)
    )
    if full is None:
        return f"– of {holds}" if holds else ""
    mean = f"{full[1].mean():.2g}"
    return f"{mean} of {holds}" if holds else mean


def _element(cost: StageCost) -> str:
    if cost.element_bytes is None:
        return ""
    many = "" if cost.elements is None or cost.elements == 1 else f"{cost.elements:.3g} × "
    return f"{many}{units.size(cost.element_bytes)}"
