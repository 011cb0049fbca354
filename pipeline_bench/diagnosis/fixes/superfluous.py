"""Leave out stages that cost more than they give."""

from __future__ import annotations

from pipeline_bench.diagnosis import chain
from pipeline_bench.diagnosis.fixes import Context, FixKind
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import Remove, SetArgument
from pipeline_bench.model.pipeline import Inspection, Stage

_HUGE_BUFFER_BYTES = 512 * 2**20
"""A shuffle that keeps more than this is tried with a quarter of it: filling it delays the first element."""


class Superfluous(FixKind):
    """The pipeline without a buffer in its middle, a cache, a batch that is taken apart again, or a huge shuffle."""

    name = "superfluous"
    promise = 0.7

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        return [*self._buffers(inspection), *self._taken_apart(inspection), *self._huge_shuffles(inspection)]

    def _buffers(self, inspection: Inspection) -> list[Fix]:
        found = []
        for stage in inspection.stages:
            in_the_middle = stage.id != inspection.sink and chain.consumers(inspection, stage)
            if stage.method in ("prefetch", "cache") and in_the_middle and not _holds_a_draw(inspection, stage):
                before = chain.before(inspection, stage)
                behind = f" after {before.label}" if before is not None else ""
                found.append(
                    self.fix(
                        inspection,
                        f"no {stage.method}{behind}",
                        f"Leave the {stage.method}{behind} out",
                        Remove(stage=stage.id),
                        stages=[stage.id],
                    )
                )
        return found

    def _taken_apart(self, inspection: Inspection) -> list[Fix]:
        found = []
        for batch, unbatch in [
            *chain.pairs(inspection, "batch", "unbatch"),
            *chain.pairs(inspection, "unbatch", "batch"),
        ]:
            if any(stage.arguments.get("drop_remainder") is True for stage in (batch, unbatch)):
                continue  # without it the last samples would arrive too
            found.append(
                self.fix(
                    inspection,
                    f"no {batch.method} and {unbatch.method}",
                    f"Leave out {batch.method} and the {unbatch.method} that undoes it",
                    Remove(stage=batch.id),
                    Remove(stage=unbatch.id),
                    stages=[batch.id, unbatch.id],
                )
            )
        return found

    def _huge_shuffles(self, inspection: Inspection) -> list[Fix]:
        found = []
        for stage in inspection.stages:
            size, cost = stage.arguments.get("buffer_size"), inspection.cost(stage.id)
            if stage.method != "shuffle" or not isinstance(size, int) or cost is None or cost.element_bytes is None:
                continue
            if size * cost.element_bytes > _HUGE_BUFFER_BYTES:
                smaller = max(1, int(_HUGE_BUFFER_BYTES / 4 / cost.element_bytes))
                found.append(
                    self.fix(
                        inspection,
                        f"shuffle over {smaller}",
                        f"Shuffle over {smaller} elements, which take less memory",
                        SetArgument(stage=stage.id, argument="buffer_size", value=smaller),
                        stages=[stage.id],
                        reorders=True,
                        because="samples are mixed over a shorter distance",
                    )
                )
        return found


def _holds_a_draw(inspection: Inspection, stage: Stage) -> bool:
    """Whether a cache keeps one order, or one random draw, for all epochs: without it each epoch would have its own."""
    before = (inspection.stage(number) for number in chain.upstream(inspection, stage))
    return stage.method == "cache" and any(chain.random(each) for each in before)
