"""Give a map whole batches: one call where there were as many as the batch has samples."""

from __future__ import annotations

from pipeline_bench.diagnosis import chain
from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import MoveBefore
from pipeline_bench.model.pipeline import Inspection


class BatchBeforeMap(FixKind):
    """`batch` before `map`. Whether the function takes a batch and gives the same samples is tried, not guessed."""

    name = "batch_before_map"
    promise = 0.85

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        found = []
        for batch in inspection.stages:
            run = chain.maps_before(inspection, batch) if batch.method == "batch" else []
            # One random draw for a whole batch is not one for each sample, and no check of the values can tell.
            while run and any(stage.function is not None and stage.function.random for stage in run):
                run = run[1:]
            for first in dict.fromkeys(stage.id for stage in (*run[:1], *run[-1:])):
                part = [stage for stage in run if stage.id >= first]
                names = " and ".join(short(stage) for stage in part[:2]) + (" and more" if part[2:] else "")
                variant = f"batch before {inspection.stage(first).label}"
                edit = MoveBefore(stage=batch.id, other=first)
                title = f"Give {names} whole batches"
                found.append(self.fix(inspection, variant, title, edit, stages=[stage.id for stage in part]))
        return found
