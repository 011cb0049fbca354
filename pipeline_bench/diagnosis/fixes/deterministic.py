"""Let parallel stages give what is ready first."""

from __future__ import annotations

from pipeline_bench.diagnosis import segments
from pipeline_bench.diagnosis.fixes import Context, FixKind
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import SetArgument, SetOptions
from pipeline_bench.model.pipeline import Inspection, Stage

_PARALLEL = ("map", "interleave", "batch")


class Deterministic(FixKind):
    """`deterministic=False`: worth it where some calls take longer than others."""

    name = "deterministic"
    promise = 0.4

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        stages = [stage for stage in inspection.stages if _waits_for_its_turn(stage, inspection)]
        if not stages:
            return []
        held = [stage for stage in stages if stage.arguments.get("deterministic") is True]
        edits = [SetArgument(stage=stage.id, argument="deterministic", value=False) for stage in held]
        return [
            self.fix(
                inspection,
                "any order",
                "Take what is ready first in parallel stages",
                SetOptions(options={"deterministic": False}),
                *edits,
                stages=[stage.id for stage in stages],
                reorders=True,
                because="samples come in an order that differs from run to run",
            )
        ]


def _waits_for_its_turn(stage: Stage, inspection: Inspection) -> bool:
    if stage.method not in _PARALLEL or stage.arguments.get("deterministic") is False:
        return False
    if stage.method == "map" and stage.arguments.get("num_parallel_calls") is None:
        return False  # tf.data made it parallel by itself: its calls compute, and are ready about in turn
    return segments.hands_over(stage, inspection.default_parallelised)
