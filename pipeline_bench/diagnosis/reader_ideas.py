"""The ideas for calls of a library that read, shuffle and batch at once, so that no cache can stand in them."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.ideas import Idea
from pipeline_bench.model.calls import KEEPING
from pipeline_bench.model.element_flow import applied
from pipeline_bench.model.pipeline import Inspection, Stage

_WHOLE_READERS = ("make_csv_dataset", "make_batched_features_dataset")
"""Functions of TensorFlow's whose one call reads, parses, shuffles, repeats and batches."""
_FUSED = {
    "shuffle_and_repeat": ".shuffle(n).repeat(count)",
    "map_and_batch": ".map(f, num_parallel_calls=tf.data.AUTOTUNE).batch(size)",
}
"""Functions of TensorFlow's for `apply` that are two calls in one, and these."""
_SHUFFLING_SCAN = "scan_random_index"
"""The function that the `to_tf_dataset` of Hugging Face's datasets shuffles all samples with, in a `scan`."""


def every(inspection: Inspection) -> Iterator[Idea]:
    """Yield the ideas, none where the pipeline keeps elements already, or where no later epoch would gain."""
    if inspection.once or any(stage.method in KEEPING for stage in inspection.stages):
        return
    for stage in inspection.stages:
        here = [each for each in inspection.stages if each.place == stage.place]
        yield from _of_whole_reader(inspection, stage, here)
        yield from _of_shuffling_scan(stage, here)
        yield from _of_fused_calls(inspection, stage)


def _of_whole_reader(inspection: Inspection, stage: Stage, here: list[Stage]) -> Iterator[Idea]:
    """Yield the idea to have a reader of TensorFlow's, which repeats in its one call, make one pass."""
    if stage.method != "repeat" or stage.place is None:
        return
    name = next((each for each in _WHOLE_READERS if each in stage.place.text), None)
    is_its_own = name is not None and "num_epochs=1" not in stage.place.text
    if is_its_own and stage_graph.endless(inspection, stage):
        yield Idea(
            tuple(each.id for each in here),
            f"{name}, {stage.place.short}, repeats by itself, and no cache can stand behind that. If its data fits "
            "in memory, call it with num_epochs=1, and put cache(), shuffle and repeat() behind it: later epochs "
            "then read its batches from memory. Each batch keeps its samples, and the last one of a pass is short.",
        )


def _of_shuffling_scan(stage: Stage, here: list[Stage]) -> Iterator[Idea]:
    """Yield the idea to keep the samples of Hugging Face's datasets, and to shuffle and batch them behind that."""
    is_shuffle = stage.method == "scan" and stage.function is not None and stage.function.name == _SHUFFLING_SCAN
    if is_shuffle and not any(each.draws for each in here if each is not stage):  # as where a collator masks words
        yield Idea(
            tuple(each.id for each in here),
            f"{stage_graph.subject(stage)} shuffles all samples, so nothing after it can be cached. If they fit in "
            "memory, make the dataset with shuffle=False and drop_remainder=False, and put unbatch(), cache(), "
            "shuffle() and batch() behind it: later epochs then read the samples from memory. A drop_remainder=True "
            "belongs in that batch(), or each epoch drops the same samples. Where each batch is padded to its longest "
            "row, pad all rows to one length instead.",
        )


def _of_fused_calls(inspection: Inspection, stage: Stage) -> Iterator[Idea]:
    """Yield the idea to write two calls that are one, between which nothing can stand, as two."""
    calls = _FUSED.get(applied(stage))
    if calls is not None:
        # What is behind a shuffle and a repeat can move in front of them, and be kept there.
        behind = [each for each in inspection.stages if stage in stage_graph.upstream(inspection, each)]
        maps = (each.id for each in behind if each.method == "map" and not each.draws)
        yield Idea(
            (stage.id, *maps),
            f"{stage_graph.subject(stage)} is two calls in one: no cache can stand between them, and no fix moves or "
            f"changes one of them. Write {calls} in its place, with its other arguments, and diagnose again: more "
            "fixes can be tried then.",
        )
