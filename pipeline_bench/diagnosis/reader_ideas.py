"""The ideas for calls of a library that read, shuffle and batch at once, so that no cache can stand in them."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.ideas import Idea
from pipeline_bench.model.calls import KEEPING
from pipeline_bench.model.element_flow import applied
from pipeline_bench.model.pipeline import Inspection, Stage

_WHOLE_READERS = {
    "make_csv_dataset": "num_epochs=1",
    "make_batched_features_dataset": "num_epochs=1",
    "tf_dataset_factory": "num_epochs=1 in its TensorFlowDatasetOptions",
}
"""Functions of TensorFlow's and TFX's whose one call reads, parses, shuffles, repeats and batches, each with what has
it make one pass."""
_FUSED = {
    "shuffle_and_repeat": ".shuffle(n).repeat(count)",
    "map_and_batch": ".map(f, num_parallel_calls=tf.data.AUTOTUNE).batch(size)",
}
"""Functions of TensorFlow's for `apply` that are two calls in one, and these."""
_ONLY_IF = " Right only if {} gives the same in each epoch: what it drew would stay."
_SHUFFLING_SCAN = "scan_random_index"
"""The function that the `to_tf_dataset` of Hugging Face's datasets shuffles all samples with, in a `scan`."""


def every(inspection: Inspection) -> Iterator[Idea]:
    """Yield the ideas, none where the pipeline keeps elements already, or where no later epoch would gain."""
    keeping = (stage for stage in inspection.stages if stage.method in KEEPING)
    if inspection.once or not all(stage_graph.endless(inspection, each) for each in keeping):
        return
    for stage in inspection.stages:
        here = [each for each in inspection.stages if each.place == stage.place]
        yield from _of_whole_reader(inspection, stage, here)
        yield from _of_shuffling_scan(stage, here)
        yield from _of_fused_calls(inspection, stage)


def repeats_within_call(stage: Stage) -> bool:
    """Return whether a stage is the repeat of such a reader, which no cache can stand in front of."""
    text = "" if stage.place is None or stage.method != "repeat" else stage.place.text
    return any(each in text for each in _WHOLE_READERS) and "num_epochs=1" not in text


def _of_whole_reader(inspection: Inspection, stage: Stage, here: list[Stage]) -> Iterator[Idea]:
    """Yield the idea to have a reader, which repeats in its one call, make one pass, and no shuffle if it does."""
    name = None if stage.place is None else next((each for each in _WHOLE_READERS if each in stage.place.text), None)
    if name is None or stage.place is None:
        return
    if repeats_within_call(stage) and stage_graph.endless(inspection, stage):
        yield Idea(
            tuple(each.id for each in here),
            f"{name}, {stage.place.short}, repeats by itself, and no cache can stand behind that. If its data fits "
            f"in memory, call it with {_WHOLE_READERS[name]}, and put cache(), shuffle and repeat() behind it: later "
            "epochs then read its batches from memory. Each batch keeps its samples, and the last one of a pass is "
            "short.",
        )
    elif stage is here[-1] and not any(map(repeats_within_call, here)) and not inspection.pass_elements:
        # Else a cache of samples is tried.
        yield Idea(
            tuple(each.id for each in here),
            f"{name}, {stage.place.short}, reads, parses, shuffles and batches in one call, anew in each epoch, and no "
            "cache can stand in it. If its data fits in memory, call it with shuffle=False, and put unbatch(), "
            "cache(), shuffle() and batch() behind it: later epochs then read the samples from memory.",
        )


def _of_shuffling_scan(stage: Stage, here: list[Stage]) -> Iterator[Idea]:
    """Yield the idea to keep the samples of Hugging Face's datasets, and to shuffle and batch them behind that."""
    is_shuffle = stage.method == "scan" and stage.function is not None and stage.function.name == _SHUFFLING_SCAN
    others = [each for each in here if each is not stage]
    if is_shuffle and not any(each.draws for each in others):  # as where a collator masks words
        unknown = [each for each in others if each.function is not None and each.function.draws_in_python is None]
        python = next((each for each in unknown if each.runs_python), None)
        yield Idea(
            tuple(each.id for each in here),
            f"{stage_graph.subject(stage)} shuffles all samples, so nothing after it can be cached. If they fit in "
            "memory, make the dataset with shuffle=False and drop_remainder=False, and put unbatch(), cache(), "
            "shuffle() and batch() behind it: later epochs then read the samples from memory. A drop_remainder=True "
            "belongs in that batch(), or each epoch drops the same samples. Where each batch is padded to its longest "
            "row, pad all rows to one length instead."
            f"{_ONLY_IF.format(stage_graph.subject(python)) if python else ''}",
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
