"""Keep what was computed once: in memory, on disk where it does not fit; always before the first random stage."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pipeline_bench.diagnosis import chain
from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import Edit, InsertAfter, MoveBefore, Remove, Value
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text import units

_ENDS_THE_FIXED_PART = frozenset(
    {"shuffle", "repeat", "prefetch", "snapshot", "with_options", "sample_from_datasets", "rejection_resample"}
)


class Cache(FixKind):
    """A cache behind the last stage that gives the same in each epoch."""

    name = "cache"
    promise = 0.9

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        run = list(reversed(chain.trunk(inspection)))
        fixed = _fixed_part(inspection, run)
        kept = [stage for stage in fixed if stage.method == "cache"]
        if any(stage.method in ("cache", "snapshot") for stage in inspection.stages if stage not in kept):
            return []
        out: tuple[Edit, ...] = tuple(Remove(stage=stage.id) for stage in kept)  # a cache that is there moves
        found = []
        if fixed and fixed[-1].method != "cache":
            found.append(self._behind(inspection, context, fixed[-1], out))
        passed, moved = _movable(run[len(fixed) :]) if fixed else ([], [])
        if moved:
            edits: tuple[Edit, ...] = (*out, *(MoveBefore(stage=stage.id, other=passed[0].id) for stage in moved))
            found.append(self._behind(inspection, context, moved[-1], edits, passed))
        return found

    def _behind(
        self,
        inspection: Inspection,
        context: Context,
        stage: Stage,
        edits: tuple[Edit, ...],
        passed: Sequence[Stage] = (),
    ) -> Fix:
        size_bytes = _size_bytes(inspection, stage)
        free_bytes = context.free_memory_bytes
        on_disk = size_bytes is not None and free_bytes is not None and size_bytes > free_bytes
        arguments: dict[str, Value] = {"filename": "disk"} if on_disk else {}
        where = "on disk" if on_disk else "in memory"
        ids = chain.upstream(inspection, stage)
        skipped = {each.id for each in passed}
        saved = [each for each in ids if each not in skipped and _measured(inspection, each)]
        instead = " in place of what is cached now" if any(isinstance(edit, Remove) for edit in edits) else ""
        order = f" before the {passed[0].method}" if passed else ""
        return self.fix(
            inspection,
            f"cache {where} after {stage.label}",
            f"Keep what {short(stage)} gives {where}{order}{instead}, so that only the first epoch computes it",
            *edits,
            InsertAfter(stage=stage.id, method="cache", arguments=arguments),
            stages=saved,
            because=_price(inspection, ids, size_bytes, where),
        )


def _fixed_part(inspection: Inspection, run: list[Stage]) -> list[Stage]:
    """The stages from the source on that give the same in each epoch, and end."""
    fixed: list[Stage] = []
    for stage in run:
        if stage.method in _ENDS_THE_FIXED_PART or _random(stage) or chain.endless(inspection, stage):
            break
        fixed.append(stage)
    if fixed and any(_any_random(inspection, number) for number in chain.upstream(inspection, fixed[0])):
        return []
    return fixed


def _movable(rest: list[Stage]) -> tuple[list[Stage], list[Stage]]:
    """The shuffles and repeats that end the fixed part, and what is behind them that may as well be in front of them.

    A shuffle moves the same samples in the same order whether they are mapped or not, and a repeat repeats them; a
    filter changes what a shuffle has in its buffer, and so may pass a repeat only.
    """
    passed = list(itertools.takewhile(lambda stage: stage.method in ("shuffle", "repeat"), rest))
    methods = ("map",) if any(stage.method == "shuffle" for stage in passed) else ("map", "filter")
    behind = rest[len(passed) :]
    moved = itertools.takewhile(lambda stage: stage.method in methods and not _random(stage), behind)
    return passed, list(moved) if passed else []


def _any_random(inspection: Inspection, number: int) -> bool:
    stage = inspection.stage(number)
    return _random(stage) or stage.method in ("shuffle", "sample_from_datasets", "rejection_resample", "random")


def _random(stage: Stage) -> bool:
    return (stage.function is not None and stage.function.random) or any(_random(inner) for inner in stage.inner)


def _measured(inspection: Inspection, number: int) -> bool:
    cost = inspection.cost(number)
    return cost is not None and cost.elapsed_ns is not None


def _size_bytes(inspection: Inspection, stage: Stage) -> float | None:
    cost, count = inspection.cost(stage.id), inspection.cardinality
    if cost is None or cost.element_bytes is None or cost.elements is None or count is None or count < 0:
        return None
    return cost.element_bytes * cost.elements * count


def _price(inspection: Inspection, upstream: tuple[int, ...], size_bytes: float | None, where: str) -> str:
    size = "an unknown size" if size_bytes is None else f"about {units.size(size_bytes)}"
    text = (
        f"takes {size} {where}"
        if size_bytes is None
        else f"takes {size} {'of memory' if where != 'on disk' else where}"
    )
    stages = [inspection.stage(number) for number in upstream]
    python = [stage for stage in stages if stage.function is not None and stage.function.python]
    if python:
        text += f"; right only if {short(python[-1])} gives the same in each epoch"
    if any(stage.method == "list_files" and stage.arguments.get("shuffle") is not False for stage in stages):
        text += "; the files then keep the order of the first epoch"
    return text
