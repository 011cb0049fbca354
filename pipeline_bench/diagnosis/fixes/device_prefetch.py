"""Copy batches to the GPU while it still computes on the one before."""

from __future__ import annotations

from pipeline_bench.diagnosis.fixes import Context, FixKind
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import PrefetchToDevice
from pipeline_bench.model.pipeline import Inspection


class DevicePrefetch(FixKind):
    """`prefetch_to_device` at the end of the pipeline."""

    name = "device_prefetch"
    promise = 0.7

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        title = "Copy batches to the GPU ahead of the model"
        return [self.fix(inspection, "prefetch to the GPU", title, PrefetchToDevice())]

    def hindrance(self, fix: Fix, inspection: Inspection, context: Context) -> str | None:
        if not context.gpu:
            return "there is no GPU to copy to"
        return None if context.model else "without a --model nothing computes on the GPU"
