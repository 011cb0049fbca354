"""What no edit of the calls does and a change of the user's functions would, in words, with the most that it can gain.

The most is what the pipeline would gain if the stages cost nothing at all, by what the others cost alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipeline_bench.diagnosis import chain, segments
from pipeline_bench.diagnosis.bottleneck import named
from pipeline_bench.diagnosis.segments import NS_PER_MS, Segments
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text import units

_WORTH = 1.3
"""Less is not worth a change of somebody's functions: the fault that the benchmark counts costs as much."""
_MUCH_MORE = 1.25
"""The most must be so many times what is proposed already."""
_MOST = 20.0
"""A larger bound says no more than that the stage takes nearly all of the time."""


class _Idea(NamedTuple):
    stages: tuple[int, ...]
    text: str


def ideas(
    inspection: Inspection, cores: int, as_written_ms: float | None, ceiling_ms: float | None, gained: float
) -> tuple[str, ...]:
    """Return what would help that no edit can do, a sentence or two each; nothing where the costs explain too little.

    Args:
        inspection: the stages and their costs.
        cores: that the pipeline may use.
        as_written_ms: of the pipeline as written, or of a step with a model.
        ceiling_ms: of a step of the model without any input; None without a model.
        gained: the speed-up of what is proposed, 1 for none.
    """
    parts = segments.of(inspection, cores)
    if as_written_ms is None or not parts.elapsed_ns or parts.explained(as_written_ms, ceiling_ms) < segments.EXPLAINED:
        return ()
    said = []
    for idea in _all(inspection):
        most = _most(parts, idea.stages, as_written_ms, ceiling_ms)
        if most >= _WORTH and most >= _MUCH_MORE * gained:
            bound = f"more than {_MOST:.0f}×" if most > _MOST else f"{units.ratio(most)} at most"
            said.append(f"{idea.text} That would make it {bound} as fast, if it then cost nothing.")
    return tuple(said)


def _most(parts: Segments, stages: tuple[int, ...], as_written_ms: float, ceiling_ms: float | None) -> float:
    left = segments.without(parts, stages)
    return as_written_ms / max(left.period_ns / NS_PER_MS, ceiling_ms or 0.0, as_written_ms / (2 * _MOST))


def _all(inspection: Inspection) -> Iterator[_Idea]:
    trunk = chain.trunk(inspection)
    batched = any(stage.method in ("batch", "padded_batch") for stage in trunk)
    cached = any(stage.method in ("cache", "snapshot") for stage in inspection.stages)
    for stage in trunk:
        function = stage.function
        if stage.method == "map" and function is not None and function.random and not cached:
            yield _Idea(
                (stage.id,),
                f"{named(stage)}, draws random numbers, so that nothing behind it can be cached: with what draws none "
                "in a map of its own and a cache() between the two, later epochs only pay for what is random.",
            )
        elif stage.method == "map" and batched and _on_records(inspection, stage):
            yield _Idea(
                (stage.id,),
                f"{named(stage)}, gets one record at a time: where it only parses, batch first and parse whole "
                "batches, with tf.io.parse_example or a tf.io.decode_csv of all lines, in one call.",
            )
        elif stage.method == "window":
            behind = chain.after(inspection, stage)
            both = (stage.id, behind.id) if behind is not None and behind.method == "flat_map" else (stage.id,)
            yield _Idea(
                both,
                f"{named(stage)}, makes a dataset of every window and hands its elements over one by one: with the "
                "series in a tensor, a map over a batch of starts gathers (tf.gather) whole batches in one call.",
            )


def _on_records(inspection: Inspection, stage: Stage) -> bool:
    """Whether the records of files come to a map as they are."""
    before = chain.before(inspection, stage)
    while before is not None and before.method in ("shuffle", "repeat", "prefetch", "skip", "take", "ignore_errors"):
        before = chain.before(inspection, before)
    return before is not None and chain.reads_files(before)
