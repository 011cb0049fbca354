"""How many elements flow from stage to stage of a pipeline, as far as its calls show. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pipeline_bench.model.calls import KEEPING, OPENING
from pipeline_bench.model.pipeline import INFINITE, Stage

_ONE_FOR_ONE = frozenset(
    {
        *("map", "scan", "enumerate", "zip", "fingerprint", "assert_cardinality", "ignore_errors", "with_options"),
        *("shuffle", "repeat", "take", "skip", "take_while", "cache", "snapshot", "save"),
        *("prefetch", "prefetch_to_device", "copy_to_device"),
    }
)
_SIZED = {"batch": "batch_size", "padded_batch": "batch_size", "ragged_batch": "batch_size", "shard": "num_shards"}
_CHOOSING = frozenset({"sample_from_datasets", "choose_from_datasets", "concatenate"})
"""Methods whose elements come each from one of the inputs, and not from all of them."""
_REPEATING = frozenset({"repeat", "shuffle_and_repeat"})
"""Methods, and functions for `apply`, that pass over their input again."""
AUTOTUNED_BATCHES = 24.0
"""What a buffer of a size that is not known holds at the most: AUTOTUNE lets one grow only when it was found empty."""


def inputs_per_output(stage: Stage) -> float | None:
    """Return how many elements of each input a stage takes for one that it gives; None where that is not known.

    A stage that takes from one of several inputs each time takes one in all, see `shares`.
    """
    if not stage.inputs:
        return 0.0
    if applied(stage) in _ONE_FOR_ONE or stage.method in _CHOOSING:
        return 1.0
    if stage.method == "window":
        return _size(stage.arguments.get("shift")) or _size(stage.arguments.get("size"))
    return _size(stage.arguments.get(_SIZED.get(stage.method, "")))


def applied(stage: Stage) -> str:
    """Return a stage's method; of `apply` the name of what it applies."""
    return stage.function.name if stage.method == "apply" and stage.function else stage.method


def _size(value: object) -> float | None:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def shares(stage: Stage) -> tuple[float, ...] | None:
    """Return how many elements a stage takes of each input for one that it takes in all; None where that is not known.

    All of them take one of each, but for those that choose: by the weights of `sample_from_datasets`, or by the counts
    that `concatenate` joins; else as often from each, and always one from the `choice_dataset`, the last input.
    """
    count = len(stage.inputs)
    if stage.method not in _CHOOSING:
        return (1.0,) * count
    if stage.method == "choose_from_datasets":
        return (*(1 / max(1, count - 1) for _ in range(count - 1)), 1.0)
    weights, even = stage.arguments.get("weights"), stage.input_shares or (1.0,) * count
    try:
        values = [float(each) for each in json.loads(str(weights))] if weights is not None else [*even]
    except (ValueError, TypeError):
        return None  # a dataset of weights, or a tensor
    if len(values) != count or sum(values) <= 0:
        return None
    return tuple(each / sum(values) for each in values)


def endless(stages: Sequence[Stage], number: int) -> bool:
    """Return whether a stage's elements never end, as far as the calls show: it or one before it repeats, or counts.

    So does a stage that reads datasets of its function's which never end.
    """
    found: dict[int, bool] = {}
    for stage in stages:  # upstream first
        count, before = stage.arguments.get("count"), [found.get(each, False) for each in stage.inputs]
        reads = stage.inner if applied(stage) in OPENING else ()
        begins = stage.method in ("counter", "random") or (applied(stage) in _REPEATING and count in (None, INFINITE))
        begins = begins or (stage.function is not None and stage.function.endless)
        if begins or (reads and endless(reads, reads[-1].id)):
            found[stage.id] = True
        elif stage.method in ("zip", "choose_from_datasets"):  # which end with the first of their inputs to end
            found[stage.id] = min(before, default=False)
        else:
            found[stage.id] = any(before) and (stage.method != "take" or count in (None, INFINITE))
    return found.get(number, False)


def endless_by_itself(stages: Sequence[Stage], number: int) -> bool:
    """Return whether a stage's elements would never end though nothing repeated them, as those of a counter.

    Behind such a source no cache fills, wherever it stands; in front of a `repeat` one does.
    """
    once = {"arguments": {"count": 1}}
    return endless([each.model_copy(update=once) if applied(each) in _REPEATING else each for each in stages], number)


def never_full(stages: Sequence[Stage], cache: Stage) -> bool:
    """Return whether a cache never has all elements: behind an endless repeat, or left early in every pass."""
    return cache.left_early is True or endless(stages, cache.id)


def per_sink_element(
    stages: Sequence[Stage], sink: int, taken: Mapping[int, float | None], *, first_epoch: bool = False
) -> dict[int, float]:
    """Return how many elements each stage gives for one of the sink's, as far as the stages after it show.

    What comes before a cache gives none: once filled, the cache alone is asked. Some are `never_full`.

    Args:
        stages: upstream first.
        sink: the id of the last one.
        taken: of each stage, how many elements it takes for one that it gives.
        first_epoch: no cache is full yet.
    """
    elements: dict[int, float] = {sink: 1.0}
    unknown: set[int] = set()
    for stage in reversed(stages):
        own, each_takes, each = elements.get(stage.id), taken.get(stage.id), shares(stage)
        if own is None or each_takes is None or each is None or stage.id in unknown:
            unknown.update(stage.inputs)
            continue
        filled = not first_epoch and stage.method in KEEPING and not never_full(stages, stage)
        for number, share in zip(stage.inputs, each, strict=True):
            elements[number] = elements.get(number, 0.0) + (0.0 if filled else own * each_takes * share)
    return {number: count for number, count in elements.items() if number not in unknown}
