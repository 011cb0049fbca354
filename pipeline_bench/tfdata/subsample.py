"""A small part of a pipeline's input, the same for the pipeline as written and for every edit of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline_bench.model.calls import BATCHING, OPENING
from pipeline_bench.tfdata import composing, describe
from pipeline_bench.tfdata.plan import CallPlan, Node
from pipeline_bench.tfdata.public_api import ASSERT_CARDINALITY, FILE_READERS
from pipeline_bench.tfdata.recipe import RecordedCall, upstream

LEAST_ELEMENTS = 64
"""What is taken of a source of elements, unless batches, shards or skipped elements ask for more."""
MOST_ELEMENTS = 20_000
"""The most that is taken of a source, unless one element of the sink, such as a batch of long sequences, takes more."""
FILES = 4
"""How many files, or other inner datasets, are opened, unless shards or skipped ones ask for more."""
BATCHES = 2
"""How many batches should come out."""
PASSES = 2
"""Of an endless repeat, unless what it repeats is so short that more are needed."""
LEAVE_OUT = ("filter", "take_while", "unique", "ignore_errors", "rejection_resample")
"""Methods that give some of their elements on: which ones, only running them shows."""


def shrink(plan: CallPlan) -> None:
    """Limit the sources of a plan, before any edit, to what a few batches need.

    What each is asked for follows from the calls behind it as the user wrote them, so that it is the same whatever the
    edits: a batch asks for its size, a skip and a shard for what they leave out, and of what an `interleave` opens each
    gives its part. A skip that would leave out most of what may be asked for leaves out one element.
    """
    plan.passes = PASSES
    _shorten_skips(plan)
    needed, opened = _needs(plan)
    of_one, _ = _needs(plan, 1)
    for number, node in list(plan.nodes.items()):
        most = max(MOST_ELEMENTS, of_one.get(number, 1))  # with a remainder that is dropped, less would give no batch
        plan.put(_shrunk(plan, node, min(needed.get(number, 1), most), number in opened))


def _shorten_skips(plan: CallPlan) -> None:
    """Have a skip leave out one element where little would arrive behind it of the most that its sources give.

    One still shows whether an edit has it leave out another element.
    """
    needed, _ = _needs(plan)
    for node in [node for node in plan.nodes.values() if node.method == "skip"]:
        most = max(needed[each] for each in upstream(plan.nodes, node.inputs))
        arrive = MOST_ELEMENTS * needed[node.inputs[0]] / most
        if most > MOST_ELEMENTS and (composing.static(node.given().get("count")) or 0) > arrive / 2:
            plan.put(node.setting(count=1))


def _shrunk(plan: CallPlan, node: Node, need: int, feeds_opener: bool) -> Node:
    if _opens(node):
        per_file = math.ceil(max(need, LEAST_ELEMENTS) / _files(plan, node))
        return replace(node, files=FILES, per_file=per_file, changed=True)
    if not node.inputs:
        return _shrunk_source(node, max(need, FILES if feeds_opener else LEAST_ELEMENTS))
    if node.method == "repeat" and node.recorded is not None:
        count = _cardinality(plan, node.inputs[0])
        return replace(node, passes=max(PASSES, math.ceil(need / count)) if count > 0 else PASSES)
    if node.label == ASSERT_CARDINALITY:  # what it asserts is no longer so
        return node.setting(transformation_func=lambda dataset: dataset.take(-1))
    return node


def _shrunk_source(node: Node, limit: int) -> Node:
    if node.method == "list_files":
        return replace(node, files=limit, changed=True)
    if node.method == "range" and all(isinstance(each, int) for each in node.args):
        first = range(*node.args)[:limit]  # a `take` is of each worker's share, where a tf.data service runs it
        return replace(node, args=(first.start, first.stop, first.step), changed=True)
    if node.method == "from_generator":
        return node.setting(generator=composing.first_elements(node.given()["generator"], limit))
    if node.method == "from_tensor_slices" and node.entry is not None:
        tensors = node.given()["tensors"]
        if (first := _first_rows(tensors, limit)) is not None:  # making it of all of them copies them
            return node.setting(tensors=first)
    return replace(node, take=limit, changed=True)


def _first_rows(tensors: Any, count: int) -> Any:
    """Return the first rows of arrays and of what consists of them; None if it holds anything else, such as a list."""
    import tensorflow as tf

    if isinstance(tensors, np.ndarray | tf.Tensor):
        return tensors[:count] if len(tensors.shape) else None
    if type(tensors) not in (tuple, dict):
        return None
    parts = [_first_rows(part, count) for part in (tensors.values() if isinstance(tensors, dict) else tensors)]
    if any(part is None for part in parts):
        return None
    return dict(zip(tensors, parts, strict=True)) if isinstance(tensors, dict) else tuple(parts)


def _cardinality(plan: CallPlan, number: int) -> int:
    """Return how many elements a node gives as recorded; below 1 where that is not known."""
    recorded = plan.nodes[number].recorded
    return int(recorded.result.cardinality()) if recorded is not None else -1


def _files(plan: CallPlan, node: Node) -> int:
    """Return how many inner datasets a stage opens, as far as it is known, `FILES` at most."""
    names = None if node.inputs else _names(node.given()["filenames"])
    count = _cardinality(plan, node.inputs[0]) if names is None else int(names.shape[0] or -1)
    return min(FILES, count) if count > 0 else FILES


def _opens(node: Node) -> bool:
    """Return whether a stage reads files, or whatever gives it elements, one inner dataset for each."""
    if node.method in FILE_READERS:
        return True
    return _applied(node)[0] in OPENING and node.recorded is not None and _makes_sources(node.recorded.inner)


def _makes_sources(calls: tuple[RecordedCall, ...]) -> bool:
    sources = (*FILE_READERS, "CsvDataset", "from_generator")
    return any(call.method in sources or _makes_sources(call.inner) for call in calls)


def _needs(plan: CallPlan, of_sink: int | None = None) -> tuple[dict[int, int], set[int]]:
    """Return how many elements each node should give, and which nodes give names of files to what opens them.

    Args:
        plan: of the calls as the user wrote them.
        of_sink: how many elements the sink should give; by default a few batches, or `LEAST_ELEMENTS` samples.
    """
    if of_sink is None:
        batched = any(_applied(node)[0] in BATCHING for node in plan.nodes.values())
        of_sink = BATCHES if batched else LEAST_ELEMENTS
    needed = {plan.sink: of_sink}
    opened: set[int] = set()
    for number in sorted(plan.nodes, reverse=True):  # inputs have lower numbers than what they are the inputs of
        node = plan.nodes[number]
        for each in node.inputs:
            if _opens(node) or number in opened:
                opened.add(each)
            needed[each] = max(needed.get(each, 1), FILES if _opens(node) else _asked(node, needed.get(number, 1)))
    return needed, opened


def _asked(node: Node, count: int) -> int:
    """Return how many elements a node takes to give so many."""
    method, given = _applied(node)

    def size(name: str, default: int = 1) -> int:
        return max(1, composing.static(given.get(name)) or default)

    if method == "window":
        return (count - 1) * size("shift", size("size")) + size("size") * size("stride")
    if method == "bucket_by_sequence_length":
        return 2 * count * int(max(given.get("bucket_batch_sizes") or [1]))
    if method == "skip":
        return count + size("count")
    factor = 2 if method in LEAVE_OUT else 1
    if method in BATCHING or method == "shard":
        factor = size("num_shards" if method == "shard" else "batch_size")
    return count * factor


def _applied(node: Node) -> tuple[str, dict[str, Any]]:
    """Return a node's method and arguments; of `apply` the name and the arguments of what made its function."""
    given = node.given()
    if node.method != "apply" or node.function is None:
        return node.method, given
    return describe.name(node.function), describe.held(node.function)


