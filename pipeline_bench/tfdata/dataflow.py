"""What a user's functions look at: parts of an element, by the traced graphs; other rows of a batch, by trying.

And whether they draw alike for several parts, by these graphs.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_bench.graph_ops import RANDOM_OPS
from pipeline_bench.tfdata.dataset_graph import functions_in

_LARGEST = 1e30
"""Of floating values: its square still is a float64."""
_OF_PIXELS, _LARGEST_COUNT = 2, 1000
"""Of whole numbers of so few bytes, as pixels have, the largest are tried; others may be a length, as of a mask."""
_MOST_VALUES = 1 << 22
"""In a row that is tried, of two in a batch."""
_FEWEST_COPIES = 8
"""Rows; ops for fewer cost no more than a loop would."""
_SAME_ROWS = {"Cast", "EnsureShape", "Identity"}
_FEWEST_TRIED = 2
"""Batches that the function takes: one is compared with another."""
_COPIES, _DRAWN_ROWS = 8, (16, 24)
"""Of one sample, in batches of so many rows: a function that mixes rows at random leaves them all by no chance."""
_KEYS = "StatelessRandomGet"
"""So the types of those ops begin that only make of a seed what others draw by."""
_GENERATOR_STATE = re.compile(r"(.*/)?(seed_generator_state|StateVar)(_\d+)?:\d+")
"""The names of the variables that hold the states of Keras' `SeedGenerator` and of `tf.random.Generator`."""
_SIZES = {"Rank", "Shape", "ShapeN", "Size"}
_CALLED = {
    "PartitionedCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "While": ("body",),
}
"""Which attributes name the functions that ops call; `Stateful` and `Stateless` ones do likewise."""


def reads(filtered: Any) -> set[str] | None:
    """Return the paths of the parts that the predicate of a `filter` looks at; None where that is not known."""
    given = _inputs(filtered, filtered.element_spec)
    return None if given is None else {path for path, tensor in given.items() if tensor.consumers()}


def hands_on(mapped: Any, element_spec: Any) -> set[str]:
    """Return the paths of the parts that a `map` gives as it got them, under the same path.

    Args:
        mapped: the dataset of the map.
        element_spec: of the elements that it gets.
    """
    given, paths = _inputs(mapped, element_spec), _paths(mapped.element_spec)
    outputs = [] if given is None else _graph(mapped).outputs
    if given is None or len(outputs) != len(paths):
        return set()
    return {
        path for path, tensor in zip(paths, outputs, strict=True) if path in given and _origin(tensor) is given[path]
    }


