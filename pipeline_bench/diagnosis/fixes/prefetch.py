"""Let the pipeline work ahead: behind its end, and in the middle of what runs one after another."""

from __future__ import annotations

from pipeline_bench.diagnosis import chain, segments
from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.diagnosis.segments import Segments
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import AUTOTUNE, InsertAfter
from pipeline_bench.model.pipeline import Inspection

_ANYWAY = "tf.data puts one there by default, so that it may gain nothing"


class Prefetch(FixKind):
    """A buffer that is filled beside what takes from it."""

    name = "prefetch"
    promise = 0.6

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        found = []
        ahead = {"buffer_size": AUTOTUNE}
        ends = [stage for stage in chain.trunk(inspection) if stage.method not in ("with_options", "apply")]
        if ends and ends[0].method not in ("prefetch", "prefetch_to_device"):
            found.append(
                self.fix(
                    inspection,
                    "prefetch at the end",
                    "Prepare batches ahead of the model",
                    InsertAfter(stage=inspection.sink, method="prefetch", arguments=dict(ahead)),
                    because=_ANYWAY if inspection.default_parallelised else "",
                )
            )
        middle = _middle(inspection, segments.of(inspection, context.cores))
        if middle is not None:
            number, smaller = middle
            stage = inspection.stage(number)
            found.append(
                self.fix(
                    inspection,
                    f"prefetch after {stage.label}",
                    f"Have {short(stage)} work ahead of the stages behind it",
                    InsertAfter(stage=number, method="prefetch", arguments=dict(ahead)),
                    stages=smaller,
                )
            )
        return found


def _middle(inspection: Inspection, parts: Segments) -> tuple[int, tuple[int, ...]] | None:
    """Where a buffer cuts the longest segment best: the stage in front of it, and the part that it then hides."""
    run = [stage.id for stage in chain.trunk(inspection) if stage.id in parts.longest]
    if len(run) != len(parts.longest):
        return None  # it branches: no one place cuts it
    best: tuple[float, int, tuple[int, ...]] | None = None
    for place in range(1, len(run)):
        halves = (tuple(run[:place]), tuple(run[place:]))
        costs = [sum(parts.elapsed_ns.get(number, 0.0) for number in half) for half in halves]
        hidden_ns, half = min(zip(costs, halves, strict=True))
        if hidden_ns > 0 and (best is None or hidden_ns > best[0]):
            best = (hidden_ns, run[place], tuple(number for number in half if number in parts.elapsed_ns))
    return None if best is None else best[1:]
