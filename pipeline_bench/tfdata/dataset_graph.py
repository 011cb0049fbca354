"""The datasets that a pipeline consists of: what each takes its elements from, and how far a pass reads it."""

from __future__ import annotations

import graphlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pipeline_bench.model.element_flow import AUTOTUNED_BATCHES
from pipeline_bench.model.pipeline import INFINITE, UNKNOWN

_OVER_ROWS = re.compile(
    "All|Any|Arg(Max|Min)|Cum(prod|sum)|EuclideanNorm|L2Loss|Max|Mean|Min|Prod|ReduceJoin|ReverseV2|Roll|Sum|UniqueV2|"
    "Where|(Stateless)?(Case|If|While)"
)
"""The types of ops that go over rows, or may, and of those that decide."""
_OF_SIZES = re.compile(r"(^|/)(Rank|Shape|ShapeN|Size)(_\d+)?(:|$)")
"""The names of the outputs of ops that give sizes."""


def inputs_of(dataset: Any) -> list[Any]:
    """Return the datasets that a dataset takes its elements from."""
    return list(dataset._inputs()) if hasattr(dataset, "_inputs") else []


def upstream_of(dataset: Any) -> list[Any]:
    """Return the datasets that a pipeline consists of, each once, upstream first and itself last."""
    found: dict[int, Any] = {}
    before: dict[int, list[int]] = {}
    waiting = [dataset]
    while waiting:  # no recursion: a dataset for each of a thousand files may be joined one by one
        each = waiting.pop()
        if id(each) not in found:
            inputs = inputs_of(each)
            found[id(each)], before[id(each)] = each, [id(one) for one in inputs]
            waiting += inputs
    return [found[number] for number in graphlib.TopologicalSorter(before).static_order()]


def caches_in(dataset: Any) -> list[Any]:
    """Return the datasets of the caches and snapshots in a pipeline, upstream first."""
    return [each for each in upstream_of(dataset) if _kind(each) in ("Cache", "Snapshot")]


def _kind(dataset: Any) -> str:
    """Return a dataset's kind, from the name of its class: `Cache` of a CacheDataset."""
    return type(unwrapped(dataset)).__name__.removeprefix("_").removesuffix("Dataset")


def unwrapped(dataset: Any) -> Any:
    """Return the dataset itself, where TensorFlow 1's interface wraps it."""
    return getattr(dataset, "_dataset", dataset) if type(dataset).__name__ == "DatasetV1Adapter" else dataset


def functions_in(dataset: Any) -> list[Any]:
    """Return TensorFlow's wrappers of the functions of a dataset; none of one that has no list of them."""
    try:
        return list(dataset._functions())
    except (AttributeError, NotImplementedError):
        return []


def count(dataset: Any) -> int:
    """Return how many elements a dataset gives, also a distributed one; negative where it is endless, or not known."""
    import tensorflow as tf

    counted = dataset.cardinality
    with tf.init_scope():  # what asks may be inside a tf.function, where a count is a symbol
        return int(counted() if callable(counted) else counted)


def is_left(dataset: Any, taken: int) -> bool:
    """Return whether a pass that takes so many elements leaves all datasets of a pipeline before their end.

    More are counted in, for a buffer behind them may have been given these already.
    """
    left = left_early(dataset, taken + AUTOTUNED_BATCHES)
    return all(left.get(id(each)) for each in upstream_of(dataset))


def left_early(dataset: Any, taken: float = math.inf) -> dict[int, bool | None]:
    """Return which datasets of a pipeline are left before their end, in every pass, by their identities.

    A `take` leaves them, a `zip` whose other input is shorter, and who only takes so many elements. None of one for
    which it is not known: how many elements it has, or how many are read for one behind it. TensorFlow empties a cache
    that is left early (tensorflow/core/kernels/data/cache_dataset_ops.cc).
    """
    left: dict[int, bool | None] = {}
    read: dict[int, float] = {id(dataset): taken}  # at least so many elements of each, in a pass over the whole
    unsure: set[int] = set()  # perhaps more
    for each in reversed(upstream_of(dataset)):
        given = read.get(id(each), math.inf)
        if given < math.inf:
            count = int(each.cardinality())
            if 0 <= count <= given:
                given = math.inf
            else:
                left[id(each)] = None if count == UNKNOWN or id(each) in unsure else True
        at_least, inputs = _reads_at_least(each, given), inputs_of(each)
        if _kind(each) == "Zip":
            counts = [int(one.cardinality()) for one in inputs]
            # Of the longer ones it reads one more, which it cannot use.
            at_least = min(at_least, *(math.inf if count == INFINITE else max(count, -1) + 1 for count in counts))
            unsure.update(map(id, inputs if UNKNOWN in counts else ()))
        for one in inputs:
            read[id(one)] = max(at_least, read.get(id(one), 0.0))
        if left.get(id(each), False) is None or (len(inputs) > 1 and _kind(each) != "Zip"):
            unsure.update(map(id, inputs))
    return left


def _reads_at_least(dataset: Any, given: float) -> float:
    """Return how many elements a dataset reads at least of each input before it has given so many; inf: all."""
    kind = _kind(dataset)
    number = _number(dataset, _NUMBERS.get(kind, ""))
    if kind == "Take" and number is not None and number >= 0:  # of a graph no number is known
        return min(given, number)
    if given in (0.0, math.inf):
        return given
    if number is not None and kind in ("Shuffle", "Skip", "Prefetch"):
        # A shuffle fills its buffer first, and then reads another for each element that it gives; a prefetch may.
        return math.inf if number < 0 and kind != "Prefetch" else given + max(0, number - (kind == "Shuffle"))
    if kind in _BATCHES:
        return given * (number or 1)
    if len(inputs_of(dataset)) > 1 and kind != "Zip":  # of which one may give none
        return 0.0
    return given if kind not in _SEVERAL_OF_ONE else min(given, 1.0)


_BATCHES = ("Batch", "ParallelBatch", "PaddedBatch")
_NUMBERS = {
    **dict.fromkeys(("Take", "Skip"), "_count"),
    **dict.fromkeys(("Shuffle", "Prefetch"), "_buffer_size"),
    **dict.fromkeys(_BATCHES, "_batch_size"),
}
"""Where a dataset of a kind keeps the number by which it reads."""
_SEVERAL_OF_ONE = ("FlatMap", "Interleave", "ParallelInterleave", "Unbatch", "Rebatch")
"""The kinds of datasets that may give several elements for one of their input."""


def _number(dataset: Any, attribute: str) -> int | None:
    value: Any = getattr(unwrapped(dataset), attribute, None)
    return int(value) if hasattr(value, "numpy") else None


def may_mix_rows(bodies: Iterable[Sequence[Any]]) -> bool:
    """Return whether a map over batches has ops that may make something of several rows, or decide by them.

    An ``if`` of what was parsed decides for a whole batch.

    Args:
        bodies: the nodes of its function, and of those that this calls.
    """
    return any(_OVER_ROWS.fullmatch(node.op) or _cuts_rows(node) for body in bodies for node in body)


def _cuts_rows(node: Any) -> bool:
    """Return whether an op takes some rows of a batch, as ``tokens[:64]`` does; not of the sizes of something."""
    takes_all = node.attr["begin_mask"].i & node.attr["end_mask"].i & 1 or node.attr["ellipsis_mask"].i & 1
    return node.op == "StridedSlice" and not takes_all and not _OF_SIZES.search(node.input[0])
