"""A recorded call as plain data: its arguments, the user's function, and the elements that it gives."""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import itertools
import json
import numbers
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline_bench.graph_ops import PYTHON_OPS, RANDOM_OPS
from pipeline_bench.model.calls import Value
from pipeline_bench.model.element import Element, Shape
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.tfdata import dataflow, dataset_graph, pictures
from pipeline_bench.tfdata.public_api import datasets
from pipeline_bench.user_code import generator_call

_LONGEST_TEXT = 80
_LONGEST_TUPLE = 16
_DEEPEST = 32
"""What lies within more structures is named by its class alone: JSON that is some 200 levels deep is not read again."""
_FOR_APPLY = ("_apply_fn", "apply_fn")
"""The names that TensorFlow gives a function for `apply`, within the function that makes it."""
# What is_stateful says of these is not what tf.data goes by when it decides whether to parallelise a map: it looks into
# the functions that control flow calls, and skips assertions (tensorflow/core/grappler/optimizers/data/function_utils).
_NOT_COUNTED = {"Assert", "If", "While", "Case", "For", "StatefulPartitionedCall", "PartitionedCall"}
_READING_OPS = frozenset(
    {
        *("VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd"),
        *("HashTableV2", "AnonymousHashTable", "MutableHashTableV2", "AnonymousMutableHashTable"),
        *("LookupTableFindV2", "LookupTableSizeV2"),
    }
)
"""Stateful ops that change no state."""
_DRAWING_OPS = frozenset(
    {
        *("RandomGamma", "RandomPoisson", "RandomPoissonV2", "RandomUniform", "RandomUniformInt"),
        *("RandomStandardNormal", "ParameterizedTruncatedNormal", "TruncatedNormal"),
        *("Multinomial", "RandomCrop", "RandomShuffle"),
        *("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2"),
    }
)
"""Stateful ops whose only state is a generator of their own, which they lock; no variable seeds them."""
_ASSIGNS = "AssignVariableOp"
_SEED_STATE = re.compile(r"(.*/)?seed_generator_state(_\d+)?:\d+")
"""The name of the variable that a `keras.random.SeedGenerator` takes its seeds from."""
_WRITING_OPS = re.compile(r"Write|Save|MergeV2Checkpoints")
_PARSING_OPS = {"ParseExampleV2", "ParseSingleExample"}
_LOOPS, _ROW_OPS = {"While", "StatelessWhile"}, {"TensorListGetItem", "TensorListSetItem"}
"""What `tf.map_fn` makes."""
_OF_FILES = re.compile(r"ReadFile|Decode(?!CSV)")
"""Of ops that `tf.vectorized_map` can only loop over."""
_DATASET_OP = re.compile(r"Dataset(V\d+)?$")


def arguments(given: Mapping[str, Any]) -> dict[str, Value]:
    """Return the arguments as data: numbers and short texts as they are, of anything larger what it is."""
    result: dict[str, Value] = {}
    for name, value in given.items():
        if type(value).__name__ == "Options" and hasattr(value, "threading"):
            result |= _options(value, type(value)())
        elif callable(value):
            result |= {own: each for own, each in held(value).items() if isinstance(each, int)}
        elif not datasets(value):
            result[name] = _argument(name, value)
    return result


def held(function: Any) -> dict[str, Any]:
    """Return what ``tf.data.experimental.map_and_batch(…)`` or its like was given to make a function for `apply`.

    By parameter; empty of any other function.
    """
    if getattr(function, "__name__", "") not in _FOR_APPLY or not function.__module__.startswith("tensorflow."):
        return {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _argument(name: str, value: Any) -> Value:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | bytes | os.PathLike | enum.Enum):
        return _cut(value.name if isinstance(value, enum.Enum) else os.fsdecode(value))
    is_tensor = hasattr(value, "numpy") and not isinstance(value, list | tuple | Mapping)
    if is_tensor and value.shape.rank in (0, 1) and getattr(value.dtype, "name", "") != "variant":
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        return _argument(name, value.item())
    if (data := _data(name, value)) is not None:
        return data
    if isinstance(value, list | tuple) and len(value) <= _LONGEST_TEXT and _are_plain(value):
        text = ", ".join(map(str, value)) if name == "args" else str(list(value))
        return text if len(text) <= _LONGEST_TEXT else f"{len(value)} values"
    return _cut(_structure(value))


