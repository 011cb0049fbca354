"""How many elements each stage gives for one element of the sink."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from pipeline_bench.user_pipeline import INFINITE, Stage

_ONE_FOR_ONE = frozenset(
    {
        *("map", "scan", "enumerate", "zip", "fingerprint", "assert_cardinality", "ignore_errors", "with_options"),
        *("shuffle", "repeat", "take", "skip", "take_while", "cache", "snapshot", "save"),
        *("prefetch", "prefetch_to_device", "copy_to_device"),
    }
)
_SIZED = {"batch": "batch_size", "padded_batch": "batch_size", "ragged_batch": "batch_size", "shard": "num_shards"}
_CHOOSING = frozenset({"sample_from_datasets", "choose_from_datasets", "concatenate"})


def told(stage: Stage) -> float | None:
    """How many elements of each input it takes for one that it gives, by its arguments; None where they do not tell.

    A stage that takes from one of several inputs each time takes one in all, see `chooses`.
    """
    if not stage.inputs:
        return 0.0
    if stage.method in _ONE_FOR_ONE or stage.method in _CHOOSING:
        return 1.0
    if stage.method == "window":
        return _size(stage.arguments.get("shift")) or _size(stage.arguments.get("size"))
    return _size(stage.arguments.get(_SIZED.get(stage.method, "")))


def _size(value: object) -> float | None:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def chooses(stage: Stage) -> bool:
    """Whether each element comes from one of its inputs, and not from all of them."""
    return stage.method in _CHOOSING


def shares(stage: Stage) -> tuple[float, ...] | None:
    """How many elements a stage takes of each input for one that it takes in all; None where that is not known.

    All of them take one of each, but for those that choose: by the weights of `sample_from_datasets`; as often from
    each where nothing is told, and always one from the `choice_dataset`, which is the last input.
    """
    count = len(stage.inputs)
    if not chooses(stage):
        return (1.0,) * count
    if stage.method == "choose_from_datasets":
        return (*(1 / max(1, count - 1) for _ in range(count - 1)), 1.0)
    weights = stage.arguments.get("weights")
    if weights is None:
        return (1 / count,) * count
    try:
        values = json.loads(str(weights))
    except ValueError:
        return None  # a dataset of weights, or a tensor
    if (
        not isinstance(values, list)
        or len(values) != count
        or not all(isinstance(each, int | float) for each in values)
    ):
        return None
    total = sum(values)
    return tuple(each / total for each in values) if total > 0 else None


def endless(stages: Sequence[Stage], number: int) -> bool:
    """Whether a stage's elements never end, by what the calls tell: it or one before it repeats for ever, or counts."""
    known = {stage.id: stage for stage in stages}
    waiting, seen = [number], set()
    while waiting:
        stage = known.get(waiting.pop())
        if stage is None or stage.id in seen:
            continue
        seen.add(stage.id)
        repeats = stage.method == "repeat" and stage.arguments.get("count") in (None, INFINITE)
        if repeats or stage.method in ("counter", "random"):
            return True
        waiting += stage.inputs
    return False


def opened_at_once(stage: Stage) -> int:
    """How many inputs a `flat_map` or an `interleave` may have opened to give its first elements."""
    if stage.method == "flat_map":
        return 1
    cycle = stage.arguments.get("cycle_length")
    return cycle if isinstance(cycle, int) and cycle > 0 else os.cpu_count() or 1


def per_sink_element(
    stages: Sequence[Stage], sink: int, inputs_per_output: Mapping[int, float | None]
) -> dict[int, float]:
    """How many elements each stage gives for one of the sink's, as far as the stages after it told.

    What comes before a cache gives none: once filled, the cache alone is asked. One behind an endless repeat never is.

    Args:
        stages: upstream first.
        sink: the id of the last one.
        inputs_per_output: of each stage, how many elements it takes for one that it gives.
    """
    elements: dict[int, float] = {sink: 1.0}
    unknown: set[int] = set()
    for stage in reversed(stages):
        own, taken = elements.get(stage.id), inputs_per_output.get(stage.id)
        each = shares(stage)
        for place, number in enumerate(stage.inputs):
            if own is None or taken is None or each is None or stage.id in unknown:
                unknown.add(number)
                continue
            filled = stage.method == "cache" and not endless(stages, stage.id)
            share = 0.0 if filled else taken * each[place]
            elements[number] = elements.get(number, 0.0) + own * share
    return {number: count for number, count in elements.items() if number not in unknown}
