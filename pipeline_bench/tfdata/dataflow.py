"""What a user's functions look at: parts of an element, by the traced graphs; other rows of a batch, by trying."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.tfdata.dataset_graph import functions_in

_LARGEST = 1e30
"""Of floating values: its square still is a float64."""
_OF_PIXELS, _LARGEST_COUNT = 2, 1000
"""Of whole numbers of so few bytes, as pixels have, the largest are tried; others may be a length, as of a mask."""
_MOST_VALUES = 1 << 22
"""In a row that is tried, of two in a batch."""
_FEWEST_TRIED = 2
"""Batches that the function takes: one is compared with another."""


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
    import tensorflow as tf
    from tensorflow.python.data.util import nest

    try:
        specs = nest.flatten(element_spec)
        largest = max(math.prod(_shape(spec)) for spec in specs)
        count = max(2, min(rows, 2 * _MOST_VALUES // max(1, largest)))
        tried = [_rows(spec, count) for spec in specs]
        batches = tf.data.Dataset.from_tensor_slices(nest.pack_sequence_as(element_spec, tried))
        # What the function raises of an extreme value shows nothing.
        made = batches.map(function).ignore_errors()
        results = [[np.asarray(part) for part in nest.flatten(each)] for each in made.as_numpy_iterator()]
        if len(results) < _FEWEST_TRIED:
            return None
        if any(len(part) != count for each in results for part in each):
            return True
        first_rows = [[part[0] for part in each] for each in results]
        return any(not _alike(*parts) for each in first_rows[1:] for parts in zip(first_rows[0], each, strict=True))
    except Exception:  # of the user's code, or a kind of tensor that has no rows
        return None


def _rows(spec: Any, count: int) -> Any:
    """Return batches of so many rows, of which all but the first are others in each; ragged ones of a ragged spec."""
    import tensorflow as tf

    dtype, shape = np.dtype(spec.dtype.as_numpy_dtype), _shape(spec)
    if math.prod(shape) > _MOST_VALUES:
        raise ValueError("a row is too large to be tried")
    values: tuple[Any, ...] = (b"1", b"", b"a", b"0", b"1 2")
    if dtype.kind in "iu":
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        if dtype.itemsize > _OF_PIXELS:
            least, most = max(least, -_LARGEST_COUNT), _LARGEST_COUNT
        values = (1, 0, 2, least, most)
    elif dtype.kind != "O":
        values = (1, 0, _LARGEST, -_LARGEST, math.nan)
    first = [np.full(shape, values[0], dtype)]
    batches = np.stack([np.stack(first + [np.full(shape, value, dtype)] * (count - 1)) for value in values])
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