def _data(name: str, value: Any) -> Value | None:
    """Return a list or structure that others read back, whole, as JSON, of names how many; None where it is none."""
    if name in ("filenames", "file_pattern") and isinstance(value, list | tuple | np.ndarray):
        return len(value) or None
    if name == "weights" and isinstance(value, list | tuple | np.ndarray):  # read by `element_flow.shares`
        with contextlib.suppress(TypeError, ValueError):  # they are tensors of a graph, or several for each dataset
            return json.dumps([float(f"{float(each):.6g}") for each in value])
    if name == "padding_values" and isinstance(value, list | tuple | Mapping):  # read by `fingerprint`
        return json.dumps({path: _argument(path, leaf) for path, leaf in components(value)})
    return None


def _are_plain(values: list[Any] | tuple[Any, ...]) -> bool:
    return all(isinstance(part, int | float | str | None) for part in values)


def _structure(value: Any) -> str:
    """Return a structure of data as `Element.text` writes it, of a list in it only how long it is."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_structure(part)}" for key, part in value.items()) + "}"
    if type(value) is tuple and len(value) <= _LONGEST_TUPLE:
        return "(" + ", ".join(map(_structure, value)) + ")"
    if isinstance(value, list | tuple):
        return f"{len(value)} values"
    return element(value).text


def _options(options: Any, fresh: Any, prefix: str = "") -> dict[str, Value]:
    """Return what a `tf.data.Options` sets beside the defaults, by name: ``threading.private_threadpool_size``."""
    result: dict[str, Value] = {}
    for name in sorted(getattr(options, "_options", {})):
        value, unset = getattr(options, name), getattr(fresh, name)
        if hasattr(value, "_options"):
            result |= _options(value, unset, f"{prefix}{name}.")
        elif value != unset:
            result[prefix + name] = _argument(name, value)
    return result


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def function(given: Any, dataset: Any, generator: bool = False, behind: Sequence[Any] = ()) -> UserFunction:
    """Return what is known of a function, as the dataset that a stage made of it holds it traced.

    Args:
        given: the function.
        dataset: of the stage.
        generator: whether it is one.
        behind: of a map, the maps in a row that take what it gives.
    """
    ops = _ops(dataset)
    stateful, draws = any(_is_stateful(op) for op in ops - _NOT_COUNTED), any(map(RANDOM_OPS.search, ops))
    code = getattr(plain := plain_function(given), "__code__", None)
    of_files = any(map(_OF_FILES.match, ops))
    decoding = [(body, dict[str, str]()) for body in bodies(dataset)] if ops & pictures.JPEG_DECODERS else []
    decoding += pictures.handed_on([dataset, *behind]) if decoding and behind else []
    return UserFunction(
        name=name(given),
        file=getattr(code, "co_filename", None),
        line=getattr(code, "co_firstlineno", None),
        module=getattr(plain, "__globals__", {}).get("__name__"),
        python=generator or bool(ops & PYTHON_OPS),
        stateful=generator or stateful,
        changes_state=changes_state(dataset),
        changes_seeds=_changing_ops(dataset) == {_ASSIGNS} and _assigns_seeds_alone(dataset),
        endless=generator and generator_call.never_ends(given),
        # Stateless random ops alone give the same for the same seed, which tf.data knows: it parallelises such a map.
        # Keras' random layers give them a seed out of a variable.
        random=stateful and draws,
        draws_by_seed=draws and not stateful,
        draws_alike=stateful and draws and dataflow.draws_alike(dataset),
        parses_examples=not ops.isdisjoint(_PARSING_OPS),
        loops_over_rows=ops >= _ROW_OPS and not ops.isdisjoint(_LOOPS) and not of_files,
        row_copies=0 if of_files else dataflow.row_copies(dataset),
        reads_files="ReadFile" in ops,
        crops_decoded=any(itertools.starmap(pictures.crops_decoded, decoding)),
        resizes_decoded=any(itertools.starmap(pictures.resizes_decoded, decoding)),
    )


def changes_state(dataset: Any) -> bool:
    """Return whether a function of a dataset may change a state, of a variable or of a table for example."""
    return bool(_changing_ops(dataset))


def _changing_ops(dataset: Any) -> set[str]:
    """Return the types of those ops in the functions of a dataset that may change a state."""
    return {op for op in _ops(dataset) - _NOT_COUNTED - _READING_OPS - _DRAWING_OPS if _is_stateful(op)}


def _assigns_seeds_alone(dataset: Any) -> bool:
    """Return whether the functions of a dataset assign to nothing but states of Keras' `SeedGenerator`.

    In a graph an assignment tells the type of its variable, not which one it is: no other variable of that type may
    be in it.
    """
    from tensorflow.python.ops.handle_data_util import get_handle_data

    types = {node.attr["dtype"].type for body in bodies(dataset) for node in body if node.op == _ASSIGNS}
    seeds = {id(each.handle) for each in seed_states(dataset)}
    handles = [handle for each in _graphs(dataset) for handle, _ in each.captures if handle.dtype.name == "resource"]
    known = ((handle, get_handle_data(handle)) for handle in handles)
    assigned = [handle for handle, data in known if data is not None and types & {e.dtype for e in data.shape_and_type}]
    return bool(assigned) and all(id(handle) in seeds for handle in assigned)


def seed_states(dataset: Any) -> list[Any]:
    """Return the variables that the functions of a dataset take seeds from: states of Keras' `SeedGenerator`."""
    variables = (each for graph in _graphs(dataset) for each in graph.variables)
    return [each for each in variables if _SEED_STATE.fullmatch(each.name)]


