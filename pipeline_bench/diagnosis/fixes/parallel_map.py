"""Run a map's calls beside each other. A stateless map is run so by default, which is then no fix."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_bench.diagnosis import bottleneck, chain, segments
from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import AUTOTUNE, Edit, SetArgument, SetOptions
from pipeline_bench.model.pipeline import Inspection, Stage

_WAITING_CALLS_A_CORE = (2, 8)
"""Calls that wait need no core each; AUTOTUNE never goes beyond one call a core."""

_MORE_CALLS = 4
"""Of a map that is parallel already: so many times as many."""
_MOST_CALLS = 256
"""Each call that waits holds a thread."""


class ParallelMap(FixKind):
    """Several calls of a map's function at the same time."""

    name = "parallel_map"
    promise = 1.0

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        found = []
        for stage in inspection.stages:
            if stage.method != "map" or _parallel_by_default(stage, inspection):
                continue
            for calls in _degrees(stage, inspection, context.cores):
                found.append(self._fix(inspection, stage, calls))
        return found

    def _fix(self, inspection: Inspection, stage: Stage, calls: int) -> Fix:
        edits: list[Edit] = [SetArgument(stage=stage.id, argument="num_parallel_calls", value=calls)]
        if calls == AUTOTUNE:
            variant, title = (
                f"parallel {stage.label}",
                f"Run {short(stage)} on several cores, as many as AUTOTUNE finds",
            )
        else:
            # The calls would else share a pool of one thread a core, where waiting ones keep the others out.
            edits.append(_room_to_wait(stage, inspection, calls))
            variant, title = f"{calls} parallel {stage.label}", f"Run {calls} calls of {short(stage)} at the same time"
        alone = stage.arguments.get("num_parallel_calls") in (None, 1)
        threads = alone and segments.may_differ(stage)
        because = "its function must be safe to call from several threads" if threads else ""
        return self.fix(
            inspection,
            variant,
            title,
            *edits,
            stages=[stage.id],
            reorders=alone and chain.any_order(inspection, stage),
            threads=threads,
            because=because,
        )


def _room_to_wait(stage: Stage, inspection: Inspection, calls: int) -> Edit:
    """Threads for so many calls: a larger pool where the user set one, which the unbounded one does not replace."""
    if any("threading.private_threadpool_size" in one.arguments for one in inspection.stages):
        return SetOptions(options={"threading.private_threadpool_size": calls})
    return SetArgument(stage=stage.id, argument="use_unbounded_threadpool", value=True)


def _parallel_by_default(stage: Stage, inspection: Inspection) -> bool:
    given = stage.arguments.get("num_parallel_calls")
    return given is None and inspection.default_parallelised and not segments.may_differ(stage)


def _degrees(stage: Stage, inspection: Inspection, cores: int) -> Iterator[int]:
    given = stage.arguments.get("num_parallel_calls")
    present = given if isinstance(given, int) else 1
    if given is None or 0 < present < cores:
        yield AUTOTUNE
    cost = inspection.cost(stage.id)
    if cost is not None and bottleneck.waits(cost):
        degrees = {each * cores for each in _WAITING_CALLS_A_CORE} | {_MORE_CALLS * present}
        yield from sorted((each for each in degrees if present < each <= _MOST_CALLS), reverse=True)
