"""What tf.data does by default and these options switch off, and what it could do and does not by default."""

from __future__ import annotations

from pipeline_bench.diagnosis import segments
from pipeline_bench.diagnosis.fixes import Context, FixKind
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import SetOptions, Value
from pipeline_bench.model.pipeline import Inspection

_DEFAULTS: dict[str, Value] = {
    "autotune.enabled": True,
    "experimental_optimization.apply_default_optimizations": True,
    "experimental_optimization.inject_prefetch": True,
    "experimental_optimization.map_and_batch_fusion": True,
    "experimental_optimization.map_parallelization": True,
}


class Options(FixKind):
    """tf.data's own optimizations."""

    name = "options"
    promise = 0.9

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        found = []
        if not inspection.default_parallelised or any(stage.method == "with_options" for stage in inspection.stages):
            found.append(
                self.fix(
                    inspection,
                    "default options",
                    "Switch on what tf.data does by default: AUTOTUNE, parallel maps, a prefetch at the end",
                    SetOptions(options=dict(_DEFAULTS)),
                    stages=[] if context.bottleneck.stage is None else [context.bottleneck.stage],
                )
            )
        filters = [stage for stage in inspection.stages if stage.method == "filter"]
        if filters:
            found.append(
                self.fix(
                    inspection,
                    "parallel filter",
                    "Run the filters on several cores",
                    SetOptions(options={"experimental_optimization.filter_parallelization": True}),
                    stages=[stage.id for stage in filters],
                    threads=any(segments.may_differ(stage) for stage in filters),
                )
            )
        return found
