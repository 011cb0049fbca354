"""Functions made of the user's functions: maps one after another, and a generator that gathers batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline_bench.errors import PipelineBenchError


def composed(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """One function for `map` that does what maps of these functions one after another do.

    As tf.data does between two maps: a tuple is spread over the next one's parameters, a list becomes a tuple, and
    numbers and arrays become tensors.
    """
    first, following = functions[0], tuple(functions[1:])

    def fused(*args: Any) -> Any:
        value = first(*args)
        for function in following:
            value = _as_element(value)
            value = function(*value) if type(value) is tuple else function(value)
        return value

    return fused


def _as_element(value: Any) -> Any:
    return tuple(_tensors(part) for part in value) if type(value) is list else _tensors(value)


def _tensors(value: Any) -> Any:
    import tensorflow as tf

    kinds = (bool, int, float, str, bytes, list, np.ndarray, np.generic, tf.Variable)
    return _of_parts(value, lambda part: tf.convert_to_tensor(part) if isinstance(part, kinds) else part)


def _of_parts(value: Any, made: Callable[[Any], Any]) -> Any:
    """What is made of each part of an element, in the element's structure: mappings and tuples, lists being parts."""
    if isinstance(value, Mapping):
        return {key: _of_parts(part, made) for key, part in value.items()}
    if isinstance(value, tuple):
        parts = [_of_parts(part, made) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return made(value)


def first_elements(generator: Callable[..., Any], count: int) -> Callable[..., Iterator[Any]]:
    """A generator of the first elements of another."""

    def limited(*args: Any) -> Iterator[Any]:
        return itertools.islice(iter(generator(*args)), count)

    return limited


def gathered(
    generator: Callable[..., Any], signature: Any, size: int, drop_remainder: bool
) -> Callable[..., Iterator[Any]]:
    """A generator of batches of another's elements, stacked for each component."""

    def batches(*args: Any) -> Iterator[Any]:
        elements = iter(generator(*args))
        while len(batch := list(itertools.islice(elements, size))) == size or (batch and not drop_remainder):
            yield _stacked(signature, batch)

    return batches


def _stacked(signature: Any, elements: list[Any]) -> Any:
    if isinstance(signature, Mapping):
        return {key: _stacked(part, [element[key] for element in elements]) for key, part in signature.items()}
    if isinstance(signature, tuple):
        parts = [_stacked(part, [element[at] for element in elements]) for at, part in enumerate(signature)]
        return type(signature)(*parts) if hasattr(signature, "_fields") else tuple(parts)
    return np.stack([np.asarray(element, dtype=signature.dtype.as_numpy_dtype) for element in elements])


def gathering(tensors: Any) -> tuple[int, Callable[[Any], Any]]:
    """Return how many rows tensors have, and a function that gathers those of some numbers.

    The parts of tuples and dicts are tensors of their own, as `from_tensor_slices` has it; a list is one tensor.

    Raises:
        PipelineBenchError: there are ragged or sparse tensors among them, or no rows.
    """
    import tensorflow as tf

    composite = (tf.SparseTensor, tf.RaggedTensor)
    with tf.device("CPU:0"):
        held = _of_parts(tensors, lambda part: part if isinstance(part, composite) else tf.convert_to_tensor(part))
    parts = tf.nest.flatten(held)
    if not parts or any(not isinstance(part, tf.Tensor) or not part.shape.rank for part in parts):
        raise PipelineBenchError("what is cut into slices is no array, so that its rows cannot be gathered")

    def gather(rows: Any) -> Any:
        return tf.nest.map_structure(lambda part: tf.gather(part, rows), held)

    return int(parts[0].shape[0]), gather


def signature_of(given: Mapping[str, Any]) -> Any:
    """The specs of a `from_generator`'s elements, of its older arguments for types and shapes as well.

    Raises:
        PipelineBenchError: it has ragged or sparse components, which cannot be stacked.
    """
    import tensorflow as tf

    signature = given.get("output_signature")
    if signature is None:
        signature = _of_types(given.get("output_types"), given.get("output_shapes"))
    for spec in tf.nest.flatten(signature):
        if not isinstance(spec, tf.TensorSpec):
            raise PipelineBenchError(f"a generator of {type(spec).__name__.removesuffix('Spec')}s cannot be batched")
    return signature


def _of_types(types: Any, shapes: Any) -> Any:
    import tensorflow as tf

    if isinstance(types, Mapping):
        return {key: _of_types(part, None if shapes is None else shapes[key]) for key, part in types.items()}
    if isinstance(types, tuple):
        return tuple(_of_types(part, None if shapes is None else shapes[at]) for at, part in enumerate(types))
    return tf.TensorSpec(shapes, tf.as_dtype(types))


def batched_signature(signature: Any, size: int | None) -> Any:
    """The specs with a leading dimension."""
    import tensorflow as tf

    def batched(spec: Any) -> Any:
        shape = None if spec.shape.rank is None else [size, *spec.shape]
        return tf.TensorSpec(shape, spec.dtype)

    return tf.nest.map_structure(batched, signature)


def static(value: Any) -> int | None:
    """A whole number that was given as a number, an array or a tensor; None where its value is not known yet."""
    try:
        return int(value.numpy() if hasattr(value, "numpy") else value)
    except (TypeError, ValueError, NotImplementedError, AttributeError):
        return None
