"""What would help a pipeline that no edit of its calls can do, with the most that it can gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from pipeline_bench.analysis.thresholds import EXPLAINED, MOST_GAIN, WORTH, WORTH_REWRITING
from pipeline_bench.diagnosis import reader_ideas, segments, stage_graph
from pipeline_bench.diagnosis.fixes import short
from pipeline_bench.diagnosis.ideas import Idea, every
from pipeline_bench.diagnosis.segments import Segments
from pipeline_bench.diagnosis.stage_graph import named
from pipeline_bench.diagnosis.step_times import Beginning
from pipeline_bench.model.diagnosis import RULED_OUT, Attempt
from pipeline_bench.model.element import Element
from pipeline_bench.model.function_edits import KeepBatches, Memoize
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.text import units
from pipeline_bench.text.units import NS_PER_MS

_MUCH_MORE = 1.25
"""The most must be so many times what is proposed already."""
_UNEXPLAINED = 0.1
"""So much of a step, if no stage's cost explains it, is mentioned beside a bound that counts it as a stage's."""
_SAVED_BY_BYTES = 0.75
"""How much of the copy of 32-bit floats is saved if bytes are copied in their place."""


def ideas(
    inspection: Inspection,
    cores: int,
    as_written_ms: float | None,
    ceiling_ms: float | None,
    gained: float,
    copy_ms: float | None = None,
    attempts: Sequence[Attempt] = (),
) -> tuple[str, ...]:
    """Return what would help that no edit can do, a sentence or two each; nothing where the costs explain too little.

    Args:
        inspection: the stages and their costs.
        cores: that the pipeline may use.
        as_written_ms: of the pipeline as written, or of a step with a model.
        ceiling_ms: of a step of the model without any input; None without a model.
        gained: the speed-up of what is proposed, 1 for none.
        copy_ms: of a batch to the GPU; None where there is none, or it is not known.
        attempts: the fixes; of what those keep that can be tried, no idea says how.
    """
    sentences = [*_of_copies(inspection, as_written_ms, copy_ms, gained)]
    parts = segments.of(inspection, cores)
    if as_written_ms is None or not parts.elapsed_ns:
        return tuple(sentences)
    explained = parts.explained(as_written_ms, ceiling_ms)
    if explained < EXPLAINED:
        return tuple(sentences)
    rest = 1 - explained
    unknown = f", and the {units.share(rest)} that no stage explains belonged to it" if rest > _UNEXPLAINED else ""
    bounded: set[tuple[tuple[int, ...], float]] = set()
    able = [edit for each in attempts if each.outcome != "not-tried" or each.cause for edit in each.fix.edits]
    kept = {edit.stage for edit in able if isinstance(edit, KeepBatches | Memoize)}
    for idea in chain(every(inspection, kept), reader_ideas.every(inspection)):
        most = _most(parts, idea, as_written_ms, ceiling_ms)
        if most >= WORTH_REWRITING and most >= _MUCH_MORE * gained:
            most_text = f"more than {MOST_GAIN:.0f}×" if most > MOST_GAIN else f"at most {units.ratio(most)}"
            what = ("a batch" if ceiling_ms is None else "a step") + " of the first epoch" * inspection.cold
            bound = f" If that {idea.bound}{unknown}, {what} would be {most_text} as fast."
            known = (idea.stages, idea.share) in bounded  # what bounds several ideas is said once
            sentences.append(idea.text if known else f"{idea.text}{bound}")
            bounded.add((idea.stages, idea.share))
    return tuple(sentences)


def of_beginning(
    inspection: Inspection,
    begins: Beginning | None,
    step_ms: float | None,
    gained: float,
    attempts: Sequence[Attempt] = (),
) -> Iterator[str]:
    """Yield what a cache spares of what a pass begins with, and the idea to shuffle, or to skip, in front of the maps.

    Args:
        inspection: the stages.
        begins: what each pass begins with; None where that takes little.
        step_ms: of the pipeline as written, or of a step with a model, behind that.
        gained: the speed-up of what is proposed, 1 for none.
        attempts: the fixes; a cache among them that is not ruled out is named.
    """
    if begins is None or not step_ms or begins.measured or inspection.once:
        return
    yield from _of_cached_beginning(inspection, begins, step_ms, attempts)
    maps = stage_graph.maps_before(inspection, begins.stage)
    most = begins.speedup(step_ms, begins.spared(inspection, [each.id for each in maps]))
    if most >= max(WORTH_REWRITING, _MUCH_MORE * gained):
        takes = "drops what" if begins.stage.method == "skip" else "is filled with what"
        yield (
            f"{named(begins.stage)}, {takes} {short(maps[-1])} has made, in each epoch anew. Put it in front of "
            f"{short(maps[0])}: an epoch would then be at most {units.ratio(most)} as fast."
        )


def _of_cached_beginning(
    inspection: Inspection, begins: Beginning, step_ms: float, attempts: Sequence[Attempt]
) -> Iterator[str]:
    """Yield which cache spares most of what a pass begins with: no trial of it shows that."""
    able = [each for each in attempts if each.outcome != "not-tried" or each.cause]
    caches = [each.fix for each in able if each.outcome not in RULED_OUT and each.fix.keeps and not each.fix.combines]
    spared = {fix.variant: begins.spared(inspection, fix.stages) for fix in caches}
    name = max(spared, key=spared.__getitem__, default="")
    if spared.get(name, 0.0) < EXPLAINED:
        return
    most = begins.speedup(step_ms, spared[name])
    faster = f": it would be at most {units.ratio(most)} as fast by that alone" if begins.batches else ""
    if not begins.batches or most >= WORTH:
        yield (
            f"From the second epoch on, {name} spares {units.share(spared[name])} of what an epoch begins with{faster}"
            ". The steps of trials do not show that."
        )


def _of_copies(
    inspection: Inspection, as_written_ms: float | None, copy_ms: float | None, gained: float
) -> Iterator[str]:
    """Yield the idea to copy pictures as bytes, where they are copied as floats and that takes much of the step."""
    if as_written_ms is None or copy_ms is None or not _has_float_pictures(inspection.element):
        return
    most = as_written_ms / (as_written_ms - min(copy_ms, as_written_ms) * _SAVED_BY_BYTES)
    if most >= WORTH_REWRITING and most >= _MUCH_MORE * gained:
        yield (
            f"The copy of a batch to the GPU takes {units.milliseconds(copy_ms)}, of a step of "
            f"{units.milliseconds(as_written_ms)}, and its pictures are floats. If they were bytes before, as decoded "
            "pictures are, leave them as uint8 and have the model convert them, in a first layer such as "
            "keras.layers.Rescaling: a quarter is then copied, and a step would be at most "
            f"{units.ratio(most)} as fast."
        )


def _has_float_pictures(batch: Element | None) -> bool:
    """Return whether a batch holds coloured pictures as 32-bit floats: four axes, of which the last is of colours."""
    arrays = [] if batch is None else batch.tensors()
    return any(each.dtype == "float32" and (each.shape or ())[3:] == (3,) for each in arrays)


def _most(parts: Segments, idea: Idea, as_written_ms: float, ceiling_ms: float | None) -> float:
    """Return how many times as fast it could be at most if what an idea saves took no time."""
    left_ms = segments.without(parts, idea.stages).period_ns / NS_PER_MS
    # What the costs do not explain may be these stages' as well: alone, a stage may have found a quieter machine.
    cost_ms = parts.cost_ns(idea.stages) / NS_PER_MS / parts.explained(as_written_ms, ceiling_ms)
    kept_ms = as_written_ms - idea.share * cost_ms
    return as_written_ms / max(left_ms, kept_ms, ceiling_ms or 0.0, as_written_ms / (2 * MOST_GAIN))
