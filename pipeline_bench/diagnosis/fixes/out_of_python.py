"""Leave Python less often: a generator gathers whole batches."""

from __future__ import annotations

from pipeline_bench.diagnosis import chain
from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import BatchInGenerator
from pipeline_bench.model.pipeline import Inspection


class OutOfPython(FixKind):
    """One hand-over from Python for each batch. For Python maps `batch_before_map` does the same."""

    name = "out_of_python"
    promise = 0.9

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        return [
            self.fix(
                inspection,
                f"batches in {generator.label}",
                f"Have {short(generator)} give whole batches",
                BatchInGenerator(generator=generator.id, batch=batch.id),
                stages=[generator.id, batch.id],
            )
            for generator, batch in chain.pairs(inspection, "from_generator", "batch")
        ]