def leaves_graph(graph: Any) -> bool:
    """Return whether a graph runs Python, which may do anything, or writes files."""
    nodes = itertools.chain.from_iterable(_bodies_of(graph))
    return any(node.op in PYTHON_OPS or _WRITING_OPS.match(node.op) or _prints_to_file(node) for node in nodes)


def _prints_to_file(node: Any) -> bool:
    return bool(node.op == "PrintV2" and node.attr["output_stream"].s.startswith(b"file:"))


def name(given: Any) -> str:
    """Return a function's name, of an object its class: ``decode``, ``<lambda>``, ``partial of decode``."""
    if isinstance(given, functools.partial):
        return f"partial of {name(given.func)}"
    plain = getattr(given, "python_function", given)  # of a tf.function
    qualified = getattr(plain, "__qualname__", None) or type(plain).__qualname__
    if inspect.isclass(plain) and plain.__module__.startswith("tensorflow."):
        qualified = plain.__name__.removesuffix("V2")
    outer, _, own = str(qualified).rpartition(".<locals>.")
    # What `tf.data.experimental.assert_cardinality(…)` and its like return for `apply` has no name of its own.
    return outer.rpartition(".")[-1] if own in _FOR_APPLY else own


def plain_function(given: Any) -> Any:
    """Return the Python function behind a partial, tf.function, bound or decorated method, or callable object."""
    while isinstance(given, functools.partial):
        given = given.func
    given = inspect.unwrap(getattr(given, "python_function", given))
    given = getattr(given, "__func__", given)
    if hasattr(given, "__code__") or inspect.isclass(given):
        return given
    if type(given).__module__.split(".")[0] == "keras":
        return getattr(type(given), "call", given)  # __call__ is Keras' own
    return type(given).__call__


def _ops(dataset: Any) -> set[str]:
    """Return the types of all ops in the functions of a dataset, those that they call included."""
    return {node.op for body in bodies(dataset) for node in body}


def bodies(dataset: Any) -> Iterator[Sequence[Any]]:
    """Yield the nodes of each function of a dataset, and of each that these call."""
    for graph in _graphs(dataset):
        yield from _bodies_of(graph)


def python_tokens(dataset: Any) -> set[bytes]:
    """Return by which tokens TensorFlow calls the Python of a dataset's functions."""
    nodes = itertools.chain.from_iterable(bodies(dataset))
    return {node.attr["token"].s for node in nodes if node.op in PYTHON_OPS}


def _graphs(dataset: Any) -> list[Any]:
    return [each.function.graph for each in dataset_graph.functions_in(dataset) if hasattr(each.function, "graph")]


def _bodies_of(graph: Any) -> Iterator[Sequence[Any]]:
    definition = graph.as_graph_def()
    yield definition.node
    for function in definition.library.function:
        yield function.node_def


@functools.cache
def _is_stateful(op: str) -> bool:
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op)
    return bool(definition is not None and definition.is_stateful and not _DATASET_OP.search(op))


def element(spec: Any, name: Any = "", within: int = 0) -> Element:
    """Return what elements of this spec are; of one within a dict or a named tuple with its `name` there.

    Args:
        spec: of TensorFlow.
        name: its key or its field.
        within: how many structures it lies in.
    """
    structure = _structured(spec, within + 1) if within < _DEEPEST else {}
    return Element(name=str(name), **(structure or _leaf(spec)))


