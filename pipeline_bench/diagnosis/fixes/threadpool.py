"""Threads of the pipeline's own, as many as it can use."""

from __future__ import annotations

from pipeline_bench.diagnosis import bottleneck, segments
from pipeline_bench.diagnosis.fixes import Context, FixKind
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import SetOptions
from pipeline_bench.model.pipeline import Inspection

_WAITING_THREADS_A_CORE = 8
"""As many as a map gets calls whose function waits, see `parallel_map`."""


class Threadpool(FixKind):
    """A private pool of threads, in place of the shared one or of one that is too small."""

    name = "threadpool"
    promise = 0.45

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        found = []
        limiting = [] if context.bottleneck.stage is None else [context.bottleneck.stage]
        if any(stage.method == "with_options" for stage in inspection.stages):
            found.append(self._pool(inspection, context.cores, limiting, "the options may hold a smaller one"))
        waiting = [
            cost.stage
            for cost in inspection.costs
            if bottleneck.waits(cost)
            and segments.hands_over(inspection.stage(cost.stage), inspection.default_parallelised)
            and inspection.stage(cost.stage).method != "prefetch"
        ]
        if waiting:
            found.append(
                self._pool(
                    inspection, _WAITING_THREADS_A_CORE * context.cores, waiting, "a call that waits needs no core"
                )
            )
        if context.cores > 1 and limiting and context.bottleneck.cause == "cpu":
            found.append(
                self.fix(
                    inspection,
                    "one thread an op",
                    "Run each op of the pipeline on one thread, and so more calls beside each other",
                    SetOptions(options={"threading.max_intra_op_parallelism": 1}),
                )
            )
        return found

    def _pool(self, inspection: Inspection, threads: int, stages: list[int], because: str) -> Fix:
        return self.fix(
            inspection,
            f"pool of {threads} threads",
            f"Give the pipeline {threads} threads of its own",
            SetOptions(options={"threading.private_threadpool_size": threads}),
            stages=stages,
            because=because,
        )