def mixes_rows(function: Any, element_spec: Any, rows: int = 2) -> bool | None:
    """Return whether a map's function, of a batch, does something else than of its rows one by one.

    Extreme values in other rows change what it gives for the first row, or it gives more or fewer rows than it gets.
    What a few usual samples do not reach may decide for a whole batch: ``if tf.reduce_max(image) > 1: image /= 255``.
    None where that cannot be tried: it takes no such batch, as a parser does not, or a row is too large.

    Args:
        function: of which no op changes a state.
        element_spec: of one sample.
        rows: of a batch; fewer are tried if they are large.
    """
    from tensorflow.python.data.util import nest

    try:
        specs = nest.flatten(element_spec)
        largest = max(math.prod(_shape(spec)) for spec in specs)
        count = max(2, min(rows, 2 * _MOST_VALUES // max(1, largest)))
        results = _results(_batches(element_spec, count).map(function))
        if len(results) < _FEWEST_TRIED:
            return None
        return any(len(part) != count for each in results for part in each) or _differ(results, 1)
    except Exception:  # of the user's code, or a kind of tensor that has no rows
        return None


def keeps_axes(function: Any, element_spec: Any) -> bool | None:
    """Return whether a map's function makes of a batch of one sample what it makes of the sample alone.

    An axis may be another one of a batch: ``image[:, :, ::-1]``. None where that cannot be tried, as in `mixes_rows`.

    Args:
        function: of which no op changes a state.
        element_spec: of one sample.
    """
    try:
        return _is_same_of_one(function, element_spec)
    except Exception:  # as in `mixes_rows`
        return None


def _is_same_of_one(function: Any, element_spec: Any) -> bool:
    samples = _batches(element_spec, _COPIES, _COPIES).unbatch()
    one, of_one = (_results(each.map(function))[0] for each in (samples, samples.batch(1)))
    return all(_alike(part, row) for part, (row,) in zip(one, of_one, strict=True))


def draws_by_row(function: Any, mapped: Any, element_spec: Any, seeds: Sequence[Any]) -> bool:
    """Return whether a map's function draws for each row of a batch by itself, as for a sample alone.

    Each op that draws gives a row of numbers for each row of the batch, as many as for a sample. By the same seeds
    copies of a sample become different ones, and the same ones whatever the other rows are, and however many; and a
    batch of one sample becomes what the sample alone does: an axis may be another one of a batch.

    Args:
        function: of which no op changes a state but the seeds.
        mapped: the dataset of the map, of single samples.
        element_spec: of one sample that it gets.
        seeds: the variables that it takes seeds from; they have their values again behind the call.
    """
    alone = _drawn(mapped)
    if not alone:
        return False
    values = [each.numpy() for each in seeds]
    results: list[list[npt.NDArray[Any]]] = []

    def seeded(*elements: Any) -> Any:
        for each, value in zip(seeds, values, strict=True):
            each.assign(value)
        return function(*elements)

    try:
        for count in _DRAWN_ROWS:
            made = _batches(element_spec, count, _COPIES).map(seeded)
            if _drawn(made) != [(op, count, count * size) for op, _, size in alone]:
                return False
            found = _results(made)
            if len(found) < _FEWEST_TRIED or any(len(part) != count for each in found for part in each):
                return False
            results += found
        is_same = _is_same_of_one(seeded, element_spec)
    except Exception:  # as in `mixes_rows`
        return False
    finally:
        for each, value in zip(seeds, values, strict=True):
            each.assign(value)
    are_different = any(not _alike(part[0], row) for part in results[0] for row in part[1:_COPIES])
    return are_different and is_same and not _differ(results, _COPIES)


class _Made(NamedTuple):
    """What a tensor is made of: whether of an element's values, and by which draws.

    Of each that is its place in the graph, or its generator, and what it begins with.
    """

    of_element: bool = False
    draws: frozenset[tuple[Any, Any]] = frozenset()


def draws_alike(dataset: Any) -> bool:
    """Return whether a function of a dataset draws alike for several parts of an element, as of a picture and its mask.

    By ops of one seed, or by generators of one state, of which each changes what the other does not: several that
    change one part, each what the one before has made, need not draw alike.
    """
    return any(_has_pair(each.function.graph) for each in functions_in(dataset) if hasattr(each.function, "graph"))


def _has_pair(graph: Any) -> bool:
    states = {id(each.handle): each for each in graph.variables if _GENERATOR_STATE.fullmatch(each.name)}
    captured = {id(inner): states.get(id(outer)) for outer, inner in graph.captures}
    given = []
    for tensor in graph.inputs:
        state = captured.get(id(tensor))
        draws = frozenset() if state is None else frozenset({(id(state.handle), state.numpy().tobytes())})
        given.append(_Made(id(tensor) not in captured, draws))
    pairs = list[bool]()
    outputs = _made(graph, given, (), pairs)
    return any(pairs) or _are_paired(outputs)


def _made(graph: Any, given: Iterable[_Made], path: tuple[str, ...], pairs: list[bool]) -> list[_Made]:
    """Return what the outputs of a graph are made of.

    Args:
        graph: with its ops in their order.
        given: what its inputs are made of.
        path: the ops that call it, from the outermost on.
        pairs: to which is added of each op whether it joins what is drawn alike.
    """
    made = dict(zip((tensor.name for tensor in graph.inputs), given, strict=False))
    for op in graph.get_operations():
        taken = [made.get(tensor.name, _Made()) for tensor in op.inputs]
        pairs.append(_are_paired(each for each in taken if each.of_element))
        results = _called(op, taken, (*path, op.name), pairs) or [_drawn_by(op, taken, path)] * len(op.outputs)
        made |= {
            tensor.name: each for tensor, each in zip(op.outputs, results, strict=False) if tensor.name not in made
        }
    return [made.get(tensor.name, _Made()) for tensor in graph.outputs]


def _drawn_by(op: Any, taken: Sequence[_Made], path: tuple[str, ...]) -> _Made:
    """Return what an op that calls no function makes."""
    given, attributes = _of_all(taken), op.node_def.attr
    seeds = tuple(attributes[name].i for name in ("seed", "seed2") if name in attributes)
    own = {((*path, op.name), (op.type, seeds))} if any(seeds) and RANDOM_OPS.search(op.type) else frozenset()
    return _Made(given.of_element and op.type not in _SIZES, given.draws | own)


def _called(op: Any, taken: Sequence[_Made], path: tuple[str, ...], pairs: list[bool]) -> list[_Made]:
    """Return what the functions that an op calls make of what it takes; empty where it calls none that is known."""
    kind = op.type.removeprefix("Stateful").removeprefix("Stateless")
    named = (op.get_attr(name) for name in _CALLED.get(kind, ()))
    names = (each.name for found in named for each in (found if isinstance(found, list) else [found]))
    graphs = [function.graph for function in map(op.graph._get_function, names) if function is not None]
    chosen, given = (taken[:1], taken[1:]) if kind in ("If", "Case") else ([], taken)
    results = [_made(graph, given, (*path, str(n)), pairs) for n, graph in enumerate(graphs)]
    if kind == "While" and graphs:  # what one turn makes, the next one takes
        given = [_of_all(each) for each in zip(given, results[0], strict=False)]
        results.append(_made(graphs[0], given, (*path, "0"), pairs))
    return [_of_all((*chosen, *each)) for each in zip(*results, strict=False)]


def _of_all(parts: Iterable[_Made]) -> _Made:
    each = list(parts)
    return _Made(any(one.of_element for one in each), frozenset().union(*(one.draws for one in each)))


def _are_paired(parts: Iterable[_Made]) -> bool:
    """Return whether two of these are made each by a draw of its own that begins like one of the other's."""
    for one, other in itertools.combinations({each.draws for each in parts}, 2):
        if {begin for _, begin in one - other} & {begin for _, begin in other - one}:
            return True
    return False


def _drawn(dataset: Any) -> list[tuple[str, int, int]]:
    """Return of each op that draws in a dataset's function its type, and how many rows and numbers it gives.

    -1 where that is not known. Empty where something is drawn in a branch, a loop or another function.
    """
    graph = _graph(dataset)
    within = graph.as_graph_def().library.function if graph is not None else ()
    if graph is None or any(RANDOM_OPS.search(node.op) for each in within for node in each.node_def):
        return []
    ops = [op for op in graph.get_operations() if RANDOM_OPS.search(op.type) and not op.type.startswith(_KEYS)]
    shapes = [op.outputs[0].shape for op in ops]
    rows = [(shape[0] if shape.rank else None) or -1 for shape in shapes]
    return [(op.type, row, shape.num_elements() or -1) for op, row, shape in zip(ops, rows, shapes, strict=True)]


def _batches(element_spec: Any, count: int, copies: int = 1) -> Any:
    """Return a dataset of batches of so many rows; see `_rows`."""
    import tensorflow as tf
    from tensorflow.python.data.util import nest

    parts = [_rows(spec, count, copies) for spec in nest.flatten(element_spec)]
    return tf.data.Dataset.from_tensor_slices(nest.pack_sequence_as(element_spec, parts))


def _results(mapped: Any) -> list[list[npt.NDArray[Any]]]:
    """Return the parts of each element of a map; what its function raises of an extreme value shows nothing."""
    from tensorflow.python.data.util import nest

    return [[np.asarray(part) for part in nest.flatten(e)] for e in mapped.ignore_errors().as_numpy_iterator()]


def _differ(results: Sequence[Sequence[npt.NDArray[Any]]], rows: int) -> bool:
    """Return whether the first rows of some batches differ from one to another; each by itself, as of ragged ones."""
    first, *others = [[row for part in each for row in part[:rows]] for each in results]
    return any(not _alike(*pair) for each in others for pair in zip(first, each, strict=True))


def row_copies(dataset: Any) -> int:
    """Return how many rows of what it gets the function of a dataset makes something of each, which it then stacks.

    By ops of their own, as where a loop of Python's over the rows is unrolled. 0 for less than `_FEWEST_COPIES`.
    """
    graph, copies = _graph(dataset), 0
    captured = {id(tensor) for tensor in getattr(graph, "internal_captures", ())}
    given = {tensor.name for tensor in getattr(graph, "inputs", ()) if id(tensor) not in captured}
    made: dict[str, set[tuple[str, int]]] = {}
    for op in graph.get_operations() if given else ():
        taken = [made.get(tensor.name, set()) for tensor in op.inputs]
        if op.type == "Pack" and len(taken) >= _FEWEST_COPIES and _has_one_row_each(taken):
            copies = max(copies, len(taken))
        if op.type in _SAME_ROWS and op.inputs[0].name in given:
            given.add(op.outputs[0].name)
        is_of_rows = op.type in ("StridedSlice", "Unpack") and op.inputs[0].name in given
        for place, tensor in enumerate(op.outputs):
            row = _row(op, place) if is_of_rows else None
            made[tensor.name] = set[tuple[str, int]]().union(*taken) if row is None else {(op.inputs[0].name, row)}
    return copies


def _has_one_row_each(taken: Sequence[set[tuple[str, int]]]) -> bool:
    """Return whether there is an array of which each of these is of one row, and no two of the same."""
    rows = ([[row for name, row in each if name == array] for each in taken] for array, _ in taken[0])
    return any(all(len(each) == 1 for each in of) and len({row for (row,) in of}) == len(of) for of in rows)


def _row(op: Any, place: int) -> int | None:
    """Return the number of the row that an output of an op is, or is a part of; None of any other."""
    import tensorflow as tf

    if op.type == "Unpack":
        return place if op.get_attr("axis") == 0 else None
    masks = [op.get_attr(f"{name}_mask") for name in ("begin", "ellipsis", "new_axis")]
    begins = tf.get_static_value(op.inputs[1], partial=True)
    is_row = op.get_attr("shrink_axis_mask") & 1 and not any(mask & 1 for mask in masks)
    return None if not is_row or begins is None or begins[0] is None else int(begins[0])


def _rows(spec: Any, count: int, copies: int) -> Any:
    """Return batches of so many rows, of which all but the first are others in each; ragged ones of a ragged spec.

    Several first ones are copies of one, in which what mirrors or turns it shows.
    """
    import tensorflow as tf

    dtype, shape = np.dtype(spec.dtype.as_numpy_dtype), _shape(spec)
    if math.prod(shape) * copies > _MOST_VALUES:
        raise ValueError("a row is too large to be tried")
    values: tuple[Any, ...] = (b"1", b"", b"a", b"0", b"1 2")
    if dtype.kind in "iu":
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        if dtype.itemsize > _OF_PIXELS:
            least, most = max(least, -_LARGEST_COUNT), _LARGEST_COUNT
        values = (1, 0, 2, least, most)
    elif dtype.kind != "O":
        values = (1, 0, _LARGEST, -_LARGEST, math.nan)
    first = np.full(shape, values[0], dtype)
    if copies > 1 and shape and dtype.kind != "O":
        first = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    rows = [[first] * copies + [np.full(shape, value, dtype)] * (count - copies) for value in values]
    batches = np.stack([np.stack(each) for each in rows])
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensor.from_tensor(batches, ragged_rank=spec.ragged_rank + 2)
    return batches


def _shape(spec: Any) -> tuple[int, ...]:
    return tuple(size or 2 for size in spec.shape.as_list())


def _alike(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    if one.dtype.kind == "f" and one.shape == other.shape:
        return bool(np.allclose(one, other, rtol=1e-3, equal_nan=True))
    return bool(np.array_equal(one, other))


def _inputs(dataset: Any, element_spec: Any) -> dict[str, Any] | None:
    """Return what the function of a dataset gets in its graph, by the paths of the element's parts."""
    graph, paths = _graph(dataset), _paths(element_spec)
    return None if graph is None or len(graph.inputs) < len(paths) else dict(zip(paths, graph.inputs, strict=False))


def _graph(dataset: Any) -> Any:
    """Return the graph of a dataset's only function; None where it has none that is known."""
    found = functions_in(dataset)
    return getattr(found[0].function, "graph", None) if len(found) == 1 else None


def _paths(element_spec: Any) -> list[str]:
    from tensorflow.python.util import nest

    return [path for path, _ in nest.flatten_with_joined_string_paths(element_spec)]


def _origin(tensor: Any) -> Any:
    while tensor.op.type == "Identity":
        (tensor,) = tensor.op.inputs
    return tensor
