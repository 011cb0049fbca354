"""Copy the elements of several batches at the same time."""

from __future__ import annotations

from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import AUTOTUNE, SetArgument
from pipeline_bench.model.pipeline import Inspection


class ParallelBatch(FixKind):
    """`num_parallel_calls` of a batch: worth it for large elements."""

    name = "parallel_batch"
    promise = 0.6

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        return [
            self.fix(
                inspection,
                f"parallel {stage.label}",
                f"Have {short(stage)} copy several batches at the same time",
                SetArgument(stage=stage.id, argument="num_parallel_calls", value=AUTOTUNE),
                stages=[stage.id],
            )
            for stage in inspection.stages
            if stage.method == "batch" and stage.arguments.get("num_parallel_calls") in (None, 1)
        ]
