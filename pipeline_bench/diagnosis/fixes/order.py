"""Put cheap stages in front of dear ones, and the shuffle in front of the repeat."""

from __future__ import annotations

from pipeline_bench.diagnosis import chain, segments
from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import MoveBefore
from pipeline_bench.model.pipeline import Inspection, Stage

_GROWN = 4
"""Elements so many times as large as before the maps make a shuffle dear in what its own time does not show."""


class Order(FixKind):
    """The same stages in another order."""

    name = "order"
    promise = 0.5

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        return [*self._shuffles(inspection), *self._filters(inspection), *self._repeats(inspection)]

    def _shuffles(self, inspection: Inspection) -> list[Fix]:
        """The same seed gives the same samples in the same order; the shuffle holds smaller ones and fills sooner."""
        found = []
        for shuffle in inspection.stages:
            run = chain.maps_before(inspection, shuffle) if shuffle.method == "shuffle" else []
            if run:
                found.append(
                    self.fix(
                        inspection,
                        f"shuffle before {run[0].label}",
                        f"Shuffle before {short(run[0])}, while the elements are still small",
                        MoveBefore(stage=shuffle.id, other=run[0].id),
                        stages=[] if _grows(inspection, run[0], shuffle) else [shuffle.id],
                        reorders=any(segments.may_differ(stage) for stage in run),
                        because="the buffer is filled without waiting for the maps",
                    )
                )
        return found

    def _filters(self, inspection: Inspection) -> list[Fix]:
        found = []
        for stage in inspection.stages:
            run = chain.maps_before(inspection, stage) if stage.method == "filter" else []
            for first in run[-1:] + (run[:1] if len(run) > 1 else []):
                part = run[run.index(first) :]
                found.append(
                    self.fix(
                        inspection,
                        f"{stage.label} before {first.label}",
                        f"Leave elements out before {short(first)} works on them",
                        MoveBefore(stage=stage.id, other=first.id),
                        stages=[each.id for each in part],
                        reorders=any(segments.may_differ(each) for each in part),
                    )
                )
        return found

    def _repeats(self, inspection: Inspection) -> list[Fix]:
        found = []
        for repeat, shuffle in chain.pairs(inspection, "repeat", "shuffle"):
            found.append(
                self.fix(
                    inspection,
                    "shuffle before repeat",
                    "Shuffle before repeating, so that epochs do not mix",
                    MoveBefore(stage=shuffle.id, other=repeat.id),
                    stages=[shuffle.id],
                    reorders=True,
                )
            )
        for repeat, cache in chain.pairs(inspection, "repeat", "cache"):
            before = [inspection.stage(number) for number in chain.upstream(inspection, repeat)]
            if chain.endless(inspection, repeat) and not any(chain.random(each) for each in before):
                found.append(
                    self.fix(
                        inspection,
                        "cache before repeat",
                        "Cache before repeating: behind an endless repeat a cache is never full, and grows for ever",
                        MoveBefore(stage=cache.id, other=repeat.id),
                        stages=[each.id for each in before],
                    )
                )
        return found


def _grows(inspection: Inspection, first: Stage, shuffle: Stage) -> bool:
    """Whether the elements are much smaller before the first map than where they are shuffled now."""
    source = chain.before(inspection, first)
    small = inspection.cost(source.id) if source is not None else None
    large = inspection.cost(shuffle.id)
    if small is None or large is None or small.element_bytes is None or large.element_bytes is None:
        return False
    return large.element_bytes >= _GROWN * small.element_bytes