def opened(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the dataset of a stage that opens files, with only the first elements of each."""
    import tensorflow as tf

    assert node.entry is not None
    bound = node.entry.signature.bind_partial(*args, **kwargs)
    if node.method in FILE_READERS:
        return _read(node, bound.arguments)
    name, count = node.function_parameter or "", node.per_file or 1
    held = describe.held(bound.arguments[name])  # of `apply`
    function = held.get("map_func", bound.arguments[name])

    def first_of_each(*each: Any) -> Any:
        return function(*each).take(count)

    if held:
        made_by = getattr(tf.data.experimental, describe.name(bound.arguments[name]))
        bound.arguments[name] = made_by(**{**held, "map_func": first_of_each})
    else:
        bound.arguments[name] = first_of_each
    return node.entry.make(bound.args, bound.kwargs)


def _read(node: Node, given: dict[str, Any]) -> Any:
    """Return what a class that reads files does itself, with the first elements of each of the first files."""
    import tensorflow as tf

    assert node.entry is not None
    entry, rest = node.entry, {**given}
    names, parallel = rest.pop("filenames"), rest.pop("num_parallel_reads", None)
    if not isinstance(names, tf.data.Dataset):
        names = tf.data.Dataset.from_tensor_slices(_names(names)).take(node.files or 1)

    def first_of_file(name: Any) -> Any:
        return entry.make((), {"filenames": name, **rest}).take(node.per_file or 1)

    if parallel is None:
        return names.flat_map(first_of_file)
    return names.interleave(first_of_file, cycle_length=None if parallel < 1 else parallel, num_parallel_calls=parallel)


def _names(given: Any) -> Any:
    import tensorflow as tf

    texts = tf.nest.map_structure(lambda name: str(name) if hasattr(name, "__fspath__") else name, given)
    return tf.reshape(tf.convert_to_tensor(texts, tf.string), [-1])


def listed(node: Node) -> Any:
    """Return what `list_files` gives, of the first files only."""
    import tensorflow as tf

    given = node.given()
    found = tf.io.matching_files(_names(given["file_pattern"]))
    names = sorted(found.numpy().tolist())[: node.files]
    dataset = tf.data.Dataset.from_tensor_slices(names)
    if given.get("shuffle", True) in (False, 0):
        return dataset
    return dataset.shuffle(max(1, len(names)), seed=given.get("seed"))
