"""One map in place of several: each element is handed over once."""

from __future__ import annotations

from pipeline_bench.diagnosis import chain
from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import Fuse as FuseEdit
from pipeline_bench.model.pipeline import Inspection, Stage


class Fuse(FixKind):
    """Consecutive maps with the same parallelism as one."""

    name = "fuse"
    promise = 0.2

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        found = []
        for stage in inspection.stages:
            run = _run_from(inspection, stage)
            if len(run) > 1:
                found.append(
                    self.fix(
                        inspection,
                        f"{len(run)} maps in one",
                        f"Make one map of {short(run[0])} to {short(run[-1])}",
                        FuseEdit(stages=tuple(each.id for each in run)),
                        stages=[each.id for each in run],
                    )
                )
        return found


def _run_from(inspection: Inspection, first: Stage) -> list[Stage]:
    """The longest run of maps alike that begins with this stage; empty where it belongs to one that began before."""
    if first.method != "map":
        return []
    previous = chain.before(inspection, first)
    if previous is not None and _alike(previous, first) and chain.after(inspection, previous) == first:
        return []
    run = [first]
    for stage in chain.maps_after(inspection, first):
        if not _alike(first, stage):
            break
        run.append(stage)
    return run


def _alike(one: Stage, other: Stage) -> bool:
    return one.method == other.method == "map" and one.arguments == other.arguments
