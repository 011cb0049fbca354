"""A small part of a pipeline's input, the same for the pipeline as written and for every edit of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipeline_bench.user_pipeline import composing
from pipeline_bench.user_pipeline.plan import Node, Plan
from pipeline_bench.user_pipeline.public_api import FILE_READERS
from pipeline_bench.user_pipeline.recording import Call

LEAST_ELEMENTS = 64
"""What is taken of a source of elements, unless batches, shards or skipped elements ask for more."""
MOST_ELEMENTS = 20_000
FILES = 4
"""How many files, or other inner datasets, are opened, unless shards or skipped ones ask for more."""
BATCHES = 2
"""How many batches should come out."""
PASSES = 2
"""Of an endless repeat, unless what it repeats is so short that more are needed."""
OPENERS = (*FILE_READERS, "interleave", "flat_map")
_BATCHES = ("batch", "padded_batch", "ragged_batch", "sparse_batch")
_LEAVES_OUT = ("filter", "take_while", "unique", "ignore_errors", "rejection_resample")


def shrink(plan: Plan) -> None:
    """Have the sources of a plan that no edit has changed yet give only what a few batches need.

    What each is asked for follows from the calls behind it as the user wrote them, so that it is the same whatever the
    edits: a batch asks for its size, a skip and a shard for what they leave out, and of what an `interleave` opens each
    gives its part.
    """
    plan.passes = PASSES
    needed, opened = _needs(plan)
    for number, node in list(plan.nodes.items()):
        plan.put(_shrunk(plan, node, min(needed.get(number, 1), MOST_ELEMENTS), number in opened))


def _shrunk(plan: Plan, node: Node, need: int, feeds_opener: bool) -> Node:
    if opens(node):
        per_file = math.ceil(max(need, LEAST_ELEMENTS) / _files(plan, node))
        return replace(node, files=FILES, per_file=per_file, changed=True)
    if not node.inputs:
        return _shrunk_source(node, max(need, FILES if feeds_opener else LEAST_ELEMENTS))
    if node.method == "repeat" and node.recorded is not None:
        return replace(node, passes=_passes(node, plan, need))
    if node.label == "apply(assert_cardinality)":  # what it asserts is no longer so
        return node.setting(transformation_func=lambda dataset: dataset.take(-1))
    return node


def _shrunk_source(node: Node, limit: int) -> Node:
    if node.method == "list_files":
        return replace(node, files=limit, changed=True)
    if node.method == "from_generator":
        return node.setting(generator=composing.first_elements(node.given()["generator"], limit))
    return replace(node, take=limit, changed=True)


def _passes(node: Node, plan: Plan, need: int) -> int:
    repeated = plan.nodes[node.inputs[0]].recorded
    count = int(repeated.result.cardinality()) if repeated is not None else -1
    return max(PASSES, math.ceil(need / count)) if count > 0 else PASSES


def _files(plan: Plan, node: Node) -> int:
    """How many inner datasets a stage opens, as far as it is known, `FILES` at most."""
    if node.inputs:
        names = plan.nodes[node.inputs[0]].recorded
        count = int(names.result.cardinality()) if names is not None else -1
    else:
        count = int(_names(node.given()["filenames"]).shape[0] or -1)
    return min(FILES, count) if count > 0 else FILES


def opens(node: Node) -> bool:
    """Whether a stage reads files, or whatever gives it elements, one inner dataset for each."""
    if node.method in FILE_READERS:
        return True
    return node.method in OPENERS and node.recorded is not None and _makes_sources(node.recorded.inner)


def _makes_sources(calls: tuple[Call, ...]) -> bool:
    sources = (*FILE_READERS, "CsvDataset", "from_generator")
    return any(call.method in sources or _makes_sources(call.inner) for call in calls)


def _needs(plan: Plan) -> tuple[dict[int, int], set[int]]:
    """How many elements each node should give, and which nodes give names of files to what opens them."""
    batched = any(node.method in _BATCHES for node in plan.nodes.values())
    needed = {plan.sink: BATCHES if batched else LEAST_ELEMENTS}
    opened: set[int] = set()
    for number in sorted(plan.nodes, reverse=True):  # inputs have lower numbers than what they are the inputs of
        node = plan.nodes[number]
        for each in node.inputs:
            if opens(node) or number in opened:
                opened.add(each)
            needed[each] = max(needed.get(each, 1), FILES if opens(node) else _asked(node, needed.get(number, 1)))
    return needed, opened


def _asked(node: Node, count: int) -> int:
    """How many elements a node takes to give so many."""
    given = node.given()

    def size(name: str, default: int = 1) -> int:
        return max(1, composing.static(given.get(name)) or default)

    rules: dict[str, Callable[[], int]] = {
        "skip": lambda: count + size("count"),
        "shard": lambda: count * size("num_shards"),
        "window": lambda: (count - 1) * size("shift", size("size")) + size("size") * size("stride"),
        "bucket_by_sequence_length": lambda: 2 * count * max(given.get("bucket_batch_sizes") or [1]),
    }
    if node.method in _BATCHES:
        return count * size("batch_size")
    if node.method in _LEAVES_OUT:
        return 2 * count
    return rules[node.method]() if node.method in rules else count


def opened(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The dataset of a stage that opens files, with only the first elements of each."""
    assert node.entry is not None
    bound = node.entry.signature.bind_partial(*args, **kwargs)
    if node.method not in FILE_READERS:
        name = node.function_parameter()
        bound.arguments[name] = _of_each(bound.arguments[name], node.per_file or 1)
        return node.entry.make(bound.args, bound.kwargs)
    return _read(node, bound.arguments)


def _of_each(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    def first_of_each(*args: Any) -> Any:
        return function(*args).take(count)

    return first_of_each


def _read(node: Node, given: dict[str, Any]) -> Any:
    """What a class that reads files does itself, with the first elements of each of the first files."""
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

    return tf.reshape(tf.convert_to_tensor(tf.nest.map_structure(_as_text, given), tf.string), [-1])


def _as_text(name: Any) -> Any:
    return str(name) if hasattr(name, "__fspath__") else name


def listed(node: Node) -> Any:
    """What `list_files` gives, of the first files only."""
    import tensorflow as tf

    given = node.given()
    found = tf.io.matching_files(_names(given["file_pattern"]))
    names = sorted(found.numpy().tolist())[: node.files]
    dataset = tf.data.Dataset.from_tensor_slices(names)
    if given.get("shuffle", True) in (False, 0):
        return dataset
    return dataset.shuffle(max(1, len(names)), seed=given.get("seed"))