def _structured(spec: Any, within: int) -> dict[str, Any]:
    """Return what an element is that consists of others; empty of one that does not."""
    if isinstance(spec, Mapping):
        return {"kind": "dict", "parts": tuple(element(value, key, within) for key, value in spec.items())}
    if isinstance(spec, tuple) and hasattr(spec, "_fields"):
        fields = zip(spec, spec._fields, strict=True)
        return {"kind": "named-tuple", "parts": tuple(element(value, field, within) for value, field in fields)}
    if isinstance(spec, tuple | list):
        return {"kind": "tuple", "parts": tuple(element(value, within=within) for value in spec)}
    match type(spec).__name__:
        case "DatasetSpec":
            return {"kind": "dataset", "parts": (element(spec.element_spec, within=within),)}
        case "OptionalSpec":
            return {"kind": "optional", "parts": (element(spec._element_spec, within=within),)}
    return {}


def _leaf(spec: Any) -> dict[str, Any]:
    name = type(spec).__name__
    if name == "NoneTensorSpec":
        return {"kind": "none"}
    if not hasattr(spec, "dtype") or not hasattr(spec, "shape"):
        return {"kind": "other", "dtype": name}
    kind = {"RaggedTensorSpec": "ragged", "SparseTensorSpec": "sparse"}.get(name, "tensor")
    return {"kind": kind, "dtype": str(getattr(spec.dtype, "name", spec.dtype)), "shape": shape(spec.shape)}


def shape(of: Any) -> Shape:
    """Return a static shape as data."""
    return None if getattr(of, "rank", 0) is None else tuple(map(_size, of))


def _size(of: Any) -> int | None:
    """Return the size of an axis: of TensorFlow 1's `Dimension` too; None of what is no whole number."""
    known = getattr(of, "value", of)
    return int(known) if isinstance(known, numbers.Integral) else None


def components(of: Any) -> list[tuple[str, Any]]:
    """Return the components of an element or of its spec, each with its path: ``0``, ``image``, ``1.label``.

    The path of a lone tensor is ``""``. Keys of a dict come sorted, as tf.data sorts them. A ragged or a sparse tensor
    is one component; None is none.
    """
    from tensorflow.python.util import nest

    pairs = nest.flatten_with_joined_string_paths(of, separator=".")
    return [(path, leaf) for path, leaf in pairs if leaf is not None and type(leaf).__name__ != "NoneTensorSpec"]


def are_doubles(arrays: Iterable[Any], of: Iterable[Any]) -> bool:
    """Return whether the 64-bit floats among some of the arrays take half of the bytes of all, or more."""
    doubles = sum(_size_bytes(each) for each in of if getattr(each, "dtype", None) == "float64")
    return 2 * doubles >= sum(map(_size_bytes, arrays)) and doubles > 0


def _size_bytes(array: Any) -> int:
    return int(array.nbytes) if hasattr(array, "nbytes") else nbytes(array)


def batch_size(of: Any) -> int | None:
    """Return the leading size that all components of an element share, or None where they share none.

    Takes the spec of an element as well; a leading size that is not static is then None. Whether the leading dimension
    is a batch of samples, or the height of a lone image, an element does not show.
    """
    sizes = {leading_size(component) for _, component in components(of)}
    return sizes.pop() if len(sizes) == 1 else None


def leading_size(component: Any) -> int | None:
    """Return the leading size of an array, a tensor or its spec; None where it has none, or it is not known."""
    if hasattr(component, "nrows"):  # the shape of a ragged tensor does not have it
        return int(component.nrows())
    sizes = getattr(component, "shape", None)
    if hasattr(component, "dense_shape") and hasattr(component.dense_shape, "numpy"):
        sizes = component.dense_shape.numpy()
    if sizes is None or getattr(sizes, "rank", 0) is None or len(sizes) == 0:
        return None
    return _size(sizes[0])


def nbytes(of: Any) -> int:
    """Return the bytes of an element: of strings their contents, of ragged and sparse tensors all parts.

    A dataset within it, and what else is no tensor of numbers or strings, counts as nothing.
    """
    import tensorflow as tf

    total = 0
    for tensor in filter(tf.is_tensor, tf.nest.flatten(of, expand_composites=True)):
        if tensor.dtype == tf.string:
            total += int(tf.reduce_sum(tf.strings.length(tensor)))
        elif tensor.dtype not in (tf.variant, tf.resource):
            total += tensor.shape.num_elements() * tensor.dtype.size
    return total
